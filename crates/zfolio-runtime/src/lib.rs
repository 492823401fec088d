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

mod adopt;
mod assemble;
mod atmax;
mod cannotleave;
mod children;
mod clean;
mod compaction;
pub mod control;
mod control_thread;
mod copyin;
mod discard;
pub mod engines;
mod evacuate;
mod events;
mod extent;
pub mod fatal;
mod fault;
mod fill;
mod fork;
mod forkwords;
mod frames;
mod fresh;
mod hugeframe;
mod inthread;
mod load;
mod manager;
mod movein;
mod moveout;
mod near;
pub mod options;
mod order;
mod parked;
mod pass;
mod past;
mod pins;
pub mod protect;
pub mod publish;
mod quiet;
mod ranges;
mod readahead;
mod reclaim;
pub mod regionengine;
pub mod regions;
mod registration;
pub mod rungroups;
pub mod share;
mod standby;
pub mod start;
mod store;
mod strides;
mod tier;
mod turnover;
mod vmas;
mod warm;
mod watchdog;
mod word;
mod workingset;
mod writeback;

pub use manager::Manager;
