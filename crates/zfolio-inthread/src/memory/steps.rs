//! The steps by which pages are closed and opened, by each way ([`way`](super::way) has a table of them).
//!
//! Closing has three, so that a failure in between leaves the page open and whole: [`Way::freeze`], then
//! [`Way::commit`] or [`Way::undo`].

use super::copies::copy_all;
use super::outgoing;
use super::ranges::Protection;
use super::way::{
    DONTNEED, Kind, NONE, POPULATE_WRITE, READ_WRITE, STAGE, Way, advise, checked, protect,
};
use crate::program_memory;
use crate::raw::{self, PAGE, nr};
use core::ops::Range;
use zfolio_sys::syscall::Errno;

const READ: usize = 1;
const EXECUTE: usize = 4;
const GUARD_INSTALL: usize = 102;
const GUARD_REMOVE: usize = 103;

/// The protection of pages that are open.
const fn opened(protection: Protection) -> usize {
    match protection {
        Protection::ReadOnly => READ,
        Protection::ReadWrite => READ_WRITE,
        // (Not by the ways that open pages so.)
        Protection::Executable => READ_WRITE | EXECUTE,
    }
}

impl Way {
    /// First step of closing: keeps others from changing the bytes. Returns how many, from
    /// the front, are frozen; they are at [`Self::source`]. What is read-only nobody changes, and what is
    /// executable nobody who is not told to wait, once it is write-protected: in-thread both are
    /// copied there (a move is of what is writable alone), and [`Self::discard`] is one more
    /// step before [`Self::commit`] ([`Self::discards_apart`]). What of it stays is [`Self::thaw`]ed.
    pub(crate) fn freeze(
        &self,
        range: &Range<usize>,
        several: bool,
        protection: Protection,
    ) -> Result<usize, Errno> {
        debug_assert!(range.len() <= STAGE * PAGE);
        match (self.kind, self.moves) {
            (Kind::InThread, Some(moves)) => {
                if !outgoing::clear(self.outgoing) {
                    return Err(Errno::INVAL);
                }
                if protection.leaves_by_copy() {
                    return self.freeze_copy(range, several, protection);
                }
                let try_it = |len| moves.into_held(self.outgoing, range.start, len);
                let mut pages = range.len() / PAGE;
                let mut is_ours = false;
                let progress = loop {
                    let progress = try_it(pages * PAGE);
                    match progress.stopped {
                        // Shared with the other side of a fork: made our own.
                        Some(Errno::BUSY) if progress.done == 0 && !is_ours => {
                            advise(&(range.start..range.start + pages * PAGE), POPULATE_WRITE)?;
                            is_ours = true;
                        }
                        // A move is of one mapping, and the program may have made several of what is
                        // one range here (mremap): the part that is in the first goes.
                        Some(Errno::INVAL) if progress.done == 0 && pages > 1 => pages /= 2,
                        _ => break progress,
                    }
                };
                match progress.stopped {
                    Some(errno) if progress.done == 0 => Err(errno),
                    _ => Ok(progress.done),
                }
            }
            _ => {
                // (What is read-only nobody changes as it is.)
                if several && protection != Protection::ReadOnly {
                    protect(range, READ)?;
                }
                Ok(range.len())
            }
        }
    }

    /// The same by a copy, in-thread. After an error all is as it was.
    fn freeze_copy(
        &self,
        range: &Range<usize>,
        several: bool,
        protection: Protection,
    ) -> Result<usize, Errno> {
        let moves = self.moves.ok_or(Errno::INVAL)?;
        if several && protection == Protection::Executable {
            let protected = self.write_protect_pages(range);
            protected.or_else(|errno| self.thaw(range, several, protection).and(Err(errno)))?;
        }
        let copied = moves
            .uffd
            .copy_pages(self.outgoing, range.start, range.len());
        if copied.done < range.len() {
            let stays = range.start + copied.done..range.end;
            self.thaw(&stays, several, protection)?;
        }
        match copied.stopped {
            Some(errno) if copied.done == 0 => Err(errno),
            _ => Ok(copied.done),
        }
    }

    /// Lets pages be written to again that were frozen by a copy, and stay.
    pub(crate) fn thaw(
        &self,
        range: &Range<usize>,
        several: bool,
        protection: Protection,
    ) -> Result<(), Errno> {
        if several && protection == Protection::Executable {
            self.let_write(range)?;
        }
        Ok(())
    }

    /// The frozen bytes of `range`.
    pub(crate) fn source(&self, range: &Range<usize>) -> &[u8] {
        let at = match self.kind {
            Kind::InThread => self.outgoing,
            Kind::Guard | Kind::Protect => range.start,
        };
        // SAFETY: frozen: ours alone, or nobody can write to it (one thread: this one).
        unsafe { program_memory::bytes(at, range.len()) }
    }

    /// The bytes of `range` after [`Self::write_protect`].
    #[allow(clippy::unused_self, reason = "as `source`")]
    pub(crate) fn source_in_place(&self, range: &Range<usize>) -> &[u8] {
        // SAFETY: the caller has protected it, and whoever would open it waits for the caller.
        unsafe { program_memory::bytes(range.start, range.len()) }
    }

    /// Has whoever writes to `range` fault; [`Self::open_written`] ends it, also where this has
    /// failed.
    pub(crate) fn write_protect(&self, range: &Range<usize>) -> Result<(), Errno> {
        protect(range, READ)
    }

    /// The same by the pages and not by their mapping, where [`Way::protects`]: none is cut for that, and nobody
    /// waits who changes other mappings. [`Way::let_write`] ends it.
    pub(crate) fn write_protect_pages(&self, range: &Range<usize>) -> Result<(), Errno> {
        let moves = self.moves.ok_or(Errno::INVAL)?;
        moves.uffd.protect(range.start, range.len())
    }

    /// Has whoever touches `range` fault; [`Self::open_written`] ends it, also where this has failed.
    pub(crate) fn hide(&self, range: &Range<usize>) -> Result<(), Errno> {
        protect(range, NONE)
    }

    /// Places the markers of closed pages where nothing is, and nobody may touch; only by guard.
    pub(crate) fn mark(&self, range: &Range<usize>) -> Result<(), Errno> {
        advise(range, GUARD_INSTALL)
    }

    /// Has pages go that were copied.
    #[allow(clippy::unused_self, reason = "a step of a way")]
    pub(crate) fn discard(&self, range: &Range<usize>) -> Result<(), Errno> {
        advise(range, DONTNEED)
    }

    /// Whether pages that were copied go by [`Self::discard`], before [`Self::commit`].
    pub(crate) fn discards_apart(&self, protection: Protection) -> bool {
        protection.leaves_by_copy() && self.kind == Kind::InThread
    }

    /// Second step: the pages go. After a failure some may have gone: [`Self::make_whole`] is what
    /// mends that.
    pub(crate) fn commit(
        &self,
        range: &Range<usize>,
        several: bool,
        protection: Protection,
    ) -> Result<(), Errno> {
        match self.kind {
            Kind::InThread => advise(&(self.outgoing..self.outgoing + range.len()), DONTNEED),
            Kind::Guard => {
                // The kernel empties a page before it places the marker: in between, a
                // thread that may read would read zeros.
                if several {
                    protect(range, NONE)?;
                }
                advise(range, GUARD_INSTALL)?;
                if several {
                    protect(range, opened(protection))?;
                }
                Ok(())
            }
            Kind::Protect => {
                protect(range, NONE)?;
                advise(range, DONTNEED)
            }
        }
    }

    /// Instead of it: the pages stay, open and as they were.
    pub(crate) fn undo(
        &self,
        range: &Range<usize>,
        several: bool,
        protection: Protection,
    ) -> Result<(), Errno> {
        match (self.kind, self.moves) {
            (Kind::InThread, Some(_)) if protection.leaves_by_copy() => {
                self.thaw(range, several, protection)?;
                advise(&(self.outgoing..self.outgoing + range.len()), DONTNEED)
            }
            (Kind::InThread, Some(moves)) => {
                let copy = |to, from, len| moves.uffd.copy_pages(to, from, len);
                copy_all(copy, range, self.outgoing)?;
                advise(&(self.outgoing..self.outgoing + range.len()), DONTNEED)
            }
            _ if several && protection != Protection::ReadOnly => protect(range, READ_WRITE),
            _ => Ok(()),
        }
    }

    /// After a failure of [`Self::commit`], as [`Self::fill`].
    pub(crate) fn make_whole(
        &self,
        range: &Range<usize>,
        several: bool,
        protection: Protection,
    ) -> Result<(), Errno> {
        // (Where the kernel has no mapping left to hide them in, that was refused before, and all is there:
        // what was hidden is a mapping of its own, and is hidden again without another.)
        if self.kind == Kind::Guard && several && protect(range, NONE).is_err() {
            return protect(range, opened(protection));
        }
        self.fill(range, several, protection)
    }

    /// Opens a closed run with the bytes of the incoming pages.
    pub(crate) fn fill(
        &self,
        range: &Range<usize>,
        several: bool,
        protection: Protection,
    ) -> Result<(), Errno> {
        debug_assert!(range.len() <= STAGE * PAGE);
        match (self.kind, self.moves) {
            (Kind::InThread, Some(moves)) => {
                let copy = |to, from, len| moves.uffd.copy_pages(to, from, len);
                copy_all(copy, range, self.incoming)
            }
            (Kind::Guard, _) => {
                if several {
                    protect(range, NONE)?;
                }
                advise(range, GUARD_REMOVE)?;
                match (several, protection == Protection::ReadOnly) {
                    (true, _) => {
                        self.write_through(range)?;
                        protect(range, opened(protection))
                    }
                    (false, true) => self.write_read_only(range),
                    (false, false) => {
                        self.write_directly(range);
                        Ok(())
                    }
                }
            }
            _ if several => {
                self.write_through(range)?;
                protect(range, opened(protection))
            }
            _ if protection == Protection::ReadOnly => {
                self.write_read_only(range)?;
                protect(range, READ)
            }
            _ => {
                protect(range, READ_WRITE)?;
                self.write_directly(range);
                Ok(())
            }
        }
    }

    /// Writes the incoming pages to a run that may not be written to. One thread.
    fn write_read_only(&self, range: &Range<usize>) -> Result<(), Errno> {
        // (The child of a fork may have no file for it.)
        if self.write_through(range).is_err() {
            protect(range, READ_WRITE)?;
            self.write_directly(range);
            protect(range, READ)?;
        }
        Ok(())
    }

    /// Writes the incoming pages to a run that stays closed; only where that is the way.
    pub(crate) fn write_through(&self, range: &Range<usize>) -> Result<(), Errno> {
        let fd = self.memory.ok_or(Errno::INVAL)?;
        let mut done = 0;
        while done < range.len() {
            let args = [
                fd,
                self.incoming + done,
                range.len() - done,
                range.start + done,
                0,
                0,
            ];
            // SAFETY: the core lock is held, and the pages are closed.
            done += match checked(unsafe { raw::call(nr::PWRITE64, args) })? {
                0 => return Err(Errno::IO),
                some => some,
            };
        }
        Ok(())
    }

    fn write_directly(&self, range: &Range<usize>) {
        // SAFETY: incoming pages are ours; the range is open and this is the one thread.
        unsafe {
            let source = program_memory::bytes(self.incoming, range.len());
            program_memory::bytes_mut(range.start, range.len()).copy_from_slice(source);
        }
    }

    /// Opens a run, whatever its pages are, after [`Self::write_through`] for all of them.
    pub(crate) fn open_written(&self, range: &Range<usize>) -> Result<(), Errno> {
        protect(range, READ_WRITE)
    }

    /// The same of what the program may have made read-only.
    pub(crate) fn open_filled(
        &self,
        range: &Range<usize>,
        protection: Protection,
    ) -> Result<(), Errno> {
        protect(range, opened(protection))
    }

    /// Makes a run whose bytes are in place untouchable; only in the way of protection.
    pub(crate) fn stand_by(&self, range: &Range<usize>) -> Result<(), Errno> {
        protect(range, NONE)
    }
}
