//! A folio in: all of it or nothing.
//!
//! - [`folio`]: a batch after the other; entries and room for them in one round of the lock.
//! - [`plan`]: what each page is stored as, which is where it is compressed.
//! - [`error`]: what became of a folio.
//!
//! State: none of its own.
//!
//! Lock: the pool lock, once a batch, to take entries and room; not while compressing or
//! copying. What is placed is pinned until its bytes are there.
//!
//! Below: `pool`; `writeback`, which makes room at `zswap.max`.

pub(crate) mod error;
mod folio;
mod plan;
