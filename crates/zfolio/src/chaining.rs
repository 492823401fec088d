//! Which threads are in a handler of the program's that was installed after ours.

use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::thread::id;

/// Their numbers, each at its number modulo the length; 0 for nobody. A thread that finds its
/// place taken goes to the older handler, which is the safe side.
static CHAINING: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// A thread that is in such a handler, until this is dropped.
pub(crate) struct Entered(&'static AtomicU32);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Notes that this thread enters one; `None` if it is in one already, or its place is taken.
/// For signal handlers.
pub(crate) fn enter() -> Option<Entered> {
    let thread = id();
    let place = &CHAINING[thread as usize % CHAINING.len()];
    place
        .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed)
        .ok()?;
    Some(Entered(place))
}

/// In the child of a fork: the other threads do not exist.
pub(crate) fn forget_threads() {
    for place in &CHAINING {
        place.store(0, Ordering::Relaxed);
    }
}
