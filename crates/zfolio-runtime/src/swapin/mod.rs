//! A fault becomes a page in place.
//!
//! - [`serve`]: looks the page up; pages in standby come straight back.
//! - [`plan`]: what comes along.
//! - [`frame_supply`]: frames for it.
//! - [`load`]: from the pool.
//! - [`copy_in`]: a page or two are decompressed beside the arena and copied in.
//! - [`zero_fill`], [`first_touch`]: pages that were never touched, or were discarded.
//! - [`frozen`]: all of these while a fork is under way.
//! - [`refusal`]: what could not be put in place.
//!
//! State: none of its own; buffers are the worker's, one per thread.
//!
//! Lock: takes the core lock, and lets go of it while pages are decompressed; the words say
//! `Loading` meanwhile.
//!
//! Below: `transfer`, `policy`.

pub(crate) mod copy_in;
pub(crate) mod first_touch;
pub(crate) mod frame_supply;
pub(crate) mod frozen;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod refusal;
pub(crate) mod serve;
pub(crate) mod zero_fill;
