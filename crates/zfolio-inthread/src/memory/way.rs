//! How pages are closed and opened, so that whoever touches a closed one faults.
//!
//! | | in-thread | guard | protect |
//! |---|---|---|---|
//! | a closed page | absent, in a range registered with userfaultfd | a guard marker | PROT_NONE |
//! | its fault | SIGBUS | SIGSEGV | SIGSEGV |
//! | a whole run that nobody touched | as it is | PROT_NONE | PROT_NONE |
//! | closing | MOVE to a place of ours | protected while it is stored; untouchable, then the marker | protected, given back |
//! | opening, one thread | COPY | marker gone, then filled | open, then filled |
//! | opening, several | COPY | through /proc/self/mem while nobody may touch | likewise |
//! | what is read-only: closing | a copy, and its pages discarded | as it is while it is stored; untouchable, then the marker | as it is while it is stored; protected, given back |
//! | opening | COPY | through /proc/self/mem | likewise |
//!
//! A page is never seen half filled: where another thread could look, it is filled before it
//! is opened. Closing has three steps, so that a failure in between leaves the page open and
//! whole: [`Way::freeze`], then [`Way::commit`] or [`Way::undo`].
//!
//! Which way works here, and what it has open, is [`ways`](super::ways)'s.

use super::copies::copy_all;
use super::outgoing;
pub(crate) use super::outgoing::STAGE;
use super::own_file::OwnFile;
use super::own_store::OwnStore;
use super::words::Word;
use crate::raw::{self, PAGE, is_error, nr};
use alloc::sync::Arc;
use core::ops::Range;
use zfolio_runtime::segment::faults;
use zfolio_sys::moves::Moves;
use zfolio_sys::syscall::Errno;

/// Most descriptors of ours.
pub(crate) const OURS: usize = 7;

/// Of a huge page, bytes.
const HUGE: usize = 2 << 20;

const NONE: usize = 0;
const READ: usize = 1;
const READ_WRITE: usize = 3;
const DONTNEED: usize = 4;
const POPULATE_WRITE: usize = 23;
const GUARD_INSTALL: usize = 102;
const GUARD_REMOVE: usize = 103;

/// Which way it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    InThread,
    Guard,
    Protect,
}

impl Kind {
    /// As `faults` of the control segment says it.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::InThread => faults::IN_THREAD,
            Self::Guard => faults::GUARD,
            Self::Protect => faults::PROTECT,
        }
    }
}

impl Kind {
    /// Which pages are in a mapping of their own, whatever lies beside them.
    pub(crate) const fn apart(self) -> fn(Word) -> bool {
        match self {
            Self::InThread => |_| false,
            Self::Guard => |word| matches!(word, Word::Untouched),
            Self::Protect => Word::is_closed,
        }
    }
}

/// A way, with what it works with.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) kind: Kind,
    pub(super) moves: Option<Moves>,
    /// Pages may be filled write-protected.
    pub(super) protects: bool,
    /// /proc/self/mem.
    pub(super) memory: Option<usize>,
    /// What the process has resident.
    pub(super) sizes: Option<usize>,
    /// Its mappings, and which of their pages are there, where nothing else needs that: what cannot
    /// leave is looked for in them.
    pub(super) maps: Option<usize>,
    pub(super) pages: Option<usize>,
    /// What is behind the pool: a file,
    pub(super) backing: Option<Arc<OwnFile>>,
    /// or a store.
    pub(super) store: Option<Arc<OwnStore>>,
    /// What comes in is made here.
    pub(super) incoming: usize,
    /// What goes out is moved here.
    pub(super) outgoing: usize,
    /// Nothing is ever written here.
    pub(super) zeros: usize,
}

pub(super) const fn checked(result: isize) -> Result<usize, Errno> {
    if is_error(result) {
        #[allow(clippy::cast_possible_truncation, reason = "an error number")]
        return Err(Errno(-result as i32));
    }
    Ok(result.cast_unsigned())
}

fn protect(range: &Range<usize>, as_: usize) -> Result<(), Errno> {
    checked(raw::own(nr::MPROTECT, [range.start, range.len(), as_])).map(drop)
}

fn advise(range: &Range<usize>, advice: usize) -> Result<(), Errno> {
    checked(raw::own(nr::MADVISE, [range.start, range.len(), advice])).map(drop)
}

/// The protection of pages that are open.
const fn opened(read_only: bool) -> usize {
    if read_only { READ } else { READ_WRITE }
}

impl Way {
    /// The same way, with other places for what comes in and goes out, of [`STAGE`] pages each.
    pub(crate) fn with_places(&self, incoming: usize, outgoing: usize) -> Self {
        Self {
            incoming,
            outgoing,
            ..self.clone()
        }
    }

    pub(crate) fn incoming(&self) -> usize {
        self.incoming
    }

    pub(crate) fn outgoing(&self) -> usize {
        self.outgoing
    }

    /// Has its place for what goes out ready: once, and in the child of a fork anew.
    pub(crate) fn prepare_outgoing(&self) -> Result<(), Errno> {
        match self.moves {
            Some(moves) => moves.uffd.register(self.outgoing, STAGE * PAGE),
            None => Ok(()),
        }
    }

    /// A page of the place that pages are filled from.
    pub(crate) fn incoming_page(&mut self, index: usize) -> &mut [u8] {
        debug_assert!(index < STAGE);
        // SAFETY: memory of ours, used under the core lock alone.
        unsafe { raw::bytes_mut(self.incoming + index * PAGE, PAGE) }
    }

    /// Has faults in `range`, which is mapped, reported to us.
    pub(crate) fn watch(&self, range: &Range<usize>) -> Result<(), Errno> {
        match self.moves {
            Some(moves) if self.protects => {
                moves.uffd.register_protectable(range.start, range.len())
            }
            Some(moves) => moves.uffd.register(range.start, range.len()),
            None => Ok(()),
        }
    }

    /// Whether there is [`Self::fill_clean`].
    pub(crate) const fn protects(&self) -> bool {
        self.protects
    }

    /// As [`Self::fill`]; who writes to them faults, until [`Self::let_write`].
    pub(crate) fn fill_clean(&self, range: &Range<usize>) -> Result<(), Errno> {
        let moves = self.moves.ok_or(Errno::INVAL)?;
        let copy = |to, from, len| moves.uffd.copy_pages_protected(to, from, len);
        copy_all(copy, range, self.incoming)
    }

    /// Lets pages that [`Self::fill_clean`] has filled be written to.
    pub(crate) fn let_write(&self, range: &Range<usize>) -> Result<(), Errno> {
        let moves = self.moves.ok_or(Errno::INVAL)?;
        moves.uffd.unprotect(range.start, range.len())
    }

    /// The opposite of [`Self::watch`].
    pub(crate) fn unwatch(&self, range: &Range<usize>) -> Result<(), Errno> {
        match self.moves {
            Some(moves) => moves.uffd.unregister(range.start, range.len()),
            None => Ok(()),
        }
    }

    /// Closes a run that holds nothing.
    pub(crate) fn close_untouched(&self, range: &Range<usize>) -> Result<(), Errno> {
        match self.kind {
            Kind::InThread => Ok(()),
            Kind::Guard | Kind::Protect => protect(range, NONE),
        }
    }

    /// Has the kernel make the mapping of `range`, which was mapped a moment ago, such that parts of it
    /// that are protected and opened are one again: they are not if they got an anon_vma each by itself,
    /// or were charged for each by itself. Before it is closed.
    ///
    /// A page of it is present for that. It goes where nobody else can have written to it (`several`: other
    /// threads may know the address, of a fixed mapping say), and stays otherwise. (Of older memory none may
    /// go: what is absent there may be in the kernel's swap.)
    pub(crate) fn keep_whole(&self, range: &Range<usize>, several: bool) {
        if self.kind == Kind::InThread {
            return;
        }
        // (A huge page is made where it fits, and goes as a whole.)
        let aligned = range.start.next_multiple_of(HUGE);
        let (at, until) = match range.end.checked_sub(HUGE) {
            Some(last) if aligned <= last => (aligned, aligned + HUGE),
            _ => (range.start, range.end.min(aligned.max(range.start + PAGE))),
        };
        // (Without it there are more mappings, and nothing is wrong.)
        if advise(&(at..at + PAGE), POPULATE_WRITE).is_ok() && !several {
            let _ = advise(&(at..until), DONTNEED);
        }
    }

    /// Opens a run that holds nothing, or part of it.
    pub(crate) fn open_untouched(&self, range: &Range<usize>) -> Result<(), Errno> {
        match self.kind {
            Kind::InThread => self.fill_with_zeros(range),
            Kind::Guard | Kind::Protect => protect(range, READ_WRITE),
        }
    }

    /// Shows a page of zeros at `address`, in a place for what goes out; whether it lies in one. The
    /// core lock is held and nothing is in transit.
    pub(crate) fn show_nothing(&self, address: usize) -> bool {
        let (Some(moves), Kind::InThread) = (self.moves, self.kind) else {
            return false;
        };
        if !outgoing::note_shown(address) {
            return false;
        }
        let shown = moves
            .uffd
            .copy_pages(address & !(PAGE - 1), self.zeros, PAGE);
        matches!(
            shown.stopped,
            None | Some(Errno::EXIST) | Some(Errno::AGAIN)
        )
    }

    /// Fills absent pages with zeros: only where that is the way.
    fn fill_with_zeros(&self, range: &Range<usize>) -> Result<(), Errno> {
        let Some(moves) = self.moves else {
            return Ok(());
        };
        let mut at = range.start;
        let mut most = STAGE * PAGE;
        while at < range.end {
            let len = (range.end - at).min(most);
            let progress = moves.uffd.copy_pages(at, self.zeros, len);
            at += progress.done;
            most = STAGE * PAGE;
            match progress.stopped {
                None | Some(Errno::AGAIN) => {}
                Some(Errno::EXIST) => at += PAGE,
                // One mapping at a time: where another begins, page by page.
                Some(Errno::NOENT) if len > PAGE => most = PAGE,
                Some(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// First step of closing: keeps others from changing the bytes. Returns how many, from
    /// the front, are frozen; they are at [`Self::source`]. What is read-only nobody changes: in-thread it is
    /// copied there (a move is of what may be written to), and [`Self::discard`] is one more
    /// step before [`Self::commit`] ([`Self::discards_apart`]).
    pub(crate) fn freeze(
        &self,
        range: &Range<usize>,
        several: bool,
        read_only: bool,
    ) -> Result<usize, Errno> {
        debug_assert!(range.len() <= STAGE * PAGE);
        match (self.kind, self.moves) {
            (Kind::InThread, Some(moves)) => {
                if !outgoing::clear(self.outgoing) {
                    return Err(Errno::INVAL);
                }
                if read_only {
                    let copied = moves
                        .uffd
                        .copy_pages(self.outgoing, range.start, range.len());
                    return match copied.stopped {
                        Some(errno) if copied.done == 0 => Err(errno),
                        _ => Ok(copied.done),
                    };
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
                if several && !read_only {
                    protect(range, READ)?;
                }
                Ok(range.len())
            }
        }
    }

    /// The frozen bytes of `range`.
    pub(crate) fn source(&self, range: &Range<usize>) -> &[u8] {
        let at = match self.kind {
            Kind::InThread => self.outgoing,
            Kind::Guard | Kind::Protect => range.start,
        };
        // SAFETY: frozen: ours alone, or nobody can write to it (one thread: this one).
        unsafe { raw::bytes(at, range.len()) }
    }

    /// The bytes of `range` after [`Self::write_protect`].
    #[allow(clippy::unused_self, reason = "as `source`")]
    pub(crate) fn source_in_place(&self, range: &Range<usize>) -> &[u8] {
        // SAFETY: the caller has protected it, and whoever would open it waits for the caller.
        unsafe { raw::bytes(range.start, range.len()) }
    }

    /// Has whoever writes to `range` fault; [`Self::open_written`] ends it, also where this has
    /// failed.
    pub(crate) fn write_protect(&self, range: &Range<usize>) -> Result<(), Errno> {
        protect(range, READ)
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
    pub(crate) fn discards_apart(&self, read_only: bool) -> bool {
        read_only && self.kind == Kind::InThread
    }

    /// Second step: the pages go. After a failure some may have gone: [`Self::fill`] is what
    /// makes them whole.
    pub(crate) fn commit(
        &self,
        range: &Range<usize>,
        several: bool,
        read_only: bool,
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
                    protect(range, opened(read_only))?;
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
        read_only: bool,
    ) -> Result<(), Errno> {
        match (self.kind, self.moves) {
            (Kind::InThread, Some(_)) if read_only => {
                advise(&(self.outgoing..self.outgoing + range.len()), DONTNEED)
            }
            (Kind::InThread, Some(moves)) => {
                let copy = |to, from, len| moves.uffd.copy_pages(to, from, len);
                copy_all(copy, range, self.outgoing)?;
                advise(&(self.outgoing..self.outgoing + range.len()), DONTNEED)
            }
            _ if several && !read_only => protect(range, READ_WRITE),
            _ => Ok(()),
        }
    }

    /// Opens a closed run with the bytes of the incoming pages.
    pub(crate) fn fill(
        &self,
        range: &Range<usize>,
        several: bool,
        read_only: bool,
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
                match (several, read_only) {
                    (true, _) => {
                        self.write_through(range)?;
                        protect(range, opened(read_only))
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
                protect(range, opened(read_only))
            }
            _ if read_only => {
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
            let source = raw::bytes(self.incoming, range.len());
            raw::bytes_mut(range.start, range.len()).copy_from_slice(source);
        }
    }

    /// Opens a run, whatever its pages are, after [`Self::write_through`] for all of them.
    pub(crate) fn open_written(&self, range: &Range<usize>) -> Result<(), Errno> {
        protect(range, READ_WRITE)
    }

    /// The same of what the program may have made read-only.
    pub(crate) fn open_filled(&self, range: &Range<usize>, read_only: bool) -> Result<(), Errno> {
        protect(range, opened(read_only))
    }

    /// Makes a run whose bytes are in place untouchable; only in the way of protection.
    pub(crate) fn stand_by(&self, range: &Range<usize>) -> Result<(), Errno> {
        protect(range, NONE)
    }
}
