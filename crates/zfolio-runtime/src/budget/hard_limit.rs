//! `max`: what is not exceeded for long, and what happens there.
//!
//! Below it everything goes on as without: `high` is where reclaim works and
//! faults are slowed. A fault that has waited long enough at `high` gets memory
//! beyond it; at `max` it does not, or the process ends, or it is counted only.
//! (First touches of memory that is not registered yet ask nobody: the control
//! thread looks at usage as well.)
//!
//! It is the run's, as `high` is: a process may have what the others leave of it,
//! and an equal part always (`fair_share.rs`). What another had that has ended counts for
//! two seconds more, so nobody is ended for the others before it has lasted
//! longer; and then only one at a time, since that may be enough.
//!
//! What was asked for is read anew each time: `zfolio set` changes it.

use crate::options::OnMax;
use crate::segment::{Config, on_max};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_mm::PAGE_SHIFT;
use zfolio_sys::thread::{Clock, now_ns};

/// For so long `max` must be exceeded because of what others have, before that ends
/// the process, ns: longer than one that has ended counts.
const EXCEEDED_NS: u64 = 3_000_000_000;
/// Between two processes that are ended for that, ns.
const APART_NS: u64 = 1_000_000_000;

/// `max`, and this process's part of it.
#[derive(Debug)]
pub struct HardLimit {
    /// Bytes; 0: there is none.
    max: AtomicU64,
    /// One of [`on_max`].
    on_max: AtomicU32,
    /// What this process may have of it, pages.
    part: AtomicUsize,
    /// Since when that is exceeded (0: it is not), ns.
    since_ns: AtomicU64,
}

/// What becomes of one who wants memory beyond `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beyond {
    /// It is within `max`.
    Within,
    /// It is not, and is counted only.
    Allowed,
    /// It does not get any now.
    Waits,
    /// The process is to end, by [`HardLimit::reached`].
    Ends,
}

impl Default for HardLimit {
    fn default() -> Self {
        Self::new()
    }
}

impl HardLimit {
    /// There is none; all of what comes is this process's.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            max: AtomicU64::new(0),
            on_max: AtomicU32::new(on_max::KILL),
            part: AtomicUsize::new(usize::MAX),
            since_ns: AtomicU64::new(0),
        }
    }

    /// Takes over what is asked for now.
    pub fn follow(&self, config: &Config) -> &Self {
        self.set(
            config.max.load(Ordering::Relaxed),
            config.on_max.load(Ordering::Relaxed),
        );
        self
    }

    fn set(&self, max: u64, on_max: u32) {
        self.max.store(max, Ordering::Relaxed);
        self.on_max.store(on_max, Ordering::Relaxed);
    }

    /// `max` itself, pages; `None`: there is none.
    fn whole(&self) -> Option<usize> {
        let bytes = self.max.load(Ordering::Relaxed);
        (bytes > 0).then(|| usize::try_from(bytes >> PAGE_SHIFT).unwrap_or(usize::MAX))
    }

    /// What happens there.
    fn on_max(&self) -> OnMax {
        OnMax::of_number(self.on_max.load(Ordering::Relaxed))
    }

    /// Whether one who wants more waits until there is some.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.on_max() == OnMax::Wait && self.whole().is_some()
    }

    /// Changes what this process may have of it, pages.
    pub fn set_part(&self, pages: usize) {
        self.part.store(pages, Ordering::Relaxed);
    }

    /// What this process may have, pages: all of `max` or its part.
    #[must_use]
    pub fn pages(&self) -> Option<usize> {
        let part = self.part.load(Ordering::Relaxed);
        self.whole().map(|max| max.min(part))
    }

    /// Whether `usage` pages are more than there may be.
    #[must_use]
    pub fn is_exceeded_by(&self, usage: usize) -> bool {
        self.on_max() != OnMax::Allow && self.pages().is_some_and(|max| usage > max)
    }

    /// It is not exceeded now.
    pub fn note_within(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
    }

    /// Whether a process that would have `usage` pages is to be ended: at once
    /// where that is too much for it alone.
    fn is_to_end(&self, ended: &AtomicU64, usage: usize) -> bool {
        if self.whole().is_some_and(|max| usage > max) {
            return true;
        }
        let now = now_ns(Clock::Monotonic);
        let since = self.since_ns.load(Ordering::Relaxed);
        if since == 0 {
            self.since_ns.store(now, Ordering::Relaxed);
        }
        if since == 0 || now.saturating_sub(since) < EXCEEDED_NS {
            return false;
        }
        let last = ended.load(Ordering::Relaxed);
        now.saturating_sub(last) >= APART_NS
            && ended
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// What becomes of one with whom the process would have `usage` pages, where nothing more
    /// can be moved out. All but [`Beyond::Within`] is to be counted. `ended`: when a process
    /// of the run was last ended for what others had (`max_ended_ns` of the segment).
    pub fn beyond(&self, ended: &AtomicU64, usage: usize) -> Beyond {
        if self.pages().is_none_or(|max| usage <= max) {
            self.note_within();
            return Beyond::Within;
        }
        match self.on_max() {
            OnMax::Allow => Beyond::Allowed,
            OnMax::Kill if self.is_to_end(ended, usage) => Beyond::Ends,
            OnMax::Wait | OnMax::Kill => Beyond::Waits,
        }
    }

    /// How far what is `limit` pages without it may be raised.
    #[must_use]
    pub fn overdraft_within(&self, limit: usize, overdraft: usize) -> usize {
        match (self.pages(), self.on_max()) {
            (Some(max), OnMax::Kill | OnMax::Wait) => overdraft.min(max.saturating_sub(limit)),
            _ => overdraft,
        }
    }

    /// The line with which a process ends there.
    #[must_use]
    pub fn reached(&self) -> impl fmt::Display + '_ {
        Reached(self)
    }
}

struct Reached<'a>(&'a HardLimit);

impl fmt::Display for Reached<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |pages: Option<usize>| pages.unwrap_or(0) >> (20 - PAGE_SHIFT);
        write!(
            f,
            "its memory reached --max ({} MiB, of which it may have {}) and no more of it can \
             be moved out",
            mib(self.0.whole()),
            mib(self.0.pages()),
        )
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    fn limit(max: Option<usize>, on_max: OnMax) -> HardLimit {
        let hard = HardLimit::new();
        let number = match on_max {
            OnMax::Kill => on_max::KILL,
            OnMax::Wait => on_max::WAIT,
            OnMax::Allow => on_max::ALLOW,
        };
        hard.set((max.unwrap_or(0) << PAGE_SHIFT) as u64, number);
        hard
    }

    #[test]
    fn what_is_too_much_for_one_alone_ends_it_at_once() {
        let ended = AtomicU64::new(0);
        let hard = limit(Some(1000), OnMax::Kill);
        assert_eq!(hard.beyond(&ended, 1000), Beyond::Within);
        assert_eq!(hard.beyond(&ended, 1001), Beyond::Ends);
        assert_eq!(
            limit(Some(1000), OnMax::Wait).beyond(&ended, 1001),
            Beyond::Waits
        );
        assert_eq!(
            limit(Some(1000), OnMax::Allow).beyond(&ended, 1001),
            Beyond::Allowed
        );
        assert_eq!(
            limit(None, OnMax::Kill).beyond(&ended, 1 << 40),
            Beyond::Within
        );
    }

    #[test]
    fn what_others_have_is_waited_for_first() {
        let ended = AtomicU64::new(0);
        let hard = limit(Some(1024), OnMax::Kill);
        hard.set_part(512);
        assert_eq!(hard.beyond(&ended, 600), Beyond::Waits);
        assert_ne!(hard.since_ns.load(Ordering::Relaxed), 0);
        assert_eq!(hard.beyond(&ended, 512), Beyond::Within);
        assert_eq!(hard.since_ns.load(Ordering::Relaxed), 0, "it begins anew");
        hard.since_ns.store(1, Ordering::Relaxed);
        assert_eq!(hard.beyond(&ended, 600), Beyond::Ends);
        // One at a time.
        assert_eq!(hard.beyond(&ended, 600), Beyond::Waits);
        assert!(
            hard.reached()
                .to_string()
                .starts_with("its memory reached --max (4 MiB, of which it may have 2)")
        );
    }

    #[test]
    fn what_is_raised_stays_within_it() {
        let hard = limit(Some(1000), OnMax::Wait);
        assert_eq!(hard.overdraft_within(900, 50), 50);
        assert_eq!(hard.overdraft_within(900, 500), 100);
        assert_eq!(hard.overdraft_within(1100, 500), 0);
        assert!(hard.is_exceeded_by(1001) && !hard.is_exceeded_by(1000));
        let allow = limit(Some(1000), OnMax::Allow);
        assert_eq!(allow.overdraft_within(900, 500), 500);
        assert!(!allow.is_exceeded_by(1001));
    }
}
