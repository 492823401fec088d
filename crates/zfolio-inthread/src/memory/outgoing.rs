//! The places for what goes out, in-thread: registered with userfaultfd, writable and absent while
//! nothing is in them, as MOVE asks for. So whoever reads all that /proc/self/maps names (a conservative
//! collector) faults there. It is shown zeros, which are taken away again before the next move to
//! that place: MOVE stops at what is occupied.
//!
//! # Invariant
//! Pages are put there with nothing in transit, and the mark is set before: in transit, what is
//! found in a place whose mark is not set was moved there.

use super::transit::waits::STAGES;
use crate::raw::{self, PAGE, is_error, nr};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const DONTNEED: usize = 4;
/// Most pages closed or filled at a time: those of a place.
pub(crate) const STAGE: usize = 64;

/// A place of [`STAGE`] pages.
struct Place {
    /// Where it begins; 0: there is none yet.
    start: AtomicUsize,
    /// Zeros have been shown there.
    shown: AtomicBool,
}

/// That of the core lock, and one for each stage.
static PLACES: [Place; STAGES + 1] = [const {
    Place {
        start: AtomicUsize::new(0),
        shown: AtomicBool::new(false),
    }
}; STAGES + 1];

impl Place {
    fn range(&self) -> Range<usize> {
        let start = self.start.load(Ordering::Relaxed);
        start..if start == 0 { 0 } else { start + STAGE * PAGE }
    }
}

fn at(address: usize) -> Option<&'static Place> {
    PLACES.iter().find(|place| place.range().contains(&address))
}

/// Notes where the place with this number is: 0 for that of the core lock, else a stage's plus one.
pub(super) fn note(number: usize, start: usize) {
    PLACES[number].start.store(start, Ordering::Relaxed);
}

/// Whether `address` lies in a place.
pub(super) fn is_one(address: usize) -> bool {
    at(address).is_some()
}

/// Something is about to be shown at `address`; whether that lies in a place. The core lock is held and
/// nothing is in transit.
pub(super) fn note_shown(address: usize) -> bool {
    let place = at(address);
    if let Some(place) = place {
        place.shown.store(true, Ordering::Relaxed);
    }
    place.is_some()
}

/// Takes away what was shown in the place in which `outgoing` lies: before something is moved there.
/// Whether nothing is there any more.
pub(super) fn clear(outgoing: usize) -> bool {
    let Some(place) = at(outgoing).filter(|place| place.shown.load(Ordering::Relaxed)) else {
        return true;
    };
    place.shown.store(false, Ordering::Relaxed);
    let range = place.range();
    !is_error(raw::own(nr::MADVISE, [range.start, range.len(), DONTNEED]))
}
