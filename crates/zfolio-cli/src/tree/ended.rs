//! Processes that have ended, and whose slots others have by now.
//!
//! A slot keeps what its process counted until another process needs it. So as long as
//! there are slots enough a run has a row for each process, and only then is what the
//! longest ended counted added to a total of the ended, which lies in `zfolio run` itself, and
//! their slots are free. Of those there is no row any more, but for
//!
//! - the largest of the managed,
//! - one for each reason for which processes failed or ran unmanaged.
//!
//! # Invariants
//! - What a process counted is in its slot or in the total, never in both or neither.
//! - The total only grows.

use crate::tree::members::Members;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use zfolio_host::held::Held;
use zfolio_host::owners::{Owners, Sight};
use zfolio_host::slots::{ByTurn, used};
use zfolio_host::statistics::{Process, Tree};
use zfolio_runtime::segment::{Counter, Owned, Segment, Used, state};
use zfolio_views::look::EndedTotal;

/// Slots that are kept free for those who come between two looks.
const RESERVE: usize = 256;
/// Where so many times as many are free there is time for [`AT_EASE`] between two looks.
const MANY: usize = 3;
const AT_EASE: Duration = Duration::from_millis(250);
/// Slots that are made free at once.
const BATCH: usize = 64;
/// Looking takes at most this part of a processor's time, but comes again after [`SELDOM`]; and this one where so
/// many have come since the last that the reserve was used: who finds no slot has no row, and does not count as managed.
const SHARE: u32 = 50;
const HURRIED: u32 = 8;
const SELDOM: Duration = Duration::from_secs(1);
/// Reasons of which a row is kept.
const REASONS: usize = 32;

/// Sees who has ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    slots: Owners,
    members: Members,
    /// Slots whose process is over.
    over: ByTurn<bool>,
    sight: Option<Sight>,
    next: Option<Instant>,
    /// Others may look at it while the run lasts.
    total: EndedTotal,
    processes: u64,
    managed: u64,
    largest: Option<Process>,
    reasons: Vec<Process>,
}

impl Ended {
    /// The total, for those who look while the run lasts.
    pub(crate) fn total(&self) -> EndedTotal {
        Arc::clone(&self.total)
    }

    /// Looks, if it is time. `held`: what each slot held at most.
    pub(crate) fn look(&mut self, segment: &Segment, held: &ByTurn<Held>, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        let before = own_time();
        let sight = *self.sight.get_or_insert_with(Sight::is_ours);
        self.members.look(segment, sight);
        let was_free = self.look_at_slots(segment, held, sight);
        let took = own_time().saturating_sub(before);
        let least = if segment.free_slots() > MANY * RESERVE {
            AT_EASE
        } else {
            Duration::ZERO
        };
        let share = if was_free < RESERVE { HURRIED } else { SHARE };
        self.next = Some(now + (took * share).clamp(least, SELDOM));
    }

    /// Makes slots free where few are; how many were before.
    fn look_at_slots(&mut self, segment: &Segment, held: &ByTurn<Held>, sight: Sight) -> usize {
        let owned: Vec<(Used<'_>, Owned)> = used(segment)
            .into_iter()
            .filter_map(|used| Some((used, segment.owners[used.index].owned()?)))
            .collect();
        self.slots.begin(owned.iter().map(|(_, owned)| *owned));
        let free = segment.free_slots();
        let mut wanted = if free < RESERVE {
            RESERVE + BATCH - free
        } else {
            0
        };
        // The longest claimed come first.
        for (Used { index, turn, .. }, owned) in owned {
            let over = self.over.of(index, turn);
            *over = *over || self.slots.is_over(index, owned, sight);
            if *over && wanted > 0 {
                let most = held.get(index, turn).copied().unwrap_or_default();
                self.retire(segment, index, most);
                wanted -= 1;
            }
        }
        free
    }

    /// Adds up what the process of a slot counted, which is over, and makes the slot nobody's.
    fn retire(&mut self, segment: &Segment, index: usize, most: Held) {
        let total = Arc::clone(&self.total);
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        let mut process = Process::read(&segment.slots[index]);
        process.figures.most_held = process.figures.most_held.larger(most);
        total.add(&process.figures);
        self.add(process);
        segment.retire(index);
    }

    /// Whether the process of a slot was seen to be over.
    pub(crate) fn is_over(&self, index: usize, turn: u64) -> bool {
        self.over.get(index, turn) == Some(&true)
    }

    /// Counts a process, whose figures are in the total.
    fn add(&mut self, process: Process) {
        self.processes += 1;
        let peak = |of: &Process| of.figures.get(Counter::ProgramPeak);
        if process.was_managed() {
            self.managed += 1;
            if self
                .largest
                .as_ref()
                .is_none_or(|one| peak(one) < peak(&process))
            {
                self.largest = Some(process.clone());
            }
        }
        let told = [state::UNMANAGED, state::UNWATCHED, state::FAILED];
        if told.contains(&process.state) {
            let mut reasons = self.reasons.iter_mut();
            let same = reasons.find(|one| {
                (one.state, one.told, &one.message)
                    == (process.state, process.told, &process.message)
            });
            if let Some(one) = same {
                one.stands_for += 1;
            } else if self.reasons.len() < REASONS {
                self.reasons.push(process);
            }
        }
    }

    /// Puts the ended into what was read of the segment.
    pub(crate) fn apply(self, tree: &mut Tree) {
        let total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        tree.total.add(&total);
        let mut rows = self.reasons;
        let known = |one: &Process, rows: &[Process]| rows.iter().any(|row| row.pid == one.pid);
        rows.extend(self.largest.filter(|one| !known(one, &rows)));
        let managed = rows.iter().filter(|row| row.was_managed()).count() as u64;
        tree.not_listed = self.processes - rows.len() as u64;
        tree.not_listed_managed = self.managed - managed;
        rows.append(&mut tree.processes);
        tree.processes = rows;
        let all = tree.processes.len() as u64 + tree.not_listed;
        tree.loaded = tree.loaded.max(all);
    }
}

/// Processor time of the calling thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::{AcqRel, Relaxed};
    use zfolio_host::segment_file::OwnSegment;
    use zfolio_runtime::segment::{SHARED, Who};

    fn who(number: u64) -> Who {
        Who {
            word: number + 1,
            namespace: 1,
            pid: u32::try_from(number).unwrap() + 1,
        }
    }

    /// A process of the model: where it counts, and how much.
    #[derive(Clone, Copy, Debug)]
    struct Living {
        index: usize,
        counted: u64,
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// So many processes come.
        Come(usize),
        /// One of those that live counts.
        Count(usize, u64),
        /// So many end, from a place on.
        End(usize, usize),
        /// `zfolio run` adds up so many of the ended.
        Retire(usize),
    }

    fn step() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (1_usize..400).prop_map(Op::Come),
            4 => (any::<usize>(), 1_u64..1000).prop_map(|(which, by)| Op::Count(which, by)),
            3 => (any::<usize>(), 1_usize..500).prop_map(|(from, many)| Op::End(from, many)),
            2 => (1_usize..600).prop_map(Op::Retire),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_process_counts_once_and_in_a_slot_of_its_own(
            steps in prop::collection::vec(step(), 1..40),
        ) {
            let segment = OwnSegment::create(|_| {}).unwrap();
            let (mut ended, mut living, mut over) = (Ended::default(), Vec::new(), Vec::new());
            let (mut came, mut all) = (0_u64, 0_u64);
            for step in steps {
                match step {
                    Op::Come(many) => for _ in 0..many {
                        let free = segment.free_slots();
                        let index = segment.claim_for(who(came), |_| true);
                        prop_assert_eq!(index == SHARED, free == 0);
                        segment.slots[index].state.store(state::MANAGING, Relaxed);
                        living.push(Living { index, counted: 0 });
                        came += 1;
                    },
                    Op::Count(which, by) if !living.is_empty() => {
                        let at = which % living.len();
                        let one = &mut living[at];
                        segment.slots[one.index].add(Counter::PagesOut, by);
                        one.counted += by;
                        all += by;
                    }
                    Op::Count(..) => {}
                    Op::End(from, many) => for _ in 0..many.min(living.len()) {
                        over.push(living.swap_remove(from % living.len()));
                    },
                    Op::Retire(many) => for _ in 0..many.min(over.len()) {
                        let one = over.remove(0);
                        if one.index != SHARED {
                            ended.retire(&segment, one.index, Held::default());
                        }
                    },
                }
                prop_assert_eq!(segment.validate(), Ok(()));
                let own = || living.iter().chain(&over).filter(|one| one.index != SHARED);
                let places: HashSet<usize> = own().map(|one| one.index).collect();
                prop_assert_eq!(places.len(), own().count(), "one slot, one process");
                for one in own() {
                    let counted = segment.slots[one.index].counter(Counter::PagesOut);
                    prop_assert_eq!(counted.load(Relaxed), one.counted);
                }
            }
            let (mut tree, crowded) = (Tree::read(&segment), segment.crowded.load(Relaxed));
            ended.apply(&mut tree);
            prop_assert_eq!(tree.total.get(Counter::PagesOut), all);
            let rows = tree.processes.len() as u64 + tree.not_listed;
            prop_assert_eq!(rows, came - u64::from(crowded) + u64::from(crowded > 0));
        }
    }

    /// Processes come and go on several threads while another adds up: a slot has one owner,
    /// and nothing is lost or counted twice.
    #[test]
    fn slots_go_round_under_load() {
        const THREADS: u64 = 4;
        const EACH: u64 = 3000;
        let segment = OwnSegment::create(|_| {}).unwrap();
        let holder: Vec<AtomicU64> = (0..SHARED).map(|_| AtomicU64::new(0)).collect();
        let over = Mutex::new(Vec::new());
        let mut ended = Ended::default();
        let (segment, holder, over) = (&segment, &holder, &over);
        std::thread::scope(|scope| {
            let processes: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        for nth in 0..EACH {
                            let me = thread * EACH + nth;
                            let index = segment.claim_for(who(me), |_| true);
                            segment.slots[index].add(Counter::PagesOut, 3);
                            segment.slots[index].add(Counter::PagesIn, me);
                            if index == SHARED {
                                continue;
                            }
                            let held = holder[index].swap(me + 1, AcqRel);
                            assert_eq!(held, 0, "slot {index} has an owner");
                            over.lock().unwrap().push(index);
                        }
                    })
                })
                .collect();
            let mut busy = true;
            while busy || !over.lock().unwrap().is_empty() {
                busy = !processes.iter().all(|thread| thread.is_finished());
                let some: Vec<usize> = over.lock().unwrap().drain(..).collect();
                for index in some {
                    holder[index].store(0, Relaxed);
                    ended.retire(segment, index, Held::default());
                }
            }
        });
        segment.validate().unwrap();
        assert_eq!(segment.free_slots(), SHARED);
        let mut tree = Tree::read(segment);
        ended.apply(&mut tree);
        let all = THREADS * EACH;
        assert_eq!(tree.total.get(Counter::PagesOut), 3 * all);
        assert_eq!(tree.total.get(Counter::PagesIn), all * (all - 1) / 2);
    }

    #[test]
    fn of_those_without_a_row_the_reasons_and_the_largest_are_told() {
        let segment = crate::example::example();
        let mut ended = Ended::default();
        for index in [0, 1] {
            ended.retire(&segment, index, Held::default());
        }
        for _ in 0..9 {
            let index = segment.claim_for(who(7), |_| true);
            segment.slots[index].set_message("userfaultfd: not permitted");
            segment.slots[index].state.store(state::UNMANAGED, Relaxed);
            ended.retire(&segment, index, Held::default());
        }
        let mut tree = Tree::read(&segment);
        assert_eq!(tree.processes.len(), 0);
        ended.apply(&mut tree);
        let rows: Vec<(&str, u64)> = tree
            .processes
            .iter()
            .map(|row| (row.comm.as_str(), row.stands_for))
            .collect();
        assert_eq!(rows, [("sh", 10), ("python3", 1)]);
        assert_eq!((tree.not_listed, tree.managed_count()), (9, 1));
        assert_eq!(tree.total.get(Counter::PagesOut), 300_000);
    }

    /// Slots are made free only where they are needed, and of those who are over only.
    #[test]
    fn a_slot_is_kept_until_it_is_needed() {
        let segment = OwnSegment::create(|_| {}).unwrap();
        let here = Sight::is_ours();
        let gone = |number: u64| Who {
            namespace: zfolio_sys::process::pid_namespace(),
            pid: i32::MAX.unsigned_abs(), // above any that there can be
            ..who(number)
        };
        let living = Who {
            pid: std::process::id(),
            ..gone(0)
        };
        let mut ended = Ended {
            sight: Some(here),
            ..Ended::default()
        };
        let mut look = |count: u64| {
            for _ in 0..3 {
                ended.look_at_slots(&segment, &ByTurn::default(), here);
            }
            segment.validate().unwrap();
            assert_eq!(segment.free_slots() as u64, count);
        };
        let shared = SHARED as u64;
        let first = segment.claim_for(living, |_| true);
        (1..shared - 300).for_each(|number| {
            // (Of one id the last is taken to live, and then is not there.)
            let _ = segment.claim_for(gone(number), |_| true);
        });
        look(300);
        (0..100).for_each(|number| {
            let _ = segment.claim_for(gone(number), |_| true);
        });
        look((RESERVE + BATCH) as u64);
        assert!(!segment.owners[first].is_free());
    }
}
