//! What faults and reclaim have shown so far: a part of the core.

use crate::page::Vpn;
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
    /// Pages that sequential readers left behind, oldest first.
    pub(crate) passed_by_readers: VecDeque<Range<Vpn>>,
    /// First pages of huge pages all of whose pieces have come back, oldest first.
    pub(crate) complete: VecDeque<Vpn>,
    /// By which pages are spared.
    pub(crate) clock: StoreClock,
    /// The least ticks after which something may go that the hand has spared.
    pub(crate) spared: Option<u8>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            streams: Streams::default(),
            strides: Strides::default(),
            rush: Rush::default(),
            neighbours: Neighbours::default(),
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

    /// Remembers what a sequential reader has passed.
    pub(crate) fn note_passed(&mut self, pages: Option<Range<Vpn>>) {
        let Some(pages) = pages else { return };
        if self.passed_by_readers.len() == PASSED {
            self.passed_by_readers.pop_front();
        }
        self.passed_by_readers.push_back(pages);
    }
}
