//! What has to go on, and how the process ends when it does not.
//!
//! - [`fatal`]: ends the process with a line and status 70. What cannot be served right is
//!   never served wrong.
//! - [`progress`]: words that change as threads get on.
//!
//! State: those words, and which slot of the segment is this process's. No lock: whoever ends
//! the process may hold any of them.
//!
//! Below: `frames`, for what a load that failed counted; the segment.

pub mod fatal;
pub(crate) mod progress;
