//! Groups with options: the cases that every face has, and counts of a workload that are known.

mod support;

use std::time::{Duration, Instant};
use support::*;
use zfolio::{Error, Group, Region, Serving};

const CASES: &str = include_str!("options.txt");

/// A number in what a group says of itself, by its name.
#[track_caller]
fn number(text: &str, name: &str) -> u64 {
    let quoted = format!("\"{name}\":");
    let at = text
        .find(&quoted)
        .unwrap_or_else(|| panic!("{name}: {text}"));
    let rest = &text[at + quoted.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).expect("an end");
    rest[..end].parse().expect("a number")
}

fn count(group: &Group, name: &str) -> u64 {
    number(&group.statistics(), name)
}

/// The same of folios of a size.
fn folios(group: &Group, size: &str, name: &str) -> u64 {
    let text = group.statistics();
    let at = text.find(&format!("\"hugepages-{size}\"")).expect("a size");
    number(&text[at..], name)
}

fn fill(region: &mut Region) {
    for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
        write_page(bytes, page as u64 + 1);
    }
}

fn check(region: &Region) {
    for (page, bytes) in region.chunks(PAGE).enumerate() {
        check_page(bytes, page as u64 + 1, page);
    }
}

/// What a group says of itself once it says something of all `counters`, and of classes: reclaim is another
/// thread's, and the table of classes is made once a second. After 30 s, whatever it says.
fn stated(group: &Group, region: &Region, counters: &str) -> String {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let text = group.statistics();
        let is_there = |name| {
            let quoted = format!("\"{name}\":");
            text.contains(&quoted) && number(&text, name) > 0
        };
        let mut names = counters.split_whitespace().chain(["pages_used"]);
        if names.all(is_there) || Instant::now() > until {
            return text;
        }
        std::thread::sleep(Duration::from_millis(100));
        check(region);
    }
}

#[test]
fn every_option_does_what_it_says() {
    let lines = CASES.lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let [served, options, counters] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        for way in ways() {
            let mut builder = Group::builder(8 * MIB).serving(way);
            for option in options.split_whitespace() {
                let (name, value) = option.split_once('=').expect(option);
                builder = builder.option(name, value).expect(option);
            }
            if way == Serving::Protected && served.trim() == "moving" {
                let refused = builder.build().err();
                assert!(matches!(refused, Some(Error::Unavailable { .. })), "{line}");
                continue;
            }
            let group = builder.build().expect(line);
            let mut region = Region::reserve_in(&group, 24 * MIB).expect(line);
            fill(&mut region);
            check(&region);
            let text = stated(&group, &region, counters);
            for name in counters.split_whitespace() {
                assert!(number(&text, name) > 0, "{way:?}: {name} of {line}: {text}");
            }
            assert!(
                number(&text, "pages_used") > 0,
                "{way:?}: a table of classes"
            );
        }
    }
}

/// A region of `pages` pages alone in a group of 8 MiB.
fn roomy(way: Serving, pages: usize) -> (Group, Region) {
    let group = Group::builder(8 * MIB)
        .serving(way)
        .option("compressor", "lz4")
        .and_then(|builder| builder.build())
        .expect("a group");
    let region = Region::reserve_in(&group, pages * PAGE).expect("a region");
    (group, region)
}

/// The same, full: as many pages are stored.
fn stored(way: Serving, pages: usize) -> (Group, Region) {
    let (group, mut region) = roomy(way, pages);
    fill(&mut region);
    (group, region)
}

#[test]
fn faults_and_read_ahead_are_counted_as_the_kernel_would() {
    for way in ways().into_iter().filter(|way| *way != Serving::Protected) {
        let (group, mut region) = roomy(way, 16 * MIB / PAGE);
        let pages = region.len() / PAGE;
        let names = [
            "faults_served",
            "pgmajfault",
            "pages_in",
            "swap_ra",
            "swap_ra_hit",
        ];
        let counts = || names.map(|name| count(&group, name));
        // (Counts go on from those of the group that had the engine before.)
        let base = counts();
        // First touches are no major faults.
        for (page, bytes) in region.chunks_mut(PAGE).take(pages / 8).enumerate() {
            write_page(bytes, page as u64 + 1);
        }
        let first = counts();
        assert!(first[0] > base[0], "{way:?}: {base:?} {first:?}");
        assert_eq!(first[1..], base[1..], "{way:?}");
        fill(&mut region);
        let begin = counts();
        // In order: all but the first pages of windows came ahead, and the reader has passed
        // all windows but the last.
        let out = count(&group, "stored_pages");
        for (page, bytes) in region.chunks(PAGE).enumerate() {
            check_page(bytes, page as u64 + 1, page);
        }
        let end = counts();
        let [_, major, came, ahead, hits] = [0, 1, 2, 3, 4].map(|at| end[at] - begin[at]);
        assert!(came >= out && out > 0, "{way:?}: {out} {came}");
        assert!(major > 0 && ahead > came / 2, "{way:?}: {end:?}");
        assert!(
            hits <= ahead && hits >= ahead - 512,
            "{way:?}: {hits} of {ahead}"
        );
        // One page alone: one major fault, nothing ahead.
        region.discard(0..region.len()).expect("discard");
        let lone = pages / 2 * PAGE;
        write_page(&mut region[lone..lone + PAGE], 7);
        put_away_page(&group, &region, lone);
        let begin = counts();
        check_page(&region[lone..lone + PAGE], 7, 0);
        let end = counts();
        let came = [1, 2, 3, 4].map(|at| end[at] - begin[at]);
        assert_eq!(came, [1, 1, 0, 0], "{way:?}");
    }
}

fn put_away_page(group: &Group, region: &Region, at: usize) {
    region.advise_cold(at..at + PAGE).expect("cold");
    // Enough besides that it is stored and not in standby.
    let mut other = Region::reserve_in(group, 24 * MIB).expect("a region");
    fill(&mut other);
    drop(other);
    let begin = Instant::now();
    while group.stats().stored_pages != 1 {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{:?}",
            group.stats()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn folios_are_counted_by_size() {
    for way in ways().into_iter().filter(|way| *way != Serving::Protected) {
        let group = Group::builder(8 * MIB)
            .serving(way)
            .option("folio", "16K")
            .and_then(|builder| builder.build())
            .expect("a group");
        let mut region = Region::reserve_in(&group, 24 * MIB).expect("a region");
        fill(&mut region);
        let whole = folios(&group, "16kB", "zswpout") + folios(&group, "2048kB", "zswpout");
        assert!(whole > 0, "{way:?}");
        assert_eq!(folios(&group, "64kB", "zswpout"), 0, "{way:?}");
        assert_eq!(
            folios(&group, "16kB", "swpin"),
            0,
            "{way:?}: there is no backing"
        );
        check(&region);
    }
}

#[test]
fn a_pool_full_of_holes_is_compacted_on_request() {
    for way in ways() {
        let (group, mut region) = stored(way, 24 * MIB / PAGE);
        let stored = group.stats().stored_pages;
        // Three of four pages of each group that holes may be made in.
        for page in (0..region.len() / PAGE).filter(|page| page % 4 != 0) {
            region
                .discard(page * PAGE..(page + 1) * PAGE)
                .expect("discard");
        }
        let before = group.stats();
        assert!(before.stored_pages < stored / 2, "{way:?}: {before:?}");
        let by_itself = |name| count(&group, name);
        let done = group.compact();
        assert_eq!(by_itself("objs_moved_request"), done.objs_moved, "{way:?}");
        // (Nothing comes or goes between the two: the group has room.)
        let again = group.compact();
        assert_eq!(again.pages_compacted, 0, "{way:?}: {done:?} {again:?}");
        let causes = ["period", "pressure", "request"];
        let sum: u64 = causes
            .map(|cause| count(&group, &format!("objs_moved_{cause}")))
            .iter()
            .sum();
        assert_eq!(sum, by_itself("objs_moved"), "{way:?}");
        assert!(by_itself("objs_moved") > 0, "{way:?}: {done:?}");
        let after = group.stats();
        assert!(after.pool <= before.pool, "{way:?}: {before:?} {after:?}");
        for page in (0..region.len() / PAGE).filter(|page| page % 4 == 0) {
            check_page(
                &region[page * PAGE..(page + 1) * PAGE],
                page as u64 + 1,
                page,
            );
        }
        group.validate().expect("whole");
    }
}

#[test]
fn mistakes_are_told_by_name() {
    let builder = Group::builder(8 * MIB);
    assert_eq!(
        builder.option("high", "1G").err(),
        Some(Error::UnknownOption)
    );
    let bad = |option| Some(Error::BadOption { option });
    assert_eq!(builder.option("folio", "3K").err(), bad("folio"));
    let small = builder.option("max", "4M").expect("a size");
    assert_eq!(small.build().err(), bad("max"));
    let limited = builder.option("max", "16M").and_then(|of| of.build());
    if let Ok(group) = limited {
        assert_eq!(group.set_high(17 * MIB), Err(Error::BadLimit));
        assert_eq!(group.set_high(16 * MIB), Ok(()));
    }
    let nowhere = builder.option("backing", "file:/nowhere/at/all,size=64M");
    let refused = nowhere.expect("a path").serving(Serving::InThread).build();
    assert!(matches!(refused.err(), Some(Error::Unavailable { .. })));
}
