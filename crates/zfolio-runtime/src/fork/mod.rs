//! Forks: the manager stops, the process is copied, and both copies go on.
//!
//! - [`parent`]: a fork of the program as the parent's manager sees it.
//! - [`children`]: children whose memory is still served by the parent.
//! - [`child`]: a child's own manager comes to be.
//!
//! State: children not adopted yet; the words that both sides write are in
//! `fork_handshake.rs`.
//!
//! Lock: the core lock, for moments. From the freeze to the thaw what it guards says itself
//! that words must stay (`address_space/freeze.rs`), and that nothing may use the heap until the
//! copy is made.
//!
//! Below: `upkeep`, `swapin`.

pub(crate) mod child;
pub(crate) mod children;
pub(crate) mod parent;

use crate::upkeep::Upkeep;
use alloc::vec::Vec;
use core::ops::{Deref, Range};
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::lock::{Mutex, futex_wait, futex_wake, reset_in_fork_child};

/// What lets the manager go on twice.
pub struct Forks {
    /// What is below.
    upkeep: Upkeep,
    /// Counts forks, to tell what is left for one child from the next.
    generation: AtomicU32,
    /// Set once the child of a fork serves itself.
    child_ready: AtomicU32,
    /// Stacks of its threads, and words that a fork before the last one used: the child of
    /// a fork has copies of them that nobody uses.
    stacks: Mutex<Vec<Range<usize>>>,
    old_words: Mutex<Option<Range<usize>>>,
}

impl Deref for Forks {
    type Target = Upkeep;

    fn deref(&self) -> &Upkeep {
        &self.upkeep
    }
}

impl Forks {
    pub(crate) fn new(upkeep: Upkeep, stack: Option<Range<usize>>) -> Self {
        Self {
            upkeep,
            generation: AtomicU32::new(0),
            child_ready: AtomicU32::new(0),
            stacks: Mutex::new(stack.into_iter().collect()),
            old_words: Mutex::new(None),
        }
    }

    /// Which fork is under way, by number.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn set_generation(&self, number: u32) {
        self.generation.store(number, Ordering::Release);
    }

    /// In the child, before it has a thread: it does not serve itself yet.
    pub(crate) fn expect_child(&self) {
        self.child_ready.store(0, Ordering::Release);
    }

    /// Waits until [`Self::child_is_ready`] is said.
    pub(crate) fn await_child(&self) {
        while self.child_ready.load(Ordering::Acquire) == 0 {
            futex_wait(&self.child_ready, 0, None);
        }
    }

    /// The child serves itself, or has all of its memory.
    pub(crate) fn child_is_ready(&self) {
        self.child_ready.store(1, Ordering::Release);
        futex_wake(&self.child_ready, u32::MAX);
    }

    /// See [`Upkeep::reset_in_fork_child`].
    pub(crate) fn reset_in_fork_child(&self) {
        self.upkeep.reset_in_fork_child();
        reset_in_fork_child(&self.stacks);
        reset_in_fork_child(&self.old_words);
    }
}
