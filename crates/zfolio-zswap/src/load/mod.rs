//! Pages out, checked.
//!
//! A load never hands out bytes that failed a check: the object must still name its owner, its
//! bytes must have their checksum, and the codec must make exactly a page of them. The pool
//! keeps the page until it is invalidated, so that a caller publishes first and frees after.
//!
//! - [`pages`]: slots are looked up and pinned, brought into frames, and let go.
//! - [`backed`]: the same for what is in the backing.
//! - [`parts`]: where pages lie there, for who reads them before it takes a lock.
//! - [`found`]: slots on their way through a load, and what came of them.
//! - [`unpack`]: bytes of objects become pages.
//! - [`error`]: why a page could not be loaded.
//!
//! State: none of its own.
//!
//! Lock: the pool lock, once a batch to look up and pin, once to take the pins back.
//!
//! Below: `pool`, `backing`.

mod backed;
pub(crate) mod error;
mod found;
mod pages;
pub(crate) mod parts;
pub(crate) mod unpack;
