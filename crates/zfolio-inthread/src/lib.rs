//! Faults served in the thread that faults, without privilege.
//!
//! The other way of managing a program (`zfolio-runtime`) is told by the kernel, through a
//! descriptor, what a program did: that needs a privilege, and a thread to listen. This one
//! sees the program's system calls *before* they run. So it knows what they will touch and
//! what they will do to the address space, and a page that is out is brought back by the
//! thread that touches it, in a signal handler.
//!
//! Bottom to top; none knows what is above it (`tests/rooms.rs` of `zfolio-runtime`):
//!
//! | room | what it owns | lock |
//! |---|---|---|
//! | `raw` | the few instructions that touch program memory, and bare system calls | |
//! | `pins`, `call_stacks` | the protocol by which a system call keeps its pages; stacks that calls are answered on | fences; none |
//! | `signal`, `cancel` | what is known of signals; calls at which a thread may be cancelled | one each |
//! | `store_wait` | since when a thread waits for a page from a store | none: its own |
//! | `threads` | one record a thread: its stacks for handlers, its pins | none: each its own |
//! | `process` | the threads, what was asked for, whether it is still managed | |
//! | `memory` | which memory is managed, where each page is, the ways to close and open pages, swap-in, swap-out | the core lock |
//! | `state` | all of it in one place, where handlers and calls find it, in three layers | |
//! | `seen` | how calls come to us: dispatch by the kernel, rewritten sites, pins for what they touch | |
//! | `life` | signals, forks, threads, exec, the end of management | |
//! | `answer` | the entry of calls, and each call to whoever answers it | |
//! | [`start`] | the beginning | |
//!
//! What a room needs of one above it is a function pointer that the start puts in
//! `process::Entries`.
//!
//! # The two paths
//!
//! ```text
//! swap-in:   life::handlers -> memory::bring -> memory::way
//!            answer::dispatch -> seen::pinning -> pins -> memory::bring
//! swap-out:  memory::bring (no room) -> memory::reclaim -> memory::folios -> memory::way
//! ```
//!
//! `docs/swap-paths.md` follows both step by step.
//!
//! # Rules
//!
//! 1. No page is closed until every thread of the process is under interception.
//! 2. Pages that a system call will touch are pinned before it: a call that has consumed
//!    something cannot be repeated.
//! 3. The core lock is taken with all signals blocked but the three that are ours, and no
//!    program memory is touched under it that may be closed.
//! 4. In dispatch and handlers: no libc, no symbol that is resolved lazily, no thread-local
//!    variable but the record. The entry saves the vector registers.
//! 5. What cannot be followed ends management: every page is brought back, and the process
//!    goes on unmanaged, which is told (`life::leave`).
#![no_std]

extern crate alloc;

mod answer;
mod call_stacks;
mod cancel;
mod life;
mod memory;
mod pins;
mod process;
mod program_memory;
mod raw;
mod seen;
mod signal;
pub mod start;
mod state;
mod store_wait;
mod threads;

pub use memory::folios::LARGEST_FOLIO;
