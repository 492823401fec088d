//! What a process has run, from /proc.

use rustix::param::clock_ticks_per_second;
use std::fs;
use std::time::Duration;

/// Processor time of a process and of those that it has waited for, as its kernel counts it: in hundredths of
/// a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
    /// Threads that it has now.
    pub threads: u64,
}

impl ProcessTime {
    /// Of a process that there is, ended or not; `None` once it was waited for.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may have blanks. After it comes the third field.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let field = |at: usize| fields.get(at - 3)?.parse::<u64>().ok();
        let tick = 1_000_000_000 / clock_ticks_per_second().max(1);
        let sum = |own, waited_for| {
            let ticks = field(own)? + field(waited_for)?;
            Some(Duration::from_nanos(ticks * tick))
        };
        Some(Self {
            user: sum(14, 16)?,
            system: sum(15, 17)?,
            threads: field(20)?,
        })
    }

    /// In user mode and in the kernel.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn a_process_is_seen_to_run() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let pid = child.id();
        let of = || ProcessTime::of(pid).unwrap();
        while of().total() < Duration::from_millis(50) {
            assert!(begin.elapsed().as_secs() < 60);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(of().threads, 1);
        child.kill().unwrap();
        // Ended, and not yet waited for.
        while !fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap()
            .contains(") Z ")
        {
            assert!(begin.elapsed().as_secs() < 60);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(of().total() >= Duration::from_millis(50));
        child.wait().unwrap();
        assert_eq!(ProcessTime::of(pid), None);
    }
}
