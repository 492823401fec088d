//! What the tests share: pages with known contents, random numbers, groups.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod alone;

use zfolio::{Group, Serving};

pub const PAGE: usize = 4096;
pub const MIB: usize = 1 << 20;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// Writes what `seed` stands for: some random bytes, the rest repeated, so
/// that it compresses to about a tenth. Seed 0 is a page of zeros.
pub fn write_page(page: &mut [u8], seed: u64) {
    if seed == 0 {
        page.fill(0);
        return;
    }
    let mut random = Random(seed);
    for (index, chunk) in page.chunks_mut(8).enumerate() {
        let word = if index % 16 == 0 { random.next() } else { seed };
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// Whether the page holds that.
#[track_caller]
pub fn check_page(page: &[u8], seed: u64, what: usize) {
    let mut wanted = [0; PAGE];
    write_page(&mut wanted[..page.len()], seed);
    if page != &wanted[..page.len()] {
        let at = page.iter().zip(&wanted).position(|(a, b)| a != b);
        panic!("page {what} is not of seed {seed:#x}: first wrong byte {at:?}");
    }
}

/// How regions are served here: every way that this machine allows.
pub fn ways() -> Vec<Serving> {
    let ways = [Serving::InThread, Serving::Threads, Serving::Protected];
    let can = |way: &Serving| {
        let made = Group::builder(8 * MIB).serving(*way).build();
        if let Err(why) = &made {
            eprintln!("SKIPPED: {way:?}: {why}");
        }
        made.is_ok()
    };
    ways.into_iter().filter(can).collect()
}

/// Those in which the thread that touches serves.
pub fn own_ways() -> impl Iterator<Item = Serving> {
    ways().into_iter().filter(|way| *way != Serving::Threads)
}

/// A group served one way.
pub fn group(high: usize, way: Serving) -> Group {
    Group::builder(high).serving(way).build().expect("a group")
}
