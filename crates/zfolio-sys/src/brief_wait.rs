//! Staying awake for what usually comes soon.
//!
//! A thread that sleeps is woken by an interrupt of another processor, which takes microseconds, and
//! tens of them where processors are a virtual machine's. What comes sooner than that, or not much later, is better looked for, by a thread
//! that gives the processor to whoever else wants it each time it has looked. How long the last waits took
//! says whether this one will be worth it; the kernel's `haltpoll` goes by the same.

use crate::thread::{Clock, now_ns, yield_now};
use core::sync::atomic::{AtomicU64, Ordering};

/// Longest that a thread stays awake, ns.
const MOST_NS: u64 = 150_000;
/// Shortest, where a thread does at all, ns.
const LEAST_NS: u64 = 20_000;
/// What a wait counts as at most, ns: after a long one some 20 short ones are slept through.
const LONG_NS: u64 = 1_000_000;
/// Weight of one wait, as a part.
const WEIGHT: u64 = 8;
/// Looks between two looks at the clock.
const LOOKS: u32 = 8;

/// How long waits for one thing take.
#[derive(Debug)]
pub struct BriefWait {
    usual_ns: AtomicU64,
    /// When a wait of several threads together began (CLOCK_MONOTONIC, ns); 0: none is.
    since: AtomicU64,
}

impl Default for BriefWait {
    fn default() -> Self {
        Self {
            usual_ns: AtomicU64::new(MOST_NS / 2),
            since: AtomicU64::new(0),
        }
    }
}

impl BriefWait {
    /// Waits until `is_there`: awake while that pays, if it `may` be; then by `sleep`, which returns now and
    /// then, or with an error that ends the wait.
    ///
    /// # Errors
    /// That of `sleep`.
    pub fn wait<E>(
        &self,
        may: bool,
        mut is_there: impl FnMut() -> bool,
        mut sleep: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if is_there() {
            return Ok(());
        }
        let since = now();
        let mut there = may && self.stay(&mut is_there);
        let mut result = Ok(());
        while !there && result.is_ok() {
            result = sleep();
            there = is_there();
        }
        self.note(now().saturating_sub(since));
        if there { Ok(()) } else { result }
    }

    /// Stays awake until `is_there`, as long as that pays; whether it came.
    pub fn stay(&self, mut is_there: impl FnMut() -> bool) -> bool {
        let most = self.stays_ns();
        if most == 0 {
            return false;
        }
        let since = now();
        loop {
            for _ in 0..LOOKS {
                if is_there() {
                    return true;
                }
                yield_now();
            }
            if now().saturating_sub(since) >= most {
                return false;
            }
        }
    }

    /// Threads wait from now on; which of them will be served is not known.
    pub fn begin(&self) {
        self.since.store(now(), Ordering::Relaxed);
    }

    /// One was.
    pub fn end(&self) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since != 0 {
            self.note(now().saturating_sub(since));
        }
    }

    /// How long to stay awake, ns: twice as long as usual; not at all where that is too long.
    fn stays_ns(&self) -> u64 {
        let usual = self.usual_ns.load(Ordering::Relaxed);
        if usual > MOST_NS {
            return 0;
        }
        (2 * usual).clamp(LEAST_NS, MOST_NS)
    }

    fn note(&self, ns: u64) {
        // (Of two threads that note at once one may be lost.)
        let usual = self.usual_ns.load(Ordering::Relaxed);
        let usual = usual - usual / WEIGHT + ns.min(LONG_NS) / WEIGHT;
        self.usual_ns.store(usual, Ordering::Relaxed);
    }
}

fn now() -> u64 {
    now_ns(Clock::Monotonic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn what_is_there_is_not_waited_for() {
        let wait = BriefWait::default();
        let slept = wait.wait(true, || true, || Err::<(), _>("slept"));
        assert_eq!(slept, Ok(()));
    }

    #[test]
    fn long_waits_are_slept_through_and_short_ones_are_not() {
        let wait = BriefWait::default();
        assert!(wait.stays_ns() > 0);
        (0..50).for_each(|_| wait.note(300_000));
        assert_eq!(wait.stays_ns(), 0);
        (0..50).for_each(|_| wait.note(20_000));
        let stays = wait.stays_ns();
        assert!((38_000..45_000).contains(&stays), "{stays}");
        wait.note(u64::MAX);
        assert!(wait.stays_ns() > 0, "one long wait is not many");
    }

    #[test]
    fn who_may_not_stay_awake_sleeps() {
        let wait = BriefWait::default();
        let (looked, slept) = (Cell::new(0), Cell::new(0));
        let is_there = || {
            looked.set(looked.get() + 1);
            slept.get() == 2
        };
        let sleep = || {
            slept.set(slept.get() + 1);
            Ok::<_, ()>(())
        };
        assert_eq!(wait.wait(false, is_there, sleep), Ok(()));
        assert_eq!((looked.get(), slept.get()), (3, 2));
    }

    #[test]
    fn an_error_ends_the_wait_unless_it_came() {
        let wait = BriefWait::default();
        let ended = wait.wait(false, || false, || Err("ended"));
        assert_eq!(ended, Err("ended"));
        let looks = Cell::new(0);
        let at_last = || looks.replace(looks.get() + 1) > 0;
        assert_eq!(wait.wait(false, at_last, || Err("ended")), Ok(()));
    }
}
