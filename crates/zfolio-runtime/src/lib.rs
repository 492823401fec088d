//! The runtime: whose memory is moved, when, and which part of it.
//!
//! # The two paths, by file
//!
//! ```text
//! swap-out: control_thread -> reclaim -> moveout -> standby -> store -> (zswap)
//! swap-in:  fault -> readahead -> load -> (zswap) -> movein
//!                 -> standby: straight to movein      -> fill: never touched
//! the pool: control_thread -> compaction -> (zswap)
//!           control_thread -> writeback -> (zswap) -> the backing
//!                          -> evacuate -> (mm, zswap)
//! regions:  the same two paths with another scope (`regions`, `inthread`), and
//!           load -> clean: out again as it came
//!           or, without userfaultfd, an engine of their own (`protect`)
//! ```
//!
//! # Locks, in the order they are taken
//!
//! 1. a worker's own (one per thread, never contended);
//! 2. `Manager::reclaim`: the clock hand and the list of mappings;
//! 3. `Manager::core`: words, registration, the descriptor, every move;
//! 4. the pool's lock inside zswap;
//! 5. the frame allocator's.
//!
//! Nobody compresses, decompresses or sleeps holding 3, 4 or 5. Threads of the
//! program never take any of them: a program thread may itself wait for a
//! fault, and whoever serves it needs 3. At a fork the program's thread asks
//! the control thread instead.
#![no_std]
#![forbid(unsafe_code)]

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
pub mod options;
mod page;
mod page_fault;
pub mod pager;
mod policy;
pub mod protect;
pub mod scope;
pub mod segment;
mod swapin;
mod swapout;
mod transfer;
mod upkeep;
mod wakeups;

pub use budget::fair_share;
pub use control::Manager;
pub use faces::{process, regions};
pub use frames::reserve_arena;
pub use health::fatal;
pub use upkeep::statistics;
