//! `zfolio run` as a wrapper: what passes through, and what is refused.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use support::{Guard, Output, compile, finish, kill, managed, script, skip, tempdir, zfolio};

/// `zfolio run ARGS`, which is refused: one line, this status, nothing started.
#[track_caller]
fn refused(args: &[&str], status: i32) -> String {
    let output = finish(&mut zfolio().command([&["run"], args].concat()), "");
    refused_output(&output, status);
    output.stderr
}

#[track_caller]
fn refused_output(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}", output.stderr);
    assert_eq!(output.stdout, "");
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(output.stderr.starts_with("zfolio: "), "{}", output.stderr);
    assert!(
        output.stderr.contains("; "),
        "what to do is missing: {}",
        output.stderr
    );
}

fn path(of: &Path) -> &str {
    of.to_str().expect("a plain path")
}

#[test]
fn exit_statuses_pass() {
    let Some(z) = managed() else { return };
    for status in [0, 1, 7, 127, 255] {
        let output = z.run("1G", &["sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(output.stats["exit"]["status"], status);
    }
}

#[test]
fn deaths_by_signal_pass() {
    let Some(z) = managed() else { return };
    for signal in [
        Signal::TERM,
        Signal::KILL,
        Signal::INT,
        Signal::PIPE,
        Signal::SEGV,
    ] {
        let number = signal.as_raw();
        if ignored_here(signal) {
            skip(&format!("signal {number} is ignored in this session"));
            continue;
        }
        let output = z.run(
            "1G",
            &["sh", "-c", &format!("ulimit -c 0; kill -{number} $$")],
        );
        assert_eq!(output.status.signal(), Some(number), "{}", output.status);
        assert!(!output.status.core_dumped(), "a core of zfolio itself");
        assert_eq!(output.stats["exit"]["signal"], number);
    }
}

#[test]
fn streams_and_arguments_pass() {
    let Some(z) = managed() else { return };
    let script = "cat; echo \"[$1|$2|$0]\"; echo to stderr >&2";
    let program = ["sh", "-c", script, "name", "a b", "--high"];
    let output = z.run_with(&["--quiet"], &program, "fed\n");
    assert_eq!(output.succeeded().stdout, "fed\n[a b|--high|name]\n");
    assert_eq!(output.stderr, "to stderr\n", "--quiet adds nothing");
}

#[test]
fn the_summary_goes_to_stderr() {
    let Some(z) = managed() else { return };
    let output = z.run("1G", &["true"]);
    assert_eq!(output.succeeded().stdout, "");
    assert!(
        output.stderr.starts_with("zfolio: nothing "),
        "{}",
        output.stderr
    );
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}

#[test]
fn the_whole_tree_inherits_and_nothing_is_left() {
    let Some(z) = managed() else { return };
    let inner =
        r#"test -f "$ZFOLIO_CONTROL" && echo "$LD_PRELOAD" && echo "$ZFOLIO_CONTROL" && sleep 1"#;
    let output = z.run("1G", &["sh", "-c", "sh -c \"$1\"; true", "sh", inner]);
    let lines: Vec<&str> = output.succeeded().stdout.lines().collect();
    let [preload, control] = lines[..] else {
        panic!("{lines:?}")
    };
    assert!(preload.ends_with(".so"), "{preload}");
    assert!(!Path::new(control).exists(), "{control} is left behind");
    if z.real {
        assert!(
            output.stats["processes_loaded"].as_u64() >= Some(2),
            "{}",
            output.stats
        );
    }
}

#[test]
fn an_existing_preload_list_is_kept_in_front() {
    let Some(z) = managed() else { return };
    let dir = tempdir();
    let Some(other) = compile(dir.path(), "other.so", "int other;", &["-shared", "-fPIC"]) else {
        return skip("no cc");
    };
    let mut command = z.command(["run", "--quiet", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    let output = finish(command.env("LD_PRELOAD", &other), "");
    let list = output.succeeded().stdout.trim();
    assert!(list.starts_with(&format!("{}:", other.display())), "{list}");
}

#[test]
fn statistics_have_their_keys() {
    let Some(z) = managed() else { return };
    let output = z.run_with(
        &["--high", "96M", "--compressor", "zstd:3", "--folio", "16K"],
        &["sh", "-c", ":"],
        "",
    );
    let stats = &output.succeeded().stats;
    assert_eq!(stats["config"]["high_bytes"], 96 << 20);
    assert_eq!(stats["config"]["compressor"], "zstd:3");
    if std::env::var_os("ZFOLIO_TEST_FAULTS").is_none() {
        assert_eq!(stats["config"]["folio_bytes"], 16 << 10);
    }
    assert_eq!(stats["command"], serde_json::json!(["sh", "-c", ":"]));
    assert!(stats["usage"]["wall_s"].as_f64() > Some(0.0));
    assert!(stats["usage"]["max_rss_bytes"].as_u64() > Some(100_000));
    assert!(stats["machine"]["cpus"].as_u64() > Some(0));
    for name in ["zswpout", "zswpin", "pool_total_size", "pgmajfault", "high"] {
        assert!(stats["total"]["counters"][name].is_u64(), "{name}: {stats}");
    }
    for kind in ["hole", "standby", "page", "all"] {
        assert!(
            stats["total"]["faults"][kind]["p99_ns"].is_u64(),
            "{kind}: {stats}"
        );
    }
    assert!(stats["total"]["folios"]["hugepages-2048kB"]["zswpin"].is_u64());
    assert!(stats["processes"].is_array());
}

#[test]
fn an_unwritable_stats_file_is_refused_before_anything_runs() {
    let dir = tempdir();
    let marker = dir.path().join("marker");
    let missing = dir.path().join("no/such/stats.json");
    for stats in [&missing, dir.path()] {
        refused(&["--stats", path(stats), "--", "touch", path(&marker)], 73);
    }
    assert!(!marker.exists());
}

#[test]
fn command_lines_that_are_wrong() {
    for args in [
        &["--high", "lots", "--", "true"][..],
        &["--high", "0", "--", "true"],
        &["--high", "7M", "--", "true"],
        &["--folio", "4M", "--", "true"],
        &["--compressor", "gzip", "--", "true"],
        &["--no-such-option", "--", "true"],
        &["--high", "1G"],
    ] {
        refused(args, 2);
    }
}

#[test]
fn programs_that_are_not_there_or_not_executable() {
    let dir = tempdir();
    let text = dir.path().join("text");
    fs::write(&text, "text").unwrap();
    let bare = script(dir.path(), "bare", "echo no first line\n");
    let astray = script(dir.path(), "astray", "#!/no/such/interpreter\n");
    assert!(refused(&["--", "no-such-program-zf"], 127).contains("not found"));
    refused(&["--", "/no/such/program"], 127);
    refused(&["--", path(&astray)], 127);
    refused(&["--", path(&text)], 126);
    refused(&["--", path(&bare)], 126);
    refused(&["--", path(dir.path())], 126);
}

#[test]
fn static_programs_are_refused_unless_allowed() {
    let dir = tempdir();
    let source = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 5; }";
    let Some(program) = compile(dir.path(), "static", source, &["-static"]) else {
        return skip("no cc that links statically");
    };
    assert!(refused(&["--", path(&program)], 75).contains("statically linked"));
    let through = script(dir.path(), "through", &format!("#!{}\n", program.display()));
    refused(&["--", path(&through)], 75);
    let Some(z) = managed() else { return };
    let output = z.run_with(&["--allow-unmanaged"], &[path(&program)], "");
    assert_eq!(
        (output.status.code(), output.stdout.as_str()),
        (Some(5), "ran\n")
    );
    assert!(
        output.stderr.contains("nothing needed managing"),
        "{}",
        output.stderr
    );
}

#[test]
fn foreign_programs_are_refused() {
    let dir = tempdir();
    let mut bytes = fs::read("/proc/self/exe").unwrap();
    bytes[18] = 183; // e_machine: aarch64
    let other = script(dir.path(), "other", "");
    fs::write(&other, bytes).unwrap();
    assert!(refused(&["--", path(&other)], 76).contains("aarch64"));
    let loader = script(dir.path(), "ld-musl-x86_64.so.1", "");
    let flag = format!("-Wl,--dynamic-linker={}", loader.display());
    let Some(musl) = compile(dir.path(), "musl", "int main(void) { return 0; }", &[&flag]) else {
        return skip("no cc");
    };
    assert!(refused(&["--", path(&musl)], 76).contains("ld-musl"));
}

#[test]
fn setuid_programs_are_refused() {
    let dir = tempdir();
    let copy = dir.path().join("true");
    support::copy_executable(Path::new("/bin/true"), &copy);
    if chown(&copy, Some(65_534), None).is_err() {
        return skip("only root can give a file to another user");
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    assert!(refused(&["--", path(&copy)], 77).contains("setuid"));
}

#[test]
fn a_missing_library_is_told() {
    let mut command = zfolio().command(["run", "--", "true"]);
    let output = finish(command.env("ZFOLIO_PRELOAD", "/no/such/library.so"), "");
    refused_output(&output, 72);
    assert!(
        output.stderr.contains("/no/such/library.so"),
        "{}",
        output.stderr
    );
}

/// Starts `zfolio run -- sh -c SCRIPT` and waits for its first line.
fn started(script: &str) -> Option<(Guard, String, BufReader<impl Read>)> {
    let z = managed()?;
    let mut command = z.command(["run", "--quiet", "--", "sh", "-c", script]);
    let mut child = Guard(
        command
            .stdout(Stdio::piped())
            .spawn()
            .expect("zfolio starts"),
    );
    let mut reader = BufReader::new(child.0.stdout.take().expect("a pipe"));
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .expect("the script says something");
    Some((child, line.trim().to_owned(), reader))
}

fn ignored_here(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn signals_sent_to_zfolio_reach_the_program() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::USR1, "USR1"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
    ] {
        if ignored_here(signal) {
            skip(&format!("SIG{name} is ignored in this session"));
            continue;
        }
        let script =
            format!("trap 'exit 9' {name}; echo \"$ZFOLIO_CONTROL\"; while :; do sleep 0.05; done");
        let Some((mut child, control, _out)) = started(&script) else {
            return;
        };
        assert!(Path::new(&control).exists());
        kill(child.0.id(), signal);
        assert_eq!(child.0.wait().unwrap().code(), Some(9), "SIG{name}");
        assert!(!Path::new(&control).exists(), "{control} is left behind");
    }
}

#[test]
fn a_segment_left_by_a_killed_run_is_swept_by_the_next() {
    let Some((mut child, control, _out)) = started("echo \"$ZFOLIO_CONTROL\"; sleep 600") else {
        return;
    };
    kill(child.0.id(), Signal::KILL);
    child.0.wait().unwrap();
    // Nobody was left to remove it: this run does, or one beside us has.
    zfolio().run("1G", &["true"]).succeeded();
    assert!(!Path::new(&control).exists(), "{control} was not swept");
}

#[test]
fn a_running_tree_can_be_looked_at() {
    let Some((child, control, _out)) = started("echo \"$ZFOLIO_CONTROL\"; sleep 600") else {
        return;
    };
    for which in [control.clone(), child.0.id().to_string()] {
        let output = finish(&mut zfolio().command(["stat", &which]), "");
        let lines: Vec<&str> = output.succeeded().stdout.lines().collect();
        assert!(
            lines[0].starts_with(&control) && lines[1].contains("  FAULTS  "),
            "{}",
            output.stdout
        );
    }
}

#[test]
fn the_doctor_speaks_json() {
    let output = finish(&mut zfolio().command(["doctor", "--json"]), "");
    let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(json["usable"] == true, output.status.success());
    assert_eq!(
        output.status.code(),
        Some(if output.status.success() { 0 } else { 78 })
    );
    let names: Vec<&str> = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["name"].as_str())
        .collect();
    for name in [
        "kernel",
        "userfaultfd",
        "moving a page",
        "PAGEMAP_SCAN",
        "faults by message",
        "faults in-thread",
        "faults by guard",
        "faults by protect",
        "place",
        "memory limit",
        "preload library",
        "control segment",
    ] {
        assert!(names.contains(&name), "{name} is missing: {names:?}");
    }
}

#[test]
fn help_tells_the_exit_statuses() {
    let output = finish(&mut zfolio().command(["run", "--help"]), "");
    assert!(
        output
            .succeeded()
            .stdout
            .contains("\n   75  the program is statically linked"),
        "{}",
        output.stdout
    );
}
