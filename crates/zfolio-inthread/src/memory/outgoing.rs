//! The places for what goes out, in-thread: registered with userfaultfd, writable and absent while
//! nothing is in them, as MOVE asks for. So whoever reads all that /proc/self/maps names (a conservative
//! collector) faults there. It is shown zeros, which are taken away again before the next move to
//! that place: MOVE stops at what is occupied.
//!
//! # Invariant
//! Pages are put there with nothing in transit, and the mark is set before: in transit, what is
//! found in a place whose mark is not set was moved there.

use super::transit::waits::STAGES;
use super::way::{Kind, STAGE, Way, checked};
use crate::raw::{self, PAGE, nr};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zfolio_sys::syscall::Errno;

const DONTNEED: usize = 4;

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

/// Shows a page of zeros at `address`; whether that lies in a place. The core lock is held and nothing
/// is in transit.
pub(super) fn show_nothing(way: &Way, address: usize) -> bool {
    let (Some(place), Some(moves), Kind::InThread) = (at(address), way.moves, way.kind) else {
        return false;
    };
    place.shown.store(true, Ordering::Relaxed);
    let progress = moves
        .uffd
        .copy_pages(address & !(PAGE - 1), way.zeros, PAGE);
    matches!(
        progress.stopped,
        None | Some(Errno::EXIST) | Some(Errno::AGAIN)
    )
}

/// Takes away what was shown in the place in which `outgoing` lies: before something is moved there.
pub(super) fn clear(outgoing: usize) -> Result<(), Errno> {
    let Some(place) = at(outgoing).filter(|place| place.shown.load(Ordering::Relaxed)) else {
        return Ok(());
    };
    place.shown.store(false, Ordering::Relaxed);
    let range = place.range();
    checked(raw::own(nr::MADVISE, [range.start, range.len(), DONTNEED])).map(drop)
}
