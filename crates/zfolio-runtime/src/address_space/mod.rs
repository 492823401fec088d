//! Where every page of the program is.
//!
//! - [`place`], [`extent`]: a word for each page that is not simply the program's.
//! - [`registration`]: which ranges are registered, as we keep it and as the kernel has it.
//! - [`mappings`]: the list of mappings, which is older than the record and says more.
//! - [`apply`], [`discard`]: what an event does to the words.
//! - [`quiet`]: moments at which no event is in flight.
//! - [`standby`], [`pins`]: pages that wait uncompressed, and pages that must not leave.
//!
//! State: all that is under the core lock: extents, registered ranges, standby queue, pins,
//! parked events, pending faults.
//!
//! Lock: the core lock. It is held for table updates and single ioctls, never while something
//! is compressed, decompressed or waited for.
//!
//! Below: `events`, `policy`, `frames`, `health`, the segment.

pub(crate) mod apply;
pub(crate) mod discard;
pub(crate) mod extent;
pub(crate) mod mappings;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod quiet;
pub(crate) mod registration;
pub(crate) mod standby;
