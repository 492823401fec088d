//! The pool: entries, their objects, and what is charged for them.
//!
//! - [`state`]: what the pool lock guards.
//! - [`zswap`]: [`Zswap`](crate::Zswap), the pool with its codec, limits and counters.
//! - [`place`]: room for an object, for which frames may be fetched without the lock.
//! - [`invalidate`]: entries go, and with them objects, units and records.
//! - [`charge`]: what is charged for what is out, and how much there may be.
//! - [`shrinker`]: what the shrinker keeps from one call to the next.
//! - [`versions`]: which dictionary each object was made with, and who still needs it.
//! - [`compact`]: zspage compaction, a step at a time.
//! - [`context`]: what one thread works with.
//! - [`check`]: the invariants, for `validate()`.
//!
//! State: `Pool`, and in `Zswap` what needs no lock: limits, counters, the codec.
//!
//! Lock: the pool lock. It is never held over compressing, decompressing, copying a page, or a
//! call of the arena that takes or gives frames.
//!
//! Below: `entry`, `backing`, zsmalloc.

pub(crate) mod charge;
mod check;
mod compact;
pub(crate) mod context;
mod invalidate;
mod place;
pub(crate) mod shrinker;
pub(crate) mod state;
pub(crate) mod versions;
pub(crate) mod zswap;
