//! Faults served in the thread that faults, without privilege.
//!
//! The other way of managing a program (`zfolio-runtime`) is told by the kernel, through a
//! descriptor, what a program did: that needs a privilege, and a thread to listen. This one
//! sees the program's system calls *before* they run. So it knows what they will touch and
//! what they will do to the address space, and a page that is out is brought back by the
//! thread that touches it, in a signal handler.
//!
//! | room | what it owns | lock |
//! |---|---|---|
//! | `raw` | the few instructions that touch program memory, and bare system calls | |
//! | `threads` | one record a thread: its stacks for handlers, its pins | none: each its own |
//! | `pins` | the protocol by which a system call keeps its pages | fences |
//! | `memory` | which memory is managed, where each page is, the ways to close and open pages, swap-in, swap-out | the core lock |
//! | `seen` | how calls come to us: dispatch by the kernel, rewritten sites, the table of calls | |
//! | `life` | signals, forks, threads, exec, giving up | |
//! | [`start`] | the beginning | |
//!
//! # The two paths
//!
//! ```text
//! swap-in:   life::handlers -> memory::bring -> memory::way
//!            seen::pinning  -> pins -> memory::bring
//! swap-out:  memory::bring (no room) -> memory::reclaim -> pins -> memory::way -> (zswap)
//! ```
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

mod life;
mod memory;
mod pins;
mod raw;
mod seen;
pub mod start;
mod state;
mod threads;

pub use memory::folios::LARGEST_FOLIO;
