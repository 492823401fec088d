//! On which processor a thread that serves faults runs.
//!
//! # One thread of the program faults
//!
//! The thread that serves it is bound to the processor of the one that faults: a fault then costs two
//! switches instead of two wake-ups across processors. A bound thread does not spin, which would keep
//! the other from running. The scheduler may still move the thread that faults, to a processor that is
//! idle. Once that was seen the control thread stays awake for a moment (`awake_until_ns`), so that
//! none is idle where there are two; after [`STRAYS`] times in a row the thread is not followed for
//! [`REST`] faults, and ours spins instead.
//!
//! # It waits for others as well
//!
//! A server is woken by its clients, on another processor where one is idle. Where there are few
//! processors the control thread stays awake for such a thread too, for some ms after every [`LOOK`]
//! faults. It yields all the while, and stops if others want its processor for half of the time. It
//! does not do so for a thread that only computes.
//!
//! # Several threads fault
//!
//! None of ours is bound. Where there are few processors the control thread stays awake, and serves
//! faults itself ([`idle_control`](super::idle_control)).
//!
//! What each of these gains was measured: `docs/peers.md`, "Idle processors".

use crate::address_space::recent_faulters::RecentFaulters;
use crate::wakeups::AwakeFor;
use core::mem::replace;
use zfolio_sys::thread::Affinity;
use zfolio_sys::thread_files::{processor_of, waits_of};

/// Faults between two looks where that thread runs.
const LOOK: u32 = 256;
/// The same where it was elsewhere the last time.
const LOOK_AGAIN: u32 = 32;
/// Looks in a row at which it was elsewhere, after which it is let go.
const STRAYS: u32 = 3;
/// Faults for which it is not followed then.
const REST: u32 = 8192;
/// The same where ours do not spin: then apart is the worst that can be.
const SHORT_REST: u32 = 256;

/// Faults for each of which a thread waits for us, to one wait for somebody else, from
/// which on it counts as one that does that as well.
const FAULTS_TO_A_WAIT: usize = 4;

/// Where one of our threads runs.
pub(crate) struct Placement {
    anywhere: Affinity,
    /// Whether it spins, unless bound.
    spins: bool,
    bound: Option<usize>,
    following: Following,
}

/// When to look where a thread is, and what to make of it.
#[derive(Default)]
struct Following {
    thread: Option<u32>,
    /// Where it was last seen.
    at: Option<usize>,
    /// Faults until the next look.
    left: u32,
    strays: u32,
    /// How often it had waited, and faults there had been, when that was last looked at.
    before: Option<(usize, usize)>,
    waits_for_others: bool,
}

impl Following {
    /// After a fault, with the only thread that faults: whether to look where it is.
    fn is_due(&mut self, thread: Option<u32>) -> bool {
        if thread != self.thread {
            *self = Self {
                thread,
                ..Self::default()
            };
            return true;
        }
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Whether it is time to look how often it has waited, when there have been `faults`.
    fn waits_are_due(&self, faults: usize) -> bool {
        let since = |before: (usize, usize)| faults.saturating_sub(before.1);
        self.before
            .is_none_or(|before| since(before) >= LOOK as usize)
    }

    /// Notes that it had waited `waits` times when there had been `faults`: whether for
    /// others than us too.
    fn note_waits(&mut self, waits: Option<usize>, faults: usize) {
        let now = waits.map(|waits| (waits, faults));
        self.waits_for_others = match (replace(&mut self.before, now), now) {
            (Some(before), Some(now)) => {
                let faults = now.1.saturating_sub(before.1);
                let others = now.0.saturating_sub(before.0).saturating_sub(faults);
                others * FAULTS_TO_A_WAIT >= faults
            }
            _ => false,
        };
    }

    /// Where to be for a thread that is at `at`; `rest`: faults for which one that strays
    /// is not followed.
    fn seen(&mut self, at: Option<usize>, rest: u32) -> Option<usize> {
        let strayed = self.at.is_some() && at != self.at;
        self.at = at;
        self.strays = if strayed { self.strays + 1 } else { 0 };
        if self.strays == STRAYS {
            (self.at, self.strays, self.left) = (None, 0, rest);
            return None;
        }
        self.left = if strayed { LOOK_AGAIN } else { LOOK };
        at
    }
}

impl Placement {
    /// Of the calling thread, which may run where it may now. `spins`: whether it does,
    /// unless bound.
    pub(crate) fn new(spins: bool) -> Self {
        Self {
            anywhere: Affinity::current(),
            spins,
            bound: None,
            following: Following::default(),
        }
    }

    /// Whether it shares its processor with the thread it serves.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// After a fault: follows the thread that faults; says whether the control thread had
    /// better stay awake. By the calling thread, and without a lock held.
    pub(crate) fn follow(&mut self, faulting: RecentFaulters) -> Option<AwakeFor> {
        let thread = faulting.alone();
        let several = thread.is_none() && faulting.faults.is_multiple_of(LOOK as usize);
        if !self.following.is_due(thread) {
            return (several && !self.spins).then_some(AwakeFor::Several);
        }
        let rest = if self.spins { REST } else { SHORT_REST };
        let processor = thread.and_then(processor_of);
        let processor = self.following.seen(processor, rest);
        let strayed = self.following.strays > 0;
        let faults = faulting.faults;
        if !self.spins && self.following.waits_are_due(faults) {
            self.following.note_waits(thread.and_then(waits_of), faults);
        }
        if processor != self.bound {
            let at = processor.and_then(|processor| self.anywhere.only(processor));
            let bound = at.is_some_and(|at| at.apply());
            if !bound && self.bound.is_some() {
                let _ = self.anywhere.apply();
            }
            self.bound = processor.filter(|_| bound);
        }
        (strayed || self.following.waits_for_others).then_some(AwakeFor::One)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::recent_faulters::ALONE;

    #[test]
    fn who_strays_is_let_go_for_a_while() {
        for rest in [SHORT_REST, REST] {
            let mut following = Following::default();
            let mut looks = |at: &mut dyn FnMut() -> usize, faults: u32| {
                (0..faults)
                    .filter(|_| {
                        following.is_due(Some(7)) && following.seen(Some(at()), rest).is_none()
                    })
                    .count()
            };
            assert_eq!(looks(&mut || 1, 100 * LOOK), 0, "it stays");
            let mut place = 1;
            let mut next = || {
                place += 1;
                place
            };
            // (Before each rest it is looked at until it has strayed three times.)
            let turn = rest + LOOK + STRAYS * LOOK_AGAIN;
            let let_go = looks(&mut next, 10 * turn);
            assert!((8..=11).contains(&let_go), "{let_go} times in ten");
            assert!(looks(&mut || 1, turn) <= 1, "it settles");
            assert_eq!(looks(&mut || 1, 2 * rest), 0, "it has settled");
        }
    }

    #[test]
    fn who_waits_for_others_is_told_from_who_waits_for_us() {
        let mut following = Following::default();
        let mut look = |waits, faults| {
            assert!(following.waits_are_due(faults));
            following.note_waits(waits, faults);
            assert!(waits.is_none() || !following.waits_are_due(faults + 255));
            following.waits_for_others
        };
        assert!(!look(Some(1000), 500), "nothing to compare with");
        assert!(!look(Some(1256), 756), "one wait for each fault");
        assert!(!look(Some(1570), 1012), "and a few more");
        assert!(look(Some(2082), 1268), "two for each");
        assert!(!look(Some(2200), 1524), "some were not waited for");
        assert!(!look(None, 1780) && !look(Some(9000), 2036));
    }

    #[test]
    fn several_threads_keep_the_control_thread_awake_where_ours_do_not_spin() {
        for spins in [false, true] {
            let (mut placement, mut faulting) = (Placement::new(spins), RecentFaulters::default());
            let awake = (0..10 * LOOK).filter(|n| {
                faulting.note(7 + n % 2);
                placement.follow(faulting) == Some(AwakeFor::Several)
            });
            assert_eq!(awake.count(), if spins { 0 } else { 10 });
            assert!(!placement.is_bound());
        }
    }

    #[test]
    fn a_seat_follows_and_is_left() {
        let anywhere = Affinity::current();
        let here = zfolio_sys::thread::id();
        let mut placement = Placement::new(true);
        let mut faulting = RecentFaulters::default();
        (0..ALONE).for_each(|_| faulting.note(here));
        placement.follow(faulting);
        assert!(placement.is_bound() && Affinity::current().count() == 1);
        (0..ALONE).for_each(|n| faulting.note(n));
        placement.follow(faulting);
        assert!(!placement.is_bound());
        assert_eq!(Affinity::current(), anywhere);
    }
}
