//! Stores and loads take nothing from the heap once they are under way.
//!
//! Each thread's calls are counted by themselves: who runs the tests has memory of its own to take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use zfolio_compress::{Codec, sample};
use zfolio_mm::{Memory, Order, PAGE_SIZE, Pfn};
use zfolio_zswap::{Arena, Limits, PlainArena, Slot, WorkContext, Zswap};

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Calls that this thread has made.
fn calls() -> usize {
    CALLS.with(Cell::get)
}

// SAFETY: the system allocator, which is one, with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_second_round_allocates_nothing() {
    for codec in [Codec::LZ4, Codec::ZSTD, Codec::Noop] {
        let zswap = Zswap::new(PlainArena::new(512).unwrap(), codec, Limits::default());
        let at = zswap.arena().alloc_frames(32).unwrap();
        let pages: [Pfn; 32] = core::array::from_fn(|index| at.offset(index));
        for (index, page) in pages.iter().enumerate() {
            zswap
                .arena()
                .with_mut(*page, 0, PAGE_SIZE, |page| match index % 4 {
                    0 => page.fill(0),
                    1 => page.fill(7),
                    2 => sample::noise(page, index as u64),
                    _ => sample::records(page, 1, index as u64 * 4096),
                });
        }
        let mut context = zswap.context().unwrap();
        round(&zswap, &mut context, &pages);
        let before = calls();
        assert!(before > 0, "the counter counts");
        for _ in 0..10 {
            round(&zswap, &mut context, &pages);
        }
        assert_eq!(calls(), before, "{codec}");
    }
}

/// A folio in, out again into the same frames, and dropped.
fn round(zswap: &Zswap<PlainArena>, context: &mut WorkContext, pages: &[Pfn; 32]) {
    let mut slots = [Slot::ZERO; 32];
    let order = Order::holding(32).unwrap();
    zswap
        .store_folio(context, order, pages, &mut slots)
        .unwrap();
    zswap.load_batch(context, &slots, pages).unwrap();
    let mut page = [0; PAGE_SIZE];
    zswap.load_into(context, slots[3], &mut page).unwrap();
    assert_eq!(zswap.invalidate(&slots), 24);
}
