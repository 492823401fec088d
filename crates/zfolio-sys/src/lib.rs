//! The fence round unsafe and system calls: nothing here decides anything.
//!
//! | module | concept |
//! |---|---|
//! | [`syscall`] | the bare call and its errors |
//! | [`lock`] | a mutex that sleeps on a futex, with no libc underneath |
//! | [`thread`] | threads libc does not know, clocks |
//! | [`own_threads`] | how many they are, and a process of which no others are left |
//! | [`apart`] | where mappings of ours lie that are made while a program runs |
//! | [`arena`] | the reserved range of addresses behind `Pfn`s |
//! | [`blocks`] | blocks out of memory that somebody else keeps |
//! | [`brief_wait`] | staying awake for what comes soon |
//! | [`cache`] | what is to be read soon |
//! | [`heap`] | memory for the manager itself |
//! | [`hold`] | holding the address space still |
//! | [`identity`] | which process this is |
//! | [`disk`] | files without a name |
//! | [`secret`] | a key that no child has |
//! | `inject` | failures on demand, in debug builds |
//! | [`uffd`] | userfaultfd: messages, registration, the ioctls |
//! | [`page_set`] | pages that are never forgotten |
//! | [`moves`] | moving pages, and what a move really moved |
//! | [`procfs`] | statm, maps, present pages |
//! | [`thread_files`] | what a thread does, and waits in |
//! | [`procmap`] | the mapping at an address |
//! | [`rollup`] | what is shared with other processes since a fork |
//! | [`limits`] | what the program may still have: descriptors, memory, system calls |
//! | [`process`] | the last line and the end |
//! | [`swap`] | swap areas, for experiments |
//! | [`region`] | memory a program asks for, and being a guest in its process |
//! | `vdso` | the clock without a system call |
//! | [`exchange`] | shared memory between processes and the one that keeps values for them |
//! | [`tracee`] | a thread of another process, traced for a moment |
//! | [`turns`] | calls that threads make one after the other |
//! | [`wide_registers`] | vector registers that are kept as the program has them |
//! | [`closable`] | memory open or closed piece by piece, and taken aside; what a device holds stays |
#![no_std]

pub mod apart;
pub mod arena;
pub mod blocks;
pub mod brief_wait;
pub mod cache;
pub mod closable;
pub mod disk;
pub mod exchange;
pub mod heap;
pub mod hold;
pub mod identity;
#[cfg(debug_assertions)]
pub mod inject;
pub mod limits;
pub mod lock;
pub mod moves;
pub mod own_threads;
pub mod page_set;
pub mod process;
pub mod procfs;
pub mod procmap;
pub mod region;
pub mod rollup;
pub mod secret;
pub mod swap;
pub mod syscall;
pub mod thread;
pub mod thread_files;
pub mod tracee;
pub mod turns;
pub mod uffd;
mod vdso;
pub mod wide_registers;
