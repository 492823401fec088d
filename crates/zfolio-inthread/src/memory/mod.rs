//! The program's memory: which of it is managed, where each page is, and how pages come and
//! go. What becomes of them is decided under one lock, [`Core`](core::Core)'s; `words` may be read
//! without.
//!
//! | file | concept |
//! |---|---|
//! | [`words`] | where a page is |
//! | [`ranges`] | which mappings are managed |
//! | [`way`] | how pages are closed and opened: userfaultfd, guard markers, protection |
//! | [`core`] | what the lock guards, and the pool, once memory is short |
//! | [`bring`] | swap-in, and room for it |
//! | [`reclaim`] | swap-out |
//! | [`folios`] | of swap-out, how runs are stored, counted and split |
//! | [`limits`], [`bounds`] | what may be out, in the pool, and resident at most |
//! | [`writeback`], [`own_file`] | what is behind the pool |
//! | [`clean`] | pages that leave as they came |
//! | [`transit`] | swap-in and swap-out beside other threads, without the lock |
//! | [`space`] | what system calls do to the address space |
//! | [`remap`] | of them, mremap |
//! | [`at_fork`] | what the child of a fork has of them |

mod at_fork;
mod bounds;
pub(crate) mod bring;
pub(crate) mod clean;
pub(crate) mod core;
pub(crate) mod folios;
mod limits;
mod own_file;
pub(crate) mod ranges;
pub(crate) mod reclaim;
mod remap;
pub(crate) mod space;
pub(crate) mod texts;
pub(crate) mod transit;
pub(crate) mod way;
pub(crate) mod words;
mod writeback;

/// A page's number: its address over the page size.
pub(crate) type Vpn = usize;
