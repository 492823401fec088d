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
    times: u32,
    told: bool,
}

/// Looks once a second at every process of a tree.
pub(crate) struct TooLittleMemory {
    last: Instant,
    /// What `high` was chosen for, if it was not given. Bytes.
    limit: Option<u64>,
    by_slot: ByTurn<Seen>,
}

impl TooLittleMemory {
    /// Begins at `now`, in a run whose `high` was chosen for a `limit`, if it was.
    pub(crate) fn new(now: Instant, limit: Option<u64>) -> Self {
        Self {
            last: now,
            limit,
            by_slot: ByTurn::default(),
        }
    }

    /// Judges if a second has gone by; returns what there is to tell.
    ///
    /// A process is short of room if the pool has most of `high` while a
    /// quarter of `high` and more is brought back every second.
    pub(crate) fn look(&mut self, segment: &Segment, now: Instant) -> Vec<String> {
        if now.saturating_duration_since(self.last) < EVERY {
            return Vec::new();
        }
        self.last = now;
        let high = high_now(segment);
        let mut lines = Vec::new();
        for Used { index, turn, slot } in used(segment) {
            let seen = self.by_slot.of(index, turn);
            let get = |which| slot.counter(which).load(Relaxed);
            let pages_in = get(Counter::PagesIn);
            let brought = pages_in.saturating_sub(seen.pages_in) * PAGE_SIZE as u64;
            seen.pages_in = pages_in;
            let managing = slot.state.load(Relaxed) == state::MANAGING;
            let short = managing && get(Counter::PoolBytes) > high / 5 * 3 && brought > high / 4;
            seen.times = if short { seen.times + 1 } else { 0 };
            if seen.times >= TIMES && !seen.told {
                seen.told = true;
                lines.push(line(&Process::read(slot), high, self.limit));
            }
        }
        lines
    }
}

fn line(process: &Process, high: u64, limit: Option<u64>) -> String {
    let held = process.figures.most_held;
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
    one_line(&format!(
        "zfolio: process {} ({}) is short of room: {} of its memory take {} compressed, and {mend}",
        process.pid,
        process.comm,
        human(held.stored),
        human(held.pool),
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
