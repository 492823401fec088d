//! How much was held compressed at most, while a tree runs.
//!
//! The segment's gauges are of now, and a program that frees its memory before
//! it ends leaves them at zero. So they are looked at some times a second: for
//! each process, and for the tree as a whole, the instant when most was stored.

use crate::held::Held;
use crate::stats::{Tree, claimed};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use zfolio_runtime::segment::Segment;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(50);

/// The instants seen so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Peaks {
    by_slot: Vec<Held>,
    tree: Held,
}

impl Peaks {
    /// Looks once.
    pub(crate) fn look(&mut self, segment: &Segment) {
        let slots = claimed(segment);
        self.by_slot
            .resize(slots.len().max(self.by_slot.len()), Held::default());
        let mut now = Held::default();
        for (peak, slot) in self.by_slot.iter_mut().zip(slots) {
            let held = Held::read(slot);
            *peak = peak.larger(held);
            now = now.plus(held);
        }
        self.tree = self.tree.larger(now);
    }

    /// Puts what was seen in place of what is left at the end.
    pub(crate) fn apply(&self, tree: &mut Tree) {
        for (process, peak) in tree.processes.iter_mut().zip(&self.by_slot) {
            process.figures.most_held = process.figures.most_held.larger(*peak);
        }
        tree.total.most_held = tree.total.most_held.larger(self.tree);
    }

    /// Runs `work` while looking at `segment` from another thread, which calls
    /// `looked` each time.
    pub(crate) fn during<R>(
        segment: &Segment,
        mut looked: impl FnMut() + Send,
        work: impl FnOnce() -> R,
    ) -> (Self, R) {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mut peaks = Self::default();
                while !done.load(Ordering::Acquire) {
                    peaks.look(segment);
                    looked();
                    thread::park_timeout(EVERY);
                }
                peaks
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
        let segment = crate::stats::tests::example();
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
        peaks.apply(&mut tree);
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
        let segment = crate::stats::tests::example();
        let (_, result) = Peaks::during(&segment, || {}, || 7);
        assert_eq!(result, 7);
    }
}
