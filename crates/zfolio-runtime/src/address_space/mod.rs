//! Where every page of the program is.
//!
//! - [`place`], [`extent`]: a word for each page that is not simply the program's.
//! - [`registration`]: which ranges are registered, as we keep it and as the kernel has it.
//! - [`mappings`]: the list of mappings, and which are left alone.
//! - [`told`], [`read`], [`apply`], [`discard`]: what the descriptor tells, in our terms, and
//!   what it does to the words.
//! - [`operation`]: when something may begin. [`quiet`], [`quieten`]: moments without an event
//!   in flight, and how to come by one.
//! - [`standby`], [`clean_queue`], [`vanishing`], [`pins`]: pages that wait uncompressed, that
//!   are stored and present, that are about to go, that must not leave.
//! - [`recent_faulters`], [`newborn`]: who faulted lately, and children whose memory is still ours.
//! - [`core`]: all of that under its lock, in four parts: [`pages`], [`history`], [`inbox`],
//!   [`freeze`].
//!
//! State: all that is under the core lock: extents, registered ranges, standby queue, pins,
//! parked events, pending faults.
//!
//! Lock: the core lock. It is held for table updates and single ioctls, never while something
//! is compressed, decompressed or waited for.
//!
//! Below: `budget` and what that has below it, `events`, `policy`.

pub(crate) mod apply;
pub(crate) mod clean_queue;
pub(crate) mod core;
pub(crate) mod discard;
pub(crate) mod extent;
pub(crate) mod freeze;
pub(crate) mod history;
pub(crate) mod inbox;
pub(crate) mod mappings;
pub(crate) mod newborn;
pub(crate) mod operation;
pub(crate) mod pages;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod quiet;
pub(crate) mod quieten;
pub(crate) mod read;
pub(crate) mod recent_faulters;
pub(crate) mod registration;
pub(crate) mod standby;
pub(crate) mod told;
pub(crate) mod vanishing;

use crate::address_space::core::Core;
use crate::address_space::quiet::Quiet;
use crate::budget::Memory;
use ::core::ops::{Deref, Range};
use ::core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use zfolio_sys::arena::SharedWords;
use zfolio_sys::lock::{Mutex, reset_in_fork_child};

/// What the face knows of ranges of addresses and the kernel does not tell.
#[derive(Clone, Copy)]
pub(crate) struct RangeRules {
    /// Whether any of a range must stay where it is.
    pub(crate) left_alone: fn(&Range<usize>) -> bool,
    /// Whether any of a range is sealed: the kernel refuses to unmap it.
    pub(crate) is_sealed: fn(&Range<usize>) -> bool,
}

/// The address space: where every page is.
pub struct Space {
    /// What is below.
    memory: Memory,
    pub(crate) core: Mutex<Core>,
    /// Operations under way outside the core lock.
    inflight: AtomicU32,
    /// See [`quiet`].
    quiet: Quiet,
    /// What is shared with the parent and the next child during a fork.
    pub(crate) words: SharedWords,
    rules: RangeRules,
    /// Errno of the last range that could not be registered; 0: none.
    unregistered: AtomicI32,
}

impl Deref for Space {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl Space {
    pub(crate) fn new(memory: Memory, core: Core, words: SharedWords, rules: RangeRules) -> Self {
        Self {
            memory,
            core: Mutex::new(core),
            inflight: AtomicU32::new(0),
            quiet: Quiet::default(),
            words,
            rules,
            unregistered: AtomicI32::new(0),
        }
    }

    /// See [`Memory::reset_in_fork_child`].
    pub(crate) fn reset_in_fork_child(&self) {
        self.memory.reset_in_fork_child();
        reset_in_fork_child(&self.core);
        self.inflight.store(0, Ordering::Relaxed);
        self.quiet.restart();
    }
}
