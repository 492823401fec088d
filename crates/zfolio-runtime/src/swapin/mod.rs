//! A fault becomes a page in place.
//!
//! - [`load`]: from the pool, with what comes along.
//! - [`copy_in`]: a page or two are decompressed beside the arena and copied in.
//! - [`zero_fill`], [`first_touch`]: pages that were never touched, or were discarded.
//!
//! State: none of its own; buffers are the worker's, one per thread.
//!
//! Lock: takes the core lock, and lets go of it while pages are decompressed; the words say
//! `Loading` meanwhile.
//!
//! Below: `transfer`, `policy`.

pub(crate) mod copy_in;
pub(crate) mod first_touch;
pub(crate) mod load;
pub(crate) mod zero_fill;
