//! Who tells of a fault, and how its thread waits.
//!
//! - [`by_message`]: threads of ours read messages of the descriptor.
//! - [`by_sigbus`]: the thread that faulted serves itself, in its signal handler (regions).
//! - [`thread_placement`]: on which processor a fault thread runs.
//! - [`idle_control`]: the control thread stays awake, and serves faults, while the program is
//!   idle between them.
//!
//! State: each fault thread's own: where it runs, and when it last served a fault. Who faulted
//! lately is kept in `address_space/inbox.rs`, until when the control thread stays awake in
//! `wakeups.rs`.
//!
//! Lock: the core lock, for the queue of faults.
//!
//! Below: `swapin`, `swapout`.

pub(crate) mod by_message;
pub(crate) mod by_sigbus;
pub(crate) mod idle_control;
pub(crate) mod thread_placement;
