//! Where every page of the program is.
//!
//! - [`place`], [`extent`]: a word for each page that is not simply the program's.
//! - [`registration`]: which ranges are registered, as we keep it and as the kernel has it.
//! - [`mappings`], [`unmanaged`]: the list of mappings, and why some are left alone.
//! - [`read`], [`apply`], [`discard`]: what the descriptor tells, and what it does to the words.
//! - [`operation`], [`quiet`]: when something may begin, and moments without an event in flight.
//! - [`standby`], [`clean_queue`], [`pins`]: pages that wait uncompressed, that are stored and
//!   present, that must not leave.
//! - [`faulting`], [`newborn`]: who faulted lately, and children whose memory is still ours.
//! - [`core`]: all of that under its lock, in four parts: [`pages`], [`history`], [`inbox`],
//!   [`freeze`].
//!
//! State: all that is under the core lock: extents, registered ranges, standby queue, pins,
//! parked events, pending faults.
//!
//! Lock: the core lock. It is held for table updates and single ioctls, never while something
//! is compressed, decompressed or waited for.
//!
//! Below: `events`, `policy`, `frames`, `health`, the segment.

pub(crate) mod apply;
pub(crate) mod clean_queue;
pub(crate) mod core;
pub(crate) mod discard;
pub(crate) mod extent;
pub(crate) mod faulting;
pub(crate) mod freeze;
pub(crate) mod history;
pub(crate) mod inbox;
pub(crate) mod mappings;
pub(crate) mod newborn;
pub(crate) mod operation;
pub(crate) mod pages;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod quiet;
pub(crate) mod read;
pub(crate) mod registration;
pub(crate) mod standby;
pub(crate) mod unmanaged;
