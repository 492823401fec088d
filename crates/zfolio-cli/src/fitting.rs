//! `high` where none was given: inside a memory limit, what keeps the job under it at the
//! least cost; else half of the machine's memory.
//!
//! Below the limit everything should be the program's: what is moved out without need costs
//! time. Above it the kernel kills. So `high` is the limit less what others have of it, and
//! less a reserve. *Others* is all that does not count against `high` and cannot be dropped:
//! the kernel's memory, shared memory, dirty files, `zfolio run` itself, processes that are
//! not managed, other jobs within the same limit. File pages that can be dropped are the
//! kernel's to drop, as they are for a program that runs bare.
//!
//! While the program runs this is looked at again: `high` sinks when what is left of the
//! reserve becomes little, down to what is left for it, and rises again, up to what it was at
//! the start.
//!
//! # Invariants
//! - `high` is never below half of what the others leave, nor below [`MIN_HIGH`]: a reserve
//!   that was chosen too large costs time, and a job without memory does not get on.
//! - It never rises above what the run began with, unless somebody asks for that
//!   (`requests`); then it is what was asked for.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use zfolio_host::cgroup_limits::{Limits, Use};
use zfolio_host::group_state::high_now;
use zfolio_host::machine::mem_total;
use zfolio_host::size::MIN_HIGH;
use zfolio_host::slots::used;
use zfolio_runtime::segment::{Segment, state};

/// Between two looks at least.
const EVERY: Duration = Duration::from_millis(100);
/// Looking takes at most this part of the time.
const SHARE: u32 = 50;
/// `high` is a multiple of this, bytes: it is told to people.
const ROUND: u64 = 1 << 20;

/// Kept free of a limit, bytes: for page tables and other memory of the kernel's that grows
/// with the program, for what a program grows by between two looks, and for its files. An
/// eighth of a small limit, a 64th of what is large of a large one.
const fn reserve(limit: u64) -> u64 {
    const STEPS: [(u64, u64); 3] = [(192 << 20, 8), (2 << 30, 32), (u64::MAX, 64)];
    let (mut below, mut reserve, mut at) = (0, 0, 0);
    while at < STEPS.len() {
        let (end, part) = STEPS[at];
        let end = if end < limit { end } else { limit };
        reserve += (end - below) / part;
        below = end;
        at += 1;
    }
    reserve
}

/// What a limit leaves of which others have so much, less the reserve.
fn left(limit: u64, others: u64) -> u64 {
    let left = limit.saturating_sub(others);
    let high = left.saturating_sub(reserve(limit)).max(left / 2);
    (high / ROUND * ROUND).max(MIN_HIGH)
}

/// The `high` that is chosen, and the limit that decided it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    /// Bytes.
    pub(crate) high: u64,
    /// Bytes; `None` where there is none, or `high` was given.
    pub(crate) limit: Option<u64>,
}

impl Chosen {
    /// For limits of which so much is in use, on a machine of so much memory.
    fn of(uses: &[Use], machine: u64) -> Self {
        // (The program has nothing yet: all that is taken is others'.)
        let each = uses.iter().map(|of| (left(of.limit, of.taken), of.limit));
        match each.min() {
            Some((high, limit)) => Self {
                high,
                limit: Some(limit),
            },
            None => Self {
                high: (machine / 2 / ROUND * ROUND).max(MIN_HIGH),
                limit: None,
            },
        }
    }
}

/// Keeps a run within the limits it is in.
#[derive(Debug)]
pub(crate) struct Fitting {
    limits: Limits,
    chosen: Chosen,
    /// What [`Fitting::most`] said last, bytes.
    most: u64,
    next: Instant,
}

impl Fitting {
    /// Looks at the limits there are; there is nothing to keep to where `high` is `given`
    /// (bytes).
    pub(crate) fn find(given: Option<u64>, now: Instant) -> Self {
        let machine = mem_total();
        let limits = Limits::here(machine);
        let chosen = match given {
            Some(high) => Chosen { high, limit: None },
            None => Chosen::of(&limits.read(), machine),
        };
        Self {
            limits,
            chosen,
            most: chosen.high,
            next: now,
        }
    }

    /// What it is to begin with.
    pub(crate) const fn chosen(&self) -> Chosen {
        self.chosen
    }

    /// From now on it is this, bytes, which somebody asked for.
    pub(crate) const fn give(&mut self, high: u64) {
        self.chosen = Chosen { high, limit: None };
    }

    /// Whether there is a limit, and a `high` that processes share.
    fn is_followed(&self, segment: &Segment) -> bool {
        self.chosen.limit.is_some() && segment.config().limits.shared.load(Relaxed) != 0
    }

    /// Looks again, if it is time, and says it anew.
    pub(crate) fn look(&mut self, segment: &Segment, now: Instant) {
        let last = high_now(segment);
        let high = self.again(segment, last, now);
        if high != last {
            segment.groups[0].high.store(high, Relaxed);
        }
    }

    /// The same where somebody else says what `high` is: what that may be at most now, bytes.
    pub(crate) fn most(&mut self, segment: &Segment, now: Instant) -> u64 {
        self.most = self.again(segment, self.most, now);
        self.most.min(segment.config().limits.high.load(Relaxed))
    }

    /// What `high` is to be that was `last`, bytes; `last` if it is not time yet.
    fn again(&mut self, segment: &Segment, last: u64, now: Instant) -> u64 {
        if !self.is_followed(segment) || now < self.next {
            return last;
        }
        let uses = self.limits.read();
        let ours = anonymous(segment);
        let each = uses.iter().map(|of| again(*of, ours, last));
        let most = segment.config().limits.high.load(Relaxed);
        let high = each.min().unwrap_or(most).min(most);
        self.next = now + EVERY.max(now.elapsed() * SHARE);
        high
    }
}

/// What `high` is to be within a limit, where the run's processes have `ours` and it was
/// `last`. Bytes.
fn again(of: Use, ours: u64, last: u64) -> u64 {
    // (What parent and child share counts in both of them, but once for the kernel.)
    let others = of.taken - of.anonymous.min(ours);
    let high = left(of.limit, others);
    let free = of.limit.saturating_sub(of.taken);
    // While there is room nobody need shrink: what of it is others' may be the run's own
    // that has not said so yet.
    if free >= reserve(of.limit) / 2 {
        high.max(last)
    } else {
        high
    }
}

/// Anonymous memory of the living processes that keep to `high`, bytes.
fn anonymous(segment: &Segment) -> u64 {
    // (The last slot of a process is its own: it may have become another program.)
    let slots = used(segment).into_iter().map(|used| used.slot);
    let last = slots.map(|slot| (slot.process.pid.load(Relaxed), slot.state.load(Relaxed)));
    let last: HashMap<u32, u32> = last.collect();
    let keep = last
        .into_iter()
        .filter(|(_, state)| matches!(*state, state::MANAGING | state::WATCHING));
    keep.filter_map(|(pid, _)| anonymous_of(pid)).sum()
}

fn anonymous_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_host::segment_file::OwnSegment;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_reserve_is_a_small_part_of_any_limit() {
        for (limit, mib) in [
            (0, 0),
            (64 << 20, 8),
            (200 << 20, 24),
            (300 << 20, 27),
            (512 << 20, 34),
            (4 << 30, 114),
            (64 << 30, 1074),
        ] {
            assert_eq!(reserve(limit) >> 20, mib, "{limit}");
        }
    }

    #[test]
    fn high_is_what_is_left_but_for_the_reserve() {
        let limit = 300 * MIB;
        assert_eq!(left(limit, 2 * MIB), 270 * MIB);
        assert_eq!(left(limit, 100 * MIB), 172 * MIB);
        // Where nearly all is others', half of the rest; and never less than what there
        // must be.
        assert_eq!(left(limit, 270 * MIB), 15 * MIB);
        assert_eq!(left(limit, 299 * MIB), MIN_HIGH);
        assert_eq!(left(limit, 400 * MIB), MIN_HIGH);
        assert_eq!(left(32 * MIB, 3 * MIB), 25 * MIB);
    }

    /// `high` anew, where a limit of 300 MiB is in use so far, all in MiB.
    fn next(taken: u64, anonymous: u64, ours: u64, last: u64) -> u64 {
        let of = Use {
            limit: 300 * MIB,
            taken: taken * MIB,
            anonymous: anonymous * MIB,
        };
        again(of, ours * MIB, last * MIB) / MIB
    }

    #[test]
    fn high_sinks_when_others_take_what_is_left() {
        // All is the run's own but for 3 MiB.
        assert_eq!(next(270, 267, 267, 269), 269);
        // Another has taken 40 MiB, of whatever kind.
        assert_eq!(next(295, 292, 252, 269), 229);
        assert_eq!(next(295, 252, 252, 269), 229);
        // Gone again.
        assert_eq!(next(240, 237, 237, 229), 269);
        // Of what two processes share nothing is others'.
        assert_eq!(next(295, 290, 500, 269), 267);
    }

    #[test]
    fn nobody_shrinks_while_there_is_room() {
        // A process of the run that has not said so yet looks like another's.
        assert_eq!(next(150, 148, 0, 269), 269);
        assert_eq!(next(280, 278, 0, 269), 269);
        assert_eq!(next(291, 289, 0, 269), MIN_HIGH / MIB);
    }

    #[test]
    fn the_tightest_limit_is_chosen_for() {
        let of = |limit: u64, taken: u64| Use {
            limit: limit * MIB,
            taken: taken * MIB,
            anonymous: 0,
        };
        let chosen = Chosen::of(&[of(300, 2), of(1024, 800)], 1 << 40);
        let expected = Chosen {
            high: 174 * MIB,
            limit: Some(1024 * MIB),
        };
        assert_eq!(chosen, expected);
        let chosen = Chosen::of(&[], 1 << 34);
        let half = 1 << 33;
        let expected = Chosen {
            high: half,
            limit: None,
        };
        assert_eq!(chosen, expected);
    }

    /// A run of 270 MiB in a group of 300 of which so much is taken.
    #[test]
    fn the_run_is_told_of_what_there_is() {
        let group = tempfile::tempdir().expect("a directory");
        let point = group.path().to_str().expect("a plain path");
        let mount = format!("30 23 0:26 / {point} rw - cgroup2 cgroup rw\n");
        let write = |file: &str, bytes: u64| {
            fs::write(group.path().join(file), bytes.to_string()).expect("written");
        };
        write("memory.max", 300 * MIB);
        write("memory.current", 2 * MIB);
        let limits = Limits::of("0::/\n", &mount, u64::MAX);
        let now = Instant::now();
        let mut fitting = Fitting {
            chosen: Chosen::of(&limits.read(), 1 << 40),
            limits,
            most: 0,
            next: now,
        };
        assert_eq!(fitting.chosen().high, 270 * MIB);
        let segment = OwnSegment::create(|_| {}).expect("a segment");
        segment
            .config()
            .limits
            .high
            .store(fitting.chosen().high, Relaxed);
        segment.config().limits.shared.store(1, Relaxed);
        // 98 MiB go to others, not at once; then 195 more.
        write("memory.current", 100 * MIB);
        fitting.look(&segment, now);
        assert_eq!(high_now(&segment), 270 * MIB, "there is room");
        write("memory.current", 295 * MIB);
        fitting.look(&segment, now);
        assert_eq!(high_now(&segment), 270 * MIB, "it is not time");
        fitting.look(&segment, now + 2 * EVERY);
        assert_eq!(high_now(&segment), MIN_HIGH);
        write("memory.current", 20 * MIB);
        fitting.next = now;
        fitting.look(&segment, now);
        assert_eq!(high_now(&segment), 252 * MIB);
    }

    #[test]
    fn memory_of_a_process_is_read() {
        assert!(anonymous_of(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(anonymous_of(u32::MAX), None);
        // A process counts once, by its last slot; nobody counts nothing.
        let segment = OwnSegment::create(|_| {}).expect("a segment");
        for (pid, state) in [
            (std::process::id(), state::UNMANAGED),
            (std::process::id(), state::MANAGING),
            (u32::MAX, state::MANAGING),
        ] {
            let slot = &segment.slots[segment.claim(pid)];
            slot.state.store(state, Relaxed);
        }
        let ours = anonymous(&segment);
        assert!(ours > 100_000 && ours < 1 << 40, "{ours}");
        segment.slots[1].state.store(state::UNMANAGED, Relaxed);
        assert_eq!(anonymous(&segment), 0);
    }
}
