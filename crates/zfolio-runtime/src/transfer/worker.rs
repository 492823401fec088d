//! What a thread that moves pages works with.

use crate::address_space::standby::StandbyRun;
use crate::page::Vpn;
use crate::pager::Access;
use alloc::vec::Vec;
use zfolio_mm::{Order, PAGE_SIZE, Pfn};
use zfolio_sys::lock::{Mutex, MutexGuard};
use zfolio_zswap::{Slot, WorkContext};

/// Most pages of a load that are copied in where they lie apart. (Moved, each run would cost a
/// MOVE, and a MOVE for each of its frames before, which would have to lie together.)
pub(crate) const COPIED_APART: usize = 16;

/// Pages that are stored together: what keeps engines busy for longer than it takes to
/// wake them. And in regions, whose threads all take the core lock: each time somebody
/// waits for it, to let go of it is a system call.
pub(crate) const BATCH_PAGES: usize = 32;

/// A page of zeros to copy from.
pub(crate) static ZERO_PAGE: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// What one manager thread works with, made once.
pub(crate) struct Worker {
    pub(crate) context: WorkContext,
    /// Pages at hand, in address order, and the slot and frame of each.
    pub(crate) pages: Vec<Vpn>,
    pub(crate) slots: Vec<Slot>,
    /// Folios claimed to be stored together.
    pub(crate) folios: Vec<StandbyRun>,
    pub(crate) frames: Vec<Pfn>,
    /// Room for pages beside the arena: see [`Self::buffer`].
    pub(crate) page: Vec<u8>,
    /// The fault at hand has waited long enough: it gets a frame, `high` or not.
    pub(crate) urgent: bool,
    /// How the fault at hand came about.
    pub(crate) access: Access,
}

impl Worker {
    pub(crate) fn new(context: WorkContext) -> Self {
        Self {
            context,
            pages: Vec::with_capacity(Order::HUGE.pages()),
            slots: Vec::with_capacity(2 * Order::HUGE.pages()),
            folios: Vec::with_capacity(BATCH_PAGES),
            frames: Vec::with_capacity(2 * Order::HUGE.pages()),
            page: Vec::with_capacity(COPIED_APART * PAGE_SIZE),
            urgent: false,
            access: Access::default(),
        }
    }

    /// Room for `pages` pages of those for which it was reserved.
    pub(crate) fn buffer(page: &mut Vec<u8>, pages: usize) -> &mut [u8] {
        let bytes = pages * PAGE_SIZE;
        if page.len() < bytes {
            page.resize(bytes, 0);
        }
        &mut page[..bytes]
    }
}

/// A worker that nobody uses, and its number. The first is the control thread's.
pub(crate) fn claim_worker<W>(workers: &[Mutex<W>]) -> (MutexGuard<'_, W>, usize) {
    let count = workers.len() - 1;
    // (Where its stack is tells threads apart well enough, and asks nobody.)
    let first = (&raw const count) as usize >> 16;
    for turn in 0..count {
        let index = 1 + (first + turn) % count;
        if let Some(worker) = workers[index].try_lock() {
            return (worker, index);
        }
    }
    let index = 1 + first % count;
    (workers[index].lock(), index)
}
