//! A way in which faults are told, and runs in it.

use crate::memory::compiled;
use crate::nobody::Nobody;
use crate::servers::Server;
use crate::servers::session::{Ended, Session};
use crate::support::{self, Output};
use std::path::PathBuf;
use std::process::Command;

/// Runs in a way: by messages with privilege, in the others as a user who may nothing.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) way: &'static str,
    nobody: &'a Nobody,
}

impl<'a> Place<'a> {
    /// `None`, loudly, where there is no such way here.
    pub(crate) fn new(way: &'static str, nobody: &'a Nobody) -> Option<Self> {
        let place = Self { way, nobody };
        place.command().map(|_| place)
    }

    /// Whether the thread that faults serves itself.
    pub(crate) fn is_own(&self) -> bool {
        self.way != "message"
    }

    /// `zfolio run`, to which options are to be added.
    fn command(&self) -> Option<Command> {
        if self.is_own() {
            return self.nobody.command(self.way);
        }
        let z = support::real()?;
        Some(z.command(["run", "--faults", self.way]))
    }

    /// A program of `tests/programs`, where it can be run; `None` after saying why not.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let path = compiled(name)?;
        Some(match self.is_own() {
            true => self.nobody.program(&path),
            false => path,
        })
    }

    /// Begins a session of `program` with a store.
    pub(crate) fn begin(&self, program: &[&str], backing: &str) -> Option<Session> {
        self.begin_with(program, backing, &[])
    }

    /// The same with other options as well.
    pub(crate) fn begin_with(
        &self,
        program: &[&str],
        backing: &str,
        options: &[&str],
    ) -> Option<Session> {
        let path = self.program(program[0])?;
        let command = self.command()?;
        let session = Session::begin_by(command, &path, backing, program, options, |_| {});
        Some(session)
    }

    /// One server, and a session over 40 MiB that has filled them; `choices` of the backing.
    pub(crate) fn filled(&self, choices: &str) -> Option<([Server; 1], Session)> {
        let servers = [Server::start(&[])?];
        let mut session = self.begin(&["stepped", "40"], &url(&servers, choices))?;
        session.step("fill 1");
        Some((servers, session))
    }

    /// Nothing that was to be written or read was refused. (A write that a machine with much
    /// to do has not ended in 3.5 s counts as failed, and is tried again.)
    pub(crate) fn had_all_taken(&self, ended: &Ended) {
        for (name, most) in [
            ("backing_refused", 0),
            ("backing_read_fail", 0),
            ("backing_write_fail", 4),
        ] {
            let count = ended.counter(name);
            assert!(
                count <= most,
                "{}: {count} {name}: {}",
                self.way,
                ended.stderr
            );
        }
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Option<Output> {
        if self.is_own() {
            return self.nobody.run_with(self.way, options, command);
        }
        let options = [&["--quiet", "--faults", self.way], options].concat();
        Some(support::real()?.run_with(&options, command, ""))
    }
}

/// The URL of servers by themselves.
pub(crate) fn url(servers: &[Server], choices: &str) -> String {
    let hosts = servers.iter().map(|of| format!("127.0.0.1:{}", of.port));
    let hosts: Vec<String> = hosts.collect();
    format!("redis://{}{choices}", hosts.join(","))
}
