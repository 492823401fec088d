//! A zsmalloc pool over the arena: many small objects in few pages.
//!
//! Compressed pages have awkward sizes. A pool cuts runs of 1..=16 contiguous
//! pages (*zspages*) into equal slots, one size per *class*, and picks for each
//! class the run length that wastes least at its end. Objects are named by
//! *handles*, cells that say where the object is now, so that objects and whole
//! zspages can move under their owners.
//!
//! ```text
//!  Handle ──> cell { zspage, index, pins }          8 bytes an object
//!                      │       │
//!                      v       │
//!  zspage record { base, class, inuse, .. }         28 bytes a zspage
//!                   │          │
//!                   v          v
//!  arena:  |hdr payload|hdr payload|free -> 5|hdr payload| ...
//!            └── names the handle back; a free slot names the next free one
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`class`] | the table of size classes |
//! | [`fullness`] | twelve groups of zspages by how full they are |
//! | [`grouping`] | by what a class's zspages are sorted |
//! | [`handle`] | handle cells: location, pins, reuse |
//! | `zspage` | zspage records, by number (`zspage_id`) |
//! | `lists` | the lists of a class's zspages by group |
//! | `slot` | the 8 bytes in front of each object, read and written |
//! | `bases` | which zspage starts at a given frame |
//! | `chunked` | a growing array whose elements stay where they are |
//! | [`source`] | where a pool's frames come from |
//! | [`pool`] | the pool: malloc, free, location, pin, relocate, compaction |
//! | [`policy`] | when zspage compaction runs by itself |
//! | [`stats`] | the table of classes and the counters |
//! | [`variants`] | what the experiment compares with; the pool does not use it |
//!
//! # Cost per object
//!
//! 8 bytes of handle cell and 8 bytes of header in the slot (none for an object
//! with pages of its own), plus shares of 28 bytes per zspage and of 4 bytes per
//! page of arena near which a zspage starts. At class 2048 of a 4 KiB page
//! (two objects per page) that is 8 + 8 + 14 + 2 = 32 bytes, 1.6 %; at class
//! 1024 it is 24 bytes, 2.3 %. Rounding up to the class size and the rest at the
//! end of a zspage come on top. Records are kept for reuse, not given back.
//!
//! # Locks
//!
//! None here: every change takes `&mut ZsPool`, the owner locks. A reader pins a
//! handle under that lock, reads without it, unpins under it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bases;
mod chunked;
pub mod class;
pub mod fullness;
pub mod grouping;
pub mod handle;
mod lists;
pub mod policy;
pub mod pool;
mod slot;
pub mod source;
pub mod stats;
pub mod variants;
mod zspage;
mod zspage_id;

pub use class::{ClassTable, Layout, MAX_UNIT, SizeClass, ZS_HANDLE_SIZE};
pub use fullness::Fullness;
pub use grouping::{Grouping, Tenths};
pub use handle::Handle;
pub use pool::{Compaction, CompactionStep, Location, ZsError, ZsPool};
pub use source::FrameSource;
pub use stats::{ClassStats, PoolStats};
