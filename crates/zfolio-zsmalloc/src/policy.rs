//! When zspage compaction runs by itself: a decision without a clock, a lock or
//! a pool of its own, so that it can be tested with made-up histories.
//!
//! It pays or it does not run. What it buys is pages; what it costs is copies of
//! objects under the pool's lock. A page not bought here is made by storing one
//! more page, that is compressing it and, if it is touched again, decompressing
//! it. So the measure is *copies per page freed*, and the figures below are set
//! against what those cost; `docs/zsmalloc.md` has the measurements.
//!
//! | cause | runs when | at most every | slows down to |
//! |---|---|---|---|
//! | request | always | - | - |
//! | pressure | frames are short and a page can be freed | [`PRESSURE_MS`] | [`SLOWEST`] times that |
//! | period | a 32nd of the pool, 16 pages at least, can be freed | [`PERIOD_MS`] | [`SLOWEST`] times that |
//!
//! After a run that paid [`COSTLY`] copies or more per page freed, or freed
//! nothing, the cause that started it waits twice as long; after one below
//! [`CHEAP`] half as long. A request counts for neither, unless it was cheap:
//! then nothing is known against either.

/// Shortest time between two periodic runs, in milliseconds.
pub const PERIOD_MS: u64 = 5_000;

/// Shortest time between two runs under pressure, in milliseconds.
pub const PRESSURE_MS: u64 = 100;

/// The waits grow to this many times the shortest.
pub const SLOWEST: u64 = 64;

/// A run with fewer copies per page freed makes the next one come sooner.
pub const CHEAP: u64 = 4;

/// A run with as many copies per page freed makes the next one come later.
pub const COSTLY: u64 = 16;

/// A periodic run needs this share of the pool to be freeable: one in so many
/// pages.
const WORTHWHILE_SHARE: usize = 32;

/// A periodic run needs this many pages to be freeable.
const WORTHWHILE_PAGES: usize = 16;

/// Why a compaction runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Somebody asked for it.
    Request,
    /// Frames are short.
    Pressure,
    /// It is time, and there is something to gain.
    Period,
}

/// What is known of the pool when the question is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Situation {
    /// Pages compaction would free: `ZsPool::freeable_pages`.
    pub freeable_pages: usize,
    /// Pages of the pool.
    pub pool_pages: usize,
    /// Whether frames are short.
    pub pressure: bool,
    /// Whether somebody asks.
    pub request: bool,
}

/// Time between two runs of one cause.
#[derive(Clone, Copy, Debug)]
struct Wait {
    shortest: u64,
    now: u64,
    due: u64,
}

impl Wait {
    const fn new(shortest: u64, now_ms: u64) -> Self {
        Self {
            shortest,
            now: shortest,
            due: now_ms.saturating_add(shortest),
        }
    }

    /// Learns from a run that ended at `now_ms`.
    fn learn(&mut self, now_ms: u64, objs_moved: u64, pages_freed: u64) {
        if pages_freed == 0 || objs_moved >= COSTLY.saturating_mul(pages_freed) {
            self.now = (self.now * 2).min(self.shortest * SLOWEST);
        } else if objs_moved < CHEAP * pages_freed {
            self.now = (self.now / 2).max(self.shortest);
        }
        self.due = now_ms.saturating_add(self.now);
    }
}

/// The state of the decision. Times are milliseconds of any clock that does not
/// go back.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    period: Wait,
    pressure: Wait,
}

impl Policy {
    /// Starts at `now_ms`; the first periodic run is a period away.
    #[must_use]
    pub const fn new(now_ms: u64) -> Self {
        let mut pressure = Wait::new(PRESSURE_MS, now_ms);
        // The first shortage need not wait.
        pressure.due = now_ms;
        Self {
            period: Wait::new(PERIOD_MS, now_ms),
            pressure,
        }
    }

    /// Whether [`Self::due`] may say so without a request: what is freeable need
    /// not be asked for before.
    #[must_use]
    pub fn may_be_due(&self, now_ms: u64, pressure: bool) -> bool {
        now_ms >= self.period.due || pressure && now_ms >= self.pressure.due
    }

    /// Whether to compact now, and why.
    #[must_use]
    pub fn due(&self, now_ms: u64, situation: Situation) -> Option<Cause> {
        let Situation {
            freeable_pages,
            pool_pages,
            pressure,
            request,
        } = situation;
        let worthwhile = freeable_pages >= (pool_pages / WORTHWHILE_SHARE).max(WORTHWHILE_PAGES);
        if request {
            Some(Cause::Request)
        } else if pressure && freeable_pages != 0 && now_ms >= self.pressure.due {
            Some(Cause::Pressure)
        } else if worthwhile && now_ms >= self.period.due {
            Some(Cause::Period)
        } else {
            None
        }
    }

    /// Learns what a run did that ended at `now_ms`, begun for `cause`.
    pub fn ran(&mut self, now_ms: u64, cause: Cause, objs_moved: u64, pages_freed: u64) {
        match cause {
            Cause::Pressure => self.pressure.learn(now_ms, objs_moved, pages_freed),
            Cause::Period => self.period.learn(now_ms, objs_moved, pages_freed),
            Cause::Request if pages_freed != 0 && objs_moved < CHEAP * pages_freed => {
                *self = Self::new(now_ms);
            }
            Cause::Request => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const LOOSE: Situation = Situation {
        freeable_pages: 100,
        pool_pages: 1000,
        pressure: false,
        request: false,
    };
    const SHORT: Situation = Situation {
        pressure: true,
        freeable_pages: 1,
        ..LOOSE
    };

    #[test]
    fn a_request_always_runs() {
        let nothing = Situation {
            freeable_pages: 0,
            request: true,
            ..LOOSE
        };
        assert_eq!(Policy::new(0).due(0, nothing), Some(Cause::Request));
    }

    #[test]
    fn a_period_needs_time_and_something_to_gain() {
        let policy = Policy::new(1_000);
        assert_eq!(policy.due(1_000 + PERIOD_MS - 1, LOOSE), None);
        assert!(!policy.may_be_due(1_000 + PERIOD_MS - 1, false));
        assert!(policy.may_be_due(1_000, true));
        assert_eq!(policy.due(1_000 + PERIOD_MS, LOOSE), Some(Cause::Period));
        let freeable = |freeable_pages, pool_pages| Situation {
            freeable_pages,
            pool_pages,
            ..LOOSE
        };
        for (situation, runs) in [
            (freeable(30, 1000), false),
            (freeable(31, 1000), true),
            (freeable(15, 20), false),
            (freeable(16, 20), true),
        ] {
            let due = policy.due(u64::MAX, situation);
            assert!(policy.may_be_due(u64::MAX, false));
            assert_eq!(due.is_some(), runs, "{situation:?}");
        }
    }

    #[test]
    fn pressure_takes_any_page_at_once_and_then_waits() {
        let mut policy = Policy::new(0);
        assert_eq!(policy.due(0, SHORT), Some(Cause::Pressure));
        let nothing = Situation {
            freeable_pages: 0,
            ..SHORT
        };
        assert_eq!(policy.due(0, nothing), None);
        policy.ran(10, Cause::Pressure, 5, 1);
        assert_eq!(policy.due(10 + PRESSURE_MS - 1, SHORT), None);
        assert_eq!(policy.due(10 + PRESSURE_MS, SHORT), Some(Cause::Pressure));
    }

    /// The time from a run until the cause is due again.
    fn wait(policy: &Policy, ran: u64, situation: Situation) -> u64 {
        (0..)
            .map(|n| n * 50)
            .find(|after| policy.due(ran + after, situation).is_some())
            .expect("due some time")
    }

    #[test]
    fn what_does_not_pay_comes_later_and_what_pays_sooner() {
        for (cause, situation, shortest) in [
            (Cause::Period, LOOSE, PERIOD_MS),
            (Cause::Pressure, SHORT, PRESSURE_MS),
        ] {
            let mut policy = Policy::new(0);
            let mut waits = vec![];
            // Copies and pages: nothing freed, costly, between, cheap, cheap.
            for (moved, freed) in [(0, 0), (16, 1), (15, 1), (4, 1), (3, 1), (0, 1), (0, 1)] {
                policy.ran(7, cause, moved, freed);
                waits.push(wait(&policy, 7, situation) / shortest);
            }
            assert_eq!(waits, [2, 4, 4, 4, 2, 1, 1], "{cause:?}");
            for _ in 0..70 {
                policy.ran(7, cause, u64::MAX, 1);
            }
            assert_eq!(wait(&policy, 7, situation), shortest * SLOWEST);
        }
    }

    #[test]
    fn only_a_cheap_request_changes_what_is_known() {
        let mut policy = Policy::new(0);
        policy.ran(0, Cause::Period, 0, 0);
        policy.ran(0, Cause::Request, 100, 1);
        assert_eq!(wait(&policy, 0, LOOSE), 2 * PERIOD_MS);
        policy.ran(0, Cause::Request, 1, 1);
        assert_eq!(wait(&policy, 0, LOOSE), PERIOD_MS);
    }
}
