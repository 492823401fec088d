//! Memory that a program may use from now on: new mappings, memory that was reserved and becomes
//! writable, prefaulted memory, and the executable's static data.
//!
//! Who makes room is who faults. So where memory is short what holds nothing yet is closed from
//! the start, and who touches it faults. What is not closed, since it holds something or is
//! small, is open and counted at once, and the call that made it usable makes room.

use super::arguments::PROT_READ_WRITE;
use super::bring::{bring_all, bring_each};
use super::core::MemoryCore;
use super::empty::{next_untouched, untouched_from};
use super::ranges::{AtFork, Kind, Protection};
use super::way;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{self, PAGE, SHIFT, is_error, nr};
use alloc::vec;
use core::ops::Range;
use zfolio_sys::procfs::{File, for_each_mapping};

/// Pages prefaulted at a time: what came before them may leave again.
const AT_ONCE: usize = 256;
/// Least static data that is managed, bytes: less is not worth a range.
const LEAST_STATIC: usize = 64 * PAGE;
/// Of the auxiliary vector: where the executable's program headers are.
const AT_PHDR: u64 = 3;

impl MemoryCore {
    /// Whether memory is short with `pages` more.
    pub(super) fn is_short(&mut self, state: &MemoryState, pages: usize) -> bool {
        self.say_if_changed(state, pages);
        self.usage(state) + pages > self.limit() - self.limit() / 8
    }

    /// The same; then there is a pool, or `false`: nothing can be closed.
    fn may_close_from_the_start(&mut self, state: &MemoryState, pages: usize) -> bool {
        !self.closes_nothing() && self.is_short(state, pages) && self.begin_managing(state).is_ok()
    }

    /// Notes a new mapping that is to be managed. Where memory is short it is closed from the
    /// start.
    pub(super) fn manage(&mut self, state: &MemoryState, range: Range<usize>, kind: Kind) {
        let pages = range.len() >> SHIFT;
        // (Before it counts, so that no peak is told that never was.)
        let ready = self.may_close_from_the_start(state, pages);
        self.ranges.add(range.clone(), kind);
        // (Nobody has been told of it yet. Should somebody touch it all the same, what he has written
        // stays: a page that is there is opened as it is.)
        if !ready || pages < 2 * self.group(state) || !self.is_watched_from(state, &range, &range) {
            return;
        }
        self.way.keep_whole(&range, state.is_several());
        self.close_untouched(state, &(range.start >> SHIFT..range.end >> SHIFT));
        self.open_pinned(state, &range);
    }

    /// Opens what calls that are under way have pinned of `range`, which was made anew and closed
    /// under them: the kernel has their addresses.
    pub(super) fn open_pinned(&mut self, state: &MemoryState, range: &Range<usize>) {
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        let parts = self.seen.within(range);
        // (Whoever pins from here on brings what is closed.)
        state.batches.end();
        for part in parts {
            bring_each(state, self, &part, |_| true);
        }
    }

    /// Has faults of the range reported that `part` is in, all of it: what that was joined
    /// to may be older, and hold something where it is not `fresh`. False where that cannot be now.
    fn is_watched_from(
        &mut self,
        state: &MemoryState,
        part: &Range<usize>,
        fresh: &Range<usize>,
    ) -> bool {
        let Some((whole, kind)) = self.ranges.at(part.start) else {
            return false;
        };
        if kind.registered {
            return true;
        }
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        let watched = self.watch(state, &whole, fresh);
        state.batches.end();
        watched
    }

    /// Notes memory that is to be managed and may hold something. Where memory is short what
    /// of it holds nothing is closed.
    fn manage_what_may_hold(&mut self, state: &MemoryState, range: Range<usize>, kind: Kind) {
        let ready = self.may_close_from_the_start(state, range.len() >> SHIFT);
        self.ranges.add(range.clone(), kind);
        if !ready || !self.is_watched_from(state, &range, &(0..0)) {
            return;
        }
        if self.way.kind == way::Kind::InThread {
            // Where faults are reported what is absent is closed already.
            self.open_pinned(state, &range);
            return;
        }
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        self.close_empty(state, &range);
        state.batches.end();
    }

    /// mprotect to readable and writable, and maybe executable: `protection` is what it is to be.
    pub(super) fn becomes_writable(
        &mut self,
        state: &MemoryState,
        number: usize,
        args: [usize; 6],
        range: Range<usize>,
        protection: Protection,
    ) -> isize {
        // Closed pages are protected by us, not by the program: they stay so, and the call
        // is made for the others.
        let mut at = range.start;
        while at < range.end {
            let managed = self.first_protected(&(at..range.end), protection);
            if managed.start > at {
                let changed = at..managed.start;
                let result = self.protect_open(state, number, args, &changed);
                if is_error(result) {
                    self.became_writable_in_part(state, &changed, protection);
                    return result;
                }
                let managed = |kind: &mut Kind| {
                    if kind.managed {
                        kind.protection = protection;
                    }
                };
                self.ranges.edit(&changed, managed);
                self.reserved_becomes_managed(state, changed, protection);
            }
            at = managed.end;
        }
        0
    }

    /// Has `range` ready to be made read-only, and stay managed with the pages that are out. By guard and protect
    /// what nobody has touched is opened for that, and managed no more until it is writable. False where the
    /// kernel does not open it.
    pub(super) fn may_become_read_only(
        &mut self,
        state: &MemoryState,
        range: &Range<usize>,
    ) -> bool {
        if self.way.kind == way::Kind::InThread {
            return true;
        }
        bring_each(state, self, range, |word| word == Word::Standby);
        let end = range.end >> SHIFT;
        let mut page = range.start >> SHIFT;
        while let Some(found) = next_untouched(state, page, end) {
            let run = untouched_from(state, found, end);
            page = run.end;
            if !self.open_untouched(state, run.clone()) {
                return false;
            }
            self.change_kind(state, &(run.start << SHIFT..run.end << SHIFT), true);
        }
        true
    }

    /// Makes the program's mprotect of `part`, but for what is closed by the protection of its mapping.
    fn protect_open(
        &self,
        state: &MemoryState,
        number: usize,
        args: [usize; 6],
        part: &Range<usize>,
    ) -> isize {
        let make = |part: Range<usize>| {
            let mut made = args;
            (made[0], made[1]) = (part.start, part.len());
            raw::for_program(number, made)
        };
        if self.way.kind != way::Kind::Protect {
            return make(part.clone());
        }
        let end = part.end >> SHIFT;
        let mut page = part.start >> SHIFT;
        while page < end {
            let closed = state.words.next_closed(page, end).unwrap_or(end);
            if closed > page {
                let result = make(page << SHIFT..closed << SHIFT);
                if is_error(result) {
                    return result;
                }
            }
            page = closed;
            while page < end && state.words.get(page).is_closed() {
                page += 1;
            }
        }
        0
    }

    /// mprotect to readable only, where what is closed stays so: it stays managed.
    pub(super) fn becomes_read_only(
        &mut self,
        state: &MemoryState,
        number: usize,
        args: [usize; 6],
        range: &Range<usize>,
    ) -> isize {
        let result = self.protect_open(state, number, args, range);
        if is_error(result) && self.way.kind != way::Kind::InThread {
            self.became_read_only_in_part(state, range);
            return result;
        }
        self.ranges.edit(range, Kind::make_read_only);
        if is_error(result) {
            // (A part may be read-only now.)
            self.leave_read_only(state, range);
        }
        result
    }

    /// mprotect to readable only has failed, where who opens a page has to know its protection: what lies before
    /// a hole is read-only. Where there is none it is not told how far the kernel came, and all is writable again.
    fn became_read_only_in_part(&mut self, state: &MemoryState, range: &Range<usize>) {
        let reached = mapped_before_a_hole(range);
        if reached.end < range.end {
            self.ranges.edit(&reached, Kind::make_read_only);
            return;
        }
        let mut at = range.start;
        while let Some((part, kind)) = self.ranges.first_within(&(at..range.end)) {
            at = part.end;
            if !kind.managed || kind.protection == Protection::ReadOnly {
                continue;
            }
            let args = [part.start, part.len(), PROT_READ_WRITE, 0, 0, 0];
            if is_error(self.protect_open(state, nr::MPROTECT, args, &part)) {
                self.ranges.edit(&part, Kind::make_read_only);
                self.leave_read_only(state, &part);
            }
        }
    }

    /// The same of mprotect to readable and writable. Where there is no hole what was read-only stays so, and is
    /// managed no more; nor is what may be executable now, or not any more.
    fn became_writable_in_part(
        &mut self,
        state: &MemoryState,
        range: &Range<usize>,
        protection: Protection,
    ) {
        let is_executable = |of: Protection| of == Protection::Executable;
        let was_executable = {
            let mut parts = self.ranges.within(range);
            parts.any(|(_, kind)| is_executable(kind.protection))
        };
        if is_executable(protection) || was_executable {
            self.leave_alone(state, range);
            return;
        }
        let reached = mapped_before_a_hole(range);
        if self.way.kind == way::Kind::InThread || reached.end == range.end {
            self.leave_read_only(state, range);
        } else {
            self.ranges
                .edit(&reached, |kind| kind.protection = Protection::ReadWrite);
        }
    }

    /// What is read-only of `range` is managed no more, until the program makes it writable.
    fn leave_read_only(&mut self, state: &MemoryState, range: &Range<usize>) {
        let mut at = range.start;
        while let Some((part, kind)) = self.ranges.first_within(&(at..range.end)) {
            at = part.end;
            if kind.protection == Protection::ReadOnly {
                bring_all(state, self, &part);
                self.change_kind(state, &part, true);
            }
        }
    }

    /// The first managed part of `range` with that protection; nothing, at its end, if there is none.
    fn first_protected(&self, range: &Range<usize>, protection: Protection) -> Range<usize> {
        let mut parts = self.ranges.within(range);
        let found = parts.find(|(_, kind)| kind.managed && kind.protection == protection);
        found.map_or(range.end..range.end, |(part, _)| part)
    }

    /// The first managed part of `range`; nothing, at its end, if there is none.
    fn first_managed(&self, range: &Range<usize>) -> Range<usize> {
        let mut parts = self.ranges.within(range);
        let managed = parts.find(|(_, kind)| kind.managed);
        managed.map_or(range.end..range.end, |(part, _)| part)
    }

    fn reserved_becomes_managed(
        &mut self,
        state: &MemoryState,
        range: Range<usize>,
        protection: Protection,
    ) {
        let mut at = range.start;
        while let Some((part, kind)) = self.ranges.first_within(&(at..range.end)) {
            at = part.end;
            if !kind.managed {
                let kind = Kind::new(true, kind.at_fork).with(protection);
                self.manage_what_may_hold(state, part, kind);
            }
        }
    }

    /// MADV_POPULATE_READ and _WRITE. Of managed memory a piece at a time is brought and given
    /// to the kernel; it may leave again for the next, as with a swap of the kernel's.
    pub(super) fn populate(
        &mut self,
        state: &MemoryState,
        args: [usize; 6],
        range: &Range<usize>,
    ) -> isize {
        let make = |part: Range<usize>| {
            let mut made = args;
            (made[0], made[1]) = (part.start, part.len());
            if part.is_empty() {
                return 0;
            }
            raw::for_program(nr::MADVISE, made)
        };
        let mut at = range.start;
        while at < range.end {
            let managed = self.first_managed(&(at..range.end));
            let piece = managed.start..managed.end.min(managed.start + AT_ONCE * PAGE);
            let result = make(at..managed.start);
            if result != 0 {
                return result;
            }
            bring_each(state, self, &piece, |_| true);
            let result = make(piece.clone());
            if result != 0 {
                return result;
            }
            at = piece.end;
        }
        0
    }

    /// Manages the executable's static data that begins as zeros (.bss), if there is much of
    /// it. The program has one thread, and none of its code has run.
    pub(crate) fn manage_static(&mut self, state: &MemoryState) {
        let Some(range) = static_data() else {
            return;
        };
        self.manage_what_may_hold(state, range, Kind::new(true, AtFork::default()));
        self.make_room(state, 0);
    }
}

/// The part of `range` before the first page of it that is not mapped.
fn mapped_before_a_hole(range: &Range<usize>) -> Range<usize> {
    let (mut end, mut step) = (range.start, range.len());
    // (Halves what has a hole, until that is a page.)
    while step >= PAGE && end < range.end {
        let part = end..range.end.min(end + step);
        if raw::is_mapped(&part) {
            end = part.end;
        } else {
            step = (step / 2) & !(PAGE - 1);
        }
    }
    range.start..end
}

/// The private anonymous memory that follows the executable's last writable segment; `None` if
/// that is little, or not told.
fn static_data() -> Option<Range<usize>> {
    let headers = program_headers()?;
    let file = File::open(c"/proc/self/maps").ok()?;
    let mut buffer = vec![0; 4 * PAGE];
    // The executable's inode, where what was mapped of it last ends, and what follows.
    let (mut executable, mut end, mut found) = (None, 0, None);
    let read = for_each_mapping(file, &mut buffer, |mapping| {
        if mapping.start <= headers && headers < mapping.end && mapping.inode != 0 {
            executable = Some(mapping.inode);
        }
        if mapping.inode != 0 && executable == Some(mapping.inode) {
            end = mapping.end;
        } else if mapping.perms == b"rw-p" && mapping.inode == 0 && mapping.start == end {
            found = Some(mapping.start..mapping.end);
        }
    });
    file.close();
    read.ok()?;
    // (Where the heap follows at once the kernel has one mapping of both.)
    found.filter(|range| range.len() >= LEAST_STATIC)
}

/// Where the executable's program headers are.
fn program_headers() -> Option<usize> {
    let file = File::open(c"/proc/self/auxv").ok()?;
    let mut bytes = [0_u8; 1024];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    file.close();
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
    let entries = bytes[..len].chunks_exact(16);
    entries
        .filter(|entry| word(&entry[..8]) == Some(AT_PHDR))
        .find_map(|entry| usize::try_from(word(&entry[8..])?).ok())
}
