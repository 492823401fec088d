//! How a system call keeps its pages: the protocol between calls and reclaim.
//!
//! ```text
//! call:     publish (start, end) in this thread's record; full fence
//!           while the batch counter is odd: wait          (reclaim has read the records before)
//!           bring what of it is closed; the call; take the pin back
//! reclaim:  counter odd; full fence; read all records; close what none covers; counter even
//! ```
//!
//! Either reclaim sees the pin, or the call sees the odd counter: each writes before it reads,
//! with a full fence between.
//!
//! A handler may leave a call by a long jump, and its pins with it. So each is noted with the
//! stack pointer of its call: the next call of the thread, made from further up, drops them.

use crate::raw;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};

/// Most pins of a thread at a time, calls in handlers included.
pub(crate) const DEPTH: usize = 48;
/// Most pins that reclaim looks at; more of them, and nothing is closed in that batch.
const SEEN: usize = 4096;

/// Most bytes of a pin that are made present at once.
const MOST_POPULATED: usize = 4 << 20;
const POPULATE_READ: usize = 22;
const POPULATE_WRITE: usize = 23;

struct Pin {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Stack pointer of the call, its lowest bit set on a signal stack.
    stack: AtomicUsize,
}

/// The pins of a thread. Written by the thread alone.
pub(crate) struct Pinned {
    depth: AtomicUsize,
    pins: [Pin; DEPTH],
}

impl Pinned {
    pub(crate) fn clear(&self) {
        self.depth.store(0, Ordering::Release);
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Takes back all pins above `depth`.
    pub(crate) fn cut(&self, depth: usize) {
        self.depth.store(depth, Ordering::Release);
    }

    /// Drops what calls left that never returned. `stack`: of the call that begins.
    pub(crate) fn drop_stale(&self, stack: usize, in_handler: bool) {
        let mut depth = self.depth();
        while depth > 0 {
            let of = self.pins[depth - 1].stack.load(Ordering::Relaxed);
            let was_in_handler = of & 1 != 0;
            let stale = if was_in_handler == in_handler {
                of & !1 <= stack
            } else {
                was_in_handler
            };
            if !stale {
                break;
            }
            depth -= 1;
        }
        self.cut(depth);
    }

    /// Publishes a pin; false if there is no room for one.
    pub(crate) fn publish(&self, range: &Range<usize>, stack: usize, in_handler: bool) -> bool {
        let stack = stack & !1 | usize::from(in_handler);
        let depth = self.depth();
        let Some(pin) = self.pins.get(depth) else {
            return false;
        };
        // A handler that runs in between uses the same place for its own calls: then it is
        // written again. Once the depth says that it is taken, none does.
        loop {
            pin.start.store(range.start, Ordering::Relaxed);
            pin.end.store(range.end, Ordering::Relaxed);
            pin.stack.store(stack, Ordering::Relaxed);
            self.depth.store(depth + 1, Ordering::Release);
            compiler_fence(Ordering::SeqCst);
            if self.depth() == depth + 1
                && pin.start.load(Ordering::Relaxed) == range.start
                && pin.end.load(Ordering::Relaxed) == range.end
                && pin.stack.load(Ordering::Relaxed) == stack
            {
                break;
            }
        }
        fence(Ordering::SeqCst);
        true
    }
}

/// The batch counter.
pub(crate) struct Batches(AtomicU32);

/// What reclaim may not close.
pub(crate) struct Seen {
    count: usize,
    overflown: bool,
    pins: [(usize, usize); SEEN],
}

impl Batches {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether a batch is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::SeqCst) & 1 != 0
    }

    /// Begins a batch: reads what all threads have pinned into `seen`. The core lock is held.
    /// `pinned` is called after the fence: which threads there are is read then.
    pub(crate) fn begin<'a, P>(&self, pinned: impl FnOnce() -> P, seen: &mut Seen)
    where
        P: Iterator<Item = &'a Pinned>,
    {
        self.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        seen.count = 0;
        seen.overflown = false;
        for pinned in pinned() {
            let depth = pinned.depth.load(Ordering::Acquire).min(DEPTH);
            for pin in &pinned.pins[..depth] {
                let pin = (
                    pin.start.load(Ordering::Relaxed),
                    pin.end.load(Ordering::Relaxed),
                );
                match seen.pins.get_mut(seen.count) {
                    Some(place) => *place = pin,
                    None => seen.overflown = true,
                }
                seen.count = (seen.count + 1).min(SEEN);
            }
        }
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// In the child of a fork made under the core lock: no batch is under way.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

impl Seen {
    pub(crate) const fn new() -> Self {
        Self {
            count: 0,
            overflown: false,
            pins: [(0, 0); SEEN],
        }
    }

    /// Makes what is pinned of `range` present; false if it is too much for now.
    pub(crate) fn populate(&self, range: &Range<usize>, read_only: bool) -> bool {
        let advice = if read_only {
            POPULATE_READ
        } else {
            POPULATE_WRITE
        };
        if self.overflown {
            return false;
        }
        self.pins[..self.count].iter().all(|(start, end)| {
            let start = (*start).max(range.start) & !(raw::PAGE - 1);
            let end = (*end).min(range.end).next_multiple_of(raw::PAGE);
            start >= end
                || end - start <= MOST_POPULATED
                    && raw::own(raw::nr::MADVISE, [start, end - start, advice]) == 0
        })
    }

    /// What is pinned of `range`, whole pages; all of it where that is not known.
    pub(crate) fn within(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        if self.overflown {
            return vec![range.clone()];
        }
        let pins = self.pins[..self.count].iter();
        pins.map(|(start, end)| {
            let start = (*start).max(range.start) & !(raw::PAGE - 1);
            start..(*end).min(range.end).next_multiple_of(raw::PAGE)
        })
        .filter(|part| !part.is_empty())
        .collect()
    }

    /// Whether a pin covers any of `range`.
    pub(crate) fn covers(&self, range: &Range<usize>) -> bool {
        self.overflown
            || self.pins[..self.count]
                .iter()
                .any(|(start, end)| *start < range.end && range.start < *end)
    }
}
