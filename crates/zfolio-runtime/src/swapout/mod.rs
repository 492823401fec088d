//! A cold page becomes an entry of the pool.
//!
//! - [`hand`], [`clock_hand`]: where it is, and how it looks for pages that may go.
//! - [`present_ahead`]: what the page table has where the hand comes to next.
//! - [`candidates`]: what several steps of the hand found, until it is worth a MOVE.
//! - [`store`]: the coldest of what stands by is compressed.
//! - [`direct_reclaim`]: a fault without a frame stores for itself.
//! - [`moving_pages`]: pages that move, as the loop that serves faults has them.
//! - [`compress_threads`]: threads that compress beside the others (`--engines`).
//!
//! State: the clock hand and the list of mappings ([`hand::ClockHand`]), the compressing
//! threads.
//!
//! Lock: `Swap::hand`, taken before the core lock. Words say `Storing` while pages are
//! compressed without it.
//!
//! Below: `transfer`, `policy`.

pub(crate) mod candidates;
pub(crate) mod clock_hand;
pub(crate) mod compress_threads;
pub(crate) mod direct_reclaim;
pub(crate) mod hand;
pub(crate) mod moving_pages;
pub(crate) mod present_ahead;
pub(crate) mod store;

use crate::address_space::mappings::Vmas;
use crate::swapout::compress_threads::EngineThreads;
use crate::swapout::hand::ClockHand;
use crate::transfer::Transfer;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use zfolio_sys::lock::{Mutex, reset_in_fork_child};
use zfolio_sys::thread::processors;

/// What brings pages back, and moves out and stores them.
pub struct Swap {
    /// What is below.
    transfer: Transfer,
    /// Threads that compress for reclaim, if there are any.
    engines: Option<EngineThreads>,
    pub(crate) hand: Mutex<ClockHand>,
    /// Ranges left behind that were moved out since the hand last moved.
    passed_steps: AtomicU32,
    /// Odd while pages are being judged and moved out, another number each time. Written under
    /// the core lock.
    leaving: AtomicUsize,
    /// Processors that its threads may run on.
    processors: usize,
}

impl Deref for Swap {
    type Target = Transfer;

    fn deref(&self) -> &Transfer {
        &self.transfer
    }
}

impl Swap {
    pub(crate) fn new(transfer: Transfer, engines: Option<EngineThreads>, vmas: Vmas) -> Self {
        Self {
            transfer,
            engines,
            hand: Mutex::new(ClockHand::new(vmas)),
            passed_steps: AtomicU32::new(0),
            leaving: AtomicUsize::new(0),
            processors: processors(),
        }
    }

    /// Threads that compress for reclaim, if there are any.
    pub(crate) const fn engine_threads(&self) -> Option<&EngineThreads> {
        self.engines.as_ref()
    }

    /// Processors that its threads may run on.
    pub(crate) const fn processors(&self) -> usize {
        self.processors
    }

    /// Whether so many ranges left behind were moved out since that was last said to be so.
    pub(crate) fn has_passed(&self, ranges: u32) -> bool {
        let enough = self.passed_steps.load(Ordering::Relaxed) >= ranges;
        if enough {
            self.passed_steps.store(0, Ordering::Relaxed);
        }
        enough
    }

    /// See [`Transfer::reset_in_fork_child`].
    pub(crate) fn reset_in_fork_child(&self) {
        self.transfer.reset_in_fork_child();
        reset_in_fork_child(&self.hand);
        if let Some(engines) = &self.engines {
            engines.reset_in_fork_child();
        }
    }
}
