//! What the child of a fork has of a range: advice of the program's (madvise), which the kernel
//! follows for the mappings and this file for the words.
//!
//! | advice | the child has |
//! |---|---|
//! | none | the bytes |
//! | MADV_WIPEONFORK | the range, of zeros |
//! | MADV_DONTFORK | nothing there |

use super::bring::{drop_stored, set};
use super::core::MemoryCore;
use super::ranges::AtFork;
use super::space::advice;
use super::way;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{self, SHIFT, nr};
use alloc::vec::Vec;
use core::ops::Range;

impl MemoryCore {
    /// madvise about forks, of `range`, some of which is known here.
    pub(super) fn advise_at_fork(
        &mut self,
        state: &MemoryState,
        args: [usize; 6],
        range: &Range<usize>,
    ) -> isize {
        let result = raw::for_program(nr::MADVISE, args);
        if result != 0 {
            // (It may hold for a part of it by now: nobody says for which.)
            self.leave_alone(state, range);
            return result;
        }
        self.ranges.edit(range, |kind| match args[2] {
            advice::DONTFORK => kind.at_fork.dropped = true,
            advice::DOFORK => kind.at_fork.dropped = false,
            advice::WIPEONFORK => kind.at_fork.wiped = true,
            _ => kind.at_fork.wiped = false,
        });
        0
    }

    /// Gives memory that is new in the kernel the advice that what it belongs to has.
    pub(super) fn advise_as(&self, range: &Range<usize>, at_fork: AtFork) {
        for (is, number) in [
            (at_fork.dropped, advice::DONTFORK),
            (at_fork.wiped, advice::WIPEONFORK),
        ] {
            let args = [range.start, range.len(), number, 0, 0, 0];
            if is && raw::for_program(nr::MADVISE, args) != 0 {
                self.fail(format_args!(
                    "what a fork's child has of the memory at {:#x} could not be said again",
                    range.start
                ));
            }
        }
    }

    /// Before and after the child of a vfork is made as a fork: it is to see all of the memory,
    /// as if it shared it.
    pub(crate) fn copy_all_at_fork(&self, is_before: bool) {
        for (range, kind) in self.ranges.iter() {
            if kind.at_fork == AtFork::default() {
                continue;
            }
            if !is_before {
                self.advise_as(&range, kind.at_fork);
                continue;
            }
            for number in [advice::DOFORK, advice::KEEPONFORK] {
                raw::for_program(nr::MADVISE, [range.start, range.len(), number, 0, 0, 0]);
            }
        }
    }

    /// In the child of a fork: what it was not to have is not there. The pool is the child's.
    pub(crate) fn forget_what_is_dropped(&mut self, state: &MemoryState) {
        for range in self.at_fork(|at_fork| at_fork.dropped) {
            self.forget(state, &range);
        }
    }

    /// In the child of a fork: what it was to have as zeros is zeros. Registrations are the
    /// child's.
    pub(crate) fn clear_what_is_wiped(&mut self, state: &MemoryState) {
        for range in self.at_fork(|at_fork| at_fork.wiped) {
            if self.way.kind != way::Kind::Guard {
                // Mappings that are protected are so in the child, and absent pages of what is
                // registered are reported: as after a discard.
                self.discarded(state, &range);
                continue;
            }
            // Guard markers are not copied; what is closed by its protection is so in the child.
            drop_stored(state, self, &range);
            let end = range.end >> SHIFT;
            let mut page = range.start >> SHIFT;
            let is_changed = |word: Word| word.is_closed() && word != Word::Untouched;
            while let Some(closed) = state.words.next(page, end, is_changed) {
                let word = match state.words.get(closed) {
                    Word::Standby => Word::Untouched,
                    _ => Word::OPEN,
                };
                set(state, self, closed, word);
                page = closed + 1;
            }
        }
    }

    fn at_fork(&self, is_one: impl Fn(AtFork) -> bool) -> Vec<Range<usize>> {
        let all = self.ranges.iter();
        all.filter(|(_, kind)| is_one(kind.at_fork))
            .map(|(range, _)| range)
            .collect()
    }
}
