//! The world stops, is copied, and goes on twice.
//!
//! - [`parent`]: a fork of the program as the parent's manager sees it.
//! - [`children`]: children whose memory is still served by the parent.
//! - [`child`]: a child's own manager comes to be.
//!
//! State: children not adopted yet; the words that both sides write are in
//! `fork_handshake.rs`.
//!
//! Lock: the core lock is held from the freeze until the copy is made.
//!
//! Below: `upkeep`, `swapin`.

pub(crate) mod child;
pub(crate) mod children;
pub(crate) mod parent;
