//! Who a place in the segment belongs to: a slot, or a place among the members.
//!
//! ```text
//!           take: word 0 -> own          describe: turn, namespace, pid, then seal
//!   FREE -----------------------> TAKEN -------------------------------> OWNED
//!    ^                                                                    |
//!    +--------------------------------------------------------------------+
//!      free, when the owner is over: seal 0 first, word 0 last of all
//! ```
//!
//! | state | word | seal | whose |
//! |---|---|---|---|
//! | FREE | 0 | | nobody's: whoever makes the first step has it |
//! | TAKEN | a process's | does not fit | that process's; if it was killed between the two steps nobody can say so, and the place stays as it is |
//! | OWNED | a process's | fits word and turn | that process's, until it is over |
//!
//! A process makes the first two steps for itself. The third is made by who knows that the
//! owner is over, and nobody knows that from what stands here alone: the kernel is asked
//! for the process. `zfolio run` frees slots and members. A member's place may also be taken
//! from its owner, by the first step alone: the seal does not fit from then on.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// An owner.
///
/// # Invariants
/// - `word` goes from 0 to a process's number by one compare and exchange.
/// - While `seal` is `word ^ turn`, `turn`, `namespace` and `pid` are the same process's.
/// - No two places of a segment ever had the same `turn`.
#[repr(C)]
#[derive(Default, Debug)]
pub struct Owner {
    /// The number of the process (`zfolio_sys::identity`); 0: nobody's.
    pub word: AtomicU64,
    /// Which taking of a place in this segment it was, from 1: who remembers something of
    /// a place sees by it whether it is of the same process still.
    pub turn: AtomicU64,
    /// The process's pid namespace (`zfolio_sys::process::pid_namespace`); 0: not known.
    pub namespace: AtomicU64,
    /// `word ^ turn`, once all has been said.
    pub seal: AtomicU64,
    /// Its id there.
    pub pid: AtomicU32,
}

/// What a process says of itself when it takes a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// Its number; not 0.
    pub word: u64,
    /// Its pid namespace; 0: not known.
    pub namespace: u64,
    /// Its id there; not 0.
    pub pid: u32,
}

impl Who {
    /// The calling process.
    #[must_use]
    pub fn is_calling() -> Self {
        Self {
            word: zfolio_sys::identity::of_process(),
            namespace: zfolio_sys::process::pid_namespace(),
            pid: zfolio_sys::thread::pid(),
        }
    }
}

/// The process a place belongs to, copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owned {
    /// What it said of itself.
    pub who: Who,
    /// Which taking it was.
    pub turn: u64,
}

impl Owner {
    /// Takes a place that belongs to `was` (0: to nobody) for `who`; false if another was
    /// first. `turn`: that of no other.
    pub fn take(&self, was: u64, who: Who, turn: u64) -> bool {
        let taken = self
            .word
            .compare_exchange(was, who.word, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            // (The turn is new: no seal that stands here fits any more, whatever it is.)
            self.turn.store(turn, Ordering::Release);
            self.namespace.store(who.namespace, Ordering::Relaxed);
            self.pid.store(who.pid, Ordering::Relaxed);
            self.seal.store(who.word ^ turn, Ordering::Release);
        }
        taken.is_ok()
    }

    /// Whether it belongs to nobody.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == 0
    }

    /// Whose it is, if that is said.
    #[must_use]
    pub fn owned(&self) -> Option<Owned> {
        let seal = self.seal.load(Ordering::Acquire);
        let who = Who {
            word: self.word.load(Ordering::Relaxed),
            namespace: self.namespace.load(Ordering::Relaxed),
            pid: self.pid.load(Ordering::Relaxed),
        };
        let turn = self.turn.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // (Should it have become another's meanwhile, its word is another.)
        let same = self.word.load(Ordering::Relaxed) == who.word;
        (who.word != 0 && who.pid != 0 && seal == who.word ^ turn && same)
            .then_some(Owned { who, turn })
    }

    /// Makes it nobody's. The caller alone does so, and knows that the owner is over.
    pub fn free(&self) {
        self.seal.store(0, Ordering::Relaxed);
        self.pid.store(0, Ordering::Relaxed);
        self.turn.store(0, Ordering::Relaxed);
        self.namespace.store(0, Ordering::Relaxed);
        self.word.store(0, Ordering::Release);
    }

    /// The same where others may take it from the same owner meanwhile, as members do; false
    /// if one did.
    pub fn free_from(&self, owner: Owned) -> bool {
        let free =
            self.word
                .compare_exchange(owner.who.word, 0, Ordering::AcqRel, Ordering::Relaxed);
        free.is_ok()
    }
}
