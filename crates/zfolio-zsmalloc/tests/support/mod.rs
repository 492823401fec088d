//! An arena in a `Vec` for the tests of the pool.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::cell::RefCell;

use zfolio_mm::{Frames, Kind, Memory, Order, PAGE_SIZE, Pfn};
use zfolio_zsmalloc::class::DEFAULT_CHAIN;
use zfolio_zsmalloc::{Compaction, CompactionStep, Grouping, Handle, Tenths, ZsError, ZsPool};

/// Bytes behind the slots, filled with garbage to begin with.
pub(crate) struct TestMemory(RefCell<Vec<u8>>);

impl TestMemory {
    pub(crate) fn new(slots: usize) -> Self {
        Self(RefCell::new(vec![0x5a; slots * PAGE_SIZE]))
    }

    /// Copies `pages` pages, as a caller of `relocate` does.
    pub(crate) fn copy(&self, from: Pfn, to: Pfn, pages: usize) {
        let start = from.index() * PAGE_SIZE;
        let bytes = start..start + pages * PAGE_SIZE;
        self.0
            .borrow_mut()
            .copy_within(bytes, to.index() * PAGE_SIZE);
    }

    /// Fills pages with `byte`.
    pub(crate) fn fill(&self, at: Pfn, pages: usize, byte: u8) {
        self.with_mut(at, 0, pages * PAGE_SIZE, |bytes| bytes.fill(byte));
    }
}

impl Memory for TestMemory {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let start = at.index() * PAGE_SIZE + offset;
        // A copy, so that places elsewhere may be lent meanwhile.
        let bytes = self.0.borrow()[start..start + len].to_vec();
        f(&bytes)
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let start = at.index() * PAGE_SIZE + offset;
        f(&mut self.0.borrow_mut()[start..start + len])
    }
}

/// A pool in an arena whose slots are all backed.
pub(crate) struct Bed<G = Tenths> {
    pub(crate) memory: TestMemory,
    pub(crate) frames: Frames,
    pub(crate) pool: ZsPool<G>,
}

impl Bed {
    /// With the kernel's classes, in which the rules are told.
    pub(crate) fn new(slots: usize) -> Self {
        Self::with_pool(slots, ZsPool::with_chain(DEFAULT_CHAIN))
    }
}

impl<G: Grouping> Bed<G> {
    pub(crate) fn with_pool(slots: usize, pool: ZsPool<G>) -> Self {
        let mut frames = Frames::new(slots);
        while let Some((at, order)) = frames.take_free(Kind::Hole, Order::HUGE) {
            frames.free(Kind::Backed, at, order);
        }
        Self {
            memory: TestMemory::new(slots),
            frames,
            pool,
        }
    }

    pub(crate) fn malloc(&mut self, size: usize) -> Result<Handle, ZsError> {
        self.pool.malloc(size, &self.memory, &mut self.frames)
    }

    pub(crate) fn free(&mut self, handle: Handle) -> Result<(), ZsError> {
        self.pool.free(handle, &self.memory, &mut self.frames)
    }

    /// Writes a pattern over the whole capacity of an object.
    pub(crate) fn write(&self, handle: Handle, seed: u8) {
        let place = self.pool.location(handle);
        self.memory
            .with_mut(place.at, place.offset, place.capacity, |bytes| {
                for (n, byte) in bytes.iter_mut().enumerate() {
                    *byte = pattern(seed, n);
                }
            });
    }

    /// Whether the pattern is still there.
    pub(crate) fn is_intact(&self, handle: Handle, seed: u8) -> bool {
        self.is_intact_up_to(handle, seed, self.pool.location(handle).capacity)
    }

    /// Whether the first bytes of the pattern are: a guest has no more than it had.
    pub(crate) fn is_intact_up_to(&self, handle: Handle, seed: u8, len: usize) -> bool {
        let place = self.pool.location(handle);
        self.memory.with(place.at, place.offset, len, |bytes| {
            bytes
                .iter()
                .enumerate()
                .all(|(n, byte)| *byte == pattern(seed, n))
        })
    }

    pub(crate) fn step(&mut self, run: &Compaction) -> Option<CompactionStep> {
        self.pool
            .compaction_step(run, &self.memory, &mut self.frames)
    }

    pub(crate) fn compact(&mut self) -> usize {
        self.pool.compact(&self.memory, &mut self.frames)
    }

    pub(crate) fn validate(&self) {
        self.pool
            .validate(&self.memory)
            .expect("the pool's invariants");
        assert_eq!(
            self.pool.pages_used(),
            self.frames.used_pages(),
            "frames the pool holds"
        );
    }
}

/// Byte `n` of an object written with `seed`: differs between neighbours in
/// place and in seed.
fn pattern(seed: u8, n: usize) -> u8 {
    let low = u8::try_from(n % 251).expect("below 251");
    seed ^ low.wrapping_mul(29)
}
