//! The clock of the shared object is the system's.

use super::*;
use crate::thread::{Clock, now_ns, now_ns_of_system};

#[test]
fn the_clock_is_the_system_s() {
    for _ in 0..1000 {
        let before = now_ns_of_system(Clock::Monotonic);
        let between = now_ns(Clock::Monotonic);
        let after = now_ns_of_system(Clock::Monotonic);
        assert!((before..=after).contains(&between));
    }
}

#[test]
fn what_is_not_mapped_is_not_read() {
    assert!(!is_mapped(0, PAGE_SIZE) && !is_mapped(PAGE_SIZE, PAGE_SIZE));
    assert!(Image::at(PAGE_SIZE).is_none());
}

#[test]
fn symbols_are_found_by_their_whole_name() {
    let mut auxv = [0_u64; AUXV];
    let (to, len) = (auxv.as_mut_ptr() as usize, size_of_val(&auxv));
    // SAFETY: as in `find`.
    unsafe { syscall(nr::PRCTL, [PR_GET_AUXV, to, len, 0, 0, 0]) }.expect("Linux 6.4");
    let (pairs, _) = auxv.as_chunks::<2>();
    let base = pairs.iter().find(|[kind, _]| *kind == AT_SYSINFO_EHDR);
    let Some([_, base]) = base else {
        return; // in a process that has none
    };
    let image = Image::at(usize::try_from(*base).expect("an address")).expect("an image");
    assert!(image.symbol(NAME).is_some());
    assert!(image.symbol(b"__vdso_clock_gettim\0").is_none());
    assert_eq!(find(), image.symbol(NAME));
    if let Some(table) = image.entry(DT_GNU_HASH) {
        // (By either table, where there are both.)
        assert_eq!(image.symbols_hashed(table), image.symbols());
    }
    assert_eq!(image.read::<u64>(image.base + image.len - 7), None);
    assert_eq!(image.read::<u8>(image.base - 1), None);
}
