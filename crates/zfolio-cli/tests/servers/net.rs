//! A network of its own for a server: a namespace and a pair of interfaces, which can be slow,
//! lose packets, or be down. Needs root, `ip` and `tc` (iproute2).

use crate::support;
use std::io::Write;
use std::process::Command;

/// One. Gone with the value.
#[derive(Debug)]
pub(crate) struct Net {
    name: String,
    outer: String,
    /// Of the server in it.
    pub(crate) address: String,
}

impl Net {
    /// Makes number `index` of this process; `None`, loudly, where it cannot be made.
    pub(crate) fn make(index: u8) -> Option<Self> {
        let id = std::process::id();
        let third = id % 250 + 1;
        let net = Self {
            name: format!("zf{id}-{index}"),
            outer: format!("zf{}{index}a", id % 100_000),
            address: format!("10.213.{third}.{}", 4 * u32::from(index) + 2),
        };
        let (name, outer) = (&net.name, &net.outer);
        let inner = format!("zf{}{index}b", id % 100_000);
        let ours = format!("10.213.{third}.{}/30", 4 * u32::from(index) + 1);
        let theirs = format!("{}/30", net.address);
        let steps: [&[&str]; 7] = [
            &["netns", "add", name],
            &["link", "add", outer, "type", "veth", "peer", "name", &inner],
            &["link", "set", &inner, "netns", name],
            &["addr", "add", &ours, "dev", outer],
            &["link", "set", outer, "up"],
            &["-n", name, "addr", "add", &theirs, "dev", &inner],
            &["-n", name, "link", "set", &inner, "up"],
        ];
        for step in steps {
            if let Err(why) = run("ip", step) {
                support::skip(&format!(
                    "a network namespace: ip {}: {why}",
                    step.join(" ")
                ));
                return None;
            }
        }
        Some(net)
    }

    /// What a program is started with to be in it.
    pub(crate) fn within(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    /// Both ways together: `delay 1ms`, `loss 1%`. False, loudly, where the kernel cannot.
    pub(crate) fn is(&self, how: &str) -> bool {
        let mut words = vec!["qdisc", "replace", "dev", &self.outer, "root", "netem"];
        words.extend(how.split(' '));
        let done = run("tc", &words);
        if let Err(why) = &done {
            // (Kernels of small machines lack it, whoever requires all else.)
            let _ = writeln!(std::io::stderr().lock(), "SKIPPED: netem: {why}");
        }
        done.is_ok()
    }

    /// Nothing goes through it, or all does again.
    pub(crate) fn is_cut(&self, cut: bool) {
        let state = if cut { "down" } else { "up" };
        run("ip", &["link", "set", &self.outer, state]).expect("ip link set");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = run("ip", &["link", "del", &self.outer]);
        let _ = run("ip", &["netns", "del", &self.name]);
    }
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let ran = Command::new(program).args(words).output();
    let ran = ran.map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    if ran.status.success() {
        Ok(())
    } else {
        Err(told)
    }
}
