//! A large arena's book-keeping costs nothing until it is used. In a file of
//! its own: the only test of its process, since it reads the process's size.

use zfolio_mm::{Frames, Kind, Order};

/// Resident bytes of this process, exactly (other files round per thread).
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("procfs");
    let line = text
        .lines()
        .find(|line| line.starts_with("Rss:"))
        .expect("a line on Rss");
    let kib = line.split_whitespace().nth(1).expect("a number");
    kib.parse::<usize>().expect("a number") << 10
}

#[test]
fn sixteen_gibibytes_of_slots_touch_little_memory() {
    let slots = 1 << 22;
    let before = resident_bytes();
    let mut frames = Frames::new(slots);
    assert_eq!(frames.free_blocks(Kind::Hole, Order::HUGE), slots / 512);
    let grown = resident_bytes().saturating_sub(before);
    // 72 KiB of cells for 8192 blocks. A system that backs every mapping with
    // huge pages rounds each of the two tables up to 2 MiB; tables written in
    // full would take 75 MiB, one page per block 64 MiB.
    assert!(grown < 5 << 20, "{grown} bytes touched");

    let at = frames.alloc(Kind::Hole, Order::PAGE).expect("a free arena");
    frames.free(Kind::Backed, at, Order::PAGE);
    assert_eq!(
        frames.free_pages(Kind::Hole) + frames.free_pages(Kind::Backed),
        slots
    );
}
