//! What the program did to its address space, and in which order.
//!
//! - [`event`]: the changes themselves, by whomever they are told.
//! - [`order`]: the order in which the kernel tells of events is not the one in which they
//!   happened; this finds one that fits what is seen.
//! - [`parked`]: events that cannot be applied yet.
//! - [`resolve`]: where a page was before events.
//! - [`ranges`]: sets of addresses.
//! - [`child_past`]: what had happened by the moment a child was made.
//!
//! State: none of its own. The types are held by `address_space`, under the core lock. No
//! system call is made here, nor is anything of the kernel's known; the tests need no kernel.
//!
//! Below: numbers of pages only.

pub(crate) mod child_past;
pub(crate) mod event;
pub(crate) mod order;
pub(crate) mod parked;
pub(crate) mod ranges;
pub(crate) mod resolve;
