//! Redis servers for a test: on loopback, in a directory of their own, ended with the value.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod net;
pub(crate) mod pipe;
pub(crate) mod session;
pub(crate) mod tap;

use super::support;
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest that servers take to begin, or a cluster to be one.
const BEGIN: Duration = Duration::from_secs(20);

/// Seconds that redis-cli may take.
const LONGEST: &str = "60";

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    /// 127.0.0.1, or where its network has it.
    pub(crate) address: String,
    pub(crate) port: u16,
    /// For TLS as well, if it has one.
    pub(crate) tls_port: Option<u16>,
    child: Child,
    dir: TempDir,
    password: Option<String>,
}

impl Server {
    /// Starts one that keeps nothing on disk unless `options` say so; `None`, loudly, where
    /// there is no redis-server.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        Self::start_as("127.0.0.1", &[], options, |_| {})
    }

    /// One at `address`, started by the words of `within` where that is not here.
    pub(crate) fn start_as(
        address: &str,
        within: &[&str],
        options: &[&str],
        change: impl Fn(&mut Command),
    ) -> Option<Self> {
        let (port, bus) = (free_port(), free_port());
        let dir = support::tempdir();
        let words: Vec<&str> = within.iter().copied().chain(["redis-server"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command.args(["--bind", address, "--port", &port.to_string()]);
        command.args(["--protected-mode", "no"]);
        command.args(["--cluster-port", &bus.to_string()]);
        command
            .args(["--save", "", "--daemonize", "no", "--dir"])
            .arg(dir.path());
        command.args(options).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        change(&mut command);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                support::skip(&format!("redis-server: {error}"));
                return None;
            }
        };
        let value = |name: &str| {
            let at = options.iter().position(|option| *option == name)?;
            options.get(at + 1)
        };
        let server = Self {
            address: address.to_owned(),
            port,
            child,
            dir,
            tls_port: value("--tls-port").map(|port| port.parse().expect("a port")),
            password: value("--requirepass").map(|word| (*word).to_owned()),
        };
        let begin = Instant::now();
        while server.cli(&["PING"]).trim() != "PONG" {
            assert!(
                begin.elapsed() < BEGIN,
                "the server on {port} does not answer"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// What it says to a command.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        // (By itself it waits for an answer for as long as it takes.)
        let mut command = Command::new("timeout");
        command.args([LONGEST, "redis-cli", "-h", &self.address]);
        command.args(["-p", &self.port.to_string()]);
        if let Some(password) = &self.password {
            command.env("REDISCLI_AUTH", password);
        }
        let output = command.args(words).output().expect("redis-cli runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Keys it has.
    pub(crate) fn keys(&self) -> u64 {
        let told = self.cli(&["DBSIZE"]);
        let number = told.trim().trim_start_matches("(integer) ").parse();
        number.unwrap_or_else(|_| panic!("DBSIZE: {told}"))
    }

    /// Whether it is a primary that has one.
    pub(crate) fn has_replica(&self) -> bool {
        let told = self.cli(&["INFO", "replication"]);
        told.contains("role:master") && told.contains("connected_slaves:1")
    }

    /// Its files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut list = Vec::new();
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for of in std::fs::read_dir(dir).expect("its directory").flatten() {
                match of.path() {
                    path if path.is_dir() => dirs.push(path),
                    path => list.push(path),
                }
            }
        }
        list
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        support::kill(self.child.id(), signal);
    }

    /// Ends it as a machine ends that loses power.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that nobody has now.
pub(crate) fn free_port() -> u16 {
    let bound = TcpListener::bind("127.0.0.1:0").expect("a port");
    bound.local_addr().expect("an address").port()
}

/// Three primaries and a replica of each.
pub(crate) fn cluster() -> Option<Vec<Server>> {
    cluster_with(Vec::new)
}

/// The same; each node has what `more` makes for it as well.
pub(crate) fn cluster_with(more: impl Fn() -> Vec<String>) -> Option<Vec<Server>> {
    let options = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "1000",
        "--cluster-replica-validity-factor",
        "0",
        "--repl-diskless-sync-delay",
        "0",
    ];
    let start = |_| {
        let more = more();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        Server::start(&[&options[..], &more].concat())
    };
    let nodes: Option<Vec<_>> = (0..6).map(start).collect();
    let nodes = nodes?;
    let mut create = Command::new("timeout");
    create.args([LONGEST, "redis-cli", "--cluster", "create"]);
    create.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
    create.args(["--cluster-replicas", "1", "--cluster-yes"]);
    let created = create.output().expect("redis-cli runs");
    let told = String::from_utf8_lossy(&created.stdout).into_owned();
    assert!(created.status.success(), "{told}");
    let begin = Instant::now();
    let ready = |node: &Server| {
        let replicated = node.cli(&["INFO", "replication"]);
        let joined = replicated.contains("master_link_status:up")
            || replicated.contains("connected_slaves:1");
        joined && node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    };
    while !nodes.iter().all(ready) {
        assert!(begin.elapsed() < BEGIN, "no cluster: {told}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Some(nodes)
}
