//! What can be asked of a run that lasts: `zfolio set`, `zfolio compact` and `zfolio inspect`.
//!
//! What a run was asked for lies in pages of the control segment that processes cannot write.
//! `zfolio run` can, so it is asked: by a socket beside the segment, of mode 0600, and only by
//! its own user or root, as the kernel tells who asks.
//!
//! | module | concept |
//! |---|---|
//! | `message` | what is asked and answered, as JSON |
//! | `changes` | which limits may change, to what, and how they do |
//! | `server` | the socket of a run |
//! | `client` | asking |

pub(crate) mod changes;
pub(crate) mod client;
pub(crate) mod message;
pub(crate) mod server;
