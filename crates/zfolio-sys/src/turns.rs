//! Calls that threads make one after the other, in signal handlers too, and whatever becomes of who
//! makes them.

use crate::lock::{futex_wait, futex_wake};
use crate::thread::{Clock, has_ended, id, now_ns};
use core::sync::atomic::{AtomicU32, Ordering};

/// Somebody waits for the turn.
const WAITED_FOR: u32 = 1 << 31;
/// How long a turn is waited for, ns. Whoever has it for longer has left its call by a jump out of a
/// signal handler, or is kept in it; the next one goes on all the same.
const LONGEST_NS: u64 = 1_000_000_000;
/// How long until it is asked whether whoever has the turn is still there, ns.
const ASK_NS: u64 = 10_000_000;

/// Whose turn it is.
///
/// # Invariant
/// The thread whose id the word has makes a call, or has left it without giving the turn back. 0: nobody.
#[derive(Debug)]
pub struct Turns(AtomicU32);

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

impl Turns {
    /// Nobody's.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// In the child of a fork: whose turn it was in the parent is not there. (Ids are of another
    /// process's threads, and may be those of this one's.)
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Calls `call` when it is the caller's turn, and at once in a signal handler that has interrupted
    /// such a call.
    pub fn make<R>(&self, call: impl FnOnce() -> R) -> R {
        let me = id();
        let took = self.take(me);
        let result = call();
        if took {
            self.give_back(me);
        }
        result
    }

    /// False if the caller has it already.
    fn take(&self, me: u32) -> bool {
        let (mut waiting, mut since) = (0, None);
        loop {
            let Err(seen) =
                self.0
                    .compare_exchange(0, me | waiting, Ordering::Acquire, Ordering::Relaxed)
            else {
                return true;
            };
            let owner = seen & !WAITED_FOR;
            if owner == me {
                return false;
            }
            let now = now_ns(Clock::Monotonic);
            let (begin, of) = *since.get_or_insert((now, owner));
            if of != owner {
                since = Some((now, owner));
            } else if now - begin > LONGEST_NS || now - begin > ASK_NS && has_ended(owner) {
                let mine = me | WAITED_FOR;
                let taken =
                    self.0
                        .compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    return true;
                }
                continue;
            }
            let known = seen | WAITED_FOR;
            let noted = seen == known
                || self
                    .0
                    .compare_exchange(seen, known, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if noted {
                futex_wait(&self.0, known, Some(ASK_NS));
                // (There may be more of us.)
                waiting = WAITED_FOR;
            }
        }
    }

    fn give_back(&self, me: u32) {
        let mine = |word: u32| (word & !WAITED_FOR == me).then_some(0);
        let gave = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, mine);
        if gave.is_ok_and(|word| word & WAITED_FOR != 0) {
            futex_wake(&self.0, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::sync::atomic::AtomicBool;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    #[test]
    fn one_at_a_time() {
        let (turn, busy) = (Arc::new(Turns::new()), Arc::new(AtomicBool::new(false)));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (turn, busy) = (turn.clone(), busy.clone());
                std::thread::spawn(move || {
                    for round in 0..2000 {
                        turn.make(|| {
                            assert!(!busy.swap(true, Ordering::AcqRel));
                            if round % 100 == 0 {
                                std::thread::yield_now();
                            }
                            busy.store(false, Ordering::Release);
                        });
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("alone"));
        assert_eq!(turn.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_call_within_a_call_is_made_at_once() {
        let turn = Turns::new();
        assert_eq!(turn.make(|| turn.make(|| 7)), 7);
        assert_eq!(turn.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_turn_that_is_never_given_back_passes_on() {
        let turn = Arc::new(Turns::new());
        let left = turn.clone();
        std::thread::spawn(move || assert!(left.take(id())))
            .join()
            .expect("took");
        let begin = Instant::now();
        turn.make(|| ()); // it has ended
        assert!(begin.elapsed() < Duration::from_nanos(LONGEST_NS));

        turn.0.store(std::process::id(), Ordering::Relaxed); // another that lives
        turn.make(|| ());
        assert_eq!(turn.0.load(Ordering::Relaxed), 0);
        turn.make(|| ());
    }

    #[test]
    fn a_child_has_its_turns_for_itself() {
        let turn = Turns::new();
        assert!(turn.take(id()));
        turn.forget();
        assert!(turn.take(id()), "an id of the parent's is nobody's here");
    }
}
