//! Programs that bring a runtime of their own: sanitizers, allocators,
//! debuggers, other C libraries. Each runs on with every byte right.

mod memory;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Output, Zfolio};

/// A program of `tests/programs`, compiled by `cc` with `flags`.
fn built(dir: &Path, program: &str, cc: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/programs")
        .join(program)
        .with_extension("c");
    let out = dir.join(program);
    let done = Command::new(cc)
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&out)
        .arg(source)
        .args(flags)
        .output();
    if done.is_ok_and(|done| done.status.success()) {
        return Some(out);
    }
    support::skip(&format!("{cc} {} builds nothing here", flags.join(" ")));
    None
}

fn run(z: &Zfolio, high: &str, program: &Path, args: &[&str]) -> Output {
    let program = program.to_str().expect("a plain path");
    let words: Vec<&str> = [program].iter().chain(args).copied().collect();
    z.run(high, &words)
}

#[track_caller]
fn moved(output: &Output) {
    output.succeeded();
    assert!(output.counter("pages_in") > 1000, "{}", output.stderr);
}

#[test]
fn the_undefined_behaviour_sanitizer_runs_managed() {
    let Some(z) = support::real() else { return };
    let dir = support::tempdir();
    if let Some(program) = built(dir.path(), "churn", "gcc", &["-fsanitize=undefined"]) {
        moved(&run(z, "40M", &program, &["3"]));
    }
}

const FILLED: &str = "
#include <stdlib.h>
enum { WORDS = 4 << 20 };
int main(void) {
    unsigned long *at = malloc(WORDS * sizeof *at);
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned long i = 0; i < WORDS; i++) at[i] = i / 8 * 977 + turn;
        for (unsigned long i = 0; i < WORDS; i++) if (at[i] != i / 8 * 977 + turn) return 1;
    }
    return 0;
}";

#[test]
fn the_thread_sanitizer_runs_managed() {
    let Some(z) = support::real() else { return };
    let dir = support::tempdir();
    match support::compile(dir.path(), "filled", FILLED, &["-fsanitize=thread"]) {
        Some(program) => moved(&run(z, "64M", &program, &[])),
        None => support::skip("no thread sanitizer"),
    }
}

/// The leak checker stops every thread and then looks at all memory.
#[test]
fn what_looks_for_leaks_is_told_and_runs_unmanaged() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let dir = support::tempdir();
    for flag in ["-fsanitize=address", "-fsanitize=leak"] {
        let Some(program) = built(dir.path(), "hostile", "gcc", &[flag]) else {
            return;
        };
        let output = run(z, "40M", &program, &["nothing", "unmanaged"]);
        let told = output.succeeded().stderr.matches("LSan").count();
        assert_eq!(told, 1, "{flag}: {}", output.stderr);
        assert_eq!(output.counter("pages_out"), 0);
    }
}

#[test]
fn the_address_sanitizer_runs_managed_without_a_look_for_leaks() {
    let Some(z) = support::real() else { return };
    let dir = support::tempdir();
    let Some(program) = built(dir.path(), "churn", "gcc", &["-fsanitize=address"]) else {
        return;
    };
    let program = program.to_str().expect("a plain path");
    let script = format!("ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 exec {program} 3");
    moved(&z.run("64M", &["sh", "-c", &script]));
}

/// Python fills, checks and changes buffers and objects of many sizes.
const BUFFERS: &str = "
import os
def text(i): return (str(i) * 12 + 'x').encode()
def full(i): b = text(i); return (b * (65536 // len(b) + 1))[:65536 - i % 777]
held = [bytearray(full(i)) for i in range(1800)]
small = {i: text(i) for i in range(100000)}
for turn in range(3):
    for i, part in enumerate(held):
        assert part == full(i), i
        if i % 3 == turn: held[i] = bytearray(full(i))
    assert all(small[i] == text(i) for i in small)
    pid = os.fork()
    if pid == 0:
        assert all(part == full(i) for i, part in enumerate(held))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
print('right')
";

#[test]
fn other_allocators_are_managed() {
    for z in [support::real(), support::by_messages()]
        .into_iter()
        .flatten()
    {
        with_other_allocators(z);
    }
}

fn with_other_allocators(z: &Zfolio) {
    let libraries = [
        "libjemalloc.so.2",
        "libmimalloc.so.2",
        "libtcmalloc_minimal.so.4",
    ];
    let more = "background_thread:true,dirty_decay_ms:50,muzzy_decay_ms:50";
    for name in libraries {
        let path = format!("/usr/lib/x86_64-linux-gnu/{name}");
        if !Path::new(&path).exists() {
            support::skip(&format!("no {name}"));
            continue;
        }
        // Before ours, and, where a program of the tree asks for it, after.
        let before = format!(
            "exec env LD_PRELOAD={path}:$LD_PRELOAD MALLOC_CONF={more} PYTHONMALLOC=malloc python3 -c \"$0\""
        );
        let after = before.replace(
            &format!("{path}:$LD_PRELOAD"),
            &format!("$LD_PRELOAD:{path}"),
        );
        for script in [before, after] {
            let output = z.run("60M", &["sh", "-c", &script, BUFFERS]);
            moved(&output);
            assert_eq!(output.stdout, "right\n", "{name}");
        }
    }
}

#[test]
fn under_valgrind_a_program_runs_unmanaged() {
    let Some(z) = support::managed() else { return };
    if Command::new("valgrind").arg("--version").output().is_err() {
        return support::skip("no valgrind");
    }
    let output = z.run("64M", &["valgrind", "-q", "sh", "-c", "exit 6"]);
    assert_eq!(output.status.code(), Some(6), "{}", output.stderr);
    assert!(!output.stderr.contains("clone"), "{}", output.stderr);
    assert_eq!(output.stats["processes"][0]["state"], "unwatched");
}

#[test]
fn a_debugged_program_is_managed() {
    let Some(z) = support::by_messages() else {
        return;
    };
    if Command::new("gdb").arg("--version").output().is_err() {
        return support::skip("no gdb");
    }
    let dir = support::tempdir();
    // (Of one thread: gdb gives up where it finds a thread's descriptor moved out.)
    let Some(program) = built(dir.path(), "plain", "gcc", &[]) else {
        return;
    };
    let program = program.to_str().expect("a plain path");
    // Of gdb's own memory nothing is to be counted against it.
    let output = z.run_with(
        &["--per-process", "--high", "40M"],
        &[
            "gdb",
            "-q",
            "-batch",
            "-ex",
            "break main",
            "-ex",
            "run",
            "-ex",
            "continue",
            "--args",
            program,
            "64",
            "10",
        ],
        "",
    );
    moved(&output);
    assert!(
        output.stdout.contains("exited normally"),
        "{}",
        output.stdout
    );
}

/// Its own threads stop at every system call; the manager's are not the tracer's.
#[test]
fn a_traced_program_is_managed() {
    let Some(z) = support::by_messages() else {
        return;
    };
    if Command::new("strace").arg("-V").output().is_err() {
        return support::skip("no strace");
    }
    let dir = support::tempdir();
    let Some(program) = built(dir.path(), "hostile", "gcc", &[]) else {
        return;
    };
    let trace = dir.path().join("trace");
    let [program, to] = [&program, &trace].map(|path| path.to_str().expect("a plain path"));
    moved(&z.run(
        "40M",
        &["strace", "-f", "-o", to, program, "nothing", "after"],
    ));
    let trace = std::fs::read_to_string(&trace).expect("a trace");
    assert!(trace.contains("exited with 0"), "nothing was traced");
    assert!(!trace.contains("UFFDIO_"), "the manager was traced");
}

/// As libpsx does, which then waits for each. Ours take no signal.
#[test]
fn a_signal_to_every_thread_is_told_of() {
    const PROGRAM: &str = "
import ctypes, os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: None)
memory = bytearray(b'1') * (64 << 20)
for thread in os.listdir('/proc/self/task'):
    ctypes.CDLL(None).syscall(234, os.getpid(), int(thread), signal.SIGUSR1)
for _ in range(80):
    time.sleep(0.1)
print(memory.count(b'1') >> 20)";
    let Some(z) = support::by_messages() else {
        return;
    };
    let output = z.run("40M", &["python3", "-c", PROGRAM]);
    output.succeeded();
    assert_eq!(output.stdout.trim(), "64");
    let told = output
        .stderr
        .matches("sends signal 10 to each of its threads");
    assert_eq!(told.count(), 1, "{}", output.stderr);
}

/// Programs of another C library, or none, deep in a managed tree.
#[test]
fn foreign_children_are_left_alone() {
    let Some(z) = support::managed() else { return };
    let dir = support::tempdir();
    let source = dir.path().join("seven.c");
    std::fs::write(&source, "int main(void) { return 7; }\n").expect("a file");
    for (cc, flags) in [
        ("musl-gcc", &[][..]),
        ("musl-gcc", &["-static"]),
        ("gcc", &["-static"]),
        ("gcc", &["-m32"]),
    ] {
        let program = dir.path().join("seven");
        let done = Command::new(cc)
            .args(flags)
            .arg("-o")
            .args([&program, &source])
            .output();
        if !done.is_ok_and(|done| done.status.success()) {
            eprintln!("{cc} {flags:?} builds nothing here");
            continue;
        }
        let output = z.run(
            "64M",
            &[
                "sh",
                "-c",
                "\"$0\"; exit $?",
                program.to_str().expect("a plain path"),
            ],
        );
        assert_eq!(
            output.status.code(),
            Some(7),
            "{cc} {flags:?}: {}",
            output.stderr
        );
    }
}

/// man(1) has its helpers end for a system call they do not know.
#[test]
fn a_sandboxed_helper_is_not_ended() {
    let Some(z) = support::managed() else { return };
    let page = [
        "sh",
        "-c",
        "printf '.TH A 1\\n.SH NAME\\na \\\\- b\\n' > $0/a.1; man -l $0/a.1 | cat",
    ];
    let dir = support::tempdir();
    let path = dir.path().to_str().expect("a plain path");
    let words: Vec<&str> = page.iter().copied().chain([path]).collect();
    let bare = Command::new(words[0])
        .args(&words[1..])
        .output()
        .expect("sh runs");
    if !String::from_utf8_lossy(&bare.stdout).contains("NAME") {
        return support::skip("no man");
    }
    let output = z.run("64M", &words);
    assert_eq!(output.stdout, String::from_utf8_lossy(&bare.stdout));
}
