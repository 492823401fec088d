//! The program's memory: which of it is managed, where each page is, and how pages come and
//! go. All of it under one lock, [`Core`]'s; `words` may be read without.
//!
//! | file | concept |
//! |---|---|
//! | [`words`] | where a page is |
//! | [`ranges`] | which mappings are managed |
//! | [`way`] | how pages are closed and opened: userfaultfd, guard markers, protection |
//! | [`core`] | what the lock guards, and the pool, once memory is short |
//! | [`bring`] | swap-in, and room for it |
//! | [`reclaim`] | swap-out |
//! | [`clean`] | pages that leave as they came |
//! | [`space`] | what system calls do to the address space |
//! | [`remap`] | of them, mremap |
//! | [`at_fork`] | what the child of a fork has of them |

mod at_fork;
pub(crate) mod bring;
pub(crate) mod clean;
pub(crate) mod core;
pub(crate) mod ranges;
pub(crate) mod reclaim;
mod remap;
pub(crate) mod space;
pub(crate) mod texts;
pub(crate) mod way;
pub(crate) mod words;

/// A page's number: its address over the page size.
pub(crate) type Vpn = usize;
