//! The fence round unsafe and system calls: nothing here decides anything.
//!
//! | module | concept |
//! |---|---|
//! | [`lock`] | a mutex that sleeps on a futex, with no libc underneath |
//! | [`arena`] | the reserved range of addresses behind `Pfn`s |
#![no_std]

pub mod arena;
pub mod lock;
pub mod syscall;
