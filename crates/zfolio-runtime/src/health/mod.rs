//! What has to go on, and how the process ends when it does not.
//!
//! - [`fatal`]: ends the process with a line and status 70. What cannot be served right is
//!   never served wrong.
//!
//! State: none yet but the line being written. No lock: whoever ends the process may hold
//! any of them.
//!
//! Below: the segment.

pub mod fatal;
