//! Store, load and account compressed folios.
//!
//! The engine: it is handed pages of an arena and gives pages back. Per page
//! the caller keeps a 4-byte [`Slot`], the swap entry; whose memory the page
//! is, and when it goes or comes, is none of this crate's business.
//!
//! ```text
//! store: page -> same-filled? -> compress (batch) -> zsmalloc -> Slot
//! load:  Slot -> location, pin -> check -> decompress (batch) -> frame
//! tier: entry -> pin -> check, decompress, compress denser -> Slot names the new object
//! writeback: list -> pin -> check, seal -> backing -> Slot names the record
//! ```
//!
//! | room, bottom to top | concept |
//! |---|---|
//! | [`arena`], [`slot`], `limits`, `by_distance`, [`stats`], `spans`, `frame_reserve` | where pages and the pool live; the swap entry; how large the pool may get; what there is near and far; counters under the kernel's names; several places of the arena at once; frames fetched outside the lock |
//! | [`backing`] | what is behind the pool: a file, memory, nothing; where in it things are |
//! | `entry` | the table of entries, 12 bytes each; objects that hold several pages |
//! | `pool` | [`Zswap`]: entries, objects, what is charged for them; invalidate, compact, validate |
//! | `load` | pages out, checked |
//! | `writeback` | from the pool to the backing; the shrinker |
//! | `store` | a folio in, all of it or nothing |
//! | `second_tier` | cold objects made denser |
//!
//! The head of each room says what it is for, the state it owns, and the lock.
//!
//! # Locks
//!
//! One: the pool lock (entries and zsmalloc). It is never held over
//! compressing, decompressing, copying a page (a step of compaction copies the
//! objects of one zspage), or a call of [`Arena`] that
//! takes or gives frames; so an arena may have locks of its own in any order.
//! Objects whose bytes are looked at without the lock are pinned.
//!
//! # Invariants
//!
//! Checked by [`Zswap::validate`] at any moment between calls:
//! 1. `stored_pages` = entries that are not in the backing; `same_filled_pages` and
//!    `stored_incompressible_pages` = those of their kind;
//! 2. `compressed_bytes` = the sum of the entries' and units' lengths;
//! 3. zsmalloc objects = `stored_pages - same_filled_pages - unit_pages + units`, each
//!    named by exactly one entry or unit, no shorter than that says; a unit's pages are
//!    named by the entries beside each other that it says, and by no others;
//! 4. `pool_pages` = pages of all zspages;
//! 5. `backing_pages` = entries whose record is in the backing, each in a cluster
//!    that counts it; an entry has an object, a record or a word, never two of them;
//! 6. a dictionary has as many units as entries (in the pool, doomed or in the backing)
//!    name its version, and is there as long as that or a load is under way; what an
//!    object says of itself is what its entry says;
//! 7. what is charged = what the entries have; an entry is in the list of what may be
//!    written back once or not at all.
//!
//! A folio that failed to be stored leaves every one of these as it was.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod arena;
pub mod backing;
mod by_distance;
mod entry;
mod frame_reserve;
mod limits;
mod load;
mod pool;
mod second_tier;
pub mod slot;
mod spans;
pub mod stats;
mod store;
mod writeback;

pub use arena::{Arena, PlainArena};
pub use backing::{
    Backing, FileBacking, InOrder, MemoryBacking, NetworkBacking, NullBacking,
    backing_is_waited_for,
};
pub use by_distance::ByDistance;
pub use limits::Limits;
pub use load::error::{LoadError, LoadFault};
pub use load::parts::{MOST_PARTS, Part, Parts};
pub use pool::charge::{Charged, GroupLimits};
pub use pool::context::WorkContext;
pub use pool::zswap::Zswap;
pub use second_tier::context::TierContext;
pub use second_tier::learner::Learning;
pub use second_tier::step::{Recompressed, STEP as TIER_STEP};
pub use slot::Slot;
pub use stats::{Snapshot, Stats};
pub use store::error::{StoreError, StoreReport};
pub use writeback::Shrunk;
pub use zfolio_zsmalloc::{
    ClassStats, Compaction, CompactionStep, PoolStats, policy as compaction_policy,
};

/// Most pages compressed or decompressed in one batch. A codec's batch size
/// beyond it is cut down.
pub const MAX_BATCH: usize = 32;
/// Pages decompressed in one batch by whoever loads itself.
pub const LOAD_BATCH: usize = 16;
/// Pages in a batch even for codecs that work one by one: the pages' bytes and
/// the pool's lines stay in the cache from step to step.
pub const MIN_BATCH: usize = 8;
