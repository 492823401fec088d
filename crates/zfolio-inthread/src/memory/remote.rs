//! What is kept for a store beside the core lock: buffers to read into, and what is put off
//! until it answers.

use super::way::STAGE;
use crate::raw::PAGE;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_sys::arena::reserve_private;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};

/// Threads that read at once.
const BUFFERS: usize = 8;
/// Bytes that one of them reads, at most: more than the records of [`STAGE`] pages.
pub(super) const BYTES: usize = (STAGE + STAGE / 4) * PAGE;
/// What is kept for what is behind the pool beside the core lock; all but the first of it is for
/// a store alone.
pub(crate) struct Remote {
    /// When a backing that refused is tried again (0: it did not), ns.
    pub(crate) retry_ns: AtomicU64,
    /// Where the buffers are; 0: there are none.
    base: usize,
    /// A bit each.
    taken: AtomicU32,
    /// Above it the pool is written back, pages.
    pub(super) goal: AtomicUsize,
    /// The pool takes nothing more until writes have ended.
    pub(super) stalled: AtomicBool,
    /// Until then nothing is written back: it is being read back (CLOCK_MONOTONIC, ns).
    pub(super) recalls_until: AtomicU64,
}

/// A buffer that was taken.
pub(super) struct Buffer<'a> {
    of: &'a Remote,
    index: usize,
}

impl Remote {
    /// `is_used`: there is a store.
    pub(crate) fn reserve(is_used: bool) -> Result<Self, Errno> {
        let base = match is_used {
            true => reserve_private(BUFFERS * BYTES, c"zfolio store")?.start,
            false => 0,
        };
        Ok(Self {
            retry_ns: AtomicU64::new(0),
            base,
            taken: AtomicU32::new(0),
            goal: AtomicUsize::new(usize::MAX),
            stalled: AtomicBool::new(false),
            recalls_until: AtomicU64::new(0),
        })
    }

    /// Whether there is a store.
    pub(crate) const fn is_used(&self) -> bool {
        self.base != 0
    }

    /// In the child of a fork: other threads' buffers are nobody's.
    pub(crate) fn reset_in_child(&self) {
        self.taken.store(0, Ordering::Relaxed);
        self.stalled.store(false, Ordering::Relaxed);
        self.recalls_until.store(0, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Option<Buffer<'_>> {
        let index = (0..BUFFERS).find(|index| {
            let bit = 1 << index;
            self.taken.fetch_or(bit, Ordering::Acquire) & bit == 0
        })?;
        Some(Buffer { of: self, index })
    }

    /// Whether pages are being read back, and not to be written meanwhile.
    pub(super) fn recalls(&self) -> bool {
        let until = self.recalls_until.load(Ordering::Relaxed);
        until != 0 && now() < until
    }
}

impl Buffer<'_> {
    pub(super) fn start(&self) -> usize {
        self.of.base + self.index * BYTES
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let bit = 1 << self.index;
        self.of.taken.fetch_and(!bit, Ordering::Release);
    }
}

pub(super) fn now() -> u64 {
    now_ns(Clock::Monotonic)
}
