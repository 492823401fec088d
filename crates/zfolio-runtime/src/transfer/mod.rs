//! Pages between the program and the arena.
//!
//! - [`move_out`]: MOVE from the program to holes of the arena.
//! - [`airlocks`]: where pages pass on their way out.
//! - [`move_in`]: MOVE from the arena to the program, or a copy where that cannot be.
//! - [`worker`]: the buffers of a thread that does either.
//! - [`clean_pages`]: pages of regions that nobody wrote to since they came; they leave
//!   without being moved.
//!
//! State: the airlocks, through which pages leave.
//!
//! Lock: the core lock, which is the caller's: a word and the place of its page change under
//! one lock.
//!
//! Below: `address_space`, `budget`, `frames`.

pub(crate) mod airlocks;
pub(crate) mod clean_pages;
pub(crate) mod move_in;
pub(crate) mod move_out;
pub(crate) mod worker;

use crate::address_space::Space;
use crate::transfer::airlocks::Airlocks;
use crate::transfer::worker::Worker;
use alloc::vec::Vec;
use core::ops::Deref;
use zfolio_sys::lock::{Mutex, reset_in_fork_child};

/// What moves pages between the program and the arena.
pub struct Transfer {
    /// What is below.
    space: Space,
    /// Where pages pass on their way out.
    airlocks: Airlocks,
    /// Worker 0 is the control thread's.
    pub(crate) workers: Vec<Mutex<Worker>>,
}

impl Deref for Transfer {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Transfer {
    pub(crate) fn new(space: Space, airlocks: Airlocks, workers: Vec<Mutex<Worker>>) -> Self {
        Self {
            space,
            airlocks,
            workers,
        }
    }

    /// See [`Space::reset_in_fork_child`].
    pub(crate) fn reset_in_fork_child(&self) {
        self.space.reset_in_fork_child();
        self.workers.iter().for_each(reset_in_fork_child);
    }
}
