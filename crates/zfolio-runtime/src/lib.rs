//! The runtime: whose memory is moved, when, and which part of it.
//!
//! # The two paths, by file
//!
//! ```text
//! swap-out: control/thread -> control/relief -> swapout/clock_hand -> transfer/move_out
//!           -> address_space/standby -> swapout/store -> (zswap)
//! swap-in:  faults/by_message -> swapin/serve
//!           -> swapin/plan -> swapin/load -> (zswap) -> transfer/move_in
//!           -> standby: straight to transfer/move_in
//!           -> swapin/zero_fill: never touched
//! the pool: control/thread -> upkeep/zspage_compaction -> (zswap)
//!                          -> upkeep/writeback -> (zswap) -> the backing
//!                          -> upkeep/folio_compaction -> (mm, zswap)
//! regions:  the same two paths with another scope (`faces/regions`, `faults/by_sigbus`), and
//!           swapin/copy_in -> transfer/clean_pages: out again as it came
//!           or, without userfaultfd, an engine of their own (`protect`)
//! ```
//!
//! # Rooms
//!
//! Each folder is a room, and none knows what is above it: `tests/rooms.rs` has their order,
//! `docs/architecture.md` a line for each, their heads the rest. [`Manager`] is made of layers:
//! each owns the one below, and derefs to it.
//!
//! # Locks, in the order they are taken
//!
//! 1. a worker's own (one per thread, never contended);
//! 2. `Swap::hand`: the clock hand and the list of mappings;
//! 3. `Space::core`: words, registration, the descriptor, every move;
//! 4. the pool's lock inside zswap;
//! 5. the frame allocator's.
//!
//! Nobody compresses, decompresses or sleeps holding 3, 4 or 5. Threads of the
//! program never take any of them: a program thread may itself wait for a
//! fault, and whoever serves it needs 3. At a fork the program's thread asks
//! the control thread instead.
#![no_std]
#![cfg_attr(not(test), forbid(unsafe_code))]
#![deny(unsafe_code)]

extern crate alloc;

mod address_space;
mod budget;
mod control;
mod descriptors;
pub mod error;
mod events;
mod faces;
mod faults;
mod fork;
mod fork_handshake;
mod frames;
mod health;
mod kernel;
pub mod options;
mod page;
mod page_fault;
pub mod pager;
mod policy;
pub mod protect;
#[cfg(test)]
mod rig;
pub mod scope;
pub mod segment;
mod serve_loop;
mod swapin;
mod swapout;
mod transfer;
mod upkeep;
mod wakeups;

pub use budget::{fair_share, hard_limit};
pub use control::Manager;
pub use faces::{process, regions};
pub use frames::reserve_arena;
pub use health::fatal;
pub use policy::{codec_choice, locality, readahead, refault, strides};
pub use upkeep::{class_table, statistics, tier, zspage_compaction};
