//! Exit statuses of `zfolio`, and the one-line failures that carry them.
//!
//! `zfolio run` passes the program's own status through, so ours are chosen
//! where few programs have theirs: the range of sysexits(3), plus the shell's
//! 126 and 127. The same table is printed by `--help`.

use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $meaning:literal;)*) => {
        /// Why `zfolio` itself ended. The code is the exit status.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Status { $($(#[$doc])* $variant = $code,)* }

        impl Status {
            /// Every status with what it means, in numeric order.
            pub const TABLE: &'static [(Self, &'static str)] =
                &[$((Self::$variant, $meaning),)*];
        }
    };
}

statuses! {
    /// The command line is wrong.
    Usage = 2, "the command line is wrong";
    /// A bug or an unexpected refusal by the system.
    Internal = 70, "the system refused something zfolio relies on";
    /// No way of telling faults works here, or not the one asked for.
    Machine = 71, "programs cannot be managed here, or not by the way asked for (zfolio doctor says why)";
    /// No usable preload library.
    Preload = 72, "libzfolio_preload.so was not found, is not usable or of another version";
    /// A file that was asked for, or the control segment, cannot be created.
    CannotCreate = 73, "a file of ours cannot be created (--stats, --json, --plot, --record, --metrics, control segment), or written (standard output)";
    /// The statistics could not be written after the program had succeeded.
    StatsLost = 74, "the program succeeded, but its statistics could not be written";
    /// Statically linked: nothing can be preloaded.
    Static = 75, "the program is statically linked";
    /// Another architecture or C library.
    Foreign = 76, "the program is for another architecture or C library";
    /// setuid, setgid or file capabilities.
    Privileged = 77, "the program is setuid, setgid or has file capabilities";
    /// `doctor` found something that prevents running.
    Doctor = 78, "zfolio doctor: this machine cannot run managed programs";
    /// The demonstration did not keep what it promises.
    Demo = 79, "zfolio demo: data differed, or memory was not kept";
    /// `inspect` of a process that is not there.
    NoProcess = 80, "zfolio inspect: there is no such process";
    /// `inspect` of a process that is not managed.
    NotManaged = 81, "zfolio inspect: the process is not managed";
    /// `inspect` of a process that does not answer.
    NoAnswer = 82, "zfolio inspect: the process did not answer in time, or may not be traced";
    /// `inspect` where what is out has no room.
    NoRoom = 83, "zfolio inspect: too little memory is free for what has to come back";
    /// Found, but cannot be executed.
    NotExecutable = 126, "the program was found and cannot be executed";
    /// Not found.
    NotFound = 127, "the program was not found";
}

impl Status {
    /// The number given to exit(2).
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// The table as `--help` shows it.
pub fn help() -> String {
    let mut text = String::from(
        "Exit status:\n  zfolio run ends as the program does: with its status, or by its signal. Otherwise:\n",
    );
    for (status, meaning) in Status::TABLE {
        text.push_str(&format!("  {:>3}  {meaning}\n", status.code()));
    }
    text
}

/// A failure, told in one line: `zfolio: WHAT: WHY; WHAT TO DO`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Exit status.
    pub status: Status,
    line: String,
}

impl Failure {
    /// `what` went wrong, `why`, and what to `mend`.
    pub fn new(
        status: Status,
        what: impl fmt::Display,
        why: impl fmt::Display,
        mend: impl fmt::Display,
    ) -> Self {
        let line = format!("zfolio: {what}: {why}; {mend}");
        Self {
            status,
            line: one_line(&line),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// Control characters (a newline in a file name, an escape in a message)
/// become blanks: one failure is one line whatever was in it.
pub fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_ordered() {
        let codes: Vec<u8> = Status::TABLE
            .iter()
            .map(|(status, _)| status.code())
            .collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
    }

    #[test]
    fn help_names_every_code() {
        let help = help();
        for (status, meaning) in Status::TABLE {
            assert!(help.contains(&format!("{:>3}  {meaning}", status.code())));
        }
    }

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new(Status::NotFound, "a\nb", "c\x1b[2J", "d");
        assert_eq!(failure.to_string(), "zfolio: a b: c [2J; d");
    }
}
