//! Who a place in the segment belongs to: a slot, or a place among the members.
//!
//! ```text
//!           take: word 0 -> own          describe: turn, namespace, then pid
//!   FREE -----------------------> TAKEN -------------------------------> OWNED
//!    ^                                                                    |
//!    +--------------------------------------------------------------------+
//!      free, when the owner is over: pid 0 first, word 0 last of all
//! ```
//!
//! | state | word | pid | whose |
//! |---|---|---|---|
//! | FREE | 0 | 0 | nobody's: whoever makes the first step has it |
//! | TAKEN | a process's | 0 | that process's; if it was killed between the two steps nobody can say so, and the place stays as it is |
//! | OWNED | a process's | its own | that process's, until it is over |
//!
//! A process makes the first two steps for itself. The third is made by who knows that the
//! owner is over, and nobody knows that from what stands here alone: the kernel is asked
//! for the process. `zfolio run` frees slots and members; a process may free a member's
//! place to take it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An owner.
///
/// # Invariants
/// - `word` goes from 0 to a process's number by one compare and exchange.
/// - While `pid` is not 0, `turn` and `namespace` are the same process's.
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
    /// Its id there; 0: not said yet.
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
            self.pid.store(0, Ordering::Release);
            self.turn.store(turn, Ordering::Relaxed);
            self.namespace.store(who.namespace, Ordering::Relaxed);
            self.pid.store(who.pid, Ordering::Release);
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
        let pid = self.pid.load(Ordering::Acquire);
        let word = self.word.load(Ordering::Acquire);
        (pid != 0 && word != 0).then(|| Owned {
            who: Who {
                word,
                namespace: self.namespace.load(Ordering::Relaxed),
                pid,
            },
            turn: self.turn.load(Ordering::Relaxed),
        })
    }

    /// Makes it nobody's. The caller alone does so, and knows that the owner is over.
    pub fn free(&self) {
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
