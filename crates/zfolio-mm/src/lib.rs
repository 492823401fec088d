//! Frames of the arena: which exist, which are free, in what blocks.
//!
//! The arena is one reserved range of addresses cut into page-sized *slots*;
//! [`Pfn`] names a slot. A slot either has a page frame behind it (*backed*)
//! or not (a *hole*). This crate only does the book-keeping: no byte of the
//! arena is touched here; callers move and copy through [`Memory`].
//!
//! | module | concept |
//! |---|---|
//! | [`types`] | the newtypes every other crate speaks in |
//! | [`buddy`] | one buddy allocator over a set of slots |
//! | [`compaction`] | moving folios together so that large blocks come free |
//! | [`frames`] | the two allocators (backed, hole) over one index space |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod buddy;
pub mod compaction;
pub mod frames;
pub mod types;

pub use buddy::Buddy;
pub use frames::{Frames, Kind};
pub use types::{MAX_ORDER, Memory, ORDERS, Order, PAGE_SHIFT, PAGE_SIZE, Pfn};
