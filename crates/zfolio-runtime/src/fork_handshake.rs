//! What parent and child say to each other during a fork: words in memory that
//! they share.
//!
//! ```text
//! request: NONE -> PREPARE -> FROZEN -> PARENT_DONE -> NONE
//! adopt:   NONE -> ASKED or ASKED_FILL -> LEFT -> GRANTED -> TAKEN
//!               -> EXPIRED -------------> LEFT -> GRANTED -> TAKEN
//! ```
//!
//! | step | by | then |
//! |---|---|---|
//! | NONE -> PREPARE | parent's program thread | waits for FROZEN; the watchdog bounds that |
//! | PREPARE -> FROZEN | parent's control thread | waits, a lease at most once the parent is done |
//! | FROZEN -> PARENT_DONE | parent's program thread | goes on once `settled` is 1 |
//! | settled 0 -> 1 | parent's control thread | no event from before the fork is in flight: what is read now, the child does not have in its past |
//! | NONE -> ASKED, ASKED_FILL | child, by compare and exchange | waits while its parent lives |
//! | NONE -> EXPIRED | control thread, likewise | has the child filled, whether it runs or not |
//! | -> LEFT | control thread | what the child has to know, or that it has all, can be read |
//! | -> GRANTED | control thread | the parent's descriptor of the child is closed |
//! | -> TAKEN | child | it has read; the words may be another fork's |
//!
//! Only one of child and control thread leaves NONE: either the child asks, or it finds
//! that it was given everything.

use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::arena::Words;
use zfolio_sys::lock::{futex_wait, futex_wake};

/// An event as numbers. What they mean is whose they are to say.
type EventWords = [usize; 4];

/// States of [`ForkWords::request`].
pub(crate) mod request {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const PREPARE: u32 = 1;
    pub(crate) const FROZEN: u32 = 2;
    pub(crate) const PARENT_DONE: u32 = 3;
}

/// States of [`ForkWords::adopt`].
pub(crate) mod adopt {
    pub(crate) const NONE: u32 = 0;
    /// Let go of my ranges: I serve them from now on.
    pub(crate) const ASKED: u32 = 1;
    pub(crate) const GRANTED: u32 = 2;
    /// I cannot: give me everything, then let go.
    pub(crate) const ASKED_FILL: u32 = 3;
    /// I have read what was left for me.
    pub(crate) const TAKEN: u32 = 4;
    /// You have not asked in time: you are being given everything.
    pub(crate) const EXPIRED: u32 = 5;
    /// What you need to know is written down; I let go next.
    pub(crate) const LEFT: u32 = 6;

    /// Whether a child in this state still waits for what is left for it.
    pub(crate) const fn waits(state: u32) -> bool {
        matches!(state, ASKED | ASKED_FILL | EXPIRED)
    }
}

/// Where the list of events lies among the words: its length, its start, and
/// the words of one event.
const COUNT: usize = 8;
const GENERATION: usize = 9;
const BEATS: usize = 10;
const LIST: usize = 16;
const EVENT: usize = 7;
/// In place of a length: the child was filled.
const FILLED: u32 = u32::MAX;

/// Words that parent and child share during a fork.
#[derive(Clone, Copy)]
pub(crate) struct ForkWords(&'static Words);

impl ForkWords {
    pub(crate) fn new(words: &'static Words) -> Self {
        Self(words)
    }

    pub(crate) fn request(&self) -> &AtomicU32 {
        &self.0[0]
    }

    pub(crate) fn adopt(&self) -> &AtomicU32 {
        &self.0[1]
    }

    /// 1 once every event from before the fork has been read.
    pub(crate) fn settled(&self) -> &AtomicU32 {
        &self.0[3]
    }

    /// Rung when one of the others changed.
    pub(crate) fn bell(&self) -> &AtomicU32 {
        &self.0[2]
    }

    /// Makes the words ready for another fork; returns its number.
    pub(crate) fn renew(&self) -> u32 {
        self.adopt().store(adopt::NONE, Ordering::Release);
        self.settled().store(0, Ordering::Release);
        self.0[COUNT].store(0, Ordering::Release);
        self.0[GENERATION].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Leaves a list of events for the child; false if they do not fit.
    pub(crate) fn leave(&self, events: impl ExactSizeIterator<Item = EventWords>) -> bool {
        let places = self.0[LIST..].chunks_exact(EVENT);
        if events.len() > places.len() {
            return false;
        }
        let count = events.len();
        for ([kind, a, b, c], words) in events.zip(places) {
            let halves = [a, b, c]
                .into_iter()
                .flat_map(|word| [word as u64 & 0xffff_ffff, word as u64 >> 32]);
            for (word, half) in words
                .iter()
                .zip(core::iter::once(kind as u64).chain(halves))
            {
                word.store(u32::try_from(half).unwrap_or(0), Ordering::Relaxed);
            }
        }
        self.0[COUNT].store(u32::try_from(count).unwrap_or(0), Ordering::Release);
        true
    }

    /// Tells the child that it was given everything.
    pub(crate) fn leave_filled(&self) {
        self.0[COUNT].store(FILLED, Ordering::Release);
    }

    /// Whether the parent gave the child everything.
    pub(crate) fn is_filled(&self) -> bool {
        self.0[COUNT].load(Ordering::Acquire) == FILLED
    }

    /// The events left by the parent.
    pub(crate) fn left(&self) -> impl Iterator<Item = EventWords> + use<> {
        let count = self.0[COUNT].load(Ordering::Acquire);
        let count = if count == FILLED { 0 } else { count as usize };
        self.0[LIST..].chunks_exact(EVENT).take(count).map(|words| {
            let half = |at: usize| words[at].load(Ordering::Relaxed) as usize;
            let word = |at: usize| half(at) | half(at + 1) << 32;
            [half(0), word(1), word(3), word(5)]
        })
    }

    pub(crate) fn set(&self, word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
        futex_wake(word, u32::MAX);
        self.ring();
    }

    fn ring(&self) {
        self.bell().fetch_add(1, Ordering::Release);
        futex_wake(self.bell(), u32::MAX);
    }

    /// Waits while `word` has `value`; calls `idle` every 10 ms, and gives up
    /// (false) when that says so.
    pub(crate) fn wait_while(word: &AtomicU32, value: u32, mut idle: impl FnMut() -> bool) -> bool {
        while word.load(Ordering::Acquire) == value {
            futex_wait(word, value, Some(10_000_000));
            if word.load(Ordering::Acquire) == value && !idle() {
                return false;
            }
        }
        true
    }

    /// Waits until `word` has `value`; calls `idle` every 10 ms.
    pub(crate) fn wait(word: &AtomicU32, value: u32, mut idle: impl FnMut() -> bool) -> bool {
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == value {
                return true;
            }
            futex_wait(word, seen, Some(10_000_000));
            if word.load(Ordering::Acquire) != value && !idle() {
                return false;
            }
        }
    }

    /// The child's lease is over; whether it had not asked yet.
    pub(crate) fn expire(&self) -> bool {
        self.leave_none(adopt::EXPIRED)
    }

    fn leave_none(&self, to: u32) -> bool {
        self.adopt()
            .compare_exchange(adopt::NONE, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Shows that the parent is at work for its child.
    pub(crate) fn beat(&self) {
        self.0[BEATS].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was.
    pub(crate) fn beats(&self) -> u32 {
        self.0[BEATS].load(Ordering::Relaxed)
    }

    /// The child asks its parent to let go of its ranges; `fill`: after
    /// copying in all that is missing. Returns once that was done (or is, but for the
    /// closing of a descriptor), or when `parent_lives`, which is called every
    /// 10 ms, says no. False: the parent left nothing.
    pub(crate) fn ask_for_release(
        &self,
        fill: bool,
        mut parent_lives: impl FnMut() -> bool,
    ) -> bool {
        let how = if fill {
            adopt::ASKED_FILL
        } else {
            adopt::ASKED
        };
        if self.leave_none(how) {
            self.ring();
        }
        loop {
            let state = self.adopt().load(Ordering::Acquire);
            let until_granted = state == adopt::LEFT || adopt::waits(state);
            if !until_granted || !Self::wait_while(self.adopt(), state, &mut parent_lives) {
                return !adopt::waits(self.adopt().load(Ordering::Acquire));
            }
        }
    }

    /// The child has read what was left for it; false if that was of a later
    /// fork already.
    pub(crate) fn taken(&self, generation: u32) -> bool {
        let mine = self.0[GENERATION].load(Ordering::Acquire) == generation;
        if mine {
            self.set(self.adopt(), adopt::TAKEN);
        }
        mine
    }

    /// The parent gives the child time to read before the next fork: it takes
    /// less than a millisecond, unless the child died, or the machine has too much
    /// to do. False: it has not read yet.
    pub(crate) fn await_taken(&self) -> bool {
        let mut turns = 0;
        Self::wait_while(self.adopt(), adopt::GRANTED, || {
            turns += 1;
            turns < 100
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    #[test]
    fn a_list_of_events_survives_the_shared_words() {
        let words: &'static Words = Box::leak(Box::new([const { AtomicU32::new(0) }; 16 << 10]));
        let words = ForkWords::new(words);
        let big = 0x7fff_1234_5000;
        let events = [
            [1, big, big + 4096, 0],
            [3, big, 4096, 1 << 40],
            [2, 0, big, 0],
        ];
        assert!(words.leave(events.into_iter()));
        assert_eq!(words.left().collect::<Vec<_>>(), events);
        assert!(
            !words.leave([events[0]; 5000].into_iter()),
            "more than fits"
        );
    }
}

#[cfg(test)]
mod model;
