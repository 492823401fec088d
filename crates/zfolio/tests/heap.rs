//! Collections that live in a region.

mod support;

use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::vec::Vec;
use support::*;
use zfolio::{Error, Group, Heap, Region};

#[test]
fn a_vector_grows_past_the_memory_there_is() {
    for way in own_ways() {
        grows(&group(8 * MIB, way));
    }
}

fn grows(group: &Group) {
    let heap = Heap::new_in(group, 256 * MIB).unwrap();
    let mut numbers: Vec<u64, _> = Vec::new_in(heap.clone());
    numbers.extend(0..4_000_000);
    assert!(numbers.iter().enumerate().all(|(at, n)| at as u64 == *n));
    assert!(group.stats().pages_out > 0);
    let inside = heap.region().as_ptr_range();
    assert!(inside.contains(&numbers.as_ptr().cast()));
}

#[test]
fn blocks_are_apart_whatever_is_freed_between() {
    for way in own_ways() {
        stays_apart(&group(8 * MIB, way));
    }
}

fn stays_apart(group: &Group) {
    let heap = Heap::new_in(group, 64 * MIB).unwrap();
    let mut random = Random(1);
    let mut live: std::vec::Vec<Vec<u8, Heap>> = std::vec::Vec::new();
    for turn in 0..3000_u32 {
        if random.below(3) > 0 || live.is_empty() {
            let len = [24, 700, 5000, 300 << 10][random.below(4)] + random.below(64);
            let mut block = Vec::new_in(heap.clone());
            block.resize(len, u8::try_from(turn % 251).unwrap());
            live.push(block);
        } else {
            let block = live.swap_remove(random.below(live.len()));
            assert!(block.iter().all(|byte| *byte == block[0]));
        }
        if live.len() > 100 {
            live.truncate(60);
        }
    }
    assert!(
        live.iter()
            .all(|block| block.iter().all(|byte| *byte == block[0]))
    );
}

#[test]
fn a_full_heap_says_so() {
    for way in own_ways() {
        fills(&group(8 * MIB, way));
    }
}

fn fills(group: &Group) {
    let heap = Heap::new_in(group, 2 * MIB).unwrap();
    assert!(heap.allocate(Layout::new::<[u8; 3 << 20]>()).is_err());
    assert!(heap.allocate(Layout::new::<[u8; 1 << 20]>()).is_ok());
    let empty = heap.allocate(Layout::new::<()>()).unwrap();
    assert_eq!(empty.len(), 0);
    let tiny = Region::reserve_in(group, 16).unwrap();
    assert_eq!(Heap::over(tiny).err(), Some(Error::TooLarge { bytes: 16 }));
}
