//! Processes that are held for whoever looks into them (`zfolio inspect`).
//!
//! ```text
//! zfolio inspect   asks zfolio run by its socket, and keeps the connection open
//! zfolio run       writes the process's turn into a free lease, and beats as long as it is open
//! the process      brings everything back, says HELD in its slot, and lets nothing leave
//! ```
//!
//! The connection is what owns the hold: the kernel closes it when the inspector ends, however it
//! ends. Then the lease is nobody's. Where `zfolio run` ends first, or is stopped, nothing beats any
//! more, and the hold is over after [`LEASE_NS`] by the process's own clock.

use core::sync::atomic::{AtomicU64, Ordering};

/// Most leases of a run at a time.
pub const LEASES: usize = 16;
/// For so long a lease holds that does not beat, ns.
pub const LEASE_NS: u64 = 5_000_000_000;

/// Stands right before the place to which a thread is sent ([`hold_entry`]), in the library's text:
/// whoever sends one looks for it, since a slot may say anything.
///
/// [`hold_entry`]: super::ManagedProcess::hold_entry
pub const ENTRY_MARK: [u8; 16] = *b"zfolio held here";

/// How far a process is: values of [`held`](super::ProcessSlot::held) in a slot.
pub mod held {
    /// It is not held.
    pub const NO: u32 = 0;
    /// What was moved out is coming back.
    pub const COMING: u32 = 1;
    /// All of it is there, and stays.
    pub const HELD: u32 = 2;
}

/// One inspector's hold on one process. `zfolio run` writes it, where processes may only read.
#[repr(C)]
#[derive(Debug)]
pub struct Lease {
    /// The [turn](super::Owned) of the process's slot; 0: nobody's.
    pub turn: AtomicU64,
    /// Changes some times a second as long as the inspector is there.
    pub beat: AtomicU64,
}

/// What a process has seen of the leases.
#[derive(Debug, Default)]
pub struct Watched {
    /// Beat and turn of each as last seen, and when it last was another, ns.
    seen: [(u64, u64, u64); LEASES],
}

impl Watched {
    /// Whether an inspector holds the process whose slot has this turn, at `now`
    /// (CLOCK_MONOTONIC, ns).
    pub fn is_held(&mut self, leases: &[Lease; LEASES], turn: u64, now: u64) -> bool {
        let mut any = false;
        for (lease, (beat, of, changed)) in leases.iter().zip(&mut self.seen) {
            let holder = lease.turn.load(Ordering::Acquire);
            let beats = lease.beat.load(Ordering::Relaxed);
            if (beats, holder) != (*beat, *of) {
                (*beat, *of, *changed) = (beats, holder, now);
            }
            any |= turn != 0 && holder == turn && now.saturating_sub(*changed) < LEASE_NS;
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> [Lease; LEASES] {
        core::array::from_fn(|_| Lease {
            turn: AtomicU64::new(0),
            beat: AtomicU64::new(0),
        })
    }

    #[test]
    fn a_lease_holds_as_long_as_it_beats() {
        let leases = none();
        let mut watched = Watched::default();
        assert!(!watched.is_held(&leases, 7, 1) && !watched.is_held(&leases, 0, 1));
        leases[3].turn.store(7, Ordering::Relaxed);
        assert!(watched.is_held(&leases, 7, 2));
        assert!(!watched.is_held(&leases, 8, 2), "another process");
        assert!(watched.is_held(&leases, 7, LEASE_NS));
        leases[3].beat.store(1, Ordering::Relaxed);
        assert!(
            watched.is_held(&leases, 7, 2 * LEASE_NS),
            "it has beaten since"
        );
        assert!(!watched.is_held(&leases, 7, 3 * LEASE_NS), "nobody beats");
        // Whoever comes next has it anew.
        leases[3].turn.store(9, Ordering::Relaxed);
        assert!(watched.is_held(&leases, 9, 3 * LEASE_NS));
        leases[3].turn.store(0, Ordering::Relaxed);
        assert!(!watched.is_held(&leases, 9, 3 * LEASE_NS));
    }

    #[test]
    fn one_of_two_inspectors_is_enough() {
        let leases = none();
        let mut watched = Watched::default();
        for at in [0, LEASES - 1] {
            leases[at].turn.store(7, Ordering::Relaxed);
        }
        assert!(watched.is_held(&leases, 7, 1));
        leases[0].turn.store(0, Ordering::Relaxed);
        assert!(watched.is_held(&leases, 7, 2));
        leases[LEASES - 1].turn.store(0, Ordering::Relaxed);
        assert!(!watched.is_held(&leases, 7, 3));
    }
}
