//! The rules of zspage compaction, one by one.

mod support;

use support::Bed;
use zfolio_mm::{Kind, Pfn};
use zfolio_zsmalloc::class::DEFAULT_CHAIN;
use zfolio_zsmalloc::variants::{
    Algorithm, Coarse, Exact, FreshDestination, KeptDestination, PlainTenths,
};
use zfolio_zsmalloc::{CompactionStep, Grouping, Handle, Tenths, ZS_HANDLE_SIZE, ZsPool};

/// Payload of class 768: 16 objects in 3 pages.
const SIZE: usize = 768 - ZS_HANDLE_SIZE;
const OBJS: usize = 16;

/// Zspages of class 768 that have these many objects, in this order, each
/// object written with its number.
fn zspages<G: Grouping>(bed: &mut Bed<G>, inuse: &[usize]) -> Vec<Vec<Handle>> {
    let all: Vec<Handle> = (0..inuse.len() * OBJS)
        .map(|_| bed.malloc(SIZE).expect("room"))
        .collect();
    let mut kept = vec![];
    for (objects, inuse) in all.chunks(OBJS).zip(inuse) {
        for handle in &objects[*inuse..] {
            bed.free(*handle).expect("live");
        }
        kept.push(objects[..*inuse].to_vec());
    }
    for (seed, handle) in (0..).zip(kept.iter().flatten()) {
        bed.write(*handle, seed);
    }
    kept
}

fn assert_intact<G: Grouping>(bed: &Bed<G>, zspages: &[Vec<Handle>]) {
    bed.validate();
    for (seed, handle) in (0..).zip(zspages.iter().flatten()) {
        assert!(bed.is_intact(*handle, seed), "{handle:?}");
    }
}

/// The zspages objects are in, without repetitions, in order of address.
fn homes<G: Grouping>(bed: &Bed<G>, objects: &[Handle]) -> Vec<Pfn> {
    let mut homes: Vec<Pfn> = objects.iter().map(|h| bed.pool.location(*h).at).collect();
    homes.sort();
    homes.dedup();
    homes
}

/// Objects moved by each step.
fn steps<G: Grouping>(bed: &mut Bed<G>) -> Vec<CompactionStep> {
    let run = bed.pool.begin_compaction().expect("none under way");
    std::iter::from_fn(|| {
        let step = bed.step(&run);
        bed.validate();
        step
    })
    .collect()
}

fn step(objs_moved: usize, pages_freed: usize) -> CompactionStep {
    CompactionStep {
        objs_moved,
        pages_freed,
    }
}

#[test]
fn the_emptiest_goes_into_the_fullest() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[6, 2, 12, 9]);
    let fullest = homes(&bed, &objects[2]);
    // 2 into 12, then 2 of 6 fill it; 4 left go into 9.
    assert_eq!(steps(&mut bed), [step(2, 3), step(2, 0), step(4, 3)]);
    assert_eq!(homes(&bed, &objects[1]), fullest);
    assert_intact(&bed, &objects);
    let stats = bed.pool.stats();
    assert_eq!((stats.objs_moved, stats.pages_compacted), (8, 6));
    assert_eq!((stats.pages_used, stats.total().freeable), (6, 0));
}

#[test]
fn a_destination_is_kept_until_it_is_full() {
    let mut bed = Bed::new(512);
    // The destination is found at 10, and is not the fullest at every moment
    // in between: one at 11 appears.
    let objects = zspages(&mut bed, &[1, 1, 1, 10, 7]);
    let kept = homes(&bed, &objects[3]);
    let run = bed.pool.begin_compaction().expect("none under way");
    assert_eq!(bed.step(&run), Some(step(1, 3)));
    let mut grown = vec![];
    for _ in 0..5 {
        grown.push(bed.malloc(SIZE).expect("room"));
    }
    // Allocations went to the fullest, which is the destination: 11 + 5.
    assert_eq!(homes(&bed, &grown), kept);
    // Now full, it is given up; the next is the one of 7.
    assert_eq!(bed.step(&run), Some(step(1, 3)));
    assert_eq!(bed.step(&run), Some(step(1, 3)));
    assert_eq!(bed.step(&run), None);
    assert_intact(&bed, &objects);
    assert_eq!(homes(&bed, &objects.concat()).len(), 2);
}

#[test]
fn a_kept_destination_may_be_freed_and_its_record_used_again() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[1, 2, 8, 5, 3]);
    let run = bed.pool.begin_compaction().expect("none under way");
    assert_eq!(bed.step(&run), Some(step(1, 3)));
    // The destination's objects go, and with the last its record; the next
    // zspage, of another class, takes it.
    let kept = homes(&bed, &objects[2]);
    assert_eq!(homes(&bed, &objects[0]), kept);
    for handle in objects[2].iter().chain(&objects[0]) {
        bed.free(*handle).expect("live");
        bed.validate();
    }
    let other = bed.malloc(100).expect("room");
    bed.validate();
    while bed.step(&run).is_some() {
        bed.validate();
    }
    // 2 + 5 + 3 are in one zspage; the other class's is as it was.
    let left: Vec<Handle> = [1, 3, 4].map(|n| objects[n].clone()).concat();
    assert_eq!(homes(&bed, &left).len(), 1);
    assert_ne!(homes(&bed, &left), homes(&bed, &[other]));
    bed.validate();
}

#[test]
fn a_kept_destination_may_be_relocated() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[1, 2, 8]);
    let run = bed.pool.begin_compaction().expect("none under way");
    assert_eq!(bed.step(&run), Some(step(1, 3)));
    let from = bed.pool.location(objects[2][0]).at;
    let to = bed.frames.alloc_exact(Kind::Backed, 3).expect("room");
    bed.memory.copy(from, to, 3);
    bed.pool.relocate(from, to).expect("not pinned");
    bed.memory.fill(from, 3, 0xee);
    bed.frames.free_range(Kind::Backed, from, 3);
    assert_eq!(bed.step(&run), Some(step(2, 3)));
    assert_eq!(homes(&bed, &objects.concat()), [to]);
    assert_intact(&bed, &objects);
}

#[test]
fn a_destination_that_became_the_emptier_one_is_dropped() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[1, 6, 10, 7]);
    let run = bed.pool.begin_compaction().expect("none under way");
    assert_eq!(bed.step(&run), Some(step(1, 3)));
    for handle in &objects[2][..9] {
        bed.free(*handle).expect("live");
    }
    // Two are left where ten were: that is the source now.
    assert_eq!(bed.step(&run), Some(step(2, 3)));
    assert_eq!(homes(&bed, &objects[3]), homes(&bed, &objects[0]));
}

#[test]
fn a_pinned_source_is_passed_over() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[1, 3, 5, 12]);
    let pinned = objects[0][0];
    let home = bed.pool.location(pinned);
    bed.pool.pin(pinned);
    assert_eq!(bed.compact(), 3, "3 into 12, then 1 of 5; 4 are left");
    assert_eq!(bed.pool.location(pinned), home);
    assert_intact(&bed, &objects);
    bed.pool.unpin(pinned);
    assert_eq!(bed.compact(), 3, "1 into 4");
    assert_eq!(bed.pool.stats().total().freeable, 0);
    assert_intact(&bed, &objects);
}

#[test]
fn pins_of_a_destination_do_not_matter() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[4, 12]);
    let reader = objects[1][3];
    let place = bed.pool.location(reader);
    bed.pool.pin(reader);
    assert_eq!(steps(&mut bed), [step(4, 3)]);
    assert_eq!(bed.pool.location(reader), place);
    assert_intact(&bed, &objects);
}

#[test]
fn a_class_whose_sources_are_all_pinned_is_left() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[4, 5, 6]);
    let small: Vec<Handle> = (0..256).map(|_| bed.malloc(40).expect("room")).collect();
    let more: Vec<Handle> = (0..256).map(|_| bed.malloc(40).expect("room")).collect();
    for handle in small[10..].iter().chain(&more[10..]) {
        bed.free(*handle).expect("live");
    }
    for zspage in &objects {
        bed.pool.pin(zspage[0]);
    }
    assert_eq!(steps(&mut bed), [step(10, 3)], "the smaller class");
    assert_eq!(homes(&bed, &objects.concat()).len(), 3);
}

#[test]
fn a_second_compaction_does_nothing() {
    let mut bed = Bed::new(512);
    zspages(&mut bed, &[1, 1, 1]);
    let run = bed.pool.begin_compaction().expect("none under way");
    assert!(bed.pool.begin_compaction().is_none());
    assert_eq!(bed.compact(), 0);
    assert_eq!(bed.pool.stats().objs_moved, 0);
    assert_eq!(bed.step(&run), Some(step(1, 3)));
    assert!(bed.pool.is_compacting());
    bed.pool.end_compaction(run);
    assert!(!bed.pool.is_compacting());
    assert_eq!(bed.compact(), 3);
    assert!(!bed.pool.is_compacting());
}

#[test]
fn who_was_abandoned_does_not_drive_the_next() {
    let mut bed = Bed::new(512);
    zspages(&mut bed, &[1, 1, 1]);
    let old = bed.pool.begin_compaction().expect("none under way");
    bed.pool.abandon_compaction();
    let new = bed.pool.begin_compaction().expect("none under way");
    assert_eq!(bed.step(&old), None);
    bed.pool.end_compaction(old);
    assert!(bed.pool.is_compacting());
    assert_eq!(bed.step(&new), Some(step(1, 3)));
}

#[test]
fn classes_go_from_large_to_small() {
    let mut bed = Bed::new(1024);
    for size in [100, 2040, SIZE] {
        let two: Vec<Handle> = (0..200).map(|_| bed.malloc(size).expect("room")).collect();
        for (n, handle) in two.iter().enumerate() {
            if n % 2 == 1 {
                bed.free(*handle).expect("live");
            }
        }
    }
    let pages: Vec<usize> = steps(&mut bed).iter().map(|s| s.pages_freed).collect();
    let freeing: Vec<usize> = pages.into_iter().filter(|pages| *pages != 0).collect();
    // Zspages of 2048 have one page, those of 768 three, those of 112 seven.
    assert!(freeing.is_sorted(), "{freeing:?}");
    assert_eq!(freeing.first(), Some(&1));
    assert!(freeing.contains(&3));
    assert_eq!(bed.pool.freeable_pages(), 0);
}

#[test]
fn a_class_gets_no_more_steps_than_it_had_partly_filled_zspages() {
    let mut bed = Bed::new(2048);
    let mut objects = zspages(&mut bed, &[2; 6]);
    let run = bed.pool.begin_compaction().expect("none under way");
    let mut count = 0;
    while bed.step(&run).is_some() {
        count += 1;
        assert!(count <= 6, "goes on for ever");
        // As many new ones again.
        objects.extend(zspages(&mut bed, &[2; 2]));
    }
    assert_eq!(count, 6);
}

#[test]
fn nothing_to_free_moves_nothing() {
    let mut bed = Bed::new(512);
    assert_eq!(bed.compact(), 0);
    zspages(&mut bed, &[15, 16, 1]);
    assert_eq!(bed.pool.freeable_pages(), 3);
    assert_eq!((bed.compact(), bed.pool.objs_moved()), (3, 1));
    let mut bed = Bed::new(512);
    // 15 free slots are no zspage's worth.
    zspages(&mut bed, &[8, 9, 16]);
    assert_eq!((bed.compact(), bed.pool.stats().objs_moved), (0, 0));
}

#[test]
fn a_huge_class_is_never_compacted() {
    let mut bed = Bed::new(512);
    let pages: Vec<Handle> = (0..9).map(|_| bed.malloc(4096).expect("room")).collect();
    bed.free(pages[4]).expect("live");
    assert_eq!(bed.compact(), 0);
    bed.validate();
}

/// Overwrites the header in front of an object.
fn scribble<G: Grouping>(bed: &Bed<G>, handle: Handle, bytes: &[u8; 8]) {
    use zfolio_mm::Memory;
    let place = bed.pool.location(handle);
    bed.memory
        .with_mut(place.at, place.offset - 8, 8, |header| {
            header.copy_from_slice(bytes);
        });
}

#[test]
fn an_object_whose_header_was_overwritten_stays_where_it_is() {
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[3, 8, 9]);
    let (hit, home) = (objects[0][1], bed.pool.location(objects[0][1]));
    scribble(&bed, hit, &[0x11; 8]);
    // The two sound ones leave; the zspage is set aside; 8 and 9 are too many
    // for one.
    assert_eq!(bed.compact(), 0);
    assert_eq!(bed.pool.stats().objs_moved, 2);
    assert_eq!(bed.pool.location(hit), home);
    assert!(!bed.pool.check_owner(hit, &bed.memory), "still told");
    let total = bed.pool.stats().total();
    assert_eq!((total.damaged, total.pages_used), (1, 9));
    // Freed, its frames come back.
    bed.free(hit).expect("live");
    assert_eq!(bed.pool.pages_used(), 6);
    bed.validate();
}

#[test]
fn a_header_that_names_another_object_moves_neither_wrongly() {
    use zfolio_mm::Memory;
    let mut bed = Bed::new(512);
    let objects = zspages(&mut bed, &[2, 14]);
    let (hit, other) = (objects[0][1], objects[1][0]);
    let (home, place) = (bed.pool.location(hit), bed.pool.location(other));
    let header: [u8; 8] = bed
        .memory
        .with(place.at, place.offset - 8, 8, |bytes| bytes.try_into())
        .expect("eight");
    scribble(&bed, hit, &header);
    bed.compact();
    assert_eq!(bed.pool.location(hit), home);
    assert_eq!(bed.pool.location(other), place);
    assert!(bed.is_intact(objects[0][0], 0) && bed.is_intact(other, 2));
    assert_eq!(bed.pool.stats().total().damaged, 1);
}

#[test]
fn a_destination_with_an_overwritten_free_list_is_set_aside() {
    let mut bed = Bed::new(512);
    let all: Vec<Handle> = (0..3 * OBJS)
        .map(|_| bed.malloc(SIZE).expect("room"))
        .collect();
    let hit = bed.pool.location(all[5]);
    let freed = [5, 20, 21, 22].into_iter().chain(34..48);
    for n in freed {
        bed.free(all[n]).expect("live");
    }
    use zfolio_mm::Memory;
    bed.memory
        .with_mut(hit.at, hit.offset - 8, 8, |header| header.fill(0x11));
    // 15 is damaged; 2 go into 13.
    assert_eq!(steps(&mut bed), [step(0, 0), step(2, 3)]);
    assert_eq!(bed.pool.stats().total().damaged, 1);
}

fn fragmented<G: Grouping>(bed: &mut Bed<G>) -> Vec<Handle> {
    let all: Vec<Handle> = (0..480).map(|_| bed.malloc(SIZE).expect("room")).collect();
    let mut kept = vec![];
    let mut word = 9_u32;
    for handle in all {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if word >> 30 == 0 {
            kept.push(handle);
        } else {
            bed.free(handle).expect("live");
        }
    }
    for (seed, handle) in (0..=255).cycle().zip(&kept) {
        bed.write(*handle, seed);
    }
    kept
}

/// Every variant ends with as few zspages and all bytes in place; returns its
/// copies.
fn variant<G: Grouping, A: Algorithm>() -> u64 {
    let mut bed = Bed::with_pool(1024, ZsPool::<G>::with_grouping(DEFAULT_CHAIN));
    let kept = fragmented(&mut bed);
    let position = bed.pool.classes().lookup(SIZE).expect("a class");
    A::compact_class(&mut bed.pool, position, &bed.memory, &mut bed.frames);
    bed.validate();
    assert_eq!(bed.pool.freeable_pages(), 0);
    assert_eq!(bed.pool.pages_used(), kept.len().div_ceil(OBJS) * 3);
    for (seed, handle) in (0..=255).cycle().zip(&kept) {
        assert!(bed.is_intact(*handle, seed));
    }
    bed.pool.objs_moved()
}

#[test]
fn all_variants_free_the_same_with_fewer_copies_each() {
    let old = variant::<Coarse, FreshDestination>();
    let kept = variant::<Coarse, KeptDestination>();
    let plain = variant::<PlainTenths, KeptDestination>();
    let ours = variant::<Tenths, KeptDestination>();
    let exact = variant::<Exact, KeptDestination>();
    assert!(
        old > kept && kept > plain && plain >= ours && plain >= exact,
        "{old} {kept} {plain} {ours} {exact}"
    );
}

#[test]
fn within_a_group_the_emptiest_goes_into_the_fullest() {
    let mut bed = Bed::new(2048);
    // Slots enough that a tenth of them is several.
    const SMALL: usize = 100;
    let position = bed.pool.classes().lookup(SMALL).expect("a class");
    let objs = bed.pool.classes().classes()[position].objs;
    assert!(objs >= 20, "{objs}");
    let keep = [2, 1, 2, objs - 2, objs - 1, objs - 2];
    let all: Vec<Handle> = (0..6 * objs)
        .map(|_| bed.malloc(SMALL).expect("room"))
        .collect();
    let mut kept = vec![];
    for (zspage, keep) in all.chunks(objs).zip(keep) {
        for handle in &zspage[keep..] {
            bed.free(*handle).expect("live");
        }
        kept.push(zspage[..keep].to_vec());
    }
    // The plain way would take the newest of each group: 2 and objs - 2.
    let run = bed.pool.begin_compaction().expect("none under way");
    assert_eq!(bed.step(&run).map(|step| step.objs_moved), Some(1));
    assert_eq!(homes(&bed, &kept[1]), homes(&bed, &kept[4]));
}
