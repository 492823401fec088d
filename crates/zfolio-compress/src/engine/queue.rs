//! A work queue: a bounded set of descriptors that go round.
//!
//! ```text
//!            allocate         submit           take            complete
//!   free ---------> claimed ---------> ready ---------> running ---------> done
//!    ^                 |  ^              |                  |               |
//!    |    release      |  +- take_back --+    abandon       |    collect    |
//!    +-----------------+                       (timeout)    v               |
//!    +---------------------------------------- abandoned <--+               |
//!    |                    complete                                          |
//!    +---------------- release ---------------- claimed <-------------------+
//! ```
//!
//! Two words of 64 flags, `free` and `ready`, hand descriptors over: whoever
//! clears a flag has the descriptor. A word per descriptor tells how its work
//! went. Nothing here waits, and nothing allocates.
//!
//! # Invariants
//! - A descriptor is at any moment with one of: the free flags, one submitter
//!   (`Claim`), the ready flags, one engine (`Work`). Its payload is only
//!   looked at by the submitter or engine that has it.
//! - `Submitted` may be watched, taken back while ready, given up while running;
//!   after either of these the engine's result reaches nobody.
//! - What a submitter wrote before `submit` the engine sees after `take`; what
//!   the engine wrote before `complete` the submitter sees after `collect`.

use super::primitive::{Bits, Cell, Primitives, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Most descriptors of a queue.
pub const MAX_DESCRIPTORS: usize = 64;

/// With the free flags, a submitter that prepares it, or a submitter that has
/// its result.
const IDLE: u32 = 0;
/// Ready, or with an engine.
const SUBMITTED: u32 = 1;
/// The engine has finished.
const DONE: u32 = 2;
/// The submitter no longer waits: the engine frees it.
const ABANDONED: u32 = 3;

/// A bounded queue of descriptors with a payload `T` each.
pub struct WorkQueue<P: Primitives, T: Send> {
    free: P::Bits,
    ready: P::Bits,
    slots: Box<[Slot<P, T>]>,
}

struct Slot<P: Primitives, T: Send> {
    state: P::Word,
    payload: P::Cell<T>,
}

/// A descriptor that is its holder's to fill or to read.
#[derive(Debug)]
#[must_use = "a claim that is not submitted or released is lost to the queue"]
pub struct Claim(u32);

/// A descriptor that was submitted.
#[derive(Debug)]
#[must_use = "what was submitted has to be collected, taken back or abandoned"]
pub struct Submitted(u32);

/// A descriptor that an engine works on.
#[derive(Debug)]
#[must_use = "work has to be completed"]
pub struct Work(u32);

/// Whether anybody waits for what was completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Delivery {
    /// The submitter will collect it.
    Delivered,
    /// The submitter gave it up; the descriptor is free again.
    Abandoned,
}

impl<P: Primitives, T: Send> WorkQueue<P, T> {
    /// A queue of a descriptor per payload.
    ///
    /// # Panics
    /// With none, or more than [`MAX_DESCRIPTORS`].
    pub fn new(payloads: Vec<T>) -> Self {
        let count = payloads.len();
        assert!(
            (1..=MAX_DESCRIPTORS).contains(&count),
            "a queue has 1 to 64 descriptors"
        );
        Self {
            free: P::Bits::new(all(count)),
            ready: P::Bits::new(0),
            slots: payloads
                .into_iter()
                .map(|payload| Slot {
                    state: P::Word::new(IDLE),
                    payload: P::Cell::new(payload),
                })
                .collect(),
        }
    }

    /// Descriptors of the queue.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Never: a queue has a descriptor.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A free descriptor; `None` at once if there is none.
    pub fn allocate(&self) -> Option<Claim> {
        claim_first(&self.free, 0).map(Claim)
    }

    /// Runs `f` on the payload of a claim. `None` only if the protocol is
    /// broken.
    pub fn with<R>(&self, claim: &Claim, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.slots[claim.0 as usize].payload.with(f)
    }

    /// Hands a filled descriptor to the engines.
    pub fn submit(&self, claim: Claim) -> Submitted {
        self.slots[claim.0 as usize].state.store(SUBMITTED);
        self.ready.or(bit(claim.0));
        Submitted(claim.0)
    }

    /// Puts an unused or a read descriptor back.
    pub fn release(&self, claim: Claim) {
        self.slots[claim.0 as usize].state.store(IDLE);
        self.free.or(bit(claim.0));
    }

    /// Takes a submitted descriptor to work on, the next one from `from` on.
    pub fn take(&self, from: u32) -> Option<Work> {
        claim_first(&self.ready, from).map(Work)
    }

    /// Whether something waits to be taken.
    pub fn has_ready(&self) -> bool {
        self.ready.load() != 0
    }

    /// Runs `f` on the payload of work. `None` only if the protocol is broken.
    pub fn work_on<R>(&self, work: &Work, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.slots[work.0 as usize].payload.with(f)
    }

    /// Ends work.
    pub fn complete(&self, work: Work) -> Delivery {
        let state = &self.slots[work.0 as usize].state;
        if state.exchange(SUBMITTED, DONE).is_ok() {
            return Delivery::Delivered;
        }
        self.release(Claim(work.0));
        Delivery::Abandoned
    }

    /// The number of a descriptor, for spreading [`Self::take`]s.
    pub fn number(work: &Work) -> u32 {
        work.0
    }

    /// Takes the result of a submission.
    ///
    /// # Errors
    /// The submission, if it is not done.
    pub fn collect(&self, submitted: Submitted) -> Result<Claim, Submitted> {
        match self.slots[submitted.0 as usize].state.load() {
            DONE => Ok(Claim(submitted.0)),
            _ => Err(submitted),
        }
    }

    /// Takes back what no engine has begun.
    ///
    /// # Errors
    /// The submission, if an engine has it or is done with it.
    pub fn take_back(&self, submitted: Submitted) -> Result<Claim, Submitted> {
        let flag = bit(submitted.0);
        if self.ready.and(!flag) & flag == 0 {
            return Err(submitted);
        }
        Ok(Claim(submitted.0))
    }

    /// Gives up waiting. If the work was done after all, here it is.
    pub fn abandon(&self, submitted: Submitted) -> Option<Claim> {
        let state = &self.slots[submitted.0 as usize].state;
        match state.exchange(SUBMITTED, ABANDONED) {
            Ok(_) => None,
            Err(_) => Some(Claim(submitted.0)),
        }
    }

    /// Descriptors that are free now.
    pub fn free(&self) -> u32 {
        self.free.load().count_ones()
    }

    /// In the child of a fork, which has none of the engines: everything is
    /// free again. Only while the process has one thread.
    pub fn reset_in_fork_child(&self) {
        for slot in &self.slots {
            slot.payload.reset();
            slot.state.store(IDLE);
        }
        self.ready.store(0);
        self.free.store(all(self.slots.len()));
    }
}

fn all(count: usize) -> u64 {
    u64::MAX >> (MAX_DESCRIPTORS - count)
}

fn bit(index: u32) -> u64 {
    1 << index
}

/// Clears a flag that is set, the next one from `from` on; returns its number.
fn claim_first<B: Bits>(bits: &B, from: u32) -> Option<u32> {
    let from = from % u64::BITS;
    let mut seen = bits.load();
    while seen != 0 {
        let index = (seen.rotate_right(from).trailing_zeros() + from) % u64::BITS;
        let before = bits.and(!bit(index));
        if before & bit(index) != 0 {
            return Some(index);
        }
        seen = before;
    }
    None
}
