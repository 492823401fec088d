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
//! A named group of a run may have a `max` of its own, with the same meaning for its processes:
//! the narrowest holds. Where there is no run's, there is a group's all the same.
//!
//! What the run was asked for is read anew each time: `zfolio set` changes it. Regions have
//! what their options say.

use crate::options::{OnMax, Options};
use crate::segment::Config;
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
    /// The run's, or the regions'. Bytes; 0: there is none.
    max: AtomicU64,
    /// One of `segment::on_max`.
    on_max: AtomicU32,
    /// What this process may have of that and of its groups' own, pages; `usize::MAX`: it is
    /// not said, or there is none.
    part: AtomicUsize,
    /// The least of its groups' own, whatever others have, pages; `usize::MAX`: none.
    of_groups: AtomicUsize,
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
            on_max: AtomicU32::new(OnMax::Kill.number()),
            part: AtomicUsize::new(usize::MAX),
            of_groups: AtomicUsize::new(usize::MAX),
            since_ns: AtomicU64::new(0),
        }
    }

    /// That of regions, by their options.
    pub(crate) fn of(options: &Options) -> Self {
        let hard = Self::new();
        let pages = options.at_max.max.unwrap_or(0);
        hard.set((pages << PAGE_SHIFT) as u64, options.at_max.on_max.number());
        hard
    }

    /// Takes over what the run is asked for now.
    pub fn follow(&self, config: &Config) -> &Self {
        self.set(
            config.limits.max.load(Ordering::Relaxed),
            config.limits.on_max.load(Ordering::Relaxed),
        );
        self
    }

    fn set(&self, max: u64, on_max: u32) {
        self.on_max.store(on_max, Ordering::Relaxed);
        if self.max.load(Ordering::Relaxed) != max {
            self.max.store(max, Ordering::Relaxed);
            // (The part is one of what was: of another it is said with the next look.)
            self.part.store(usize::MAX, Ordering::Relaxed);
        }
    }

    /// The least `max` that holds for this process, whatever others have, pages; `None`: there
    /// is none.
    fn whole(&self) -> Option<usize> {
        let of_groups = self.of_groups.load(Ordering::Relaxed);
        let pages = match self.max.load(Ordering::Relaxed) {
            0 => of_groups,
            bytes => usize::try_from(bytes >> PAGE_SHIFT)
                .unwrap_or(usize::MAX)
                .min(of_groups),
        };
        (pages < usize::MAX).then_some(pages)
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

    /// Changes what this process may have, pages: its part of what its groups and the run may
    /// have, and the least `max` of its groups (`usize::MAX`: none).
    pub fn set_part(&self, part: usize, of_groups: usize) {
        self.of_groups.store(of_groups, Ordering::Relaxed);
        self.part.store(part, Ordering::Relaxed);
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
        hard.set((max.unwrap_or(0) << PAGE_SHIFT) as u64, on_max.number());
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
        hard.set_part(512, usize::MAX);
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
    fn a_group_has_one_of_its_own_whatever_the_run_has() {
        let ended = AtomicU64::new(0);
        let hard = limit(None, OnMax::Kill);
        assert_eq!(hard.pages(), None);
        hard.set_part(300, 500);
        assert_eq!(hard.pages(), Some(300));
        assert_eq!(hard.beyond(&ended, 301), Beyond::Waits);
        assert_eq!(hard.beyond(&ended, 501), Beyond::Ends, "too large alone");
        assert!(!hard.waits());
        hard.set_part(usize::MAX, usize::MAX);
        assert_eq!(hard.beyond(&ended, 501), Beyond::Within);
        let hard = limit(Some(400), OnMax::Wait);
        hard.set_part(300, 500);
        assert_eq!((hard.whole(), hard.waits()), (Some(400), true));
    }

    #[test]
    fn a_part_of_what_was_does_not_hold_for_what_is() {
        let hard = limit(Some(1000), OnMax::Kill);
        hard.set_part(600, usize::MAX);
        hard.set(2000 << PAGE_SHIFT, OnMax::Kill.number());
        assert_eq!(hard.pages(), Some(2000));
        hard.set_part(600, usize::MAX);
        hard.set(2000 << PAGE_SHIFT, OnMax::Wait.number());
        assert_eq!((hard.pages(), hard.waits()), (Some(600), true));
        hard.set(0, OnMax::Kill.number());
        assert_eq!(hard.pages(), None);
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
