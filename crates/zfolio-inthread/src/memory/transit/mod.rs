//! Pages in transit: on their way in or out beside the core lock, so that threads which fault
//! at once do not wait for one another.
//!
//! Under the lock a thread only decides: which pages, and that their words are `Transit`, with
//! the number of its stage. It moves, compresses, decompresses and fills them without the lock,
//! with what its stage has, and says under the lock again what they have become.
//!
//! ```text
//! take a stage   core lock: decide, mark, begin      the work      core lock: publish, end, ring
//! ```
//!
//! | file | what |
//! |---|---|
//! | this one | who may begin, and who waits for whom |
//! | [`stage`] | what a thread has while it works: two places for pages, a compressor's state |
//! | [`swap_in`], [`swap_out`] | the two ways |
//! | [`span`] | in-thread: how many pages leave for one interrupt |
//! | `model` | every order of the steps of a few threads |
//!
//! # Who waits for whom
//!
//! - Who touches a page in transit waits for the bell of its stage, and looks again.
//! - Who changes the address space, forks, ends management or keeps pages ([`State::exclusive`])
//!   waits until nothing is in transit. As long as anybody waits so nothing new begins: who
//!   would begin waits at the gate.
//!
//! # Invariants
//!
//! 1. `under_way` is the number of stages with pages in transit, each of which is in the hands
//!    of one thread; `going` the number of pages on their way out.
//! 2. A page's word is `Transit` from the decision to the publishing, and only the thread that
//!    marked it changes it. What the pool has of it is known to that thread alone, so nobody
//!    else loads or drops it.
//! 3. Who has the lock by [`State::exclusive`] finds `under_way` 0 and no word in transit. The
//!    pool and what the stages have is used in transit or under the core lock alone: so what is
//!    done then, a fork too, finds all of it at rest and need not know of transits.
//! 4. A thread in transit has all signals blocked, waits for nothing but the core lock (never
//!    at the gate, never for another's page or a stage) and touches no memory of the program
//!    but the pages it has marked. So it comes to its end.
//! 5. A bell is listened to and rung under the core lock: none is missed.
//!
//! [`State::exclusive`]: crate::state::State::exclusive

#[cfg(test)]
mod model;
mod span;
pub(crate) mod stage;
pub(crate) mod swap_in;
pub(super) mod swap_out;

pub(crate) use self::span::Frozen;
use crate::memory::core::Core;
use crate::state::State;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::lock::{MutexGuard, futex_wait, futex_wake};

/// How many stages have pages in transit, and who waits for there to be none. Under the core
/// lock.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Transits {
    under_way: usize,
    /// Threads that wait until nothing is under way.
    wanting: usize,
}

/// Which bells are to be rung after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ring {
    Nothing,
    /// Nothing is under way: for those that want that.
    Quiet,
    /// Nobody wants that any more: for those at the gate.
    Gate,
}

impl Transits {
    /// Whether something may begin.
    pub(crate) const fn may_begin(self) -> bool {
        self.wanting == 0
    }

    pub(crate) const fn is_quiet(self) -> bool {
        self.under_way == 0
    }

    /// A stage has pages in transit from here on. Only where that [may](Self::may_begin) be.
    pub(crate) const fn begin(&mut self) {
        debug_assert!(self.may_begin());
        self.under_way += 1;
    }

    /// It has none any more.
    pub(crate) const fn end(&mut self) -> Ring {
        self.under_way -= 1;
        if self.under_way == 0 && self.wanting > 0 {
            Ring::Quiet
        } else {
            Ring::Nothing
        }
    }

    /// A thread waits until nothing is under way.
    pub(crate) const fn want(&mut self) {
        self.wanting += 1;
    }

    /// It has waited.
    pub(crate) const fn have(&mut self) -> Ring {
        self.wanting -= 1;
        if self.wanting == 0 {
            Ring::Gate
        } else {
            Ring::Nothing
        }
    }
}

/// So many transits one at a time, and threads do not fault at once any more.
const CROWD: u32 = 256;

impl Core {
    /// A stage has pages in transit from here on.
    fn begin_transit(&mut self) {
        self.crowd = if self.transits.is_quiet() {
            self.crowd.saturating_sub(1)
        } else {
            CROWD
        };
        self.transits.begin();
    }
}

/// How long a waiter sleeps before it looks whether whom it waits for is there, ns.
const LOOKS_EVERY: u64 = 1_000_000_000;

/// Threads wait for it to ring. The lowest bit: somebody listens; above it, how often it rang
/// for somebody.
#[derive(Default)]
pub(crate) struct Bell(AtomicU32);

/// The value of a bell somebody listens to.
const fn listened(value: u32) -> u32 {
    value | 1
}

/// The value after it rang; the same where nobody listens.
const fn rung(value: u32) -> u32 {
    if value & 1 == 0 {
        value
    } else {
        value.wrapping_add(1)
    }
}

impl Bell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins to wait: what [`Self::wait`] is given. The core lock is held, and what is waited
    /// for has not come.
    pub(crate) fn listen(&self) -> u32 {
        let value = listened(self.0.load(Ordering::Relaxed));
        self.0.store(value, Ordering::Relaxed);
        value
    }

    /// Rings; whether there is anybody to be [woken](Self::wake). The core lock is held.
    #[must_use]
    pub(crate) fn ring(&self) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let after = rung(before);
        self.0.store(after, Ordering::Release);
        before != after
    }

    /// Wakes those that listened before it rang.
    pub(crate) fn wake(&self) {
        futex_wake(&self.0, i32::MAX.cast_unsigned());
    }

    /// Waits until it has rung since `heard` was listened to; or it takes long: then `false`.
    pub(crate) fn wait(&self, heard: u32) -> bool {
        futex_wait(&self.0, heard, Some(LOOKS_EVERY));
        self.0.load(Ordering::Acquire) != heard
    }
}

/// Bells of the whole process.
pub(crate) struct Bells {
    /// Rings when nothing is in transit, for those that want that.
    quiet: Bell,
    /// Rings when something may begin again.
    gate: Bell,
}

impl Bells {
    pub(crate) const fn new() -> Self {
        Self {
            quiet: Bell::new(),
            gate: Bell::new(),
        }
    }
}

impl State {
    /// Takes the core lock at a moment at which nothing is in transit, which it stays as long
    /// as the lock is held. All signals are blocked.
    pub(crate) fn exclusive(&self) -> MutexGuard<'_, Core> {
        let mut core = self.core.lock();
        if core.transits.is_quiet() {
            return core;
        }
        core.transits.want();
        while !core.transits.is_quiet() {
            let heard = self.bells.quiet.listen();
            drop(core);
            if !self.bells.quiet.wait(heard) {
                self.stages.fail_if_lost(self);
            }
            core = self.core.lock();
        }
        if core.transits.have() == Ring::Gate && self.bells.gate.ring() {
            self.bells.gate.wake();
        }
        core
    }

    /// Takes the core lock at a moment at which something may begin.
    fn at_gate(&self) -> MutexGuard<'_, Core> {
        loop {
            let core = self.core.lock();
            if core.transits.may_begin() {
                return core;
            }
            let heard = self.bells.gate.listen();
            drop(core);
            self.bells.gate.wait(heard);
        }
    }

    /// Ends what the thread began with stage `stage`, whose pages it has said what they are.
    fn end_transit(&self, mut core: MutexGuard<'_, Core>, stage: usize) {
        self.stages.note_thread(stage, None);
        let quiet = core.transits.end() == Ring::Quiet && self.bells.quiet.ring();
        let bell = self.stages.bell(stage);
        let touched = bell.ring();
        drop(core);
        if quiet {
            self.bells.quiet.wake();
        }
        if touched {
            bell.wake();
        }
    }
}
