//! A cold page becomes an entry of the pool.
//!
//! - [`clock_hand`]: looks for pages that may go.
//! - [`candidates`]: what several steps of the hand found, until it is worth a MOVE.
//! - [`store`]: the coldest of what stands by is compressed.
//! - [`direct_reclaim`]: a fault without a frame stores for itself.
//! - [`compress_threads`]: threads that compress beside the others (`--engines`).
//!
//! State: the clock hand and the list of mappings (`Reclaim`), the compressing threads.
//!
//! Lock: `Manager::reclaim`, taken before the core lock. Words say `Storing` while pages are
//! compressed without it.
//!
//! Below: `transfer`, `policy`.

pub(crate) mod candidates;
pub(crate) mod clock_hand;
pub(crate) mod compress_threads;
pub(crate) mod direct_reclaim;
pub(crate) mod store;
