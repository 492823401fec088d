//! Regions as their users see them: every byte, from several threads, while
//! most of it is out.

mod support;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;
use zfolio::{Error, Group, Region, Serving};

/// Random operations on pages of `bytes`, against a seed per page.
fn exercise(bytes: &mut [u8], seed: u64, turns: usize) {
    let pages = bytes.len() / PAGE;
    let mut random = Random(seed);
    let mut model = vec![0_u64; pages];
    for turn in 0..turns {
        let at = random.below(pages);
        let run = match random.below(8) {
            0 => 48.min(pages - at),
            _ => 1,
        };
        for page in at..at + run {
            let slice = &mut bytes[page * PAGE..(page + 1) * PAGE];
            if turn % 3 == 0 {
                check_page(slice, model[page], page);
            } else {
                model[page] = if random.below(16) == 0 {
                    0
                } else {
                    random.next() | 1
                };
                write_page(slice, model[page]);
            }
        }
    }
    for (page, seed) in model.iter().enumerate() {
        check_page(&bytes[page * PAGE..(page + 1) * PAGE], *seed, page);
    }
}

#[test]
fn every_byte_is_right_from_one_to_four_threads() {
    for way in ways() {
        for threads in 1..=4 {
            let group = group(8 * MIB, way);
            let mut region = Region::reserve_in(&group, 32 * MIB).unwrap();
            let part = region.len() / threads / PAGE * PAGE;
            std::thread::scope(|scope| {
                for (index, bytes) in region.chunks_mut(part).take(threads).enumerate() {
                    scope.spawn(move || exercise(bytes, index as u64 + 77, 2400 / threads));
                }
            });
            // (A sequential pass over everything goes past `high` for sure.)
            for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
                write_page(bytes, page as u64 + 1);
            }
            for (page, bytes) in region.chunks(PAGE).enumerate() {
                check_page(bytes, page as u64 + 1, page);
            }
            let stats = group.stats();
            assert!(
                stats.pages_out > 0 && stats.pages_in > 0,
                "{way:?}: {stats:?}"
            );
            assert!(stats.stored_pages > 0, "{way:?}: {stats:?}");
        }
    }
}

#[test]
fn usage_stays_near_high_while_much_more_is_kept() {
    for way in ways() {
        let group = group(16 * MIB, way);
        let mut region = Region::reserve_in(&group, 96 * MIB).unwrap();
        let mut most = 0;
        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
            write_page(bytes, page as u64 | 1);
            if page % 64 == 0 {
                most = most.max(group.stats().used);
            }
        }
        // (Not at every moment below it: a fault that has waited for long gets
        // its page all the same.)
        assert!(most < 32 * MIB as u64, "{most} used of 96 MiB");
        drop(region);
        await_nothing_stored(&group);
    }
}

#[test]
fn threads_share_pages_they_only_read() {
    for way in ways() {
        let group = group(8 * MIB, way);
        let mut region = Region::reserve_in(&group, 40 * MIB).unwrap();
        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
            write_page(bytes, page as u64 + 5);
        }
        let region = &region;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for _ in 0..3000 {
                        let page = random.below(region.len() / PAGE);
                        let bytes = &region[page * PAGE..(page + 1) * PAGE];
                        check_page(bytes, page as u64 + 5, page);
                    }
                });
            }
        });
    }
}

#[test]
fn groups_are_apart() {
    for way in own_ways() {
        two_groups(group(8 * MIB, way), group(24 * MIB, way));
    }
    // Engines of both kinds in one process.
    for way in own_ways() {
        two_groups(group(8 * MIB, way), group(24 * MIB, Serving::Protected));
    }
}

fn two_groups(one: Group, two: Group) {
    // (An engine may have served another group before.)
    let before = two.stats().pages_out;
    let mut small = Region::reserve_in(&one, 32 * MIB).unwrap();
    let mut large = Region::reserve_in(&two, 20 * MIB).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| exercise(&mut small, 3, 2000));
        scope.spawn(|| exercise(&mut large, 4, 2000));
    });
    assert!(one.stats().pages_out > 0);
    assert_eq!(two.stats().pages_out, before, "it fits");
    assert_eq!(small.group().high(), 8 * MIB);
}

#[test]
fn regions_come_and_go_under_load() {
    for way in ways() {
        let group = group(8 * MIB, way);
        std::thread::scope(|scope| {
            for thread in 0..3_usize {
                let group = &group;
                scope.spawn(move || {
                    for round in 0..8 {
                        let len = (3 + (thread + round) % 5) * MIB + 777;
                        let mut region = Region::reserve_in(group, len).unwrap();
                        assert!(region.iter().step_by(999).all(|byte| *byte == 0));
                        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
                            write_page(bytes, (page ^ thread << 32 | 1) as u64);
                        }
                        for (page, bytes) in region.chunks(PAGE).enumerate() {
                            check_page(bytes, (page ^ thread << 32 | 1) as u64, page);
                        }
                    }
                });
            }
        });
        await_nothing_stored(&group);
    }
}

/// Of what is gone nothing is kept, once the folio that was being stored is.
fn await_nothing_stored(group: &Group) {
    let begin = std::time::Instant::now();
    while group.stats().stored_pages > 0 {
        assert!(begin.elapsed().as_secs() < 300, "{:?}", group.stats());
        std::thread::yield_now();
    }
}

/// The process's descriptor for a new file without a name.
fn scratch() -> File {
    let path = std::env::temp_dir().join(format!("zfolio-region-{}", std::process::id()));
    let options = &mut File::options();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file
}

#[test]
fn pinned_bytes_can_be_given_to_system_calls() {
    for way in ways() {
        let group = group(12 * MIB, way);
        let mut region = Region::reserve_in(&group, 48 * MIB).unwrap();
        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
            write_page(bytes, page as u64 + 9);
        }
        let mut file = scratch();
        let piece = MIB + 123;
        for start in (0..region.len()).step_by(piece) {
            let end = (start + piece).min(region.len());
            let pin = region.pin(start..end).unwrap();
            assert_eq!(pin.len(), end - start);
            file.write_all(&pin).unwrap();
        }
        // While one part is pinned all the rest goes through memory.
        let pin = region.pin(5 * MIB..6 * MIB).unwrap();
        assert!(region.iter().step_by(PAGE).all(|_| true));
        file.write_all(&pin).unwrap();
        drop(pin);
        file.seek(SeekFrom::Start(0)).unwrap();
        region.fill(0xff);
        for start in (0..region.len()).step_by(piece) {
            let end = (start + piece).min(region.len());
            let mut pin = region.pin_mut(start..end).unwrap();
            file.read_exact(&mut pin).unwrap();
        }
        for (page, bytes) in region.chunks(PAGE).enumerate() {
            check_page(bytes, page as u64 + 9, page);
        }
    }
}

#[test]
fn without_a_pin_a_system_call_finds_what_is_out_missing() {
    let write = |region: &Region, file: &File| {
        // SAFETY: reads a megabyte that is there, if the kernel can have it.
        unsafe { libc::write(file.as_raw_fd(), region.as_ptr().cast(), region.len()) }
    };
    let file = scratch();
    for way in own_ways() {
        let mut region = Region::reserve_in(&group(8 * MIB, way), MIB).unwrap();
        region.fill(7);
        region.advise_cold(..).unwrap();
        assert_eq!(write(&region, &file), -1);
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!(errno, Some(libc::EFAULT), "as documented");
        let pin = region.pin(..).unwrap();
        assert_eq!(write(&region, &file), MIB as isize);
        drop(pin);
    }
    // With threads that serve, the kernel waits for the page.
    if ways().contains(&Serving::Threads) {
        let group = group(8 * MIB, Serving::Threads);
        let mut region = Region::reserve_in(&group, MIB).unwrap();
        region.fill(7);
        region.advise_cold(..).unwrap();
        assert_eq!(write(&region, &file), MIB as isize);
    }
}

/// Groups with most of a region out, and pages that reads brought back, which are in
/// the pool still: of every way but the one without userfaultfd.
fn with_clean_pages() -> impl Iterator<Item = (Group, Region)> {
    let ways = ways().into_iter().filter(|way| *way != Serving::Protected);
    ways.map(|way| {
        let group = group(16 * MIB, way);
        let mut region = Region::reserve_in(&group, 48 * MIB).unwrap();
        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
            write_page(bytes, page as u64 + 3);
        }
        let mut random = Random(5);
        for _ in 0..20_000 {
            let page = random.below(region.len() / PAGE);
            check_page(page_of(&region, page), page as u64 + 3, page);
        }
        group.validate().unwrap();
        let stats = group.stats();
        assert!(stats.pages_out_clean > 1000, "{way:?}: {stats:?}");
        (group, region)
    })
}

fn page_of(region: &Region, page: usize) -> &[u8] {
    &region[page * PAGE..(page + 1) * PAGE]
}

#[test]
fn what_is_written_to_a_page_that_was_read_leaves_with_it() {
    for (group, mut region) in with_clean_pages() {
        let mut random = Random(6);
        let mut seeds: Vec<u64> = (3..).take(region.len() / PAGE).collect();
        for turn in 0..20_000 {
            let page = random.below(seeds.len());
            check_page(page_of(&region, page), seeds[page], page);
            if turn % 3 == 0 {
                // It is clean now, most likely, and the last eight bytes are its own.
                seeds[page] = random.next() | 1;
                write_page(&mut region[page * PAGE..(page + 1) * PAGE], seeds[page]);
            }
        }
        group.validate().unwrap();
        for (page, seed) in seeds.iter().enumerate() {
            check_page(page_of(&region, page), *seed, page);
        }
        assert!(group.stats().pages_out_clean > 1000, "{:?}", group.stats());
    }
}

/// All write to pages that all read, each to a word of its own.
#[test]
fn threads_write_to_pages_that_others_read() {
    const THREADS: usize = 4;
    for (group, region) in with_clean_pages() {
        let pages = region.len() / PAGE;
        let words = region.as_ptr() as usize;
        let word = |page: usize, thread: usize| {
            let at = words + page * PAGE + PAGE - 8 * (thread + 1);
            // SAFETY: inside the region, aligned, and all access to it is atomic from here on.
            unsafe { &*(at as *const AtomicU64) }
        };
        let written: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let run = |thread: usize| {
                let mut random = Random(thread as u64 + 40);
                let mut own: Vec<u64> = (0..pages)
                    .map(|page| word(page, thread).load(Ordering::Relaxed))
                    .collect();
                for _ in 0..8000 {
                    let page = random.below(pages);
                    assert_eq!(word(page, thread).load(Ordering::Relaxed), own[page]);
                    if random.below(4) == 0 {
                        own[page] = random.next();
                        word(page, thread).store(own[page], Ordering::Relaxed);
                    }
                }
                own
            };
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || run(thread)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        group.validate().unwrap();
        for (thread, own) in written.iter().enumerate() {
            for (page, value) in own.iter().enumerate() {
                assert_eq!(word(page, thread).load(Ordering::Relaxed), *value);
            }
        }
    }
}

/// The kernel writes to what is pinned without a fault, though it was clean before.
#[test]
fn a_pin_makes_pages_that_were_read_writable_to_system_calls() {
    for (group, mut region) in with_clean_pages() {
        let mut zeros = File::open("/dev/zero").unwrap();
        let mut random = Random(7);
        for turn in 0..2000 {
            let page = random.below(region.len() / PAGE - 4);
            let known = if turn % 2 == 0 { page } else { page + 3 };
            let seed = if page_of(&region, known)[..] == [0; PAGE] {
                0
            } else {
                known as u64 + 3
            };
            check_page(page_of(&region, known), seed, known);
            let four = page * PAGE..(page + 4) * PAGE;
            if group.serving() == Some(Serving::Threads) && turn % 3 == 0 {
                // (The kernel waits for us.)
                zeros.read_exact(&mut region[four]).unwrap();
            } else {
                let mut pin = region.pin_mut(four).unwrap();
                zeros.read_exact(&mut pin).unwrap();
            }
            assert!(
                region[page * PAGE..(page + 4) * PAGE]
                    .iter()
                    .all(|b| *b == 0)
            );
        }
        group.validate().unwrap();
        region.advise_cold(..).unwrap();
        group.validate().unwrap();
        for page in 0..region.len() / PAGE {
            let bytes = page_of(&region, page);
            let seed = if bytes[..] == [0; PAGE] {
                0
            } else {
                page as u64 + 3
            };
            check_page(bytes, seed, page);
        }
    }
}

#[test]
fn advice_changes_no_byte() {
    for way in ways() {
        let group = group(32 * MIB, way);
        let mut region = Region::reserve_in(&group, 12 * MIB + 5).unwrap();
        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
            write_page(bytes, page as u64 + 2);
        }
        region.advise_cold(3..5 * MIB + 17).unwrap();
        assert!(
            group.stats().pages_out >= 1000,
            "{way:?}: {:?}",
            group.stats()
        );
        region.advise_willneed(MIB..2 * MIB).unwrap();
        region.discard(6 * MIB + 1..7 * MIB + PAGE + 1).unwrap();
        region.advise_cold(7 * MIB..).unwrap();
        region.discard(8 * MIB..9 * MIB).unwrap();
        for (page, bytes) in region.chunks(PAGE).enumerate() {
            let first = 6 * MIB / PAGE + 1;
            let gone = (first..7 * MIB / PAGE + 1).contains(&page)
                || (8 * MIB / PAGE..9 * MIB / PAGE).contains(&page);
            check_page(bytes, if gone { 0 } else { page as u64 + 2 }, page);
        }
    }
}

/// Every eighth page, and from the end to the beginning: far fewer faults than pages.
#[test]
fn strides_are_read_ahead() {
    for way in ways() {
        if way == Serving::Protected {
            continue; // brings what lies together
        }
        let group = group(16 * MIB, way);
        let mut region = Region::reserve_in(&group, 48 * MIB).unwrap();
        let pages = region.len() / PAGE;
        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
            write_page(bytes, page as u64);
        }
        let faults_of = |walk: &mut dyn Iterator<Item = usize>| {
            region.advise_cold(..).unwrap();
            let before = group.stats().faults;
            let mut count = 0;
            for page in walk {
                check_page(&region[page * PAGE..][..PAGE], page as u64, page);
                count += 1;
            }
            (group.stats().faults - before, count)
        };
        // (Some are not stored yet, and some come for nothing in between.)
        let (faults, walked) = faults_of(&mut (0..pages).step_by(8));
        assert!(faults * 2 < walked, "{way:?}: {faults} faults of {walked}");
        let (faults, walked) = faults_of(&mut (0..pages).rev());
        assert!(faults * 12 < walked, "{way:?}: {faults} faults of {walked}");
    }
}

#[test]
fn what_cannot_be_is_a_clear_error() {
    for way in ways() {
        cannot_be(&group(8 * MIB, way));
    }
}

fn cannot_be(group: &Group) {
    assert_eq!(Region::reserve(0).unwrap_err(), Error::Empty);
    assert_eq!(Region::reserve_in(group, 0).unwrap_err(), Error::Empty);
    for bytes in [usize::MAX, usize::MAX - PAGE, 1 << 60] {
        let error = Region::reserve_in(group, bytes).unwrap_err();
        assert_eq!(error, Error::TooLarge { bytes });
        assert!(error.to_string().contains(&bytes.to_string()));
    }
    assert_eq!(Group::new(MIB).err(), Some(Error::BadLimit));
    assert_eq!(Group::new(usize::MAX).err(), Some(Error::BadLimit));
    let mut region = Region::reserve_in(group, 10 * MIB + 1).unwrap();
    assert_eq!(region.len(), 10 * MIB + 1);
    region[10 * MIB] = 5;
    let outside = 10 * MIB + 2;
    assert_eq!(region.pin(..outside).err(), Some(Error::OutOfRange));
    assert_eq!(region.pin(outside..).err(), Some(Error::OutOfRange));
    assert_eq!(
        region.advise_cold(..=usize::MAX).err(),
        Some(Error::OutOfRange)
    );
    assert_eq!(region.discard(..outside).err(), Some(Error::OutOfRange));
    assert_eq!(region.pin(..).err(), Some(Error::PinnedTooMuch));
    assert_eq!(region.pin(10 * MIB..).unwrap().len(), 1);
    assert_eq!(region.pin(7..7).unwrap().len(), 0);
    assert_eq!(region[10 * MIB], 5);
}

#[test]
fn the_process_has_a_group_of_its_own() {
    zfolio::limit(64 * MIB).unwrap();
    zfolio::limit(48 * MIB).unwrap();
    let mut region = Region::reserve(8 * MIB).unwrap();
    region.fill(1);
    assert_eq!(zfolio::limit(48 * MIB), Ok(()));
    assert_eq!(zfolio::limit(8 << 30), Err(Error::LimitIsSet));
    let stats = zfolio::stats().unwrap();
    assert_eq!(stats.high, 48 * MIB as u64);
    assert!(stats.used >= 8 * MIB as u64);
    // Less, and what is there has to go out; more, and it may stay.
    zfolio::limit(4 * MIB).unwrap();
    while zfolio::stats().unwrap().pages_out < (3 * MIB / PAGE) as u64 {
        std::thread::yield_now();
    }
    zfolio::limit(96 * MIB).unwrap();
    assert!(region.iter().all(|byte| *byte == 1));
    assert_eq!(region.group().high(), 96 * MIB);
}

#[test]
fn more_address_space_than_memory_can_be_had() {
    for way in ways() {
        let mut region = Region::reserve_in(&group(8 * MIB, way), 1 << 40).unwrap();
        for at in (0..1_usize << 40).step_by((1 << 35) + PAGE + 1) {
            assert_eq!(region[at], 0);
            region[at] = 0xaa;
        }
        for at in (0..1_usize << 40).step_by((1 << 35) + PAGE + 1) {
            assert_eq!(region[at], 0xaa);
        }
    }
}
