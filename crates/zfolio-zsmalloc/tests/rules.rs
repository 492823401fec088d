//! Single rules of the pool: which zspage is taken, what is refused, what the
//! statistics print.

mod support;

use support::Bed;
use zfolio_mm::{Frames, Kind, PAGE_SIZE, Pfn};
use zfolio_zsmalloc::stats::can_compact;
use zfolio_zsmalloc::{Handle, MAX_UNIT, ZS_HANDLE_SIZE, ZsError, ZsPool};

/// Payload of class 768: 16 objects in 3 pages.
const SIZE: usize = 768 - ZS_HANDLE_SIZE;

fn fill(bed: &mut Bed, size: usize, count: usize) -> Vec<Handle> {
    (0..count)
        .map(|_| bed.malloc(size).expect("room"))
        .collect()
}

#[test]
fn sizes_out_of_range_are_refused() {
    let mut bed = Bed::new(512);
    assert_eq!(bed.malloc(0), Err(ZsError::BadSize));
    assert_eq!(bed.malloc(PAGE_SIZE + 1), Err(ZsError::BadSize));
    assert_eq!(bed.pool.pages_used(), 0);
}

#[test]
fn only_objects_with_a_page_of_their_own_have_no_header() {
    for (size, offset, capacity, pages) in [
        (1, 8, 24, 1),
        (24, 8, 24, 1),
        (25, 8, 40, 3),
        (SIZE, 8, SIZE, 3),
        (3624, 8, 3624, 8),
        (3625, 0, PAGE_SIZE, 1),
        (PAGE_SIZE, 0, PAGE_SIZE, 1),
    ] {
        let mut bed = Bed::new(512);
        let handle = bed.malloc(size).expect("room");
        let place = bed.pool.location(handle);
        assert_eq!(
            (place.offset, place.capacity),
            (offset, capacity),
            "{size} bytes"
        );
        assert_eq!(bed.pool.pages_used(), pages, "{size} bytes");
        assert!(bed.pool.check_owner(handle, &bed.memory));
        bed.validate();
    }
}

#[test]
fn an_object_may_span_pages() {
    let mut bed = Bed::new(512);
    let objects = fill(&mut bed, 3624, 9);
    assert_eq!(bed.pool.pages_used(), 8);
    for (seed, handle) in (1..).zip(&objects) {
        bed.write(*handle, seed);
    }
    let place = bed.pool.location(objects[1]);
    assert!(place.offset < PAGE_SIZE && place.offset + place.capacity > PAGE_SIZE);
    assert!(
        (1..)
            .zip(&objects)
            .all(|(seed, handle)| bed.is_intact(*handle, seed))
    );
}

#[test]
fn a_zspage_half_full_is_counted_under_sixty_percent() {
    let mut bed = Bed::new(512);
    fill(&mut bed, SIZE, 8);
    let stats = bed.pool.stats();
    assert_eq!(stats.classes.len(), 1);
    assert_eq!(stats.classes[0].groups, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn the_fullest_zspage_is_filled_first() {
    let mut bed = Bed::new(512);
    let objects = fill(&mut bed, SIZE, 48);
    let at = |bed: &Bed, n: usize| bed.pool.location(objects[n]).at;
    let (first, second, third) = (at(&bed, 0), at(&bed, 16), at(&bed, 32));
    // 4, 12 and 8 of 16 are left.
    for n in (0..12).chain(16..20).chain(32..40) {
        bed.free(objects[n]).expect("live");
    }
    let taken: Vec<Pfn> = (0..24)
        .map(|_| {
            let handle = bed.malloc(SIZE).expect("room");
            bed.pool.location(handle).at
        })
        .collect();
    let expected = [vec![second; 4], vec![third; 8], vec![first; 12]].concat();
    assert_eq!(taken, expected);
    assert_eq!(bed.pool.pages_used(), 9);
    bed.validate();
}

#[test]
fn within_a_group_the_zspage_that_came_last_is_taken() {
    let mut bed = Bed::new(512);
    let objects = fill(&mut bed, SIZE, 48);
    for n in [0, 32, 16] {
        bed.free(objects[n]).expect("live");
    }
    let handle = bed.malloc(SIZE).expect("room");
    assert_eq!(
        bed.pool.location(handle).at,
        bed.pool.location(objects[17]).at
    );
    // The slot freed last, too.
    assert_eq!(bed.pool.location(handle).offset, ZS_HANDLE_SIZE);
}

#[test]
fn an_emptied_zspage_gives_its_frames_back() {
    let mut bed = Bed::new(512);
    let objects = fill(&mut bed, SIZE, 16);
    for handle in &objects[1..] {
        bed.free(*handle).expect("live");
    }
    assert_eq!(bed.pool.pages_used(), 3);
    bed.free(objects[0]).expect("live");
    assert_eq!((bed.pool.pages_used(), bed.frames.used_pages()), (0, 0));
    assert!(bed.pool.stats().classes.is_empty());
    bed.validate();
}

#[test]
fn without_frames_nothing_changes() {
    let mut bed = Bed::new(512);
    let mut no_frames = Frames::new(512);
    let refused = bed.pool.malloc(SIZE, &bed.memory, &mut no_frames);
    assert_eq!(refused, Err(ZsError::NoMemory));
    assert_eq!((bed.pool.objects(), bed.pool.pages_used()), (0, 0));
    bed.validate();
    // A zspage with room needs none.
    fill(&mut bed, SIZE, 15);
    assert!(bed.pool.malloc(SIZE, &bed.memory, &mut no_frames).is_ok());
    let refused = bed.pool.malloc(SIZE, &bed.memory, &mut no_frames);
    assert_eq!(refused, Err(ZsError::NoMemory));
    assert_eq!(bed.pool.objects(), 16);
    bed.validate();
}

#[test]
fn stale_and_foreign_handles_are_recognised() {
    let mut bed = Bed::new(512);
    let objects = fill(&mut bed, SIZE, 2);
    bed.free(objects[0]).expect("live");
    let foreign = Handle::from_u32(1_000_000).expect("in range");
    for handle in [objects[0], foreign] {
        assert_eq!(bed.free(handle), Err(ZsError::BadHandle));
        assert_eq!(bed.pool.try_location(handle), None);
        assert!(!bed.pool.check_owner(handle, &bed.memory));
        assert!(!bed.pool.is_pinned(handle));
    }
    assert_eq!(bed.pool.objects(), 1);
    bed.validate();
}

#[test]
fn a_pin_holds_until_the_last_unpin() {
    let mut bed = Bed::new(512);
    let handle = bed.malloc(SIZE).expect("room");
    let from = bed.pool.location(handle).at;
    let to = from.offset(16);
    bed.pool.pin(handle);
    bed.pool.pin(handle);
    bed.pool.unpin(handle);
    assert_eq!(bed.free(handle), Err(ZsError::Pinned));
    assert_eq!(bed.pool.relocate(from, to), Err(ZsError::Pinned));
    assert_eq!(bed.pool.location(handle).at, from);
    bed.pool.unpin(handle);
    assert_eq!(bed.pool.relocate(from, to), Ok(()));
    assert_eq!(bed.pool.location(handle).at, to);
}

#[test]
fn pins_of_threads_that_are_gone_are_forgotten() {
    let mut bed = Bed::new(512);
    let handles = fill(&mut bed, 700, 40);
    for handle in handles.iter().step_by(3) {
        bed.pool.pin(*handle);
        bed.pool.pin(*handle);
    }
    bed.pool.forget_pins();
    bed.validate();
    assert!(handles.iter().all(|handle| !bed.pool.is_pinned(*handle)));
    bed.pool.pin(handles[0]);
    assert!(bed.pool.is_pinned(handles[0]));
    bed.pool.unpin(handles[0]);
    bed.validate();
}

#[test]
fn relocation_names_zspages_by_their_first_frame() {
    let mut bed = Bed::new(512);
    let a = fill(&mut bed, SIZE, 1)[0];
    let b = fill(&mut bed, PAGE_SIZE, 1)[0];
    let (at_a, at_b) = (bed.pool.location(a).at, bed.pool.location(b).at);
    assert_eq!(bed.pool.zspage_pages(at_a), Some(3));
    assert_eq!(bed.pool.zspage_pages(at_b), Some(1));
    assert_eq!(bed.pool.zspage_pages(at_a.offset(1)), None);
    let free = Pfn(256);
    assert_eq!(
        bed.pool.relocate(at_a.offset(1), free),
        Err(ZsError::BadFrame)
    );
    assert_eq!(bed.pool.relocate(at_a, at_b), Err(ZsError::BadFrame));
    assert_eq!(bed.pool.relocate(at_a, at_a), Ok(()));
    assert_eq!(bed.pool.location(a).at, at_a);
    bed.validate();
}

#[test]
#[should_panic(expected = "no object has this handle")]
fn location_of_a_freed_object_panics() {
    let mut bed = Bed::new(512);
    let handle = bed.malloc(SIZE).expect("room");
    bed.free(handle).expect("live");
    let _ = bed.pool.location(handle);
}

#[test]
#[should_panic(expected = "without a pin")]
fn unpinning_an_unpinned_object_panics() {
    let mut bed = Bed::new(512);
    let handle = bed.malloc(SIZE).expect("room");
    bed.pool.unpin(handle);
}

#[test]
fn freeable_pages_are_whole_zspages_worth() {
    let mut bed = Bed::new(512);
    let objects = fill(&mut bed, SIZE, 48);
    // 15 free slots are no zspage, 16 are one, 31 still one.
    for (n, freeable) in [(15, 0), (16, 3), (31, 3), (32, 6)] {
        while 48 - bed.pool.objects() < n {
            // In turn from each zspage, so that none empties early.
            let freed = 48 - bed.pool.objects();
            bed.free(objects[freed % 3 * 16 + freed / 3]).expect("live");
        }
        let total = bed.pool.stats().total();
        assert_eq!(
            (total.pages_used, total.freeable),
            (9, freeable),
            "{n} free"
        );
    }
    let pool = ZsPool::new();
    let class = pool.classes().classes()[0];
    assert_eq!(can_compact(&class, 128, 128), 0);
    assert_eq!(can_compact(&class, 0, 128), 0, "used beyond allocated");
}

#[test]
fn the_table_has_a_row_per_class_and_a_total() {
    let mut bed = Bed::new(512);
    fill(&mut bed, SIZE, 8);
    fill(&mut bed, 2048 - ZS_HANDLE_SIZE, 3);
    let text = bed.pool.stats().to_string();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let names = "class size 10% 20% 30% 40% 50% 60% 70% 80% 90% 99% 100% obj_allocated obj_used \
                 pages_used pages_per_zspage freeable";
    let rows = [
        names,
        "46 768 0 0 0 0 0 1 0 0 0 0 0 16 8 3 3 0",
        "126 2048 0 0 0 0 0 1 0 0 0 0 1 4 3 2 1 0",
        "Total - 0 0 0 0 0 2 0 0 0 0 1 20 11 5 - 0",
    ];
    let expected: Vec<Vec<&str>> = rows
        .iter()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(lines, expected);
}

/// A pool with guests and units.
fn arena_bed(slots: usize) -> Bed {
    Bed::with_pool(slots, ZsPool::new())
}

#[test]
fn the_first_objects_of_a_class_lodge_with_a_larger_one() {
    let mut bed = arena_bed(512);
    // Class 768 has 16 slots in 3 pages; those below it are 16 bytes apart.
    fill(&mut bed, SIZE, 2);
    assert_eq!((bed.pool.pages_used(), bed.pool.guests()), (3, (0, 0)));
    let guest = bed.malloc(SIZE - 16).expect("room");
    let host = bed.pool.location(guest);
    assert_eq!((bed.pool.pages_used(), host.capacity), (3, SIZE));
    let (guests, bytes) = bed.pool.guests();
    assert_eq!(guests, 1);
    assert!(bytes > 0);
    bed.write(guest, 1);
    bed.validate();
    assert!(bed.is_intact(guest, 1));
    bed.free(guest).expect("live");
    assert_eq!(bed.pool.guests(), (0, 0));
    bed.validate();
}

#[test]
fn guests_cost_no_more_than_half_a_zspage() {
    let mut bed = arena_bed(4096);
    // One free slot after the other in the larger class, taken as long as allowed.
    let small = bed.pool.classes().lookup(2048 - 8).expect("a class");
    let small = bed.pool.classes().classes()[small];
    let mut bytes = 0;
    for _ in 0..200 {
        // Leaves free slots unless the zspage is just full.
        bed.malloc(2100).expect("room");
        bed.malloc(2048 - 8).expect("room");
        bytes = bed.pool.guests().1;
        assert!(bytes <= small.pages * PAGE_SIZE / 2);
        bed.validate();
    }
    assert!(bytes > 0);
}

#[test]
fn a_guest_keeps_its_bytes_when_its_host_is_compacted() {
    let mut bed = arena_bed(512);
    let hosts = fill(&mut bed, SIZE, 17);
    let guest = bed.malloc(SIZE - 16).expect("room");
    bed.write(guest, 9);
    let before = bed.pool.location(guest);
    for handle in &hosts[2..16] {
        bed.free(*handle).expect("live");
    }
    assert_eq!(bed.compact(), 3);
    assert_ne!(bed.pool.location(guest), before);
    assert!(bed.is_intact(guest, 9));
    assert_eq!(bed.pool.guests().0, 1);
    bed.validate();
}

#[test]
fn units_up_to_the_longest_zspage_are_kept_moved_and_freed() {
    let mut bed = arena_bed(512);
    assert_eq!(bed.malloc(MAX_UNIT + 1), Err(ZsError::BadSize));
    let sizes = [
        PAGE_SIZE + 1,
        9_000,
        20_000,
        32_760,
        32_761,
        40_000,
        MAX_UNIT,
    ];
    let units: Vec<Handle> = sizes.map(|size| bed.malloc(size).expect("room")).into();
    for (seed, (handle, size)) in (1..).zip(units.iter().zip(sizes)) {
        bed.write(*handle, seed);
        assert!(bed.pool.location(*handle).capacity >= size);
        assert!(bed.pool.check_owner(*handle, &bed.memory));
    }
    // Above half of the longest zspage pages are their own, and no page more than
    // it takes.
    for (nth, pages) in [(4, 8), (5, 10), (6, 16)] {
        let place = bed.pool.location(units[nth]);
        assert_eq!((place.offset, place.capacity), (0, pages * PAGE_SIZE));
        assert_eq!(bed.pool.zspage_pages(place.at), Some(pages));
    }
    bed.validate();
    let place = bed.pool.location(units[6]);
    let to = bed.frames.alloc_exact(Kind::Backed, 16).expect("room");
    bed.memory.copy(place.at, to, 16);
    assert_eq!(bed.pool.relocate(place.at, to), Ok(()));
    bed.frames.free_range(Kind::Backed, place.at, 16);
    for (seed, handle) in (1..).zip(&units) {
        assert!(bed.is_intact(*handle, seed));
    }
    for handle in units {
        bed.free(handle).expect("live");
    }
    assert_eq!(bed.pool.pages_used(), 0);
    bed.validate();
}

#[test]
fn what_is_left_of_a_class_lodges_with_larger_ones() {
    let mut bed = arena_bed(512);
    // A zspage of its own each: neither class has room when the other needs it.
    let small = fill(&mut bed, SIZE - 16, 15);
    let large = fill(&mut bed, SIZE, 16);
    assert_eq!(bed.pool.guests().0, 0);
    let before = bed.pool.pages_used();
    for handle in &small[3..] {
        bed.free(*handle).expect("live");
    }
    for handle in &large[..4] {
        bed.free(*handle).expect("live");
    }
    for (seed, handle) in (1..).zip(&small[..3]) {
        bed.write(*handle, seed);
    }
    assert_eq!(
        bed.pool.freeable_pages(),
        0,
        "within a class there is nothing"
    );
    bed.pool.pin(small[0]);
    assert_eq!(bed.compact(), 0);
    bed.pool.unpin(small[0]);
    let freed = bed.compact();
    assert!(freed > 0);
    assert_eq!(bed.pool.pages_used(), before - freed);
    assert_eq!(bed.pool.guests().0, 3);
    for (seed, handle) in (1..).zip(&small[..3]) {
        assert!(bed.is_intact_up_to(*handle, seed, SIZE - 16));
        assert!(bed.pool.check_owner(*handle, &bed.memory));
    }
    bed.validate();
    // There they stay while that pays.
    assert_eq!(bed.compact(), 0);
    for handle in &small[..3] {
        bed.free(*handle).expect("live");
    }
    assert_eq!(bed.pool.guests(), (0, 0));
    bed.validate();
}
