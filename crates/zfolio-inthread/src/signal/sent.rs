//! Signals of the three that are ours which were sent while they were blocked: a thread's, or
//! the process's. What is done with them is `life::masks`'s.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of a `siginfo_t`.
pub(crate) const INFO: usize = 16;
/// SIGBUS, SIGSEGV, SIGSYS.
pub(crate) const SIGNALS: [usize; 3] = [7, 11, 31];

pub(crate) const fn bit(signal: usize) -> u64 {
    1 << (signal - 1)
}

/// Signals that were sent and wait, each with what was told of it. As with the kernel, one
/// that waits already is not noted again.
pub(crate) struct Sent {
    bits: AtomicUsize,
    infos: [[AtomicU64; INFO]; SIGNALS.len()],
}

impl Sent {
    pub(crate) const fn new() -> Self {
        Self {
            bits: AtomicUsize::new(0),
            infos: [const { [const { AtomicU64::new(0) }; INFO] }; SIGNALS.len()],
        }
    }

    pub(crate) fn clear(&self) {
        self.bits.store(0, Ordering::Relaxed);
    }

    pub(crate) fn bits(&self) -> u64 {
        self.bits.load(Ordering::Relaxed) as u64
    }

    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    pub(crate) fn put(&self, signal: usize, info: &[u64; INFO]) {
        let Some(place) = SIGNALS.iter().position(|one| *one == signal) else {
            return;
        };
        if self.bits() & bit(signal) != 0 {
            return;
        }
        for (word, value) in self.infos[place].iter().zip(info) {
            word.store(*value, Ordering::Relaxed);
        }
        self.bits.fetch_or(bit(signal) as usize, Ordering::Relaxed);
    }

    /// Takes one of those in `wanted`.
    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    pub(crate) fn take(&self, wanted: u64) -> Option<(usize, [u64; INFO])> {
        let ready = self.bits() & wanted;
        let place = SIGNALS.iter().position(|one| ready & bit(*one) != 0)?;
        let info = core::array::from_fn(|at| self.infos[place][at].load(Ordering::Relaxed));
        let taken = bit(SIGNALS[place]) as usize;
        self.bits.fetch_and(!taken, Ordering::Relaxed);
        Some((SIGNALS[place], info))
    }
}
