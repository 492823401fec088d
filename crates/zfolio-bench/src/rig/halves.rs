//! Two runs at once: each is on half of the processors, and they exchange them ten times a second.
//!
//! What disturbs the machine then disturbs both alike: the ratio of their times says what the two
//! differ by, where that of two runs one after the other says what the machine did meanwhile.

use super::program::LOOK;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use zfolio_host::process_tree::descendants;

/// Between two exchanges.
const EVERY: Duration = Duration::from_millis(100);
/// What a run may take beyond its part of the time of the one beside it, before it is ended.
const SLACK: Duration = Duration::from_secs(2);

/// Two runs that go on at the same time.
#[derive(Debug)]
pub(super) struct Pair {
    /// Each half of the processors that this process may use.
    processors: [CpuSet; 2],
    begin: Instant,
    /// When each had ended.
    ended: [OnceLock<Duration>; 2],
    /// The most that the second may take, times the first.
    most: f64,
}

/// One of the two.
#[derive(Debug)]
pub(super) struct Half<'a> {
    pair: &'a Pair,
    which: usize,
    /// The processors it was moved to last.
    on: Option<usize>,
}

impl Pair {
    /// The second of them may take `most` times as long as the first, and two seconds.
    ///
    /// # Errors
    /// Where there are no two processors.
    pub(super) fn new(most: f64) -> Result<Self, String> {
        let own = sched_getaffinity(None).map_err(|error| format!("processors: {error}"))?;
        Ok(Self {
            processors: halves(&own).ok_or("two runs at once need two processors")?,
            begin: Instant::now(),
            ended: [const { OnceLock::new() }; 2],
            most,
        })
    }

    /// The first (0) or the second (1).
    pub(super) fn half(&self, which: usize) -> Half<'_> {
        Half {
            pair: self,
            which,
            on: None,
        }
    }

    /// Whether the second has taken so long that it need not be waited for.
    fn is_too_late(&self, now: Duration) -> bool {
        self.ended[0].get().is_some_and(|first| {
            (now.saturating_sub(SLACK)).as_secs_f64() > first.as_secs_f64() * self.most
        })
    }
}

impl Half<'_> {
    /// Notes that the run has ended; others may follow it, until the other has.
    pub(super) fn end(&mut self) {
        self.on = None;
        let _ = self.pair.ended[self.which].set(self.pair.begin.elapsed());
    }

    pub(super) fn other_has_ended(&self) -> bool {
        self.pair.ended[1 - self.which].get().is_some()
    }

    /// Time since both began.
    pub(super) fn elapsed(&self) -> Duration {
        self.pair.begin.elapsed()
    }

    /// Moves the processes from `root` on, when it is time to. The time until the next look; `None`
    /// once the run is to be ended.
    pub(super) fn look(&mut self, root: u32) -> Option<Duration> {
        let now = self.pair.begin.elapsed();
        let (on, left) = turn(now, self.which);
        if self.on.replace(on) != Some(on) {
            move_to(root, &self.pair.processors[on]);
        }
        let goes_on = self.which == 0 || !self.pair.is_too_late(now);
        goes_on.then(|| LOOK.min(left))
    }
}

/// The half that `which` is on at a time, and how long it still is.
fn turn(now: Duration, which: usize) -> (usize, Duration) {
    let (now, every) = (now.as_micros(), EVERY.as_micros());
    let left = every - now % every;
    let is_odd = (now / every) % 2 == 1;
    let left = Duration::from_micros(u64::try_from(left).unwrap_or(1));
    (which ^ usize::from(is_odd), left)
}

/// Two halves of a set; of an odd number one is left out. `None` where there are no two.
fn halves(of: &CpuSet) -> Option<[CpuSet; 2]> {
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| of.is_set(*cpu)).collect();
    let half = all.len() / 2;
    (half > 0).then(|| {
        [&all[..half], &all[half..2 * half]].map(|cpus| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu));
            set
        })
    })
}

/// Every thread of `root` and of what is below it. One that begins meanwhile has the processors of who
/// began it, until the next exchange.
fn move_to(root: u32, processors: &CpuSet) {
    for pid in descendants(root).into_iter().chain([root]) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let name = task.file_name();
            let task = name.to_str().and_then(|name| name.parse().ok());
            if let Some(task) = task.and_then(Pid::from_raw) {
                // (It may have ended.)
                let _ = sched_setaffinity(Some(task), processors);
            }
        }
    }
}

/// Whether there are processors for two runs at once.
pub(super) fn are_there() -> bool {
    sched_getaffinity(None).is_ok_and(|own| halves(&own).is_some())
}

#[cfg(test)]
mod tests {
    use super::super::program::{ENDED, ended};
    use super::*;
    use std::process::Command;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn halves_are_as_large_and_have_nothing_in_common() {
        assert_eq!(halves(&set(&[3, 5])), Some([set(&[3]), set(&[5])]));
        let odd = halves(&set(&[0, 1, 2, 3, 4]));
        assert_eq!(odd, Some([set(&[0, 1]), set(&[2, 3])]));
        assert_eq!(halves(&set(&[7])), None);
    }

    #[test]
    fn both_are_never_on_the_same_half_and_each_is_on_both() {
        let mut on = [[0_u32; 2]; 2];
        for millis in (0..1000).step_by(10) {
            let now = Duration::from_millis(millis);
            let ((one, left), (other, same)) = (turn(now, 0), turn(now, 1));
            assert_eq!((one + other, left), (1, same));
            assert!(left > Duration::ZERO && left <= EVERY);
            on[0][one] += 1;
            on[1][other] += 1;
        }
        assert_eq!(on, [[50, 50]; 2]);
    }

    #[test]
    fn who_takes_too_long_is_ended_and_each_is_moved() {
        if !are_there() {
            eprintln!("SKIPPED: two runs at once need two processors");
            return;
        }
        let pair = Pair::new(1.0).expect("two processors");
        let _ = pair.ended[0].set(Duration::ZERO);
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do sleep 0.01; done"]);
        let limit = Duration::from_secs(60);
        let (mut half, mut seen) = (pair.half(1), Vec::new());
        let ran = ended(&mut command, limit, false, |pid| {
            let next = half.look(pid);
            let own = Pid::from_raw(i32::try_from(pid).unwrap_or(0));
            seen.extend(sched_getaffinity(own).ok());
            next
        });
        assert!(ran.is_err_and(|why| why.starts_with(ENDED)));
        let took = pair.begin.elapsed();
        assert!(took >= SLACK && took < limit, "{took:?}");
        for half in &pair.processors {
            assert!(seen.contains(half), "{seen:?}");
        }
    }
}
