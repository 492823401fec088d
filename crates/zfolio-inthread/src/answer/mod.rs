//! Where the program's system calls are answered.
//!
//! A call arrives at the entry, whose registers are saved; dispatch pins what it will touch and
//! gives it to whoever answers it: `memory` for what changes the address space, `life` for
//! signals, threads, forks and the end, the kernel for the rest.
//!
//! | file, bottom to top | concept |
//! |---|---|
//! | [`advise`] | advice for several ranges is so many calls |
//! | [`kinds`] | what a descriptor is of |
//! | [`transfer`] | long reads and writes are made in pieces |
//! | [`dispatch`] | each call to whoever answers it |
//! | [`entry`] | where calls arrive: registers saved, dispatched, restored |
//!
//! No state of its own. Below: all rooms.

mod advise;
mod dispatch;
pub(crate) mod entry;
mod kinds;
mod transfer;
