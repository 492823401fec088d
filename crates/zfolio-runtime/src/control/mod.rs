//! The threads that keep usage below `high`, and see that they go on.
//!
//! - [`thread`]: the control thread: when to reclaim, and what it does otherwise.
//! - [`relief`]: what is done about pressure.
//! - [`threads`]: which threads there are; [`atfork`]: what a fork calls.
//! - [`inspection`]: holding all of it in place for who looks into the process.
//! - [`watchdog`]: ends the process when faults are not served.
//!
//! State: what the control thread remembers from one turn to the next.
//!
//! Lock: none of its own; it holds none while it sleeps.
//!
//! Below: all rooms but `faces`.

pub(crate) mod atfork;
pub(crate) mod inspection;
pub(crate) mod relief;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod watchdog;

use crate::fork::Forks;
use core::ops::Deref;

/// One process's manager, never freed.
pub struct Manager {
    /// What is below.
    forks: Forks,
}

impl Deref for Manager {
    type Target = Forks;

    fn deref(&self) -> &Forks {
        &self.forks
    }
}

impl Manager {
    pub(crate) fn new(forks: Forks) -> Self {
        Self { forks }
    }
}

/// It is made on the stack of a thread of ours, and moved from layer to layer there.
const _: () = assert!(size_of::<Manager>() < 16 << 10);
