//! The program around us may write into the arena by mistake. The pool then
//! says so where it can, and never hands out a slot that is in use.

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use support::Bed;
use zfolio_mm::{Kind, Memory, PAGE_SIZE, Pfn};
use zfolio_zsmalloc::{Handle, ZS_HANDLE_SIZE};

/// Payload of class 768: 16 objects in 3 pages.
const SIZE: usize = 768 - ZS_HANDLE_SIZE;

/// Overwrites the header of the slot an object is or was in.
fn scribble(bed: &Bed, at: Pfn, payload: usize) {
    bed.memory
        .with_mut(at, payload - ZS_HANDLE_SIZE, 4, |bytes| bytes.fill(0x11));
}

#[test]
fn an_overwritten_header_no_longer_names_its_owner() {
    let mut bed = Bed::new(512);
    let objects: Vec<Handle> = (0..4).map(|_| bed.malloc(SIZE).expect("room")).collect();
    let place = bed.pool.location(objects[2]);
    scribble(&bed, place.at, place.offset);
    let good: Vec<bool> = objects
        .iter()
        .map(|h| bed.pool.check_owner(*h, &bed.memory))
        .collect();
    assert_eq!(good, [true, true, false, true]);
    assert!(bed.pool.validate(&bed.memory).is_err());
    // Freeing writes the header anew, all is well again.
    bed.free(objects[2]).expect("live");
    bed.validate();
}

#[test]
fn a_header_copied_from_another_object_is_noticed() {
    let mut bed = Bed::new(512);
    let (a, b) = (
        bed.malloc(SIZE).expect("room"),
        bed.malloc(SIZE).expect("room"),
    );
    let (from, to) = (bed.pool.location(a), bed.pool.location(b));
    let header = bed.memory.with(from.at, from.offset - 8, 8, <[u8]>::to_vec);
    bed.memory.with_mut(to.at, to.offset - 8, 8, |bytes| {
        bytes.copy_from_slice(&header)
    });
    assert!(bed.pool.check_owner(a, &bed.memory));
    assert!(!bed.pool.check_owner(b, &bed.memory));
}

#[test]
fn a_zspage_with_an_overwritten_free_list_is_put_aside() {
    let mut bed = Bed::new(512);
    let objects: Vec<Handle> = (0..16).map(|_| bed.malloc(SIZE).expect("room")).collect();
    for (seed, handle) in (0..).zip(&objects) {
        bed.write(*handle, seed);
    }
    let hit = bed.pool.location(objects[5]);
    bed.free(objects[5]).expect("live");
    scribble(&bed, hit.at, hit.offset);

    let fresh = bed.malloc(SIZE).expect("room in a new zspage");
    assert_ne!(bed.pool.location(fresh).at, hit.at);
    let total = bed.pool.stats().total();
    assert_eq!(
        (total.damaged, total.pages_used, total.obj_used),
        (1, 6, 16)
    );
    bed.validate();

    // What is in it stays good, moves with it, and its frames come back.
    let to = bed.frames.alloc_exact(Kind::Backed, 3).expect("room");
    bed.memory.copy(hit.at, to, 3);
    bed.pool.relocate(hit.at, to).expect("not pinned");
    bed.frames.free_range(Kind::Backed, hit.at, 3);
    bed.validate();
    for (seed, handle) in (0..).zip(&objects).filter(|(seed, _)| *seed != 5) {
        assert!(bed.is_intact(*handle, seed));
        bed.free(*handle).expect("live");
    }
    assert_eq!(bed.pool.pages_used(), 3);
    assert_eq!(bed.pool.stats().total().damaged, 0);
}

/// Sixteen objects of which the sixth was freed, `header` written over that free
/// slot's, and one allocation more: how many zspages are damaged then.
fn damaged_after(header: &[u8]) -> usize {
    let mut bed = Bed::new(512);
    let objects: Vec<Handle> = (0..16).map(|_| bed.malloc(SIZE).expect("room")).collect();
    let hit = bed.pool.location(objects[5]);
    bed.free(objects[5]).expect("live");
    bed.memory
        .with_mut(hit.at, hit.offset - ZS_HANDLE_SIZE, header.len(), |bytes| {
            bytes.copy_from_slice(header);
        });
    for _ in 0..2 {
        bed.malloc(SIZE).expect("room");
    }
    bed.validate();
    bed.pool.stats().total().damaged
}

#[test]
fn a_free_slot_must_have_its_check_word_and_a_link_within_the_zspage() {
    let header = |next: u16| {
        let word = 0x8000_0000 | u32::from(next);
        [word.to_le_bytes(), (!word).to_le_bytes()].concat()
    };
    assert_eq!(damaged_after(&header(u16::MAX)), 0, "what was there");
    assert_eq!(
        damaged_after(&header(u16::MAX)[..4]),
        0,
        "half of what was there"
    );
    assert_eq!(
        damaged_after(&header(3)[..4]),
        1,
        "a link without its check word"
    );
    assert_eq!(damaged_after(&header(500)), 1, "a link out of the zspage");
    assert_eq!(damaged_after(&[0; 8]), 1);
    assert_eq!(damaged_after(&[0xff; 8]), 1);
}

#[test]
fn an_owner_must_have_its_check_word() {
    let mut bed = Bed::new(512);
    let handle = bed.malloc(SIZE).expect("room");
    let place = bed.pool.location(handle);
    bed.memory
        .with_mut(place.at, place.offset - 1, 1, |byte| byte[0] ^= 1);
    assert!(!bed.pool.check_owner(handle, &bed.memory));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Malloc(usize),
    Free(usize),
    /// Writes eight bytes anywhere in the first pages of the arena.
    Scribble(usize, u64),
    /// Compacts everything.
    Compact,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop::sample::select(vec![24, 100, SIZE, 3000]);
    // Zeros, ones, and what a small free list or handle would look like without
    // its check word, besides any bytes.
    let bytes = prop_oneof![
        any::<u64>(),
        (0u64..64),
        (0u64..64).prop_map(|next| 0x8000_0000 | next),
        Just(u64::MAX),
    ];
    prop_oneof![
        4 => size.prop_map(Op::Malloc),
        3 => any::<usize>().prop_map(Op::Free),
        2 => (any::<usize>(), bytes).prop_map(|(at, bytes)| Op::Scribble(at, bytes)),
        1 => Just(Op::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn slots_in_use_are_never_handed_out(ops in prop::collection::vec(op(), 1..300)) {
        let mut bed = Bed::new(1024);
        let mut live: Vec<Handle> = Vec::new();
        for op in ops {
            match op {
                Op::Malloc(size) => live.push(bed.malloc(size).expect("room")),
                Op::Free(which) if !live.is_empty() => {
                    let handle = live.swap_remove(which % live.len());
                    prop_assert_eq!(bed.free(handle), Ok(()));
                }
                Op::Free(_) | Op::Compact => {}
                Op::Scribble(at, bytes) => {
                    let at = (at % (16 * PAGE_SIZE - 8)) & !7;
                    bed.memory.with_mut(Pfn(0), at, 8, |b| b.copy_from_slice(&bytes.to_le_bytes()));
                }
            }
            if matches!(op, Op::Compact) {
                // Whose header is bad before stays put and stays bad.
                let told = |bed: &Bed| -> Vec<_> {
                    let bad = live.iter().filter(|h| !bed.pool.check_owner(**h, &bed.memory));
                    bad.map(|h| (*h, bed.pool.location(*h))).collect()
                };
                let before = told(&bed);
                bed.compact();
                prop_assert_eq!(told(&bed), before);
            }
            let mut places = BTreeSet::new();
            for handle in &live {
                let place = bed.pool.location(*handle);
                let start = place.at.index() * PAGE_SIZE + place.offset;
                prop_assert!(places.insert((start, start + place.capacity)), "handed out twice");
            }
            let ends = places.iter().zip(places.iter().skip(1));
            prop_assert!(ends.into_iter().all(|(a, b)| a.1 <= b.0), "slots overlap");
        }
        for handle in live {
            prop_assert_eq!(bed.free(handle), Ok(()));
        }
        prop_assert_eq!((bed.pool.objects(), bed.pool.pages_used()), (0, 0));
    }
}
