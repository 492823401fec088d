//! What is known of signals, for all rooms: what the program asked for of each, and the signals
//! that wait.
//!
//! SIGSEGV, SIGBUS and SIGSYS are ours: the kernel has our handlers for them, so what the program
//! does with them is kept here. The rules are `life`'s (`life/signals.rs`, `life/masks.rs`).
//!
//! | file | concept |
//! |---|---|
//! | [`actions`] | what the program asked for of each signal |
//! | [`context`] | what a handler is given |
//! | [`of_thread`] | what a thread has of the three |
//! | [`pieces`] | calls that are made in pieces answer as one call where a handler runs meanwhile |
//! | [`posted`] | signals of ours on their way to a thread |
//! | [`sent`] | signals of ours that were sent while they were blocked |
//! | [`waiting`] | which of them a thread waits for |
//!
//! State: one table in [`State`](crate::state::State), one [`Sent`](sent::Sent) there and in
//! each thread's record, in its [`OfThread`](of_thread::OfThread). Below: `raw`.

pub(crate) mod actions;
pub(crate) mod context;
pub(crate) mod of_thread;
pub(crate) mod pieces;
pub(crate) mod posted;
pub(crate) mod sent;
pub(crate) mod waiting;
