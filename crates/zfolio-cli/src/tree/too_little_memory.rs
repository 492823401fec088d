//! Telling of a process that has too little room, while it runs: what does not
//! fit in `high` even compressed goes in and out for ever, and its user would
//! look at a program that works and gets nowhere.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use zfolio_host::exit::one_line;
use zfolio_host::group_state::high_now;
use zfolio_host::size::human;
use zfolio_host::slots::{ByTurn, used};
use zfolio_host::statistics::Process;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::{Counter, Segment, Used, state};

/// Between two judgements.
const EVERY: Duration = Duration::from_secs(1);
/// Judgements in a row before it is told.
const TIMES: u32 = 10;

/// What is known of a process.
#[derive(Clone, Copy, Default)]
struct Seen {
    pages_in: u64,
    told: bool,
}

/// A process to which something was brought back since the last judgement.
struct Busy<'a> {
    used: Used<'a>,
    pool: u64,
    resident: u64,
    /// Bytes.
    brought: u64,
}

/// Looks once a second at the processes of a tree.
pub(crate) struct TooLittleMemory {
    last: Instant,
    /// What `high` was chosen for, if it was not given. Bytes.
    limit: Option<u64>,
    by_slot: ByTurn<Seen>,
    /// Judgements in a row by which there was too little room.
    times: u32,
}

impl TooLittleMemory {
    /// Begins at `now`, in a run whose `high` was chosen for a `limit`, if it was.
    pub(crate) fn new(now: Instant, limit: Option<u64>) -> Self {
        Self {
            last: now,
            limit,
            by_slot: ByTurn::default(),
            times: 0,
        }
    }

    /// Judges if a second has gone by; returns what there is to tell.
    ///
    /// Processes are short of room if their pools have most of what the others leave of `high`, while a
    /// quarter of `high` and more is brought back every second. (Of forked workers each pool may be small,
    /// and a parent that sleeps keeps what it has.)
    pub(crate) fn look(&mut self, segment: &Segment, now: Instant) -> Option<String> {
        if now.saturating_duration_since(self.last) < EVERY {
            return None;
        }
        self.last = now;
        let high = high_now(segment);
        let busy = self.busy(segment);
        let sum = |of: fn(&Busy<'_>) -> u64| busy.iter().map(of).sum::<u64>();
        let all = segment.groups[0].usage.resident_bytes.load(Relaxed);
        let of_others = all.saturating_sub(sum(|one| one.resident)).min(high);
        let left = high - of_others;
        let short = sum(|one| one.pool) > left / 5 * 3 && sum(|one| one.brought) > high / 4;
        self.times = if short { self.times + 1 } else { 0 };
        if self.times < TIMES {
            return None;
        }
        let largest = busy.iter().max_by_key(|one| one.pool)?;
        if self.by_slot.of(largest.used.index, largest.used.turn).told {
            return None;
        }
        for one in &busy {
            self.by_slot.of(one.used.index, one.used.turn).told = true;
        }
        Some(line(&busy, largest, of_others, high, self.limit))
    }

    /// Those that are managed and to which something came back.
    fn busy<'a>(&mut self, segment: &'a Segment) -> Vec<Busy<'a>> {
        let mut busy = Vec::new();
        for used in used(segment) {
            let seen = self.by_slot.of(used.index, used.turn);
            let get = |which| used.slot.counter(which).load(Relaxed);
            let pages_in = get(Counter::PagesIn);
            let brought = pages_in.saturating_sub(seen.pages_in) * PAGE_SIZE as u64;
            seen.pages_in = pages_in;
            let (pool, resident) = (get(Counter::PoolBytes), get(Counter::ResidentBytes));
            if brought > 0 && used.slot.state.load(Relaxed) == state::MANAGING {
                busy.push(Busy {
                    used,
                    pool,
                    resident,
                    brought,
                });
            }
        }
        busy
    }
}

fn line(
    busy: &[Busy<'_>],
    largest: &Busy<'_>,
    of_others: u64,
    high: u64,
    limit: Option<u64>,
) -> String {
    let mend = match limit {
        None => format!(
            "--high is {}; it goes on, slowly; give it more",
            human(high)
        ),
        Some(limit) => format!(
            "the memory limit of {} leaves it {}; it goes on, slowly; raise the limit",
            human(limit),
            human(high)
        ),
    };
    let held = |one: &Busy<'_>| Process::read(one.used.slot).figures.most_held;
    let stored: u64 = busy.iter().map(|one| held(one).stored).sum();
    let pool: u64 = busy.iter().map(|one| held(one).pool).sum();
    let process = Process::read(largest.used.slot);
    let (who, whose) = match busy.len() {
        1 => (" is".to_owned(), "its"),
        many => (format!(" and {} more are", many - 1), "their"),
    };
    let others = match of_others >= high / 8 {
        true => format!(", other processes have {}", human(of_others)),
        false => String::new(),
    };
    one_line(&format!(
        "zfolio: process {} ({}){who} short of room: {} of {whose} memory take {} compressed{others}, and {mend}",
        process.pid,
        process.comm,
        human(stored),
        human(pool),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines told in a minute in which `pages` are brought back every second.
    fn told(pool: u64, pages: usize, limit: Option<u64>) -> Vec<String> {
        let segment = crate::example::example();
        segment.config().limits.high.store(200 << 20, Relaxed);
        let slot = &segment.slots[0];
        slot.set(Counter::PoolBytes, pool);
        let begin = Instant::now();
        let mut cramped = TooLittleMemory::new(begin, limit);
        let looks = (1..1200_u32).flat_map(|look| {
            if look % 20 == 0 {
                slot.add(Counter::PagesIn, pages as u64);
            }
            cramped.look(&segment, begin + look * Duration::from_millis(50))
        });
        looks.collect()
    }

    /// The same of processes with such pools, each of which has `resident`; the run has `all`.
    fn told_of(pools: &[u64], resident: u64, all: u64) -> Vec<String> {
        let segment = crate::example::example();
        segment.config().limits.high.store(200 << 20, Relaxed);
        segment.groups[0].usage.resident_bytes.store(all, Relaxed);
        for (slot, pool) in segment.slots.iter().zip(pools) {
            slot.set(Counter::PoolBytes, *pool);
            slot.set(Counter::ResidentBytes, resident);
            slot.state.store(state::MANAGING, Relaxed);
        }
        let begin = Instant::now();
        let mut cramped = TooLittleMemory::new(begin, None);
        let looks = (1..60_u32).flat_map(|look| {
            for slot in &segment.slots[..pools.len()] {
                slot.add(Counter::PagesIn, 10_000);
            }
            cramped.look(&segment, begin + look * EVERY)
        });
        looks.collect()
    }

    #[test]
    fn several_that_are_short_of_room_together_are_told_of_once() {
        let lines = told_of(&[65 << 20, 66 << 20], 70 << 20, 140 << 20);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("and 1 more are short of room"),
            "{lines:?}"
        );
        assert!(!lines[0].contains("other"), "{lines:?}");
        // A parent that sleeps has the most.
        let lines = told_of(&[20 << 20, 25 << 20], 35 << 20, 200 << 20);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("other processes have 130 MiB"),
            "{lines:?}"
        );
        assert_eq!(
            told_of(&[20 << 20, 25 << 20], 35 << 20, 70 << 20),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_process_short_of_room_is_told_of_once() {
        let lines = told(150 << 20, 20_000, None);
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        for part in ["100 (python3)", "380 MiB", "150 MiB", "200 MiB"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let lines = told(150 << 20, 20_000, Some(256 << 20));
        assert!(
            lines[0].contains("limit of 256 MiB leaves it 200 MiB"),
            "{lines:?}"
        );
    }

    #[test]
    fn one_that_only_works_hard_is_not() {
        assert_eq!(told(60 << 20, 200_000, None), Vec::<String>::new());
        assert_eq!(told(150 << 20, 1000, None), Vec::<String>::new());
    }
}
