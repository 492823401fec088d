//! What processors had to spare.
//!
//! Processor time that ours take is a loss of the program's only where no processor was idle that it may
//! run on. Idle is what /proc/stat has of the processors to which the threads of the tree are bound, and
//! no more than what the number of processors that may be used at once (a quota of a control group) leaves
//! of the time that passed.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs;
use std::time::Duration;
use zfolio_host::machine;

/// The kernel tells processor time in parts of so much, and a look comes a little early or late: what is left over
/// or lacks is carried on, up to this. ns.
const CARRIED: i64 = 50_000_000;
/// The quota is looked up again after so many looks.
const QUOTA_LOOKS: u32 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// What each processor was idle when it was looked at last, ns.
    idle: Vec<u64>,
    /// Processors that may be used at once.
    at_once: u64,
    looks: u32,
    /// What the tree could have run since the last look, ns.
    capacity: i64,
    /// Of that, what was idle.
    was_idle: i64,
    /// Idle time that nothing was set against yet; below 0: what lacks of it. ns.
    left: i64,
}

impl Spare {
    /// Looks after so much time, at a tree of these processes.
    pub(super) fn look(&mut self, pids: &[u32], passed: Duration) {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let idle = idle_of_each(&stat);
        let mut may = CpuSet::new();
        for pid in pids {
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            let set = pid.and_then(|pid| sched_getaffinity(Some(pid)).ok());
            let Some(set) = set else { continue };
            for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
                may.set(cpu);
            }
        }
        if self.looks.is_multiple_of(QUOTA_LOOKS) {
            self.at_once = machine::cpus() as u64;
        }
        self.looks = self.looks.wrapping_add(1);
        let bound = u64::from(may.count()).min(self.at_once).max(1);
        self.capacity = signed(bound.saturating_mul(signed(passed.as_nanos()).unsigned_abs()));
        self.was_idle = (0..)
            .zip(&idle)
            .filter(|(cpu, _)| *cpu < CpuSet::MAX_CPU && may.is_set(*cpu))
            .map(|(cpu, now)| now.saturating_sub(*self.idle.get(cpu).unwrap_or(now)))
            .fold(0, |sum, more| sum + signed(more));
        self.idle = idle;
    }

    /// Processors that may be used at once, as last seen.
    pub(super) fn at_once(&self) -> u64 {
        self.at_once.max(1)
    }

    /// Of `ours`, what was more than what processors had to spare between the last two looks, in which the
    /// tree ran `ran` in all. ns.
    pub(super) fn beyond(&mut self, ours: u64, ran: u64) -> u64 {
        let spare = self.was_idle.min(self.capacity - signed(ran));
        self.left = (self.left + spare).clamp(-CARRIED, CARRIED.max(spare));
        let free = ours.min(self.left.max(0).unsigned_abs());
        self.left -= signed(free);
        ours - free
    }
}

fn signed<N: TryInto<i64>>(of: N) -> i64 {
    of.try_into().unwrap_or(i64::MAX)
}

/// What each processor was idle, ns: those that are off are 0.
fn idle_of_each(stat: &str) -> Vec<u64> {
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let mut all = Vec::new();
    for line in stat.lines().take_while(|line| line.starts_with("cpu")) {
        let mut fields = line.split_ascii_whitespace();
        let number = fields
            .next()
            .and_then(|name| name["cpu".len()..].parse::<usize>().ok());
        let mut times = fields
            .skip(3)
            .map(|field| field.parse::<u64>().unwrap_or(0));
        let (Some(number), Some(idle)) = (number, times.next()) else {
            continue;
        };
        if number >= CpuSet::MAX_CPU {
            continue;
        }
        all.resize(all.len().max(number + 1), 0);
        all[number] = (idle + times.next().unwrap_or(0)).saturating_mul(tick);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_is_told() {
        let stat = "cpu  9 9 9 30 1 0\ncpu0 1 1 1 10 1 0 0\ncpu2 1 1 1 20 0 0\nintr 7 7\n";
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(idle_of_each(stat), [11 * tick, 0, 20 * tick]);
        let here = idle_of_each(&fs::read_to_string("/proc/stat").unwrap());
        assert!(here.iter().sum::<u64>() > 0);
    }

    #[test]
    fn what_was_idle_is_not_taken() {
        let mut spare = Spare {
            capacity: 1_000,
            was_idle: 100,
            ..Spare::default()
        };
        assert_eq!(spare.beyond(60, 500), 0);
        spare.was_idle = 0;
        assert_eq!(spare.beyond(100, 1_000), 60, "40 were left");
        // What lacks is set off later, and what is over is not kept for long.
        assert_eq!(spare.beyond(0, 1_050), 0);
        spare.was_idle = 80;
        assert_eq!(spare.beyond(80, 900), 50);
        let hour = 3_600_000_000_000_u64;
        (spare.capacity, spare.was_idle) = (signed(hour), signed(hour));
        assert_eq!(spare.beyond(0, 0), 0);
        (spare.capacity, spare.was_idle) = (0, 0);
        spare.beyond(0, 0);
        assert_eq!(spare.beyond(100_000_000, 0), 50_000_000);
    }

    /// A tree that may run on one processor, or has a quota of one, has nothing to spare while it runs.
    #[test]
    fn a_quota_counts() {
        let mut spare = Spare {
            capacity: 1_000,
            was_idle: 1_000,
            ..Spare::default()
        };
        assert_eq!(spare.beyond(70, 1_000), 70);
        assert_eq!(spare.beyond(70, 900), 0);
    }

    #[test]
    fn this_process_may_run_somewhere() {
        let mut spare = Spare::default();
        let own = [std::process::id()];
        spare.look(&own, Duration::from_millis(1));
        assert_eq!(spare.was_idle, 0, "there is nothing to compare with yet");
        assert!(spare.capacity >= 1_000_000 && spare.at_once > 0);
    }
}
