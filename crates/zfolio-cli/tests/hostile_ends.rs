//! Ends that a program does not expect: of the run it is in, of its parent, of
//! itself with a core left behind, and of what it may still have (threads,
//! files in /proc).

mod memory;
mod support;

use memory::compiled;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use support::{Guard, Output, Zfolio, finish};

/// Longest a program may be silent.
const LIMIT: Duration = Duration::from_secs(90);

/// The number behind a word in what a program printed.
#[track_caller]
fn number(text: &str, word: &str) -> usize {
    let mut words = text.split_whitespace();
    let found = words.find(|&found| found == word).and(words.next());
    found
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no {word} in {text}"))
}

fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// As bare: it lives on, and is managed as before. What the run kept in shared
/// memory is removed by the next, which must not matter to those who have it;
/// who is started later does without.
#[test]
fn the_run_is_killed_and_the_program_lives_on() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("hostile_ends") else {
        return;
    };
    support::until(|| Some(orphaned(z, &program)), Clone::clone);
}

/// One such life. The next run may be anybody's on this machine: where one came before what is
/// started has looked, that is said.
fn orphaned(z: &Zfolio, program: &Path) -> Result<(), String> {
    let mut run = Guard(
        z.command(["run", "--high", "40M", "--", plain(program), "orphan"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("zfolio starts"),
    );
    let mut go_on = run.0.stdin.take().expect("a pipe");
    let lines = BufReader::new(run.0.stdout.take().expect("a pipe")).lines();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let next = || receiver.recv_timeout(LIMIT).expect("it goes on");
    let first = next();
    assert!(number(&first, "absent") > 4000, "{first}");
    let segment = PathBuf::from(first.rsplit(' ').next().expect("a path"));
    assert!(segment.exists(), "{}", segment.display());

    support::kill(run.0.id(), rustix::process::Signal::KILL);
    assert_eq!(run.0.wait().expect("it ends").signal(), Some(9));
    go_on.write_all(b"1").expect("it reads");
    let managed = number(&next(), "absent") > 0;
    let swept = !segment.exists();
    assert!(managed || swept, "not managed");
    assert_eq!(next(), "right");
    z.run("64M", &["true"]).succeeded();
    assert!(!segment.exists(), "{}", segment.display());
    go_on.write_all(b"2").expect("it reads");
    assert_eq!(next(), "absent 0 started");
    assert_eq!(next(), "right");
    drop(go_on);
    assert_eq!(next(), "done");
    support::check(managed, || "another run came first".into())
}

/// At any moment about the fork, its child asks for memory or has it all.
#[test]
fn a_parent_is_killed_about_its_fork() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("hostile_ends") else {
        return;
    };
    let options = ["--quiet", "--high", "16M"];
    let command = [plain(&program), "killed_forking"];
    let run = || Some(z.run_with(&options, &command, ""));
    support::until(run, |output| {
        let count = |word| number(&output.succeeded().stdout, word);
        assert_eq!(count("killed"), 40);
        assert_eq!(count("right"), count("begun"), "{}", output.stderr);
        support::check(count("absent") > 90 && count("begun") > 0, || {
            output.stdout.clone()
        })
    });
}

/// A core in the directory of the program, by the name that the kernel gives.
fn plain_cores() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let plain = pattern.trim_end() == "core";
    if !plain {
        support::skip(&format!("cores go to {}", pattern.trim_end()));
    }
    plain
}

/// The kernel does not wait for a page while it writes a core: what is out is
/// not in it. What is in it is right, and the program ends as bare.
#[test]
fn a_core_has_what_is_present_and_nothing_wrong() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("hostile_ends") else {
        return;
    };
    if !plain_cores() {
        return;
    }
    let core = |command: &mut Command| {
        let dir = support::tempdir();
        let output = finish(command.current_dir(dir.path()), "");
        let text = &output.succeeded().stdout;
        ["absent", "right", "zeros"].map(|word| number(text, word))
    };
    assert_eq!(core(Command::new(&program).arg("core")), [0, 192, 0]);
    let words = ["run", "--quiet", "--high", "16M", "--"];
    let [absent, right, zeros] = core(z.command(words).arg(&program).arg("core"));
    // (Eight are locked. Readahead may have brought others, after they were counted
    // as well.)
    assert!(
        right >= 8 && absent > 0 && zeros > 0,
        "{absent} absent, {right} right"
    );
    assert_eq!(right, 192 - zeros);
}

/// A user who has the one capability, with copies of all it runs that it may read.
struct User {
    dir: tempfile::TempDir,
}

impl User {
    fn new(z: &Zfolio, programs: &[&str]) -> Option<Self> {
        let may = || Command::new("setpriv").args(Self::AS).arg("true").output();
        if !may().is_ok_and(|done| done.status.success()) {
            support::skip("setpriv gives no capability here");
            return None;
        }
        let dir = support::tempdir();
        let open = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
        };
        open(dir.path());
        let programs: Vec<PathBuf> = programs
            .iter()
            .map(|name| compiled(name))
            .collect::<Option<_>>()?;
        for path in [z.exe(), z.library()]
            .into_iter()
            .chain(programs.iter().map(PathBuf::as_path))
        {
            let copy = dir.path().join(path.file_name().expect("a name"));
            support::copy_executable(path, &copy);
        }
        Some(Self { dir })
    }

    const AS: [&str; 6] = [
        "--reuid=54321",
        "--regid=54321",
        "--clear-groups",
        "--inh-caps=-all,+sys_ptrace",
        "--ambient-caps=-all,+sys_ptrace",
        "--",
    ];

    /// `script` in a shell under `zfolio run`, among its programs.
    fn run(&self, z: &Zfolio, script: &str) -> Output {
        let library = z.library().file_name().expect("a name");
        let mut command = Command::new("setpriv");
        command
            .args(Self::AS)
            .args([
                "./zfolio", "run", "--faults", "message", "--high", "40M", "--",
            ])
            .args(["bash", "-c", script])
            .env("ZFOLIO_PRELOAD", self.dir.path().join(library))
            .current_dir(self.dir.path());
        finish(&mut command, "")
    }
}

#[track_caller]
fn told_once(output: &Output, why: &str) {
    output.succeeded();
    assert_eq!(output.stderr.matches(why).count(), 1, "{}", output.stderr);
}

const NO_THREAD: &str = "ran unmanaged: starting a thread failed (errno 11)";
const NO_THREADS: &str = "ran unmanaged: starting threads failed (errno 11)";
const NOTHING: &str = "nothing was managed";

#[test]
fn a_user_may_have_no_more_threads() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(user) = User::new(z, &["plain"]) else {
        return;
    };
    for limit in [0, 1] {
        let output = user.run(z, &format!("ulimit -u {limit}; exec ./plain 96 20"));
        told_once(&output, NO_THREAD);
        told_once(&output, NOTHING);
    }
}

/// What /proc has of it is root's from then on, itself included.
#[test]
fn a_user_may_be_undumpable() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(user) = User::new(z, &["hostile"]) else {
        return;
    };
    let output = user.run(z, "exec ./hostile undumpable unmanaged");
    told_once(
        &output,
        "opening /proc/thread-self/pagemap failed (errno 13)",
    );
    let output = user.run(z, "exec ./hostile undumpable after");
    let child = "it is the child of a fork, and opening its descriptors failed (errno 13)";
    told_once(&output, child);
    assert!(!output.stderr.contains(NOTHING), "{}", output.stderr);
}

/// A pids control group, gone with the value.
struct Pids(PathBuf);

impl Pids {
    fn new() -> Option<Self> {
        let path = PathBuf::from(format!(
            "/sys/fs/cgroup/pids/zfolio-test-{}",
            std::process::id()
        ));
        match fs::create_dir(&path) {
            Ok(()) => Some(Self(path)),
            Err(why) => {
                support::skip(&format!("no pids control group: {why}"));
                None
            }
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        // Who was in it may still be on the way out.
        let gone = || fs::remove_dir(&self.0).is_ok();
        let _ = (0..100).any(|_| gone() || (thread::sleep(Duration::from_millis(20)), false).1);
    }
}

#[test]
fn a_control_group_may_have_no_room_for_threads() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let (Some(plain_program), Some(program)) = (compiled("plain"), compiled("hostile")) else {
        return;
    };
    let Some(group) = Pids::new() else { return };
    for (threads, why) in [("1", NO_THREAD), ("2", NO_THREADS)] {
        fs::write(group.file("pids.max"), threads).expect("a limit");
        let script = format!(
            "echo $$ > {} && exec {} 96 20",
            group.file("cgroup.procs").display(),
            plain_program.display()
        );
        let output = z.run("40M", &["sh", "-c", &script]);
        told_once(&output, why);
        told_once(&output, NOTHING);
    }
    // A managed program's child finds no room for its first thread, and is
    // filled; or for that and no other, and ends.
    let limited = |setting| {
        fs::write(group.file("pids.max"), "max").expect("no limit");
        z.run("40M", &[plain(&program), setting, "after", plain(&group.0)])
    };
    let output = limited("one_task");
    let child = "it is the child of a fork, and starting a thread failed (errno 11)";
    told_once(&output, child);
    assert!(output.counter("pages_in") > 1000, "{}", output.stderr);
    let output = limited("two_tasks");
    let told = output.stderr.matches(" ended: the child of a fork").count();
    assert_eq!(told, 1, "{}", output.stderr);
    assert!(output.stderr.contains("status 0x4600"), "{}", output.stderr);
}
