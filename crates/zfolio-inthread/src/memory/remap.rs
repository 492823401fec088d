//! mremap: a mapping moves, grows or shrinks.
//!
//! Before Linux 6.17 the kernel moves one mapping at a time, and closing pages may have made several of what
//! was one to the program. So it is made one before, and where that cannot be is moved in
//! pieces.
//!
//! Since then a call may move several mappings. It passes over holes, and leaves alone what lies
//! at the target opposite them; where a later one is refused it fails, and the first have moved. So but where a
//! range of one kind moves nothing is known of the target afterwards: it is left alone before the call.

use super::arguments::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, PROT_READ_WRITE, range_of, up};
use super::bring::{bring_all, drop_stored, set};
use super::core::MemoryCore;
use super::empty::{next_untouched, untouched_from};
use super::ranges::{Kind, Protection};
use super::way;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{self, PAGE, SHIFT, err, is_error, nr};
use core::ops::Range;

const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;
const MREMAP_DONTUNMAP: usize = 4;

impl MemoryCore {
    pub(super) fn mremap(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        let [old, old_len, new_len, flags, to, _] = args;
        let result = self.mremap_seen(state, args);
        if is_error(result) {
            // (What it was to move over, and what it was to cut off, go first.)
            if flags & MREMAP_FIXED != 0 {
                self.forget_what_is_gone(state, &range_of(to, new_len));
            }
            let from = range_of(old, old_len);
            let kept = from.start.saturating_add(up(new_len)).min(from.end);
            for part in [from.start..kept, kept..from.end] {
                self.forget_what_is_gone(state, &part);
            }
        }
        result
    }

    fn mremap_seen(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        let [old, old_len, new_len, flags, to, _] = args;
        let from = range_of(old, old_len);
        let new_len = up(new_len);
        let target = (flags & MREMAP_FIXED != 0).then(|| range_of(to, new_len));
        if old_len == 0 || self.ranges.first_within(&from).is_none() {
            if let Some(target) = target {
                self.leave_alone(state, &target);
            }
            return raw::for_program(nr::MREMAP, args);
        }
        self.figures.events.remaps += 1;
        // (Protection does not move with the pages.)
        self.disown_within(state, &from);
        let to_page_0 = target.as_ref().is_some_and(|to| to.start < PAGE);
        let whole = self
            .ranges
            .at(old)
            .filter(|(range, kind)| kind.managed && range.end >= from.end && !to_page_0)
            .filter(|(_, kind)| kind.protection == Protection::ReadWrite);
        let Some((_, kind)) = whole else {
            // Parts of several kinds, read-only, executable, or page 0: nothing that is managed is moved.
            self.leave_alone(state, &from);
            if let Some(target) = target {
                self.leave_alone(state, &target);
            }
            return raw::for_program(nr::MREMAP, args);
        };
        if flags & MREMAP_DONTUNMAP != 0 {
            self.leave_alone(state, &from);
            if let Some(target) = &target {
                self.leave_alone(state, target);
            }
            let mut result = raw::for_program(nr::MREMAP, args);
            if result == err::FAULT {
                result =
                    self.move_in_pieces(&from, new_len, target.as_ref(), false, MREMAP_DONTUNMAP);
            }
            return result;
        }
        if let Some(result) = self.in_place(state, args, kind) {
            return result;
        }
        let apart = self.way.kind == way::Kind::InThread && kind.registered;
        let mut is_opened = false;
        if apart {
            // A mapping loses its registration as it moves, and so does what it becomes one
            // with on arrival: protected as no neighbour is, it becomes one with nothing,
            // and nobody reads zeros there before it is registered again.
            if self.way.stand_by(&from).is_err() {
                return err::NOMEM;
            }
        } else if self.way.kind != way::Kind::InThread {
            is_opened = self.make_one(state, &from);
        }
        let mut result = raw::for_program(nr::MREMAP, args);
        if result == err::FAULT && flags & MREMAP_MAYMOVE != 0 {
            // The kernel has it in several mappings, by what was closed and opened.
            let grows_closed = apart
                || self.way.kind == way::Kind::Protect
                    && state.words.get((from.end >> SHIFT) - 1).is_closed();
            result = self.move_in_pieces(&from, new_len, target.as_ref(), grows_closed, 0);
            if !is_error(result) && new_len > from.len() {
                let at = result.cast_unsigned();
                self.advise_as(&(at + from.len()..at + new_len), kind.at_fork);
            }
        }
        if is_error(result) {
            // (It is one range, all of it mapped. What it was to be cut off from goes first.)
            let kept = from.start..from.end.min(from.start + new_len);
            let is_whole = raw::is_mapped(&from);
            if !is_whole && !kept.is_empty() && !raw::is_mapped(&kept) {
                self.fail(format_args!(
                    "the memory at {old:#x} was moved in part only (errno {})",
                    -result
                ));
            }
            if apart {
                let is_cut = !is_whole && !kept.is_empty();
                self.open_again(if is_cut { &kept } else { &from });
            }
            return result;
        }
        let at = result.cast_unsigned();
        if apart {
            let to = at..at + new_len;
            if self.way.watch(&to).is_err() {
                self.fail(format_args!(
                    "the memory moved to {at:#x} could not be registered with userfaultfd"
                ));
            }
            self.open_again(&to);
        }
        if at == old {
            self.resized(state, &from, new_len);
        } else {
            self.moved(state, &from, at, new_len, kind);
            self.open_pinned(state, &(at..at + new_len));
        }
        if is_opened {
            state
                .batches
                .begin(|| state.threads.pinned(), &mut self.seen);
            self.close_empty(state, &(at..at + from.len().min(new_len)));
            state.batches.end();
        }
        result
    }

    /// A mapping that shrinks, grows where it is or stays as it is: no page of it that stays is closed
    /// or opened for that, since calls of other threads may be under way there. What it grows by is
    /// made to follow its last page. `None` where it has to move, or may and cannot grow.
    fn in_place(&mut self, state: &MemoryState, args: [usize; 6], kind: Kind) -> Option<isize> {
        let [old, old_len, new_len, flags, ..] = args;
        let (from, new_len) = (range_of(old, old_len), up(new_len));
        // (By guard nothing is closed for a remap, and its last page's protection says nothing.)
        let is_closed_apart = match self.way.kind {
            way::Kind::InThread => kind.registered,
            way::Kind::Guard => false,
            way::Kind::Protect => true,
        };
        let may_move = flags & MREMAP_MAYMOVE != 0;
        if !is_closed_apart
            || flags & !MREMAP_MAYMOVE != 0
            || !old.is_multiple_of(PAGE)
            || new_len == 0
        {
            return None;
        }
        let end = from.start.checked_add(new_len)?;
        let result = if end < from.end {
            raw::own(nr::MUNMAP, [end, from.end - end, 0])
        } else if end > from.end {
            let last = [from.end - PAGE, PAGE, PAGE + (end - from.end), 0, 0, 0];
            raw::for_program(nr::MREMAP, last)
        } else {
            0
        };
        if is_error(result) {
            return (!may_move || end < from.end).then_some(result);
        }
        if end > from.end && self.way.watch(&(from.end..end)).is_err() {
            self.fail(format_args!(
                "the memory that grew at {:#x} could not be registered with userfaultfd",
                from.end
            ));
        }
        self.resized(state, &from, new_len);
        Some(old.cast_signed())
    }

    /// Makes one mapping of a range in which pages are protected: the kernel moves no two.
    /// Whether what nobody has touched was opened for that.
    fn make_one(&mut self, state: &MemoryState, range: &Range<usize>) -> bool {
        let (start, end) = (range.start >> SHIFT, range.end >> SHIFT);
        if self.way.kind == way::Kind::Guard {
            return self.make_one_around_guards(state, range);
        }
        if state.words.next_closed(start, end).is_none() {
            return false;
        }
        if self.way.stand_by(range).is_err() {
            bring_all(state, self, range);
            return false;
        }
        let mut page = state.words.past_untouched(start, end);
        while page < end {
            if !state.words.get(page).is_closed() {
                set(state, self, page, Word::Standby);
            }
            page = state.words.past_untouched(page + 1, end);
        }
        false
    }

    /// As [`Self::make_one`]: guard markers are no mapping's, what nobody has touched is.
    fn make_one_around_guards(&mut self, state: &MemoryState, range: &Range<usize>) -> bool {
        let end = range.end >> SHIFT;
        let (mut page, mut opened) = (range.start >> SHIFT, false);
        while let Some(closed) = next_untouched(state, page, end) {
            let run = untouched_from(state, closed, end);
            page = run.end;
            if !opened {
                if let Err(errno) = self.way.open_untouched(range) {
                    self.fail(format_args!(
                        "the memory at {:#x} could not be opened (errno {})",
                        range.start, errno.0
                    ));
                }
                opened = true;
            }
            self.set_run(state, run, false);
        }
        opened
    }

    /// Moves a range mapping by mapping, wherever they begin: halves what the kernel refuses.
    /// What it grows by is mapped anew, `closed` or open. `how`: flags of each move. Returns as mremap
    /// does.
    fn move_in_pieces(
        &self,
        from: &Range<usize>,
        new_len: usize,
        target: Option<&Range<usize>>,
        closed: bool,
        how: usize,
    ) -> isize {
        let protection = if closed { 0 } else { PROT_READ_WRITE };
        let (at, fixed) = target.map_or((0, 0), |to| (to.start, MAP_FIXED));
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | fixed;
        let args = [at, new_len, protection, flags, usize::MAX, 0];
        let made = raw::for_program(nr::MMAP, args);
        if is_error(made) {
            return made;
        }
        let at = made.cast_unsigned();
        let moves = from.len().min(new_len);
        let (mut done, mut most) = (0, moves);
        while done < moves {
            let len = most.min(moves - done);
            let args = [
                from.start + done,
                len,
                len,
                MREMAP_MAYMOVE | MREMAP_FIXED | how,
                at + done,
                0,
            ];
            let moved = raw::for_program(nr::MREMAP, args);
            if !is_error(moved) {
                done += len;
                most = moves;
            } else if moved == err::FAULT && len > PAGE {
                most = (len / 2) & !(PAGE - 1);
            } else {
                // (Part of it is there already.)
                self.fail(format_args!(
                    "the memory at {:#x} could be moved in part only (errno {})",
                    from.start, -moved
                ));
            }
        }
        if moves < from.len() {
            raw::own(nr::MUNMAP, [from.start + moves, from.len() - moves, 0]);
        }
        made
    }

    fn open_again(&self, range: &Range<usize>) {
        if let Err(errno) = self.way.open_written(range) {
            self.fail(format_args!(
                "the memory at {:#x} could not be opened again (errno {})",
                range.start, errno.0
            ));
        }
    }

    fn resized(&mut self, state: &MemoryState, from: &Range<usize>, new_len: usize) {
        let end = from.start + new_len;
        if end < from.end {
            self.forget(state, &(end..from.end));
        } else if end > from.end {
            self.grew(state, from.end..end);
        }
    }

    /// Memory that a mapping grew by. It is protected as the mapping is.
    fn grew(&mut self, state: &MemoryState, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let before = (range.start >> SHIFT) - 1;
        let Some((_, kind)) = self.ranges.at(range.start - 1) else {
            return;
        };
        let watched = kind.registered;
        let protected = match self.way.kind {
            way::Kind::InThread => watched,
            way::Kind::Guard => false,
            way::Kind::Protect => state.words.get(before).is_closed(),
        };
        if !protected {
            // As new memory: open, unless memory is short.
            self.manage(state, range, Kind::new(true, kind.at_fork));
            return;
        }
        self.ranges.add(range.clone(), kind);
        let pages = range.start >> SHIFT..range.end >> SHIFT;
        self.set_run(state, pages, true);
    }

    /// The bytes of `from` are at `at` now.
    fn moved(
        &mut self,
        state: &MemoryState,
        from: &Range<usize>,
        at: usize,
        new_len: usize,
        kind: Kind,
    ) {
        let to = at..at + new_len;
        self.forget(state, &to);
        let pages = (from.len().min(new_len)) >> SHIFT;
        let (first, into) = (from.start >> SHIFT, at >> SHIFT);
        if from.len() > new_len {
            // (What was cut off is gone with the rest.)
            drop_stored(state, self, &(from.start + new_len..from.end));
        }
        let (mut page, end) = (first, first + pages);
        let is_told = |word| word != Word::OPEN;
        while let Some(old) = state.words.next(page, end, is_told) {
            let run = untouched_from(state, old, end);
            page = run.end.max(old + 1);
            let moved = into + (old - first)..into + (page - first);
            if run.is_empty() {
                set(state, self, moved.start, state.words.get(old));
            } else {
                self.set_run(state, moved, true);
            }
        }
        self.set_run(state, first..from.end >> SHIFT, false);
        self.ranges.remove(from, |_, _| {});
        self.ranges.add(at..at + (pages << SHIFT), kind);
        if new_len > from.len() {
            self.grew(state, at + (pages << SHIFT)..to.end);
        }
    }
}
