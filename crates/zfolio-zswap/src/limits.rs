//! How large the pool may get.
//!
//! The kernel's rule: a pool that reached its maximum takes nothing more until
//! it has shrunk to the acceptance threshold, so that it does not flutter at
//! the edge. The check is made once per folio, before the first page that
//! needs an object; a folio under way is not stopped, so the pool may overshoot
//! by one folio per storing thread.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// What the pool may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most pages of zspages; `None` for no limit, `Some(0)` takes nothing
    /// that needs an object.
    pub max_pool_pages: Option<usize>,
    /// A pool that was full accepts again at this percentage of the maximum.
    /// The kernel's default is 90.
    pub accept_threshold_percent: u32,
    /// Refuse a folio with a page that does not compress, instead of keeping
    /// that page as it is. For callers with somewhere better to put it.
    pub reject_poor: bool,
}

impl Limits {
    /// The kernel's `max_pool_percent`: so much of `total_pages`.
    #[must_use]
    pub fn of_percent(percent: u32, total_pages: usize) -> Self {
        let percent = percent.min(100) as usize;
        Self {
            max_pool_pages: Some(total_pages / 100 * percent + total_pages % 100 * percent / 100),
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pool_pages: None,
            accept_threshold_percent: 90,
            reject_poor: false,
        }
    }
}

/// [`Limits`] that can change while stores run.
#[derive(Debug)]
pub(crate) struct Gate {
    /// `usize::MAX` for none.
    max: AtomicUsize,
    percent: AtomicU32,
    reject_poor: AtomicBool,
    /// The maximum was reached, the threshold not yet again.
    full: AtomicBool,
}

/// The gate's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Accept,
    /// Still above the acceptance threshold.
    Waiting,
    /// At the maximum: a hit of the limit.
    Hit,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let gate = Self {
            max: AtomicUsize::new(0),
            percent: AtomicU32::new(0),
            reject_poor: AtomicBool::new(false),
            full: AtomicBool::new(false),
        };
        gate.set(limits);
        gate
    }

    pub(crate) fn set(&self, limits: Limits) {
        self.max
            .store(limits.max_pool_pages.unwrap_or(usize::MAX), Relaxed);
        self.percent
            .store(limits.accept_threshold_percent.min(100), Relaxed);
        self.reject_poor.store(limits.reject_poor, Relaxed);
    }

    pub(crate) fn get(&self) -> Limits {
        let max = self.max.load(Relaxed);
        Limits {
            max_pool_pages: (max != usize::MAX).then_some(max),
            accept_threshold_percent: self.percent.load(Relaxed),
            reject_poor: self.reject_poor(),
        }
    }

    pub(crate) fn reject_poor(&self) -> bool {
        self.reject_poor.load(Relaxed)
    }

    /// Whether a pool of `pages` takes another folio.
    pub(crate) fn admit(&self, pages: usize) -> Admission {
        let max = self.max.load(Relaxed);
        if pages >= max {
            self.full.store(true, Relaxed);
            return Admission::Hit;
        }
        if !self.full.load(Relaxed) {
            return Admission::Accept;
        }
        if pages > self.accept_at(max) {
            return Admission::Waiting;
        }
        self.full.store(false, Relaxed);
        Admission::Accept
    }

    /// Whether a pool of `pages` is to be shrunk: it was full and is not at the
    /// threshold yet.
    pub(crate) fn wants_shrinking(&self, pages: usize) -> bool {
        let max = self.max.load(Relaxed);
        pages >= max || self.full.load(Relaxed) && pages > self.accept_at(max)
    }

    /// Pages at which a full pool accepts again.
    fn accept_at(&self, max: usize) -> usize {
        // In this order it neither overflows nor loses more than the fraction.
        let percent = self.percent.load(Relaxed) as usize;
        max / 100 * percent + max % 100 * percent / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_accepts_again_at_the_threshold() {
        let gate = Gate::new(Limits {
            max_pool_pages: Some(50),
            ..Limits::default()
        });
        let answers = [46, 49, 50, 51, 49, 46, 45, 49, 50, 46, 0].map(|pages| gate.admit(pages));
        use Admission::{Accept, Hit, Waiting};
        assert_eq!(
            answers,
            [
                Accept, Accept, Hit, Hit, Waiting, Waiting, Accept, Accept, Hit, Waiting, Accept
            ]
        );
    }

    #[test]
    fn extremes() {
        let gate = Gate::new(Limits {
            max_pool_pages: Some(0),
            ..Limits::default()
        });
        assert_eq!(gate.admit(0), Admission::Hit);
        let open = Limits {
            reject_poor: true,
            ..Limits::default()
        };
        gate.set(open);
        assert_eq!(gate.get(), open);
        // No longer limited: the mark of having been full goes too.
        assert_eq!(gate.admit(usize::MAX / 2), Admission::Accept);
        assert_eq!(
            gate.accept_at(usize::MAX),
            usize::MAX / 100 * 90 + usize::MAX % 100 * 90 / 100
        );
        gate.set(Limits {
            accept_threshold_percent: 1000,
            ..Limits::default()
        });
        assert_eq!(gate.get().accept_threshold_percent, 100);
    }
}
