//! What starts an engine.
//!
//! - [`process`]: all memory of a process (`zfolio run`).
//! - [`regions`]: regions of a program that asks for them.
//! - [`assemble`]: the parts that both need.
//! - [`manager`]: the engine itself.
//!
//! Below: all rooms.

pub(crate) mod assemble;
pub(crate) mod manager;
pub mod process;
pub mod regions;
