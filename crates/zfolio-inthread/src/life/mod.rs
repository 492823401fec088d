//! What happens to threads and to the process: signals, forks, new threads, exec, the end.
//!
//! | file, bottom to top | concept |
//! |---|---|
//! | [`installed`] | our handlers, as the kernel has them |
//! | [`interrupted`] | calls that a signal of ours interrupts |
//! | [`ticks`] | a thread that makes neither calls nor faults is stopped now and then, to follow `high` |
//! | [`leave`] | the end of management: every page is brought back, and the process goes on unmanaged |
//! | [`descriptors`] | ours, which the program does not see, and those by which it reaches its memory |
//! | [`signals`], [`sending`], [`masks`] | what the program does with signals, which it sends to its threads, and which it blocks |
//! | [`unanswered`] | calls that dispatch has stopped and whose signal was dropped |
//! | [`placing`] | where handlers of the program's run |
//! | [`passing`] | whom a signal that is the program's is told to, and how its handlers are entered |
//! | [`handlers`] | the entry of signals: where faults and calls arrive |
//! | [`own_thread`] | threads of ours in the program |
//! | [`reclaimer`] | one that reclaims beside the program's |
//! | [`hold`] | a thread of ours that holds everything in place for `zfolio inspect` |
//! | [`begin`], [`process`], [`end`] | new threads; forks; exec and the end |
//!
//! State, kept in [`State`](crate::state::State): what the program asked for of signals, and
//! signals that wait, each under a lock of its own that is taken with all signals blocked, after
//! the core lock where both are taken; descriptors, which are atomic. Below: `memory`, and of
//! `seen` what makes calls arrive and keeps what they touch.

mod begin;
pub(crate) mod descriptors;
pub(crate) mod end;
pub(crate) mod handlers;
pub(crate) mod hold;
pub(crate) mod installed;
mod interrupted;
pub(crate) mod leave;
pub(crate) mod masks;
mod own_thread;
mod passing;
mod placing;
pub(crate) mod process;
pub(crate) mod reclaimer;
pub(crate) mod sending;
pub(crate) mod signals;
pub(crate) mod ticks;
mod unanswered;
