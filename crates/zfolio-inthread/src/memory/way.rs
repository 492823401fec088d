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
//! | what is executable: closing | write-protected where several threads run; a copy, and its pages discarded | left alone | left alone |
//!
//! A page is never seen half filled: where another thread could look, it is filled before it
//! is opened. The steps of closing and opening are in [`steps`](super::steps).
//!
//! Which way works here, and what it has open, is [`ways`](super::ways)'s.

use super::copies::copy_all;
use super::outgoing;
pub(crate) use super::outgoing::STAGE;
use super::own_file::OwnFile;
use super::own_store::OwnStore;
use super::words::Word;
use crate::program_memory;
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

pub(super) const NONE: usize = 0;
pub(super) const READ_WRITE: usize = 3;
pub(super) const DONTNEED: usize = 4;
pub(super) const POPULATE_WRITE: usize = 23;

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

pub(super) fn protect(range: &Range<usize>, as_: usize) -> Result<(), Errno> {
    checked(raw::own(nr::MPROTECT, [range.start, range.len(), as_])).map(drop)
}

pub(super) fn advise(range: &Range<usize>, advice: usize) -> Result<(), Errno> {
    checked(raw::own(nr::MADVISE, [range.start, range.len(), advice])).map(drop)
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
        unsafe { program_memory::bytes_mut(self.incoming + index * PAGE, PAGE) }
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

    /// Whether memory that is writable and executable is managed: pages of it are frozen by a protection of their
    /// own, since that of their mapping is not ours to change, and a MOVE is not of such memory.
    pub(crate) fn takes_executable(&self) -> bool {
        self.kind == Kind::InThread && self.protects
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
}
