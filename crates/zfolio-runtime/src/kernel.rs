//! The calls by which pages are moved and looked at, and who answers them.
//!
//! userfaultfd, the page map, the list of mappings, and advice: nothing else in this crate
//! touches pages of the program. In a test of this crate the answers come from
//! `zfolio-fake-kernel`, which keeps pages, and what is registered, itself, and fails when it
//! is told to.

use zfolio_sys::arena::{Discarded, collapse_by, discard_all_by, discard_by, make_own_by};
use zfolio_sys::moves::MovesOf;
use zfolio_sys::procfs::{FileOf, PagemapOf};
use zfolio_sys::syscall::Errno;
use zfolio_sys::uffd::UffdOf;

#[cfg(test)]
type Answering = zfolio_fake_kernel::Fake;
#[cfg(not(test))]
type Answering = zfolio_sys::syscall::Linux;

/// A userfaultfd descriptor.
pub(crate) type Uffd = UffdOf<Answering>;
/// What pages are moved with.
pub(crate) type Moves = MovesOf<Answering>;
/// An open file of /proc.
pub(crate) type File = FileOf<Answering>;
/// What is present.
pub(crate) type Pagemap = PagemapOf<Answering>;

/// See [`zfolio_sys::arena::discard`].
pub(crate) fn discard(start: usize, len: usize) -> Result<(), Errno> {
    discard_by::<Answering>(start, len)
}

/// See [`discard_all_by`].
pub(crate) fn discard_all(ranges: &[Discarded], together: bool) -> usize {
    discard_all_by::<Answering>(ranges, together)
}

/// See [`collapse_by`].
pub(crate) fn collapse(start: usize, len: usize) -> Result<(), Errno> {
    collapse_by::<Answering>(start, len)
}

/// See [`zfolio_sys::arena::make_own`].
pub(crate) fn make_own(start: usize, len: usize) {
    make_own_by::<Answering>(start, len);
}
