//! The pool: malloc and free in `zs_pool`; guests of larger classes in `guests`, where
//! objects are, pins and relocation in `place`, zspage compaction in `compact`, how far
//! it is in `running`, the walker in `check`.
//!
//! An allocation takes a slot of the fullest zspage of its class that has one,
//! else of a new zspage; a free gives an emptied zspage's frames back at once.
//! Both are constant time: a class lookup, a bit scan, one list move when the
//! zspage's group changes, 8 bytes of the arena read or written.
//!
//! # Invariants
//!
//! Checked by [`ZsPool::validate`], besides those of `zspage`:
//! 1. each live handle names a slot in use, and that slot's header names the
//!    handle; no two handles name one slot;
//! 2. `objects = sum(inuse)`, `pages_used = sum(zspages * pages)`;
//! 3. each zspage is found by its base frame, and nothing else is;
//! 4. a zspage's `pinned` is the number of its objects with pins;
//! 5. `lodging[c]` is what the guests of class `c` take beyond slots of their own
//!    (see `guests`).

mod check;
mod compact;
mod error;
mod guests;
mod place;
mod running;
mod zs_pool;

pub use error::ZsError;
pub use place::Location;
pub(crate) use running::Stop;
pub use running::{Compaction, CompactionStep};
pub use zs_pool::ZsPool;
