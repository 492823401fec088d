//! How much was held compressed at most, while a tree runs.
//!
//! The segment's gauges are of now, and a program that frees its memory before
//! it ends leaves them at zero. So they are looked at some times a second: for
//! each process, and for the tree as a whole, the instant when most was stored. What ended
//! is added up by the way ([`Ended`]).

use crate::tree::ended::Ended;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use zfolio_host::held::Held;
use zfolio_host::slots::{ByTurn, used};
use zfolio_host::statistics::Tree;
use zfolio_runtime::segment::{Segment, Used};
use zfolio_views::look::EndedTotal;

/// Between two looks; and once that has gone on for long, a hundredth of the time that has passed at most.
const EVERY: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_millis(100);
const AGE: u32 = 100;

/// The instants seen so far.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    by_slot: ByTurn<Held>,
    tree: Held,
    ended: Ended,
}

impl Peaks {
    /// Looks once.
    pub(crate) fn look(&mut self, segment: &Segment) {
        let mut now = Held::default();
        for Used { index, turn, slot } in used(segment) {
            // (What a process had when it was killed stands there still, half an update maybe.)
            if self.ended.is_over(index, turn) {
                continue;
            }
            let held = Held::read(slot);
            let peak = self.by_slot.of(index, turn);
            *peak = peak.larger(held);
            now = now.plus(held);
        }
        self.tree = self.tree.larger(now);
        self.ended.look(segment, &self.by_slot, Instant::now());
    }

    /// Puts what was seen in place of what is left at the end.
    /// `segment`: what `tree` was read of.
    pub(crate) fn apply(self, tree: &mut Tree, segment: &Segment) {
        let mut last = Held::default();
        for (process, used) in tree.processes.iter_mut().zip(used(segment)) {
            let held = &mut process.figures.most_held;
            if !self.ended.is_over(used.index, used.turn) {
                last = last.plus(*held);
            }
            if let Some(peak) = self.by_slot.get(used.index, used.turn) {
                *held = held.larger(*peak);
            }
        }
        tree.total.most_held = last.larger(self.tree);
        self.ended.apply(tree);
    }

    /// What those counted whose slots are others' by now.
    pub(crate) fn ended(&self) -> EndedTotal {
        self.ended.total()
    }

    /// Runs `work` while looking at `segment` from another thread, which calls
    /// `looked` each time.
    pub(crate) fn during<R>(
        mut self,
        segment: &Segment,
        mut looked: impl FnMut() + Send,
        work: impl FnOnce() -> R,
    ) -> (Self, R) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let begin = Instant::now();
                while !done.load(Ordering::Acquire) {
                    self.look(segment);
                    looked();
                    thread::park_timeout((begin.elapsed() / AGE).clamp(EVERY, SELDOM));
                }
                self
            });
            let result = work();
            done.store(true, Ordering::Release);
            looker.thread().unpark();
            (looker.join().unwrap_or_default(), result)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::segment::Counter;

    #[test]
    fn what_was_freed_before_the_end_is_remembered() {
        let segment = crate::example::example();
        let mut peaks = Peaks::default();
        peaks.look(&segment);
        for which in [
            Counter::StoredPages,
            Counter::CompressedBytes,
            Counter::PoolBytes,
        ] {
            segment.slots[0].set(which, 0);
        }
        peaks.look(&segment);
        let mut tree = Tree::read(&segment);
        assert_eq!(tree.total.most_held, Held::default());
        peaks.apply(&mut tree, &segment);
        let seen = Held {
            stored: 380 << 20,
            compressed: 120 << 20,
            pool: 122 << 20,
        };
        assert_eq!(tree.total.most_held, seen);
        assert_eq!(tree.processes[0].figures.most_held, seen);
        assert_eq!(tree.processes[1].figures.most_held, Held::default());
    }

    #[test]
    fn the_result_comes_back_with_the_peaks() {
        let segment = crate::example::example();
        let (_, result) = Peaks::default().during(&segment, || {}, || 7);
        assert_eq!(result, 7);
    }
}
