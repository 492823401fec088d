//! Signals of the three that are ours on their way to a thread, from a call of the program's.
//!
//! The kernel keeps one signal of a number for a thread, and drops another that comes before that one's
//! handler has begun. With these three there often is one that the program knows nothing of: a fault,
//! a call that dispatch stops, a tick. So what is told of a signal is put down here, and the kernel
//! is given one of the same number that says nothing ([`CARRIER`]). If it is dropped, another of
//! that number is about to be handled: each handler of ours looks here last.
//!
//! # Invariant
//! ```text
//! FREE -> BUSY (who sends) -> THERE -> BUSY (the thread) -> FREE
//! ```
//! What is told is touched by who made it BUSY. One that is sent while another of its number is
//! not FREE is the same one, as with the kernel.

use super::sent::{INFO, SIGNALS};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `si_code` of a signal that says nothing: none of the kernel's.
pub(crate) const CARRIER: i32 = -0x5a47;

const FREE: u32 = 0;
const BUSY: u32 = 1;
const THERE: u32 = 2;

/// Whom a signal was sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Thread,
    /// The process: any thread that does not block it may have it.
    Process,
}

/// A signal: its number, whom it was sent to, and what is told of it.
pub(crate) type Signal = (usize, To, [u64; INFO]);

struct Slot {
    state: AtomicU32,
    /// The thread it is for: a record may be another's by the time it is looked at.
    thread: AtomicU32,
    info: [AtomicU64; INFO],
}

/// Those on their way to one thread.
pub(crate) struct Posted {
    slots: [[Slot; SIGNALS.len()]; 2],
}

impl Posted {
    #[cfg(test)]
    const fn new() -> Self {
        Self {
            slots: [const { [const { Slot::new() }; SIGNALS.len()] }; 2],
        }
    }

    /// There are none: nobody sends, and nobody takes.
    pub(crate) fn clear(&self) {
        for slot in self.slots.iter().flatten() {
            slot.state.store(FREE, Ordering::Relaxed);
        }
    }

    /// Puts one down for `thread`; false if one of its number is on its way already. The caller has all signals
    /// blocked.
    pub(crate) fn put(&self, thread: u32, (signal, to, info): &Signal) -> bool {
        let Some(slot) = self.slot(*signal, *to) else {
            return false;
        };
        let is_free = slot
            .state
            .compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if is_free.is_err() {
            return false;
        }
        for (word, value) in slot.info.iter().zip(info) {
            word.store(*value, Ordering::Relaxed);
        }
        slot.thread.store(thread, Ordering::Relaxed);
        slot.state.store(THERE, Ordering::Release);
        true
    }

    /// Takes one that was put down for a thread that is not there any more back.
    pub(crate) fn withdraw(&self, thread: u32, (signal, to, _): &Signal) {
        if let Some(slot) = self.slot(*signal, *to) {
            slot.take(thread);
        }
    }

    /// Takes one of this number that was put down for `thread`, which this is.
    pub(crate) fn take(&self, thread: u32, signal: usize) -> Option<Signal> {
        [To::Thread, To::Process].into_iter().find_map(|to| {
            let info = self.slot(signal, to)?.take(thread)?;
            Some((signal, to, info))
        })
    }

    /// Whether one is there.
    pub(crate) fn has(&self, thread: u32, signal: usize) -> bool {
        [To::Thread, To::Process].into_iter().any(|to| {
            self.slot(signal, to)
                .is_some_and(|slot| slot.is_there(thread))
        })
    }

    fn slot(&self, signal: usize, to: To) -> Option<&Slot> {
        let place = SIGNALS.iter().position(|one| *one == signal)?;
        Some(&self.slots[usize::from(to == To::Process)][place])
    }
}

impl Slot {
    #[cfg(test)]
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            thread: AtomicU32::new(0),
            info: [const { AtomicU64::new(0) }; INFO],
        }
    }

    fn is_there(&self, thread: u32) -> bool {
        self.state.load(Ordering::Acquire) == THERE && self.thread.load(Ordering::Relaxed) == thread
    }

    fn take(&self, thread: u32) -> Option<[u64; INFO]> {
        // (What is there for another thread stays until that one's record is begun anew.)
        let taken = self.is_there(thread)
            && self
                .state
                .compare_exchange(THERE, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !taken {
            return None;
        }
        let info = core::array::from_fn(|at| self.info[at].load(Ordering::Relaxed));
        self.state.store(FREE, Ordering::Release);
        Some(info)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn one_of_each_number_is_on_its_way_to_a_thread_and_one_to_the_process() {
        let posted = Posted::new();
        let of = |signal, to, value| (signal, to, [value; INFO]);
        assert_eq!(posted.take(7, 11), None);
        assert!(posted.put(7, &of(11, To::Process, 1)));
        assert!(posted.put(7, &of(11, To::Thread, 2)));
        assert!(!posted.put(7, &of(11, To::Thread, 3)), "the same one");
        assert!(posted.put(7, &of(31, To::Thread, 4)));
        assert!(!posted.put(7, &of(10, To::Thread, 5)), "none of ours");
        assert_eq!(posted.take(8, 11), None, "another thread's");
        assert_eq!(posted.take(7, 11), Some(of(11, To::Thread, 2)));
        assert_eq!(posted.take(7, 11), Some(of(11, To::Process, 1)));
        assert_eq!(posted.take(7, 11), None);
        posted.withdraw(8, &of(31, To::Thread, 0));
        assert!(!posted.put(7, &of(31, To::Thread, 6)), "it is still there");
        posted.withdraw(7, &of(31, To::Thread, 0));
        assert!(posted.put(7, &of(31, To::Thread, 6)));
        assert_eq!(posted.take(7, 31), Some(of(31, To::Thread, 6)));
    }

    #[test]
    fn each_that_is_put_down_is_taken_once() {
        let posted = Posted::new();
        let taken = AtomicU64::new(0);
        let put = std::thread::scope(|scope| {
            let senders = [1, 2].map(|_| {
                scope.spawn(|| {
                    let tries = (1..20_000_u64).filter(|value| {
                        let is_put = posted.put(7, &(31, To::Thread, [*value; INFO]));
                        std::thread::yield_now();
                        is_put
                    });
                    tries.sum::<u64>()
                })
            });
            let taker = scope.spawn(|| {
                let mut idle = 0;
                while idle < 10_000 {
                    let Some((.., info)) = posted.take(7, 31) else {
                        idle += 1;
                        std::thread::yield_now();
                        continue;
                    };
                    idle = 0;
                    assert_eq!(info, [info[0]; INFO], "of one signal");
                    taken.fetch_add(info[0], Ordering::Relaxed);
                }
            });
            let put: u64 = senders.map(|of| of.join().unwrap()).iter().sum();
            taker.join().unwrap();
            put
        });
        let rest = posted.take(7, 31).map_or(0, |(.., info)| info[0]);
        assert_eq!(taken.load(Ordering::Relaxed) + rest, put);
    }
}
