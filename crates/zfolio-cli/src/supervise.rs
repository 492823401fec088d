//! Starting the program and standing in for it until it ends.
//!
//! A wrapper should be invisible: whoever signals, stops or waits for `zfolio`
//! means the program.
//!
//! | signal | what happens |
//! |---|---|
//! | INT, QUIT, WINCH from the terminal | nothing: the program is in the same group and got it too |
//! | INT, QUIT, WINCH sent to us by somebody | forwarded |
//! | TERM, HUP, USR1, USR2, ALRM, CONT | forwarded |
//! | what was ignored when we started | stays ignored, in the program too |
//! | TSTP from the terminal | stops us by default, as it does the program |
//!
//! When the program stops itself from a terminal (an editor's ^Z), we stop as
//! well, so that the shell takes the terminal back.
//!
//! Not a subreaper: orphans of the program go to init as they would without
//! us; adopting them would mean waiting for daemons, and their parent id would
//! differ. The run ends when the program does.
//!
//! As *init* of a pid namespace (process 1, of a container say) we have what an init must do:
//! orphans are waited for, whoever's they were, and where the program ends by a signal our
//! status is 128 and its number, since the kernel lets nobody end an init by a signal, itself
//! included. When we end the kernel ends all others in the namespace.

use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::signal as sig;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::fs::File;
use std::io;
use std::process::{Command, ExitCode};

/// How the program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With this exit status.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

impl Outcome {
    /// Ends this process the same way; the status is returned where there is
    /// one. A core is the program's to leave, not ours.
    pub(crate) fn follow(self) -> ExitCode {
        match self {
            Self::Exited(status) => ExitCode::from(status),
            Self::Killed(signal) if is_init() => status_of(signal),
            Self::Killed(signal) => {
                let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
                // Returns only for signals it does not know: then as a shell.
                let _ = emulate_default_handler(signal);
                status_of(signal)
            }
        }
    }
}

/// The status that stands for a signal, as shells have it.
fn status_of(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// Whether we are the init of a pid namespace.
fn is_init() -> bool {
    std::process::id() == 1
}

const TERMINAL: [i32; 3] = [sig::SIGINT, sig::SIGQUIT, sig::SIGWINCH];
const FORWARDED: [i32; 6] = [
    sig::SIGTERM,
    sig::SIGHUP,
    sig::SIGUSR1,
    sig::SIGUSR2,
    sig::SIGALRM,
    sig::SIGCONT,
];

/// Signal handlers in place; from here on none of the above ends us.
#[derive(Debug)]
pub(crate) struct Supervisor {
    signals: SignalsInfo<WithOrigin>,
}

impl Supervisor {
    /// Installs the handlers. exec resets them in the program.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn install() -> io::Result<Self> {
        let ignored = zfolio_host::machine::status_field("SigIgn")
            .and_then(|mask| u64::from_str_radix(&mask, 16).ok())
            .unwrap_or(0);
        let wanted = TERMINAL
            .into_iter()
            .chain(FORWARDED)
            .filter(|signal| ignored >> (signal - 1) & 1 == 0);
        // CHLD even where it was ignored: the kernel would reap for us.
        let signals = SignalsInfo::new(wanted.chain([sig::SIGCHLD]))?;
        Ok(Self { signals })
    }

    /// Starts the program.
    ///
    /// # Errors
    /// As fork and exec do.
    pub(crate) fn start(self, command: &mut Command) -> io::Result<Running> {
        let child = command.spawn()?;
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(io::ErrorKind::InvalidData)?;
        Ok(Running {
            supervisor: self,
            pid,
        })
    }
}

/// The program, running.
#[derive(Debug)]
pub(crate) struct Running {
    supervisor: Supervisor,
    pid: Pid,
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for its end, passing signals on; as init, for orphans as well.
    ///
    /// # Errors
    /// When somebody else has waited for it.
    pub(crate) fn wait(mut self) -> io::Result<Outcome> {
        loop {
            let arrived: Vec<Origin> = self.supervisor.signals.wait().collect();
            for origin in arrived {
                if self.is_for_program(&origin) {
                    self.forward(origin.signal);
                }
            }
            let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
            let whom = (!is_init()).then_some(self.pid);
            while let Some((pid, status)) = rustix::process::waitpid(whom, options)? {
                if pid != self.pid {
                    continue; // an orphan
                }
                if let Some(outcome) = ended(status) {
                    return Ok(outcome);
                }
                if let Some(signal) = status.stopping_signal() {
                    self.stopped(signal);
                }
            }
        }
    }

    fn is_for_program(&self, origin: &Origin) -> bool {
        if origin.signal == sig::SIGCHLD {
            return false;
        }
        let sender = origin.process.map(|process| process.pid);
        if sender == Some(self.pid.as_raw_nonzero().get()) {
            return false; // it signals its group, itself included
        }
        !(TERMINAL.contains(&origin.signal) && matches!(origin.cause, Cause::Kernel))
    }

    fn forward(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // Gone already: its status is on the way.
            let _ = rustix::process::kill_process(self.pid, signal);
        }
    }

    fn stopped(&self, signal: i32) {
        let by_terminal = [sig::SIGTSTP, sig::SIGTTIN, sig::SIGTTOU].contains(&signal);
        // Continued again meanwhile, or nobody there to continue us: run on.
        if by_terminal && File::open("/dev/tty").is_ok() && self.is_stopped() {
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        }
    }

    fn is_stopped(&self) -> bool {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    }
}

fn ended(status: WaitStatus) -> Option<Outcome> {
    if let Some(code) = status.exit_status() {
        return Some(Outcome::Exited(
            u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        ));
    }
    status.terminating_signal().map(Outcome::Killed)
}
