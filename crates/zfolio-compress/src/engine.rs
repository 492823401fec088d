//! Engines: threads behind work queues that compress for everybody, on the
//! model of an accelerator.
//!
//! ```text
//! batch -> allocate descriptor -> copy in -> submit -> engine -> record
//!            | none free            ^         | not begun in time: taken back
//!            v                      |         | not done in time: given up
//!          inline <-----------------+---------+
//!  all done -> copy out
//! ```
//!
//! | module | concept |
//! |---|---|
//! | [`attributes`] | settings, under the accelerator driver's names |
//! | [`descriptor`] | the descriptor and its completion record |
//! | [`queue`] | descriptors going round; the protocol |
//! | [`device`] | queues with one engine, and how they sleep |
//! | [`group`](mod@group) | all devices: distribution, counters |
//! | `judge` | whether what is waited for goes to them: measured |
//! | [`setup`] | enabling and disabling |
//! | [`parallel`] | a [`Compressor`](crate::Compressor) whose batches go to them |
//! | [`primitive`] | atomics and sleeping, so that loom can stand in |
//!
//! Who provides the threads is the caller's business: anything that calls
//! [`Group::serve`], be it a `std` thread or one that libc does not know.
//!
//! # Invariants
//! - A batch call returns when every unit has its result and no engine will
//!   touch anything of the caller's again (it never did: buffers are copied).
//! - An engine that is slow, stuck or gone costs time, never a result: what is
//!   not done by the timeout is done inline.
//! - No call allocates once its context was made.

pub mod attributes;
pub mod descriptor;
pub mod device;
pub mod group;
mod job;
mod judge;
pub mod parallel;
pub mod primitive;
pub mod queue;
pub mod setup;
mod stats;

#[cfg(test)]
mod model;

pub use attributes::{AttributeError, Attributes, Decompress, Distribute, SyncMode};
pub use group::Group;
pub use judge::LEAST as LEAST_LOADED;
pub use parallel::Parallel;
pub use setup::{EnableError, Engines};
pub use stats::{QueueTotals, Totals};
