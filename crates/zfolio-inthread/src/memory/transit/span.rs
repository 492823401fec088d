//! Closing pages where they are, many for one interrupt.
//!
//! A MOVE of a page interrupts every other processor that runs a thread of the process, and
//! waits for it (10 us on two processors of a VM, where all else about a fault is 5). So where
//! several threads fault at once pages leave by spans. A span is the part of a window from the
//! first page that goes to the last. It is write-protected by one call; what goes is stored from
//! where it is and discarded by one call; then the span is opened again, but for what was clean, which stays
//! protected. In-thread it is the pages that are protected (userfaultfd), else their mapping. By guard, before what goes
//! is discarded, one more call has nobody touch the span, until the markers are placed. In it
//!
//! - what is open and stays is marked as in transit as well: calls that would write there wait;
//! - who faults, on whatever page, waits ([`Frozen`](super::waits::Frozen)): it may have been the protection;
//! - nothing is on its way in, nor becomes open before the span is opened again: a call would trust
//!   the word, and the kernel find the mapping read-only;
//! - nothing is pinned, or kept for the kernel. A device that writes to memory behind the
//!   process's back would not be seen, where a MOVE is refused: once the program has opened such
//!   a device pages leave by MOVE.

use super::batch::{Batch, CLEAN, LONGEST, OTHER, Span};
use crate::memory::Vpn;
use crate::memory::bring::set;
use crate::memory::core::MemoryCore;
use crate::memory::empty::present;
use crate::memory::layer::MemoryState;
use crate::memory::way::Kind;
use crate::memory::words::{LEAF, Word};
use crate::raw::SHIFT;
use core::ops::Range;

impl MemoryCore {
    /// Whether pages leave by spans: where several threads fault at once (one alone seldom
    /// interrupts anybody); by guard in any case, where each run of pages would take four calls.
    pub(super) fn closes_in_place(&self) -> bool {
        let pays = match self.way.kind {
            Kind::InThread => self.transit.crowd > 0,
            Kind::Guard => true,
            Kind::Protect => false,
        };
        pays && !self.has_devices
    }

    /// Chooses and marks the next span, from a window on and in those behind it. In a batch of
    /// the protocol of pins. Adds how many more pages have been looked at.
    pub(super) fn choose_span(
        &mut self,
        state: &MemoryState,
        window: Range<usize>,
        goal: usize,
        batch: &mut Batch,
        looked: &mut usize,
    ) {
        let mut choice = Choice {
            most: self.beyond(state, goal).min(batch.headroom_in_place()),
            span: 0..0,
            heats: [OTHER; LONGEST],
        };
        let mut window = window;
        while self.choose_in(state, &window, &mut choice, batch) && !choice.span.is_empty() {
            let Some(next) = self.next_window(state, looked) else {
                break;
            };
            let longest = choice.span.start + LONGEST;
            if next.start != window.end || next.end >> SHIFT > longest {
                self.closing.hand = next.start;
                break;
            }
            window = next;
        }
        let Choice {
            span, mut heats, ..
        } = choice;
        if span.is_empty() {
            return;
        }
        // What was marked behind the last that goes is not part of it.
        for (at, heat) in heats.iter_mut().enumerate().skip(span.len()) {
            if *heat < CLEAN {
                set(state, self, span.start + at, Word::Open { heat: *heat });
            }
            *heat = OTHER;
        }
        batch.set_span(Span { pages: span, heats });
    }

    /// The same in one window; whether the span may go on behind it.
    fn choose_in(
        &mut self,
        state: &MemoryState,
        window: &Range<usize>,
        choice: &mut Choice,
        batch: &mut Batch,
    ) -> bool {
        let pages = window.start >> SHIFT..window.end >> SHIFT;
        // (The span's end makes all of it writable, and executable nothing.)
        if self.ranges.protection(window.start).leaves_by_copy() {
            self.closing.hand = window.start;
            return false;
        }
        // (Where what nobody has touched is closed by the protection of its mapping, the span's end would open it.)
        let untouched_may = self.way.kind == Kind::InThread;
        // (A page on its way in may not be: it would open in the span, and calls trust its word.)
        let may_be_inside = |word| match word {
            Word::Stored(_) | Word::Zero | Word::Clean(_) => true,
            Word::Untouched => untouched_may,
            _ => false,
        };
        // (No span begins where nothing may leave.)
        let goes_on = if choice.span.is_empty() {
            !state.words.may_any_leave(&pages)
        } else if state.words.has_leaf(pages.start) {
            // (A window is a leaf's part at most. What is clean in it is noted below.)
            let is_closed = |word| may_be_inside(word) && !matches!(word, Word::Clean(_));
            pages.clone().all(|page| is_closed(state.words.get(page)))
        } else {
            state.words.get(pages.start) == Word::Untouched && untouched_may
        };
        if goes_on {
            return true;
        }
        if self.transit.frozen.stage_of(&pages).is_some() || !self.is_watched(state, window) {
            return false;
        }
        if choice.span.is_empty() && !self.is_any_cold(state, &pages) {
            return true;
        }
        let Some(present) = present(window) else {
            return false;
        };
        let Choice { most, span, heats } = choice;
        let mut page = pages.start;
        while page < pages.end && batch.len() < *most {
            let word = state.words.get(page);
            let addresses = page << SHIFT..(page + 1) << SHIFT;
            let pinned = matches!(word, Word::Open { .. }) && self.seen.covers(&addresses);
            let begun = batch.len() > 0;
            let absent = present[page - pages.start] & 1 == 0;
            if absent && self.way.kind == Kind::Guard {
                let nothing = self.nothing_from(state, page, &pages, &present);
                match nothing.len() {
                    // (As zeros: another thread may put something there meanwhile.)
                    some if some < self.least_untouched(state) => {}
                    _ if begun => break,
                    _ => {
                        self.close_untouched(state, &nothing);
                        page = nothing.end;
                        continue;
                    }
                }
            }
            match word {
                Word::Open { .. } if absent && !begun && self.way.kind != Kind::Guard => {}
                Word::Open { .. } if pinned && !begun => {}
                Word::Open { .. } if pinned => break,
                // (A call that wrote there would be refused: it waits.)
                Word::Open { heat } if absent && self.way.kind != Kind::Guard => {
                    heats[page - span.start] = heat;
                    set(state, self, page, Word::Transit(batch.mark()));
                }
                Word::Open { heat: 0 } if !self.closing.refaults.spares(page) => {
                    if !begun {
                        span.start = page;
                    }
                    span.end = page + 1;
                    batch.add_page(state, self, page);
                }
                Word::Open { heat } if !begun => {
                    let heat = heat.saturating_sub(1);
                    set(state, self, page, Word::Open { heat });
                }
                Word::Open { heat } => {
                    heats[page - span.start] = heat.saturating_sub(1);
                    set(state, self, page, Word::Transit(batch.mark()));
                }
                // (A clean one stays protected, and goes with others of its kind.)
                Word::Clean(_) if begun => heats[page - span.start] = CLEAN,
                _ if may_be_inside(word) => {}
                _ if begun => break,
                _ => {}
            }
            page += 1;
        }
        self.closing.hand = page << SHIFT;
        page == pages.end && batch.len() < *most
    }

    /// The open pages from `page` on that hold nothing, and that no call has pinned.
    fn nothing_from(
        &self,
        state: &MemoryState,
        page: Vpn,
        pages: &Range<Vpn>,
        present: &[u8; LEAF],
    ) -> Range<Vpn> {
        let is_one = |page: &Vpn| {
            present[page - pages.start] & 1 == 0
                && matches!(state.words.get(*page), Word::Open { .. })
                && !self.seen.covers(&(page << SHIFT..(page + 1) << SHIFT))
        };
        page..page + (page..pages.end).take_while(is_one).count()
    }
}

/// What has been chosen so far.
struct Choice {
    /// Most pages that go.
    most: usize,
    /// From the first that goes to behind the last.
    span: Range<Vpn>,
    /// As [`Span::heats`], behind the span as well.
    heats: [u8; LONGEST],
}
