//! Which addresses are regions, for the signal handler: no lock, no heap.
//!
//! A slot is written by one thread at a time (the process's lock is held) and
//! read by any, at any moment. `start` is written last and cleared first. A
//! reader may meet a slot that is changing hands and take two halves of
//! different regions for one; so whoever is named by a slot checks under its
//! own lock, and the search goes on if the address is not its. The slot of a
//! region that somebody touches does not change.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use zfolio_runtime::pager::{Access, RegionEngine};
use zfolio_runtime::scope::Serving;

/// What serves a group's regions. Never freed, so that the table can name it by
/// one word.
pub(crate) type Engine = &'static &'static dyn RegionEngine;

/// Regions at a time, at most.
const SLOTS: usize = 8192;

struct Slot {
    /// 0 while it is free.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Null for a region of the parent, in the child of a fork.
    engine: AtomicPtr<&'static dyn RegionEngine>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        engine: AtomicPtr::new(ptr::null_mut()),
    }
}; SLOTS];
/// Slots that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Whose an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// No region's, or its engine says it is none of its.
    Nobody,
    /// The page is in place now.
    Served,
    /// A region's of the process this one was forked from.
    Parent,
}

/// Adds a region; false if there is no room. The process's lock is held.
pub(crate) fn add(range: &Range<usize>, engine: Engine) -> bool {
    let used = USED.load(Ordering::Relaxed);
    let free = TABLE[..used]
        .iter()
        .position(|slot| slot.start.load(Ordering::Relaxed) == 0);
    let index = free.unwrap_or(used);
    let Some(slot) = TABLE.get(index) else {
        return false;
    };
    let engine = ptr::from_ref(engine).cast_mut();
    slot.engine.store(engine, Ordering::Relaxed);
    slot.end.store(range.end, Ordering::Relaxed);
    slot.start.store(range.start, Ordering::Release);
    USED.store(used.max(index + 1), Ordering::Release);
    true
}

/// Removes a region. The process's lock is held.
pub(crate) fn remove(range: &Range<usize>) {
    for slot in used() {
        if slot.start.load(Ordering::Relaxed) == range.start {
            slot.start.store(0, Ordering::Release);
            return;
        }
    }
}

/// In the child of a fork: all that there is is the parent's.
pub(crate) fn leave_to_parent() {
    for slot in used() {
        slot.engine.store(ptr::null_mut(), Ordering::Release);
    }
}

fn used() -> impl Iterator<Item = &'static Slot> {
    TABLE[..USED.load(Ordering::Acquire)].iter()
}

fn at(address: usize) -> impl Iterator<Item = &'static Slot> {
    used().filter(move |slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && start <= address && address < slot.end.load(Ordering::Relaxed)
    })
}

/// Whether `address` is in a region.
pub(crate) fn contains(address: usize) -> bool {
    at(address).next().is_some()
}

/// Whether `address` is in a region of this process.
pub(crate) fn is_own(address: usize) -> bool {
    at(address).any(|slot| !slot.engine.load(Ordering::Acquire).is_null())
}

/// Has the page at `address` served, if it is a region's of an engine for
/// which such a signal means that a page is not there.
pub(crate) fn serve(address: usize, access: Access, is_meant: impl Fn(Serving) -> bool) -> Owner {
    let mut found = Owner::Nobody;
    for slot in at(address) {
        // SAFETY: null, or an engine, which is never freed.
        match unsafe { slot.engine.load(Ordering::Acquire).as_ref() } {
            // (A region of our own may lie where one of the parent's was.)
            None => found = Owner::Parent,
            Some(engine) if is_meant(engine.serving()) && engine.serve_here(address, access) => {
                return Owner::Served;
            }
            Some(_) => {}
        }
    }
    found
}
