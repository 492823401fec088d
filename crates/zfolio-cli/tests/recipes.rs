//! The recipes: each page quotes its example, each example is right in its own language, and its
//! command line runs a program under zfolio. The systems that they are for are stood in for, and
//! the programs are small: that memory is kept is what other tests are about.

mod support;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use support::{Output, finish, script, tempdir};
use yaml_rust2::{Yaml, YamlLoader};

/// Each recipe: its page, and its example.
const ALL: [(&str, &str); 8] = [
    ("docker", "docker/Dockerfile"),
    ("kubernetes", "kubernetes/pod.yaml"),
    ("slurm", "slurm/job.sh"),
    ("jupyter", "jupyter/kernel.json"),
    ("pytest", "pytest/conftest.py"),
    ("github-actions", "github-actions/zfolio.yml"),
    ("systemd", "systemd/zfolio.conf"),
    ("tmux", "tmux/job.sh"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example(path: &str) -> String {
    let path = root().join("examples").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(format!("docs/recipes/{name}.md"))).expect("a page")
}

#[test]
fn pages_quote_their_examples() {
    let list = page("README");
    for (name, path) in ALL {
        let (page, example) = (page(name), example(path));
        assert!(page.contains(&format!("(../../examples/{path})")), "{name}");
        assert!(page.contains("What it costs: "), "{name}");
        assert!(
            list.contains(&format!("({name}.md)")) && list.contains(path),
            "{name}"
        );
        // Of the lines that are set apart, one at least is the example's, and calls zfolio.
        let apart = page.lines().filter_map(|line| line.strip_prefix("    "));
        let lines: Vec<&str> = example.lines().map(str::trim).collect();
        let mut quoted = apart.filter(|line| lines.contains(&line.trim()));
        assert!(
            name == "jupyter" || quoted.any(|line| line.contains("zfolio")),
            "{name}: no line of its example in the page"
        );
    }
    // (The dashboard is a part of docs/views.md, and no recipe.)
    let count = fs::read_dir(root().join("examples"))
        .expect("examples")
        .filter(|entry| entry.as_ref().is_ok_and(|of| of.file_name() != "grafana"))
        .count();
    assert_eq!(count, ALL.len(), "each example has its page");
}

/// A place with `zfolio` and what stands in for other commands in the PATH.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// `None` after saying why programs cannot be managed here.
    fn new() -> Option<Self> {
        let z = support::real()?;
        let dir = tempdir();
        fs::create_dir(dir.path().join("bin")).expect("made");
        symlink(
            fs::canonicalize(z.exe()).expect("built"),
            dir.path().join("bin/zfolio"),
        )
        .expect("a link");
        let this = Self { dir };
        this.stand_in(
            "ipykernel_launcher.py",
            "import sys; print('kernel', sys.argv[1:])\n",
        );
        this.stand_in(
            "job.py",
            "import os; print('job', 'ZFOLIO_CONTROL' in os.environ)\n",
        );
        let pytest =
            "import os, sys; print('session', sys.argv[1:], 'ZFOLIO_CONTROL' in os.environ)\n";
        this.stand_in("pytest.py", pytest);
        Some(this)
    }

    fn stand_in(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).expect("written");
    }

    fn command(&self, words: &[&str]) -> Command {
        let z = support::zfolio();
        let mut path = OsString::from(self.dir.path().join("bin"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.dir.path());
        command.env("PATH", path).env("PYTHONPATH", self.dir.path());
        command.env(
            "ZFOLIO_PRELOAD",
            fs::canonicalize(z.library()).expect("built"),
        );
        command
            .env("HOME", self.dir.path())
            .env_remove("ZFOLIO_CONFIG");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        finish(&mut self.command(words), "")
    }

    /// Runs them, which must say `said`, under zfolio.
    #[track_caller]
    fn manages(&self, words: &[&str], said: &str) {
        let output = self.run(words);
        assert_eq!(output.succeeded().stdout, said, "{}", output.stderr);
        // The summary is of one run, ours.
        let told = &output.stderr;
        let lines = told.lines().filter(|line| line.starts_with("zfolio: "));
        assert_eq!(
            lines.filter(|line| line.contains("(high ")).count(),
            1,
            "{told}"
        );
    }
}

/// Words of `/job.py`, where it is here.
fn here(words: &[String]) -> Vec<&str> {
    let at = |word: &'_ String| -> &'static str {
        match word.as_str() {
            "/job.py" | "/opt/job/job.py" => "job.py",
            "/usr/bin/zfolio" => "zfolio",
            _ => "",
        }
    };
    let words = words.iter();
    words
        .map(|word| match at(word) {
            "" => word.as_str(),
            here => here,
        })
        .collect()
}

#[test]
fn the_container_runs_its_job() {
    let text = example("docker/Dockerfile");
    let known = ["FROM", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD", "#"];
    for line in text.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        assert!(known.contains(&first), "{line}");
    }
    let list = |instruction: &str| -> Vec<String> {
        let line = text.lines().find_map(|line| line.strip_prefix(instruction));
        serde_json::from_str(line.expect("the instruction")).expect("the form that runs no shell")
    };
    let words = [list("ENTRYPOINT "), list("CMD ")].concat();
    let Some(bench) = Bench::new() else { return };
    bench.manages(&here(&words), "job True\n");
}

fn yaml(path: &str) -> Yaml {
    let mut all = YamlLoader::load_from_str(&example(path)).expect("YAML");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn strings(list: &Yaml) -> Vec<String> {
    let list = list.as_vec().expect("a list").iter();
    list.map(|word| word.as_str().expect("a string").to_owned())
        .collect()
}

#[test]
fn the_pod_runs_its_job() {
    let pod = yaml("kubernetes/pod.yaml");
    assert_eq!(pod["kind"].as_str(), Some("Pod"));
    let container = &pod["spec"]["containers"][0];
    // No more than what restricted namespaces admit.
    assert_eq!(
        container["securityContext"]["allowPrivilegeEscalation"].as_bool(),
        Some(false)
    );
    assert_eq!(
        strings(&container["securityContext"]["capabilities"]["drop"]),
        ["ALL"]
    );
    assert_eq!(
        pod["spec"]["securityContext"]["runAsNonRoot"].as_bool(),
        Some(true)
    );
    assert!(
        container["resources"]["limits"]["memory"]
            .as_str()
            .is_some()
    );
    let mut words = vec!["env".to_owned()];
    for variable in container["env"].as_vec().expect("variables") {
        let [name, value] = ["name", "value"].map(|key| variable[key].as_str().expect("a string"));
        words.push(format!("{name}={value}"));
    }
    words.extend(strings(&container["command"]));
    words.extend(strings(&container["args"]));
    let Some(bench) = Bench::new() else { return };
    bench.manages(&here(&words), "job True\n");
}

#[test]
fn the_step_of_the_workflow_runs() {
    let workflow = yaml("github-actions/zfolio.yml");
    let steps = workflow["jobs"]["test"]["steps"].as_vec().expect("steps");
    let runs: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .collect();
    let Some(bench) = Bench::new() else { return };
    bench.stand_in("Makefile", "test:\n\t@python3 job.py\n");
    for run in &runs {
        bench.run(&["bash", "-n", "-c", run]).succeeded();
    }
    let with: Vec<&&str> = runs
        .iter()
        .filter(|run| run.starts_with("zfolio "))
        .collect();
    let [step] = with[..] else { panic!("{runs:?}") };
    bench.manages(&["bash", "-e", "-c", step], "job True\n");
    let shown = bench.run(&["bash", "-e", "-c", runs.last().expect("a last")]);
    assert!(shown.succeeded().stdout.contains("\"high_stall_ns\""));
}

#[test]
fn the_slurm_job_runs() {
    let path = root().join("examples/slurm/job.sh");
    let path = path.to_str().expect("a path");
    let Some(bench) = Bench::new() else { return };
    bench.run(&["bash", "-n", path]).succeeded();
    script(
        &bench.dir.path().join("bin"),
        "srun",
        "#!/bin/sh\necho \"$3 $4\"\nexec \"$@\"\n",
    );
    bench.manages(&["bash", path], "-- python3\njob True\n");
    let words = [
        "env",
        "SLURM_NTASKS_PER_NODE=4",
        "SLURM_MEM_PER_NODE=2000",
        "bash",
        path,
    ];
    bench.manages(&words, "--high 450M\njob True\n");
}

#[test]
fn the_kernel_starts() {
    let text = example("jupyter/kernel.json");
    let kernel: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let words = kernel["argv"].as_array().expect("a list").iter();
    let words = words.map(|word| word.as_str().expect("a string"));
    let words: Vec<&str> = words
        .map(|word| match word {
            "{connection_file}" => "file.json",
            other => other,
        })
        .collect();
    let Some(bench) = Bench::new() else { return };
    let output = bench.run(&words);
    assert_eq!(output.succeeded().stdout, "kernel ['-f', 'file.json']\n");
    assert_eq!(output.stderr, "", "a notebook is shown nothing of ours");
}

#[test]
fn the_test_session_goes_on_under_it() {
    let Some(bench) = Bench::new() else { return };
    bench.stand_in("conftest.py", &example("pytest/conftest.py"));
    // What pytest does, as far as it matters here: it calls the hook with its managers.
    let start = "\
import conftest, os, sys
sys.argv = ['pytest', '-q', 'x y']
class Capture:
    def stop_global_capturing(self): os.write(1, b'given back\\n')
class Manager:
    def getplugin(self, name): return Capture() if name == 'capturemanager' else None
class Config: pluginmanager = Manager()
conftest.pytest_configure(Config())
print('goes on')
";
    let said = "given back\nsession ['-q', 'x y'] True\n";
    bench.manages(&["python3", "-c", start], said);
    // Under it already, nothing is started anew.
    let output = bench.run(&["env", "ZFOLIO_CONTROL=x", "python3", "-c", start]);
    assert_eq!(output.succeeded().stdout, "goes on\n");
}

/// The session, whatever ends the test.
struct Session<'a>(&'a Bench);

impl Session<'_> {
    fn tmux(&self, words: &[&str]) -> Output {
        self.0
            .run(&[&["env", "TMUX_TMPDIR=.", "tmux"], words].concat())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn the_session_goes_on_without_a_terminal() {
    let Some(bench) = Bench::new() else { return };
    if !bench.run(&["sh", "-c", "tmux -V"]).status.success() {
        return support::skip("tmux: it is not here");
    }
    bench.stand_in(
        "job.py",
        "import os, time; print('job', 'ZFOLIO_CONTROL' in os.environ, flush=True); time.sleep(4)\n",
    );
    // (Its shells are login shells, which set PATH anew.)
    bench.stand_in(".profile", "PATH=$HOME/bin:$PATH\n");
    let path = root().join("examples/tmux/job.sh");
    let path = path.to_str().expect("a path");
    let session = Session(&bench);
    // Twice: the second finds it and starts nothing.
    for _ in 0..2 {
        bench
            .run(&["env", "TMUX_TMPDIR=.", "bash", path])
            .succeeded();
    }
    let panes = session.tmux(&["list-panes", "-a", "-F", "#{session_name}"]);
    assert_eq!(panes.succeeded().stdout, "job\njob\n");
    let begin = Instant::now();
    loop {
        let above = session
            .tmux(&["capture-pane", "-p", "-t", "job:0.0"])
            .stdout;
        let below = session
            .tmux(&["capture-pane", "-p", "-t", "job:0.1"])
            .stdout;
        if above.contains("\njob True\n") && below.contains("zfolio top: ") {
            break;
        }
        let waits = begin.elapsed() < Duration::from_secs(60);
        assert!(waits, "{above}\n----\n{below}");
        thread::sleep(Duration::from_millis(100));
    }
    let record = bench.dir.path().join("job.record");
    assert!(fs::metadata(record).is_ok_and(|of| of.len() > 0));
}

#[test]
fn the_service_starts() {
    let text = example("systemd/zfolio.conf");
    let starts: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("ExecStart="))
        .collect();
    let ["", start] = starts[..] else {
        panic!("a unit may have one; the first line forgets the unit's: {starts:?}")
    };
    let words: Vec<String> = start.split(' ').map(str::to_owned).collect();
    let Some(bench) = Bench::new() else { return };
    bench.manages(&here(&words), "job True\n");
    // With MemoryDenyWriteExecute=, which is this prctl (PR_SET_MDWE; Linux 6.3).
    let denied = "\
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0: os.execvp(sys.argv[1], sys.argv[1:])
print('not here')
";
    for way in support::ways_without_privilege(support::zfolio()) {
        let way = format!("ZFOLIO_FAULTS={way}");
        let words = [&["env", &way, "python3", "-c", denied], &here(&words)[..]].concat();
        if bench.run(&words).stdout == "not here\n" {
            support::skip("PR_SET_MDWE: the kernel has none");
            break;
        }
        bench.manages(&words, "job True\n");
    }
    if !bench
        .run(&["systemd-analyze", "--version"])
        .status
        .success()
    {
        return support::skip("the whole unit: there is no systemd-analyze");
    }
    // As a whole unit, with files that are there.
    let here = start.replace("/usr/bin/zfolio", "/usr/bin/env");
    let unit = bench.dir.path().join("job.service");
    let whole = format!("[Service]\nExecStart=/bin/true\n{text}").replace(start, &here);
    fs::write(&unit, whole).expect("written");
    let verified = bench.run(&["systemd-analyze", "verify", unit.to_str().expect("a path")]);
    let told = format!("{}{}", verified.stdout, verified.stderr);
    let complaints: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("job.service"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}
