//! Folio compaction: making large free blocks of backed frames.
//!
//! The arena's free frames are many while its free *blocks* are small: zspages and
//! standby pages lie between them. Compaction moves folios together, so that whole
//! aligned blocks come free, of order 9 for a huge page. It decides what goes where;
//! the bytes are moved by the owner, through [`Folios`].
//!
//! ```text
//!   source: a block to be emptied              targets: where its folios go
//!   [ f . . F F . . . ]  --- migrate --->      [ f f x . F F f . ]
//!   then given back whole                      free blocks isolated from here
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`folios`] | what compaction asks of the arena's owner |
//! | [`compactor`] | the run: begin, steps, outcome |
//! | [`request`] | what a run is for, how it ended |
//! | [`policy`] | what is compacted how, and the one the running system uses |
//! | [`scan`] | which pageblocks are sources, which targets |
//! | [`freepages`] | isolated free blocks: split, merge |
//! | [`claim`] | the slots of the block being emptied |
//! | [`suitability`] | fragmentation index, score, is it worth trying |
//! | [`backoff`] | when not to try, when to try unasked |
//! | [`counters`] | what is counted, by the kernel's names |
//! | [`variants`] | the five configurations of the Linux series this follows |
//!
//! The algorithm is the Linux kernel's memory compaction (two scanners that meet,
//! isolated free pages kept by order, split on demand), as extended to folios of any
//! order in 2023-24; its facts are rebuilt here, none of its code. What is ours is
//! told in [`policy::Evacuate`].
//!
//! # Invariants
//!
//! Checked by [`Compactor::validate`] together with the owner's own:
//! 1. a slot is in exactly one of: the owner's free blocks, a folio, a hole, the
//!    freepages, the claim;
//! 2. the freepages are aligned blocks of which no two overlap, and their pages are
//!    counted right (with merging: no two buddies of them, as in [`crate::buddy`]);
//! 3. the claim lies within the region being emptied, and none of it is in the
//!    freepages;
//! 4. a run that has ended holds nothing: everything is back with the owner;
//! 5. a folio is only ever *listed*, never taken: what is listed is looked at again
//!    before it is moved, so the list may be out of date at any time.
//!
//! # Between steps
//!
//! A run is a sequence of [`Compactor::step`] calls, each bounded. Between them the
//! owner may allocate, free, pin and move anything it holds, and may end the run
//! with [`Compactor::stop`]. By invariant 5 a folio that is gone by then is passed
//! over; by invariant 1 nothing that is held can be allocated by the owner. The price
//! is that [`Compactor::held_pages`] are missing from the owner's free ones until
//! then: an owner short of frames calls `stop`, which gives them back at once.

pub mod backoff;
pub mod claim;
pub mod compactor;
pub mod counters;
pub mod folios;
pub mod freepages;
mod gather;
mod migrate;
pub mod policy;
pub mod request;
pub mod scan;
pub mod suitability;
pub mod variants;

pub use compactor::Compactor;
pub use counters::Counters;
pub use folios::{Folios, Found, PageblockCounts, Refused};
pub use policy::{Evacuate, Policy};
pub use request::{Goal, NotBegun, Outcome, Request, Step};
