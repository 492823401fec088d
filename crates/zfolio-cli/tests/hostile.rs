//! Programs that make their surroundings hostile: descriptors, limits, roots,
//! filters. Each runs on with every byte right, managed where that is possible
//! and told once where it is not.

mod memory;
mod support;

use memory::Case;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::{Output, Zfolio, finish};

/// The program of `tests/programs`, before its memory is managed and after.
#[track_caller]
fn managed(setting: &str) {
    for when in ["before", "after"] {
        Case::new("hostile", &[setting, when]).run();
    }
}

/// The program, compiled for the cases that are not a [`Case`].
fn hostile() -> Option<PathBuf> {
    static BUILT: OnceLock<(tempfile::TempDir, bool)> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/hostile.c");
    let (dir, done) = BUILT.get_or_init(|| {
        let dir = support::tempdir();
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-pthread", "-o"])
            .arg(dir.path().join("hostile"))
            .arg(&source);
        let done = cc.status().is_ok_and(|status| status.success());
        (dir, done)
    });
    if !*done {
        support::skip("no C compiler");
    }
    done.then(|| dir.path().join("hostile"))
}

fn run(z: &Zfolio, args: &[&str]) -> Option<Output> {
    let program = hostile()?;
    let program = program.to_str().expect("a plain path");
    let words: Vec<&str> = [program].iter().chain(args).copied().collect();
    Some(z.run_with(&["--high", "40M"], &words, ""))
}

/// Runs on unmanaged, with one line that has `why` in it.
#[track_caller]
fn unmanaged(setting: &str, why: &str) {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(output) = run(z, &[setting, "unmanaged"]) else {
        return;
    };
    output.succeeded();
    let told: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.contains(why))
        .collect();
    assert_eq!(told.len(), 1, "{}", output.stderr);
    assert_ne!(output.stats["processes"][0]["state"], "managing");
}

#[test]
fn a_program_may_close_every_descriptor() {
    managed("close_all");
}

#[test]
fn a_program_may_put_others_over_every_descriptor() {
    managed("dup_over_all");
}

#[test]
fn a_daemon_is_managed() {
    Case::new("hostile", &["own_session", "before", "daemon"]).run();
    Case::new("hostile", &["dup_over_all", "after", "daemon"]).run();
}

#[test]
fn a_program_may_have_no_room_for_the_descriptor_of_a_child() {
    Case::new("hostile", &["few_descriptors", "after"]).run();
}

#[test]
fn a_program_may_write_no_files() {
    managed("no_files");
}

#[test]
fn a_large_limit_of_addresses_leaves_room() {
    managed("some_addresses");
}

#[test]
fn a_program_may_change_its_root() {
    managed("change_root");
}

/// Whether this user may have mounts and process ids of its own.
fn namespaces() -> bool {
    let bare = Command::new("unshare").args(["-m", "-p", "true"]).output();
    let done = bare.is_ok_and(|done| done.status.success());
    if !done {
        support::skip("no mount namespaces here");
    }
    done
}

#[test]
fn a_program_may_move_its_root_away() {
    if namespaces() {
        managed("move_root");
    }
}

#[test]
fn a_managed_program_may_hide_proc() {
    if namespaces() {
        Case::new("hostile", &["hide_proc", "after"]).run();
    }
}

/// Hidden before it started: told, once for all of the tree.
#[test]
fn a_program_that_starts_without_proc_runs_on() {
    let (Some(z), true) = (support::by_messages(), namespaces()) else {
        return;
    };
    let Some(program) = hostile() else { return };
    let program = program.to_str().expect("a plain path");
    let script = format!("mount -t tmpfs none /proc && exec {program} nothing unmanaged");
    let output = z.run("40M", &["unshare", "-m", "sh", "-c", &script]);
    let told = "opening /proc/thread-self/statm failed (errno 2)";
    assert_eq!(output.succeeded().stderr.matches(told).count(), 1);
    assert_eq!(output.counter("pages_out"), 0);
}

#[test]
fn a_program_may_have_children_in_a_process_namespace() {
    if namespaces() {
        managed("new_process_namespace");
    }
}

#[test]
fn a_program_may_be_undumpable() {
    managed("undumpable");
}

#[test]
fn a_program_may_lose_its_directory() {
    managed("remove_directory");
}

#[test]
fn a_program_may_write_over_its_environment() {
    managed("overwrite_environment");
}

#[test]
fn a_program_may_block_all_signals() {
    managed("block_signals");
}

#[test]
fn a_program_may_ignore_its_children() {
    managed("ignore_children");
}

#[test]
fn a_program_may_filter_its_calls_and_fork() {
    managed("sandbox");
}

#[test]
fn few_addresses_are_left_to_the_program() {
    unmanaged("few_addresses", "RLIMIT_AS");
    unmanaged("little_data", "RLIMIT_DATA");
    if support::by_messages().is_some() {
        Case::new("hostile", &["few_addresses", "after"]).run();
    }
}

#[test]
fn memory_that_will_be_locked_is_left_alone() {
    unmanaged("lock_future", "mlockall");
}

#[test]
fn a_program_may_enter_a_user_namespace() {
    unmanaged("new_user_namespace", "userfaultfd failed (errno 1)");
}

#[test]
fn without_userfaultfd_a_program_runs_on() {
    unmanaged("forbid_userfaultfd", "userfaultfd failed (errno 1)");
    if support::by_messages().is_some() {
        Case::new("hostile", &["forbid_userfaultfd", "after"]).run();
    }
}

/// A child that cannot be followed, since its parent may have no descriptor:
/// said once, on standard error if that is still the run's, by the run itself
/// otherwise, and never in a file of the program's.
#[test]
fn an_end_is_told_once_and_not_in_a_file_of_the_program() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = hostile() else { return };
    let dir = support::tempdir();
    let file = dir.path().join("data");
    for setting in ["no_descriptors", "lose_both"] {
        // Who may raise limits has them raised for the moment.
        let mut command = Command::new("setpriv");
        command
            .args(["--bounding-set=-sys_resource", "--"])
            .arg(z.exe())
            .args(["run", "--faults", "message", "--high", "40M", "--"])
            .arg(&program)
            .args([setting, "after"])
            .arg(&file)
            .env("ZFOLIO_PRELOAD", z.library());
        let output = finish(&mut command, "");
        assert_eq!(output.status.code(), Some(70), "{}", output.stderr);
        let told = output.stderr.matches("RLIMIT_NOFILE").count();
        assert_eq!(told, 1, "{setting}: {}", output.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "data\n");
}

/// Nobody reads what the run says: the status is the program's all the same.
#[test]
fn a_closed_standard_error_changes_nothing() {
    let Some(z) = support::managed() else { return };
    let exe = z.exe().to_str().expect("a plain path");
    let script =
        format!("{exe} run -- sh -c 'exit 7' 2>&1 >/dev/null | :; echo ${{PIPESTATUS[0]}}");
    let mut command = Command::new("bash");
    command
        .args(["-c", &script])
        .env("ZFOLIO_PRELOAD", z.library());
    assert_eq!(finish(&mut command, "").succeeded().stdout, "7\n");
}

#[test]
fn nonsense_in_place_of_the_segment_is_harmless() {
    let Some(z) = support::managed() else { return };
    let dir = support::tempdir();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").expect("a file");
    for control in [
        "",
        "/",
        "/no/such",
        "/dev/null",
        "/dev/zero",
        "/etc/passwd",
        empty.to_str().expect("a plain path"),
    ] {
        let script = format!("ZFOLIO_CONTROL={control} sh -c 'sleep 0.1; exit 9'");
        let output = z.run("64M", &["sh", "-c", &script]);
        assert_eq!(
            output.status.code(),
            Some(9),
            "{control}: {}",
            output.stderr
        );
    }
}

#[test]
fn an_unshared_user_namespace_has_its_root() {
    let Some(z) = support::managed() else { return };
    let bare = Command::new("unshare").args(["-r", "id", "-u"]).output();
    if !bare.is_ok_and(|done| done.status.success()) {
        return support::skip("no user namespaces here");
    }
    for _ in 0..20 {
        let output = z.run("64M", &["unshare", "-r", "id", "-u"]);
        assert_eq!(output.succeeded().stdout, "0\n");
    }
}

/// A file system of shared memory that the program fills is no SIGBUS.
#[test]
fn a_full_shm_ends_nobody() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = hostile() else { return };
    let script = format!(
        "mount -t tmpfs -o size=16M none /dev/shm || exit 99
        {} run --high 40M -- sh -c 'head -c 30M /dev/zero > /dev/shm/f 2>/dev/null; {} nothing before'",
        z.exe().display(),
        program.display()
    );
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script])
        .env("ZFOLIO_PRELOAD", z.library());
    let output = finish(&mut command, "");
    if output.status.code() == Some(99) {
        return support::skip("nothing can be mounted here");
    }
    output.succeeded();
}
