//! What faults and reclaim have shown so far: a part of the core.

use crate::page::Vpn;
use crate::policy::locality::Locality;
use crate::policy::readahead::{Neighbours, Rush, Streams};
use crate::policy::refault::StoreClock;
use crate::policy::strides::Strides;
use alloc::collections::VecDeque;
use core::ops::Range;

/// Ranges remembered as left behind, at most.
const PASSED: usize = 512;
/// Huge pages remembered as come back whole in pieces, at most.
const COMPLETE: usize = 256;

/// What the rules of `policy` go by.
pub(crate) struct History {
    pub(crate) streams: Streams,
    pub(crate) strides: Strides,
    pub(crate) rush: Rush,
    pub(crate) neighbours: Neighbours,
    /// Of what is read from behind the pool.
    pub(crate) locality: Locality,
    /// Pages that sequential readers left behind, oldest first.
    passed_by_readers: VecDeque<Range<Vpn>>,
    /// First pages of huge pages all of whose pieces have come back, oldest first.
    complete: VecDeque<Vpn>,
    /// By which pages are spared.
    clock: StoreClock,
    /// The least ticks after which something may go that the hand has spared.
    spared: Option<u8>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            streams: Streams::default(),
            strides: Strides::default(),
            rush: Rush::default(),
            neighbours: Neighbours::default(),
            locality: Locality::default(),
            passed_by_readers: VecDeque::with_capacity(PASSED),
            complete: VecDeque::with_capacity(COMPLETE),
            clock: StoreClock::default(),
            spared: None,
        }
    }

    /// Remembers a huge page all of whose pieces have come back.
    pub(crate) fn note_complete(&mut self, first: Vpn) {
        if self.complete.back() == Some(&first) {
            return;
        }
        if self.complete.len() == COMPLETE {
            self.complete.pop_front();
        }
        self.complete.push_back(first);
    }

    /// Whether one is remembered.
    pub(crate) fn has_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// Takes the oldest of these.
    pub(crate) fn take_complete(&mut self) -> Option<Vpn> {
        self.complete.pop_front()
    }

    /// By which pages are spared.
    pub(crate) const fn clock(&self) -> &StoreClock {
        &self.clock
    }

    /// `pages` were stored, of a program that has `resident`.
    pub(crate) fn note_stored(&mut self, pages: usize, resident: usize) {
        self.clock.stored(pages, resident);
    }

    /// The clock goes on by so many ticks, though nothing was stored.
    pub(crate) fn advance_clock(&mut self, ticks: u8) {
        self.clock.advance(ticks);
    }

    /// The hand has spared something that may go after `ticks`.
    pub(crate) fn note_spared(&mut self, ticks: u8) {
        self.spared = Some(self.spared.map_or(ticks, |least| least.min(ticks)));
    }

    /// The least ticks after which something of that may go; what is spared from here on counts
    /// anew.
    pub(crate) fn take_spared(&mut self) -> Option<u8> {
        self.spared.take()
    }

    /// Takes what sequential readers passed first.
    pub(crate) fn take_passed(&mut self) -> Option<Range<Vpn>> {
        self.passed_by_readers.pop_front()
    }

    /// Remembers what a sequential reader has passed.
    pub(crate) fn note_passed(&mut self, pages: Option<Range<Vpn>>) {
        let Some(pages) = pages else { return };
        if self.passed_by_readers.len() == PASSED {
            self.passed_by_readers.pop_front();
        }
        self.passed_by_readers.push_back(pages);
    }
}
