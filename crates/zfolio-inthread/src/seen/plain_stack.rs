//! Stacks known not to be managed: calls that are answered on them need nothing of them kept.

use crate::memory::ranges;
use crate::threads::Record;
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Whether `window` is of the thread's stack that was last found not to be managed: start, end,
/// and [`ranges::added`] of both when it was looked at.
pub(super) fn is_plain(record: &Record, window: &Range<usize>) -> bool {
    let [start, end, added] =
        [0, 1, 2].map(|at: usize| record.stacks.plain[at].load(Ordering::Relaxed));
    start <= window.start && window.end <= end && added == added_to(start, end)
}

/// Notes that nothing of `around` is managed; `added` is [`added_to`] of it, from under the core
/// lock.
pub(super) fn note(record: &Record, around: &Range<usize>, added: usize) {
    for (word, value) in record
        .stacks
        .plain
        .iter()
        .zip([around.start, around.end, added])
    {
        word.store(value, Ordering::Relaxed);
    }
}

pub(super) fn added_to(start: usize, end: usize) -> usize {
    ranges::added(start).wrapping_add(ranges::added(end - 1))
}
