//! Protected regions when the system refuses what it never should, or memory is
//! not what it was: right bytes, or a line and the end.
#![cfg(debug_assertions)] // what is refused is made up, in debug builds

mod support;

use std::process::Output;
use support::alone::*;
use support::*;
use zfolio::{Group, Region};
use zfolio_sys::inject::plan;

/// A region past the limit of its group.
fn filled() -> Region {
    let group = Group::new(8 * MIB).unwrap();
    let mut region = Region::reserve_in(&group, 24 * MIB).unwrap();
    for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
        write_page(bytes, page as u64 + 1);
    }
    assert!(group.stats().stored_pages > 0);
    region
}

fn check_all(region: &Region) {
    for (page, bytes) in region.chunks(PAGE).enumerate() {
        check_page(bytes, page as u64 + 1, page);
    }
}

/// Runs a case where regions are protected.
fn protected(case: &str, body: impl FnOnce(), check: impl Fn(&Output)) {
    let body = || match engine() {
        Engine::Moving => {}
        Engine::Protecting | Engine::Refused => body(),
    };
    alone(case, body, check);
}

/// Runs one that must end with a line that has `words` in it.
fn ends(case: &str, words: &str, body: impl FnOnce()) {
    let body = || match engine() {
        // (To be told apart from one that did not end.)
        Engine::Moving => {
            eprintln!("{words}");
            std::process::exit(70);
        }
        Engine::Protecting | Engine::Refused => body(),
    };
    alone(case, body, |output| {
        assert_eq!(output.status.code(), Some(70), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.matches(words).count(), 1, "{told}");
    });
}

#[test]
fn a_group_that_is_not_opened_or_closed_at_once_loses_nothing() {
    let body = || {
        let mut region = filled();
        assert!(plan("mprotect:12:3+5"));
        check_all(&region);
        for (page, bytes) in region.chunks_mut(PAGE).enumerate().step_by(7) {
            write_page(bytes, page as u64 + 1);
        }
        region.advise_cold(..).unwrap();
        check_all(&region);
        region.group().validate().unwrap();
    };
    let case = "a_group_that_is_not_opened_or_closed_at_once_loses_nothing";
    protected(case, body, assert_passed);
}

#[test]
fn one_that_is_never_opened_ends_the_process() {
    let case = "one_that_is_never_opened_ends_the_process";
    ends(case, "vm.max_map_count", || {
        let region = filled();
        region.advise_cold(..).unwrap();
        assert!(plan("mprotect:12:1+1"));
        check_all(&region);
    });
}

#[test]
fn memory_that_is_not_taken_back_is_what_it_was() {
    let body = || {
        let region = filled();
        assert!(plan("madvise:22:1+1"));
        check_all(&region);
        check_all(&region);
        region.group().validate().unwrap();
    };
    let case = "memory_that_is_not_taken_back_is_what_it_was";
    protected(case, body, assert_passed);
}

#[test]
fn discarded_memory_that_is_not_taken_back_ends_the_process() {
    let case = "discarded_memory_that_is_not_taken_back_ends_the_process";
    ends(case, "could not be given back (errno 22)", || {
        let mut region = filled();
        assert!(plan("madvise:22:1+1"));
        region.discard(MIB..2 * MIB).unwrap();
    });
}

/// Writes over the pool.
fn scribble() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let arena = maps.lines().find(|line| line.contains("zfolio arena"));
    let Some(start) = arena.and_then(|line| line.split('-').next()) else {
        eprintln!("SKIPPED: this kernel names no mappings, and the arena is not found");
        eprintln!("could not be brought");
        std::process::exit(70);
    };
    let start = usize::from_str_radix(start, 16).unwrap();
    let start = start.next_multiple_of(2 * MIB);
    // SAFETY: mapped for as long as the process lives; that others find other
    // bytes there than they wrote is the point.
    unsafe { core::ptr::write_bytes(start as *mut u8, 0xa5, MIB) };
}

#[test]
fn a_page_that_is_not_what_was_stored_ends_the_process() {
    let case = "a_page_that_is_not_what_was_stored_ends_the_process";
    ends(case, "could not be brought", || {
        let region = filled();
        scribble();
        check_all(&region);
    });
}
