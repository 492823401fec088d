//! Single rules of the allocators that random operations would not pin down:
//! which block is taken, and what is refused.

use zfolio_mm::{Buddy, Frames, Kind, Order, Pfn};

fn order(o: u8) -> Order {
    Order::new(o).expect("at most 9")
}

#[test]
fn starts_empty() {
    let mut buddy = Buddy::new(1024);
    assert_eq!(buddy.free_pages(), 0);
    assert_eq!(buddy.largest_free_order(), None);
    assert_eq!(buddy.alloc(Order::PAGE), None);
    assert_eq!(buddy.take_largest(Order::HUGE), None);
    buddy.validate().expect("invariants");
}

#[test]
fn the_block_freed_last_is_taken_first() {
    let mut buddy = Buddy::new(512);
    for slot in [8, 100, 42] {
        buddy.free(Pfn(slot), Order::PAGE);
    }
    let taken = [(); 3].map(|()| buddy.alloc(Order::PAGE));
    assert_eq!(taken, [42, 100, 8].map(|slot| Some(Pfn(slot))));
}

#[test]
fn the_smallest_block_that_fits_is_split() {
    let mut buddy = Buddy::new(1024);
    buddy.free(Pfn(512), Order::HUGE);
    buddy.free(Pfn(16), order(2));
    assert_eq!(buddy.alloc(order(1)), Some(Pfn(16)));
    assert_eq!(buddy.free_blocks(Order::HUGE), 1);
    assert_eq!(buddy.free_blocks(order(1)), 1);
    buddy.validate().expect("invariants");
}

#[test]
fn halves_merge_up_to_the_largest_order_and_no_further() {
    let mut buddy = Buddy::new(1024);
    buddy.free_range(Pfn(0), 1024);
    assert_eq!(buddy.free_blocks(Order::HUGE), 2);
    let at = buddy.alloc(Order::PAGE).expect("a page");
    assert_eq!(buddy.free_pages(), 1023);
    // One block of every smaller order is left of the split.
    assert!(Order::all().all(|o| buddy.free_blocks(o) == 1));
    buddy.free(at, Order::PAGE);
    assert_eq!(buddy.free_blocks(Order::HUGE), 2);
    buddy.validate().expect("invariants");
}

#[test]
fn a_run_is_freed_as_the_fewest_aligned_blocks() {
    let mut buddy = Buddy::new(512);
    buddy.free_range(Pfn(3), 14);
    // 3, 4..8, 8..16, 16.
    let counts: Vec<usize> = Order::all().map(|o| buddy.free_blocks(o)).collect();
    assert_eq!(counts, [2, 0, 1, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(buddy.block_at(Pfn(8)), Some(order(3)));
    assert_eq!(buddy.block_at(Pfn(9)), None);
    buddy.validate().expect("invariants");
}

#[test]
fn frames_hand_out_low_slots_first() {
    let mut frames = Frames::new(2048);
    assert_eq!(frames.alloc(Kind::Hole, Order::HUGE), Some(Pfn(0)));
    assert_eq!(frames.alloc(Kind::Hole, Order::PAGE), Some(Pfn(512)));
    assert_eq!(frames.alloc(Kind::Backed, Order::PAGE), None);
}

#[test]
fn a_slot_taken_as_a_hole_is_given_back_as_a_frame() {
    let mut frames = Frames::new(512);
    let at = frames.alloc(Kind::Hole, Order::K64).expect("a free arena");
    frames.free(Kind::Backed, at, Order::K64);
    assert_eq!(frames.free_pages(Kind::Backed), 16);
    assert_eq!(frames.free_pages(Kind::Hole), 496);
    assert_eq!(
        frames.alloc(Kind::Hole, Order::HUGE),
        None,
        "the two kinds do not merge"
    );
    assert_eq!(
        frames.take_free(Kind::Backed, order(2)),
        Some((at, order(2)))
    );
    frames.validate().expect("invariants");
}

#[test]
#[should_panic(expected = "double free of a block")]
fn freeing_a_free_block_is_refused() {
    let mut buddy = Buddy::new(512);
    buddy.free(Pfn(4), Order::PAGE);
    buddy.free(Pfn(4), Order::PAGE);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "freeing slots that are free")]
fn freeing_part_of_a_free_block_is_refused() {
    let mut buddy = Buddy::new(512);
    buddy.free(Pfn(0), Order::HUGE);
    buddy.free(Pfn(37), Order::PAGE);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "freeing slots that are free")]
fn freeing_round_a_free_block_is_refused() {
    let mut buddy = Buddy::new(512);
    buddy.free(Pfn(6), order(1));
    buddy.free(Pfn(0), order(3));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "free as another kind")]
fn a_slot_is_not_free_as_both_kinds() {
    let mut frames = Frames::new(512);
    frames.free(Kind::Backed, Pfn(3), Order::PAGE);
}

#[test]
#[should_panic(expected = "misaligned")]
fn a_misaligned_block_is_refused() {
    Buddy::new(512).free(Pfn(2), order(2));
}

#[test]
#[should_panic(expected = "outside the arena")]
fn slots_past_the_end_are_refused() {
    Buddy::new(512).free_range(Pfn(510), 3);
}
