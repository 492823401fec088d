//! What starts an engine: a *face* is the side on which the program, or `zfolio run`, meets it.
//!
//! - [`process`]: all memory of a process (`zfolio run`).
//! - [`regions`]: regions of a program that asks for them.
//! - [`assemble`]: the parts that both need.
//!
//! State: what a face lends (`Host`), for the time of a start. No lock: nothing of what is
//! made has a second thread yet.
//!
//! Below: all rooms.

pub(crate) mod assemble;
pub mod process;
pub mod regions;
