//! A device: queues with one engine that serves them, and how the two sleep.
//!
//! The engine is a thread that calls [`Device::next`] and works on what it
//! gets. It sleeps on the *bell*; a submitter rings it after each submission
//! and only makes the system call if somebody sleeps. A submitter sleeps on its
//! [`Waiter`], which counts what it has under way.
//!
//! # Why no wake-up is lost
//! An engine notes that it sleeps (`asleep`), then looks at the bell and the
//! queues again, then sleeps if the bell is still what it was. A submitter makes
//! its work ready, rings, then takes the note away if there is one: of two
//! read-modify-writes of one word one is later and sees the other. If the
//! submitter's is later it wakes; if the engine's is later it has seen the ring.
//! Of several submitters the one that took the note wakes: it has rung before, so
//! the engine, asleep or about to be, looks at everything once more. (The others are
//! spared a system call each while it wakes up.)

use super::primitive::{Primitives, Word};
use super::queue::{Claim, Submitted, Work, WorkQueue};
use alloc::boxed::Box;

/// What a queue's descriptors may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueKind {
    /// Compress only.
    Compress,
    /// Decompress only.
    Decompress,
    /// Both.
    Generic,
}

/// Queues and the engine behind them.
pub struct Device<P: Primitives, T: Send> {
    queues: Box<[WorkQueue<P, T>]>,
    bell: P::Word,
    /// 1: the engine sleeps, and nobody has set out to wake it.
    asleep: P::Word,
    /// One of the three states below.
    state: P::Word,
}

/// No engine serves the queues.
const OFFLINE: u32 = 0;
/// An engine serves them.
const ONLINE: u32 = 1;
/// The engine leaves when nothing is ready any more.
const LEAVING: u32 = 2;

impl<P: Primitives, T: Send> Device<P, T> {
    /// A device without an engine yet.
    pub fn new(queues: Box<[WorkQueue<P, T>]>) -> Self {
        Self {
            queues,
            bell: P::Word::new(0),
            asleep: P::Word::new(0),
            state: P::Word::new(OFFLINE),
        }
    }

    /// A queue.
    pub fn queue(&self, index: usize) -> &WorkQueue<P, T> {
        &self.queues[index]
    }

    /// Queues of the device.
    pub fn queues(&self) -> &[WorkQueue<P, T>] {
        &self.queues
    }

    /// Whether an engine serves the queues and will go on.
    pub fn is_online(&self) -> bool {
        self.state.load() == ONLINE
    }

    /// Whether no engine serves them.
    pub fn is_offline(&self) -> bool {
        self.state.load() == OFFLINE
    }

    /// Begins to serve; false if another engine does.
    pub fn attach(&self) -> bool {
        self.state.exchange(OFFLINE, ONLINE).is_ok()
    }

    /// Asks the engine to leave once nothing is ready.
    pub fn ask_to_leave(&self) {
        let _ = self.state.exchange(ONLINE, LEAVING);
        self.bell.add(1);
        self.bell.wake();
    }

    /// Submits a claim of queue `queue` and sees that the engine is awake.
    ///
    /// An engine that leaves may not look again: whoever submits meanwhile takes
    /// it back after its timeout.
    pub fn submit(&self, queue: usize, claim: Claim) -> Submitted {
        let submitted = self.queues[queue].submit(claim);
        self.bell.add(1);
        if self.asleep.swap(0) != 0 {
            self.bell.wake();
        }
        submitted
    }

    /// The next work for the engine, from the queues in turn beginning with
    /// `from`'s next; sleeps while there is none. `None`: leave.
    pub fn next(&self, from: &mut (usize, u32)) -> Option<(usize, Work)> {
        loop {
            let heard = self.bell.load();
            if let Some(found) = self.poll(from) {
                return Some(found);
            }
            if self.state.load() != ONLINE {
                // Once more: what was submitted before it was asked to leave.
                return self.poll(from);
            }
            self.asleep.swap(1);
            if !self.queues.iter().any(WorkQueue::has_ready) {
                self.bell.wait(heard, None);
            }
            self.asleep.store(0);
        }
    }

    /// The next work, if there is some: for the engine, or for one of another device
    /// that has nothing to do.
    pub fn poll(&self, from: &mut (usize, u32)) -> Option<(usize, Work)> {
        let count = self.queues.len();
        for step in 1..=count {
            let index = (from.0 + step) % count;
            if let Some(work) = self.queues[index].take(from.1) {
                *from = (index, WorkQueue::<P, T>::number(&work) + 1);
                return Some((index, work));
            }
        }
        None
    }

    /// The engine has left.
    pub fn detach(&self) {
        self.state.store(OFFLINE);
        self.state.wake();
    }

    /// Waits until the engine has left, `timeout_ns` at a time, `times` times.
    pub fn await_offline(&self, timeout_ns: u64, times: u32) -> bool {
        for _ in 0..times {
            match self.state.load() {
                OFFLINE => return true,
                seen => self.state.wait(seen, Some(timeout_ns)),
            }
        }
        self.is_offline()
    }

    /// In the child of a fork, which has no engine. Only while the process has
    /// one thread.
    pub fn reset_in_fork_child(&self) {
        for queue in &self.queues {
            queue.reset_in_fork_child();
        }
        self.asleep.store(0);
        self.state.store(OFFLINE);
    }
}

/// Counts what one submitter has under way, and lets it sleep.
///
/// Each submission is counted before it is submitted, and taken off by
/// whoever ends it: the engine that delivers it, or the submitter that takes it
/// back or abandons it. So when the count is 0 nobody will touch it again, and
/// everything is collected.
pub struct Waiter<P: Primitives>(P::Word);

impl<P: Primitives> Default for Waiter<P> {
    fn default() -> Self {
        Self(P::Word::new(0))
    }
}

impl<P: Primitives> Waiter<P> {
    /// One more is about to be submitted.
    pub fn begin(&self) {
        self.0.add(1);
    }

    /// One has ended. `notify`: the submitter may sleep.
    pub fn end(&self, notify: bool) {
        if self.0.sub(1) == 1 && notify {
            self.0.wake();
        }
    }

    /// Those that have not ended.
    pub fn under_way(&self) -> u32 {
        self.0.load()
    }

    /// Sleeps until all have ended or `timeout_ns` are over; may return early.
    pub fn sleep(&self, timeout_ns: Option<u64>) {
        match self.0.load() {
            0 => {}
            seen => self.0.wait(seen, timeout_ns),
        }
    }

    /// In the child of a fork.
    pub fn reset_in_fork_child(&self) {
        self.0.store(0);
    }
}
