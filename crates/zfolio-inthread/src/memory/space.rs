//! What system calls do to the address space. Each is made under the core lock, and what is
//! known of the memory changes with it: nobody sees the one without the other.

use super::arguments::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_TYPE, PROT_ALL, PROT_READ, PROT_READ_WRITE,
    range_of, up,
};
use super::bring::{bring_all, bring_each, drop_stored, set};
use super::core::MemoryCore;
use super::ranges::{AtFork, Kind, Protection};
use super::way;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{self, PAGE, SHIFT, err, is_error, nr};
use core::ops::Range;

const MAP_GROWSDOWN: usize = 0x100;
const MAP_LOCKED: usize = 0x2000;
const MAP_POPULATE: usize = 0x8000;
const MAP_STACK: usize = 0x2_0000;
const MAP_HUGETLB: usize = 0x4_0000;
const SHM_REMAP: usize = 0o40_000;
/// Least mapping that is managed, bytes.
const LEAST: usize = 8 * PAGE;

pub(super) mod advice {
    pub(super) const DONTNEED: usize = 4;
    pub(super) const FREE: usize = 8;
    pub(in super::super) const DONTFORK: usize = 10;
    pub(in super::super) const DOFORK: usize = 11;
    pub(in super::super) const WIPEONFORK: usize = 18;
    pub(in super::super) const KEEPONFORK: usize = 19;
    pub(super) const COLD: usize = 20;
    pub(super) const PAGEOUT: usize = 21;
    pub(super) const POPULATE_READ: usize = 22;
    pub(super) const POPULATE_WRITE: usize = 23;
    pub(super) const DONTNEED_LOCKED: usize = 24;
    pub(super) const GUARD_INSTALL: usize = 102;
    pub(super) const GUARD_REMOVE: usize = 103;
}

/// Makes a call that changes the address space.
pub(crate) fn change(state: &MemoryState, number: usize, args: [usize; 6]) -> isize {
    if matches!(number, nr::MLOCK | nr::MLOCK2) {
        let range = range_of(args[0], args[1]);
        state.recall_away(range.start >> SHIFT..range.end.div_ceil(PAGE));
    }
    state.locked(|core| {
        let result = change_locked(state, core, number, args);
        state.texts.lock().follow(number, args, result);
        // (Nothing else might make it: what became usable is open, and touching it no fault.)
        let work = state.begin_work();
        core.keep_to_share(state);
        core.make_room(state, 0);
        state.end_work(work, 0);
        result
    })
}

fn change_locked(
    state: &MemoryState,
    core: &mut MemoryCore,
    number: usize,
    args: [usize; 6],
) -> isize {
    if state.has_left() {
        return raw::for_program(number, args);
    }
    // (Or the program's call might be refused.)
    core.mend_cuts(state);
    match number {
        nr::MMAP => core.mmap(state, args),
        nr::MUNMAP => core.munmap(state, args),
        nr::MPROTECT => core.mprotect(state, number, args),
        nr::PKEY_MPROTECT => core.pkey_mprotect(state, args),
        nr::BRK => core.brk(state, args),
        nr::MREMAP => core.mremap(state, args),
        nr::MADVISE => core.madvise(state, args),
        nr::MSEAL => core.keep_for(state, number, args, args[0], args[1]),
        nr::MLOCK | nr::MLOCK2 => core.lock(state, number, args),
        nr::SHMAT => core.shmat(state, args),
        _ => err::NOSYS,
    }
}

impl MemoryCore {
    /// What lay in `range` is gone.
    pub(crate) fn forget(&mut self, state: &MemoryState, range: &Range<usize>) {
        drop_stored(state, self, range);
        self.set_run(state, range.start >> SHIFT..range.end >> SHIFT, false);
        self.ranges.remove(range, |_, _| {});
    }

    fn mmap(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        let [_, len, protection, flags, ..] = args;
        let private = flags & MAP_TYPE == MAP_PRIVATE && flags & MAP_ANONYMOUS != 0;
        let odd = flags & (MAP_STACK | MAP_GROWSDOWN | MAP_LOCKED | MAP_HUGETLB) != 0;
        let mut made = args;
        if private && !odd && self.is_short(state, len >> SHIFT) {
            made[3] &= !MAP_POPULATE;
        }
        let result = raw::for_program(nr::MMAP, made);
        if is_error(result) {
            if flags & MAP_FIXED != 0 {
                self.forget_what_is_gone(state, &range_of(args[0], len));
            }
            return result;
        }
        let range = range_of(result.cast_unsigned(), len);
        if range.is_empty() {
            return result;
        }
        if flags & MAP_FIXED != 0 {
            self.forget(state, &range);
        }
        if !private || odd {
            return result;
        }
        // (Page 0 is left alone.)
        let range = range.start.max(PAGE)..range.end;
        let usable = self.usable(protection).filter(|_| range.len() >= LEAST);
        if let Some(usable) = usable {
            let kind = Kind::new(true, AtFork::default()).with(usable);
            self.manage(state, range, kind);
        } else if protection & !PROT_READ_WRITE == 0 {
            self.ranges.add(range, Kind::new(false, AtFork::default()));
        }
        result
    }

    /// What memory is that the program maps or protects so, where it is managed then.
    fn usable(&self, protection: usize) -> Option<Protection> {
        match protection {
            PROT_READ_WRITE => Some(Protection::ReadWrite),
            PROT_ALL if self.way.takes_executable() => Some(Protection::Executable),
            _ => None,
        }
    }

    fn munmap(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        let result = raw::for_program(nr::MUNMAP, args);
        if result == 0 {
            self.figures.events.unmaps += 1;
            self.forget(state, &range_of(args[0], args[1]));
        }
        result
    }

    fn pkey_mprotect(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        if args[3] & 0xffff_ffff == 0xffff_ffff {
            return self.mprotect(state, nr::PKEY_MPROTECT, args);
        }
        let range = range_of(args[0], args[1]);
        self.leave_alone(state, &range);
        raw::for_program(nr::PKEY_MPROTECT, args)
    }

    fn mprotect(&mut self, state: &MemoryState, number: usize, args: [usize; 6]) -> isize {
        let range = range_of(args[0], args[1]);
        let ours = self.ranges.first_within(&range).is_some();
        if !ours {
            return raw::for_program(number, args);
        }
        if let Some(usable) = self.usable(args[2]) {
            return self.becomes_writable(state, number, args, range, usable);
        }
        match args[2] {
            PROT_READ if self.may_become_read_only(state, &range) => {
                return self.becomes_read_only(state, number, args, &range);
            }
            _ => {}
        }
        bring_all(state, self, &range);
        let result = raw::for_program(number, args);
        // (A call that fails may have changed a part of it.)
        self.change_kind(state, &range, args[2] & !PROT_READ_WRITE == 0);
        result
    }

    /// What is managed of `range` is no more; it may be again, or not.
    pub(super) fn change_kind(
        &mut self,
        state: &MemoryState,
        range: &Range<usize>,
        may_be_again: bool,
    ) {
        let mut at = range.start;
        while let Some((part, kind)) = self.ranges.first_within(&(at..range.end)) {
            at = part.end;
            if kind.registered {
                let _ = self.way.unwatch(&part);
            }
            drop_stored(state, self, &part);
            self.set_run(state, part.start >> SHIFT..part.end >> SHIFT, false);
            if may_be_again {
                self.ranges.add(part, Kind::new(false, kind.at_fork));
            } else {
                self.ranges.remove(&part, |_, _| {});
            }
        }
    }

    fn brk(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        let result = raw::for_program(nr::BRK, args);
        let new = result.cast_unsigned();
        let (old, new) = (up(self.brk), up(new));
        if new > old && old > 0 {
            let kind = Kind::new(true, AtFork::default());
            self.manage(state, old..new, kind);
        } else if new < old {
            self.forget(state, &(new..old));
        }
        self.brk = result.cast_unsigned();
        result
    }

    fn madvise(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        let range = range_of(args[0], args[1]);
        let plain = |_: &mut Self| raw::for_program(nr::MADVISE, args);
        if self.ranges.first_within(&range).is_none() {
            return plain(self);
        }
        match args[2] {
            advice::DONTNEED | advice::FREE | advice::DONTNEED_LOCKED => {
                self.discard(state, args, &range)
            }
            advice::COLD | advice::PAGEOUT => self.advise_as_cold(args, &range),
            advice::DONTFORK | advice::DOFORK | advice::WIPEONFORK | advice::KEEPONFORK => {
                self.advise_at_fork(state, args, &range)
            }
            advice::GUARD_INSTALL | advice::GUARD_REMOVE => {
                self.leave_alone(state, &range);
                plain(self)
            }
            advice::POPULATE_READ | advice::POPULATE_WRITE => self.populate(state, args, &range),
            _ => plain(self),
        }
    }

    /// Advice that `range` is cold. What is managed leaves anyway; what the rest may not be is the kernel's
    /// to say, which goes over it in order, on past holes.
    fn advise_as_cold(&self, args: [usize; 6], range: &Range<usize>) -> isize {
        let mut at = range.start;
        loop {
            let part = self.ranges.unmanaged_from(at..range.end);
            if part.is_empty() {
                break;
            }
            let rest = [part.start, part.len(), args[2], 0, 0, 0];
            let result = raw::for_program(nr::MADVISE, rest);
            if is_error(result) && result != err::NOMEM {
                return result;
            }
            at = part.end;
        }
        if raw::is_mapped(range) { 0 } else { err::NOMEM }
    }

    /// Advice by which the bytes of `range` go. The kernel goes over it mapping by mapping, on
    /// past holes, and stops at what is locked, or odd otherwise: what is managed is none of
    /// that, so it is done in parts, each of which is gone or is not.
    fn discard(&mut self, state: &MemoryState, args: [usize; 6], range: &Range<usize>) -> isize {
        let mut discard = args;
        // What is free may be gone at once; and what is gone later, unseen, would be a page of
        // which nobody knows.
        let managed_advice = match args[2] {
            advice::FREE => advice::DONTNEED,
            advice => advice,
        };
        let mut make = |part: Range<usize>, advice| {
            (discard[0], discard[1], discard[2]) = (part.start, part.len(), advice);
            if part.is_empty() {
                return 0;
            }
            raw::for_program(nr::MADVISE, discard)
        };
        let (mut at, mut result) = (range.start, 0);
        while at < range.end {
            let managed = self
                .ranges
                .within(&(at..range.end))
                .find(|(_, kind)| kind.managed)
                .map_or(range.end..range.end, |(part, _)| part);
            for (part, advice) in [
                (at..managed.start, args[2]),
                (managed.clone(), managed_advice),
            ] {
                match make(part, advice) {
                    0 => {}
                    err::NOMEM => result = err::NOMEM,
                    error => return error,
                }
            }
            if !managed.is_empty() {
                self.figures.events.removes += 1;
                self.discarded(state, &managed);
            }
            at = managed.end;
        }
        result
    }

    /// A call has failed that may have unmapped `range` before it did.
    pub(super) fn forget_what_is_gone(&mut self, state: &MemoryState, range: &Range<usize>) {
        let mut at = range.start;
        while let Some((part, _)) = self.ranges.first_within(&(at..range.end)) {
            at = part.end;
            if !raw::is_mapped(&part) {
                self.forget(state, &part);
            }
        }
    }

    /// The bytes of `range` are gone; closed pages stay closed, and are zeros.
    pub(super) fn discarded(&mut self, state: &MemoryState, range: &Range<usize>) {
        drop_stored(state, self, range);
        if self.way.kind == way::Kind::InThread {
            // What is absent is closed where faults are reported.
            let mut at = range.start;
            while let Some((part, kind)) = self.ranges.first_within(&(at..range.end)) {
                at = part.end;
                if kind.registered {
                    self.close_discarded(state, part.start >> SHIFT..part.end >> SHIFT);
                }
            }
            self.open_pinned(state, range);
            return;
        }
        let end = range.end >> SHIFT;
        let mut page = range.start >> SHIFT;
        let is_one = |word| matches!(word, Word::Stored(_) | Word::Standby);
        while let Some(closed) = state.words.next(page, end, is_one) {
            set(state, self, closed, Word::Zero);
            page = closed + 1;
        }
    }

    /// Pages that were discarded where faults are reported: closed, but for those that are
    /// kept, which are made anew.
    fn close_discarded(&mut self, state: &MemoryState, pages: Range<usize>) {
        let mut from = pages.start;
        while from < pages.end {
            let is_one = |word| word == Word::Kept;
            let to = state.words.next(from, pages.end, is_one);
            let to = to.unwrap_or(pages.end);
            self.set_run(state, from..to, true);
            if to < pages.end {
                self.fill_kept(to);
            }
            from = to + 1;
        }
    }

    /// Brings all of `range` and manages it no more.
    pub(crate) fn leave_alone(&mut self, state: &MemoryState, range: &Range<usize>) {
        bring_all(state, self, range);
        self.change_kind(state, range, false);
    }

    /// Keeps the pages of `range` open for good: the kernel has their addresses.
    pub(crate) fn keep(&mut self, state: &MemoryState, range: &Range<usize>) {
        let pages = range.start >> SHIFT..range.end.div_ceil(PAGE);
        for page in pages {
            let managed = self
                .ranges
                .at(page << SHIFT)
                .is_some_and(|(_, kind)| kind.managed);
            if managed {
                bring_each(state, self, &(page << SHIFT..(page + 1) << SHIFT), |_| true);
                set(state, self, page, Word::Kept);
            }
        }
    }

    fn keep_for(
        &mut self,
        state: &MemoryState,
        number: usize,
        args: [usize; 6],
        start: usize,
        len: usize,
    ) -> isize {
        let first = start & !(PAGE - 1);
        let range = range_of(first, len.saturating_add(start - first));
        self.leave_alone(state, &range);
        raw::for_program(number, args)
    }

    /// mlock. What is managed is not locked yet: more of it than the limit allows is refused, and
    /// nothing of it is brought for that.
    fn lock(&mut self, state: &MemoryState, number: usize, args: [usize; 6]) -> isize {
        let first = args[0] & !(PAGE - 1);
        let range = range_of(first, args[1].saturating_add(args[0] - first));
        let managed = self.ranges.within(&range).filter(|(_, kind)| kind.managed);
        let managed: usize = managed.map(|(part, _)| part.len()).sum();
        if managed > raw::most_locked() {
            return raw::for_program(number, args);
        }
        self.keep_for(state, number, args, args[0], args[1])
    }

    fn shmat(&mut self, state: &MemoryState, args: [usize; 6]) -> isize {
        let result = raw::for_program(nr::SHMAT, args);
        if args[2] & SHM_REMAP != 0 {
            // struct shmid_ds: the size is its seventh word.
            let mut about = [0_u64; 32];
            let into = about.as_mut_ptr() as usize;
            let asked = raw::own(nr::SHMCTL, [args[0], 2, into]);
            let len = usize::try_from(about[6]).unwrap_or(0);
            if is_error(result) {
                self.forget_what_is_gone(state, &range_of(args[1], len));
                return result;
            }
            if asked != 0 {
                self.fail(format_args!(
                    "what shmat replaced at {result:#x} is not known"
                ));
            }
            self.forget(state, &range_of(result.cast_unsigned(), len));
        }
        result
    }
}
