//! `zfolio top` in a terminal: tmux has it, at several sizes.

mod live;
#[path = "support/nobody.rs"]
mod nobody;
mod support;

use live::{Live, zfolio};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// A tmux server of our own.
struct Tmux(String);

impl Tmux {
    fn new(name: &str, width: u16, height: u16, script: &str) -> Option<Self> {
        let tmux = Self(format!("zfolio-{name}-{}", std::process::id()));
        let (width, height) = (width.to_string(), height.to_string());
        let args = [
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            script,
        ];
        if !tmux.tried(&args).is_ok_and(|done| done.status.success()) {
            support::skip("tmux is not installed, or starts no session");
            return None;
        }
        Some(tmux)
    }

    fn tried(&self, args: &[&str]) -> std::io::Result<Output> {
        let mut command = Command::new("tmux");
        command.args(["-u", "-L", &self.0]).args(args);
        command
            .env("TERM", "xterm-256color")
            .env_remove("TMUX")
            .output()
    }

    fn screen(&self) -> Vec<String> {
        let done = self.tried(&["capture-pane", "-p"]).expect("tmux");
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    fn press(&self, key: &str) {
        assert!(
            self.tried(&["send-keys", key])
                .expect("tmux")
                .status
                .success()
        );
    }

    /// The screen once it is as wanted.
    #[track_caller]
    fn until(&self, what: &str, is: impl Fn(&[String]) -> bool) -> Vec<String> {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            let waits = begin.elapsed() < Duration::from_secs(60);
            assert!(waits, "never {what}:\n{}", screen.join("\n"));
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.tried(&["kill-server"]);
    }
}

fn has(screen: &[String], part: &str) -> bool {
    screen.iter().any(|line| line.contains(part))
}

/// `top` of a run between two looks at the terminal's settings.
fn script(dir: &Path, pid: &str) -> String {
    let (exe, dir) = (support::zfolio().exe().display(), dir.display());
    format!(
        "stty -a | grep -v rows > {dir}/before; {exe} top --every 0.2 {pid}; echo ended=$?; \
         stty -a | grep -v rows > {dir}/after; cat"
    )
}

#[test]
fn top_shows_a_run_at_every_size_and_leaves_the_terminal_as_it_was() {
    let Some(mut live) = Live::start(&[]) else {
        return;
    };
    live.reads();
    let dir = support::tempdir();
    let script = script(dir.path(), &live.pid());
    let Some(tmux) = Tmux::new("sizes", 80, 24, &script) else {
        return;
    };
    let screen = tmux.until("a row of the program", |screen| has(screen, " python3"));
    assert!(screen.len() <= 24, "{screen:?}");
    assert!(
        screen.iter().all(|line| line.chars().count() <= 80),
        "{screen:?}"
    );
    for part in [
        "zfolio top: 1 run",
        "PROGRAM RESIDENT",
        "SAVED",
        "FAULT/s",
        "moved out",
        "stall",
        "q quit",
    ] {
        assert!(has(&screen, part), "{part}:\n{}", screen.join("\n"));
    }
    assert!(!has(&screen, "FAULTS BY"));
    // Nothing of what is above the curves is cut off.
    for (line, end) in [(1, "auto"), (2, " free")] {
        assert!(screen[line].trim_end().ends_with(end), "{screen:?}");
    }
    live.reads();
    tmux.until("faults", |screen| {
        let faults = screen
            .iter()
            .find_map(|line| line.split_once("faults ")?.1.split_once("(at most "));
        faults.is_some_and(|(_, most)| !most.starts_with("0/"))
    });
    tmux.press("s");
    tmux.until("another order", |screen| has(screen, "s sort (resident)"));
    tmux.press("Down");
    tmux.until("the process above the curves", |screen| {
        screen
            .get(1)
            .is_some_and(|line| line.contains("python3: ") && line.contains("codec auto"))
    });
    tmux.press("?");
    tmux.until("help", |screen| has(screen, "this help"));
    tmux.press("?");
    tmux.until("no help", |screen| !has(screen, "this help"));
    tmux.tried(&["resize-window", "-x", "160", "-y", "50"])
        .expect("tmux");
    let wide = tmux.until("a large screen", |screen| {
        has(screen, "FAULTS BY") && screen.len() == 50
    });
    for part in ["STANDBY", "TABLES", "CODEC", "P50", "STALL"] {
        assert!(has(&wide, part), "{part}:\n{}", wide.join("\n"));
    }
    live.end();
    tmux.until("the end of the run", |screen| {
        has(screen, "nothing is running")
    });
    tmux.press("q");
    tmux.until("the shell", |screen| has(screen, "ended=0"));
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect("stty said it");
    let after = || fs::metadata(dir.path().join("after")).is_ok_and(|meta| meta.len() > 0);
    while !after() {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read("before"), read("after"));
}

#[test]
fn a_signal_ends_it_and_restores_the_terminal() {
    let Some(live) = Live::start(&[]) else { return };
    let dir = support::tempdir();
    let exe = support::zfolio().exe().display();
    let script = format!(
        "{exe} top {} < /dev/tty & top=$!; echo $top > {}/pid; wait $top; echo ended=$?; stty -a; cat",
        live.pid(),
        dir.path().display()
    );
    // (In the foreground of the terminal, though by a shell that goes on.)
    let Some(tmux) = Tmux::new("signal", 160, 50, &script) else {
        return;
    };
    tmux.until("a row of the program", |screen| has(screen, " python3"));
    let pid = fs::read_to_string(dir.path().join("pid")).expect("a pid");
    support::kill(
        pid.trim().parse().expect("a number"),
        rustix::process::Signal::TERM,
    );
    let screen = tmux.until("the shell", |screen| {
        has(screen, "ended=143") && has(screen, "icanon")
    });
    assert!(
        has(&screen, " icanon") && !has(&screen, "-icanon"),
        "{screen:?}"
    );
    live.end();
}

#[test]
fn it_ends_with_its_terminal() {
    let Some(live) = Live::start(&[]) else { return };
    let dir = support::tempdir();
    let exe = support::zfolio().exe().display();
    let place = dir.path().display();
    // As the terminal's first program, which gets SIGHUP, and as one that ignores it.
    for ignores in ["", "trap '' HUP;"] {
        let script = format!(
            "{ignores} echo $$ > {place}/pid; exec {exe} top {}",
            live.pid()
        );
        let Some(tmux) = Tmux::new("closed", 80, 24, &script) else {
            return;
        };
        tmux.until("a row of the program", |screen| has(screen, " python3"));
        let pid = fs::read_to_string(dir.path().join("pid")).expect("a pid");
        let process = format!("/proc/{}/comm", pid.trim());
        let runs = || fs::read_to_string(&process).is_ok_and(|name| name.trim() == "zfolio");
        assert!(runs());
        drop(tmux);
        let begin = Instant::now();
        while runs() {
            let waits = begin.elapsed() < Duration::from_secs(30);
            assert!(waits, "it goes on without a terminal ({ignores:?})");
            thread::sleep(Duration::from_millis(20));
        }
    }
    live.end();
}

#[test]
fn without_a_terminal_it_is_a_table_of_text() {
    let Some(mut live) = Live::start(&[]) else {
        return;
    };
    live.reads();
    for args in [&["top", &live.pid()][..], &["top", "--once"]] {
        let told = zfolio(args);
        let text = &told.succeeded().stdout;
        for part in [
            "FAULTS BY",
            "zfolio run",
            " python3",
            "resident is",
            "managing",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    live.end();
}
