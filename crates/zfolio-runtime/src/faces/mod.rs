//! What starts an engine.
//!
//! - [`process`]: all memory of a process (`zfolio run`).
//! - [`regions`]: regions of a program that asks for them.
//! - [`assemble`]: the parts that both need.
//!
//! Below: all rooms.

pub(crate) mod assemble;
pub mod process;
pub mod regions;
