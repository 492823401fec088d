//! Regions against a plain model: what is written, read, pinned, discarded and
//! advised at random by several threads, in pages that lie among those of others,
//! with a limit that is far below what is kept. Every byte read is checked, and
//! after each round all of them and the engine's invariants.

mod support;

use support::*;
use zfolio::{Group, Region, Serving};

const THREADS: usize = 3;
const TURNS: usize = 900;
const ROUNDS: usize = 4;
/// Not a whole number of groups.
const PAGES: usize = 24 * MIB / PAGE + 5;

/// Whose a page is: page by page in the first half, in runs of some more than a
/// group in the second.
fn owner(page: usize) -> usize {
    if page < PAGES / 2 {
        page % THREADS
    } else {
        page / 40 % THREADS
    }
}

/// What a thread has of a region, and what each of its pages holds.
struct Part<'a> {
    region: &'a Region,
    thread: usize,
    seeds: &'a mut Vec<u64>,
    random: Random,
}

impl Part<'_> {
    fn page(&mut self) -> usize {
        loop {
            let page = self.random.below(PAGES);
            if owner(page) == self.thread {
                return page;
            }
        }
    }

    fn bytes(&mut self, page: usize) -> &mut [u8] {
        assert_eq!(owner(page), self.thread);
        let start = (self.region.as_ptr() as usize + page * PAGE) as *mut u8;
        // SAFETY: inside the region; this thread's alone, by `owner`.
        unsafe { core::slice::from_raw_parts_mut(start, PAGE) }
    }

    fn check(&mut self, page: usize) {
        let seed = self.seeds[page];
        check_page(self.bytes(page), seed, page);
    }

    fn write(&mut self, page: usize) {
        let seed = match self.random.below(8) {
            0 => 0,
            _ => self.random.next() | 1,
        };
        self.seeds[page] = seed;
        let bytes = self.bytes(page);
        write_page(bytes, seed);
        if seed % 11 == 0 && seed > 0 {
            // One that does not compress.
            let mut random = Random(seed);
            self.seeds[page] = seed;
            for chunk in self.bytes(page).chunks_mut(8) {
                chunk.copy_from_slice(&random.next().to_le_bytes());
            }
            self.check_random(page, seed);
            let bytes = self.bytes(page);
            write_page(bytes, seed);
        }
    }

    fn check_random(&mut self, page: usize, seed: u64) {
        let mut random = Random(seed);
        let right = |chunk: &[u8]| chunk == random.next().to_le_bytes();
        assert!(self.bytes(page).chunks(8).all(right), "page {page}");
    }

    /// Pages of this thread's from `page` on.
    fn run(&self, page: usize) -> usize {
        let own = (page..PAGES.min(page + 64)).take_while(|page| owner(*page) == self.thread);
        own.count()
    }

    fn discard(&mut self, page: usize) {
        let count = self.run(page);
        self.seeds[page..page + count].fill(0);
        let range = page * PAGE..(page + count) * PAGE;
        // SAFETY: pages of this thread's, to which it has no reference now.
        unsafe { self.region.discard_shared(range) }.unwrap();
    }

    fn pin(&mut self, page: usize) {
        let end = (page + 1 + self.random.below(20)).min(PAGES);
        let Ok(pin) = self.region.pin(page * PAGE..end * PAGE) else {
            return; // others have half of the limit
        };
        // (Of the pages in it some are others', who write to them.)
        let first = pin.as_ptr();
        assert_eq!(first as usize, self.region.as_ptr() as usize + page * PAGE);
        for _ in 0..self.random.below(4) {
            let other = self.page();
            self.write(other);
        }
        self.check(page);
        drop(pin);
    }

    fn turn(&mut self) {
        let page = self.page();
        let len = self.random.below(200);
        let range = page * PAGE..(page + len).min(PAGES) * PAGE;
        match self.random.below(24) {
            0..8 => self.check(page),
            8..16 => self.write(page),
            16 => self.discard(page),
            17..19 => self.pin(page),
            19 => self.region.advise_cold(range).unwrap(),
            20 => self.region.advise_willneed(range).unwrap(),
            _ => {
                for page in page..page + self.run(page) {
                    self.check(page);
                }
            }
        }
    }
}

fn against_model(group: &Group, high: &[usize]) {
    let region = Region::reserve_in(group, PAGES * PAGE).unwrap();
    let mut seeds = [const { Vec::new() }; THREADS];
    seeds.iter_mut().for_each(|seeds| seeds.resize(PAGES, 0));
    for round in 0..ROUNDS {
        group.set_high(high[round % high.len()]).unwrap();
        std::thread::scope(|scope| {
            for (thread, seeds) in seeds.iter_mut().enumerate() {
                let mut part = Part {
                    region: &region,
                    thread,
                    seeds,
                    random: Random((round * 100 + thread) as u64),
                };
                scope.spawn(move || (0..TURNS).for_each(|_| part.turn()));
            }
        });
        group.validate().unwrap();
        for page in 0..PAGES {
            let seed = seeds[owner(page)][page];
            check_page(&region[page * PAGE..(page + 1) * PAGE], seed, page);
        }
        group.validate().unwrap();
    }
    let stats = group.stats();
    assert!(stats.pages_out > 0 && stats.pages_in > 0, "{stats:?}");
}

#[test]
fn what_was_written_is_what_is_read() {
    for way in ways() {
        against_model(
            &group(4 * MIB, way),
            &[4 * MIB, 12 * MIB, 6 * MIB, 40 * MIB],
        );
    }
}

/// Mappings of this process at addresses of `region`, open ones and closed ones.
fn mappings(region: &Region) -> [usize; 2] {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let inside = region.as_ptr_range();
    let inside = inside.start as usize..inside.end as usize;
    let mut found = [0; 2];
    for line in maps.lines() {
        let mut words = line.split([' ', '-']);
        let start = usize::from_str_radix(words.next().unwrap(), 16).unwrap();
        let open = words.nth(1).unwrap().starts_with("rw");
        if inside.contains(&start) {
            found[usize::from(!open)] += 1;
        }
    }
    found
}

/// Touches, for each group of pages, only one, with closed ones on either side.
#[test]
fn pages_far_apart_leave_most_mappings_to_the_program() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let limit = limit.map_or(65_530, |text| text.trim().parse::<usize>().unwrap());
    let step = 256 << 10;
    let count = limit / 5;
    let group = group(2 << 30, Serving::Protected);
    let mut region = Region::reserve_in(&group, count * step).unwrap();
    for page in 0..count {
        write_page(&mut region[page * step..page * step + PAGE], page as u64);
    }
    let [open, closed] = mappings(&region);
    assert!(
        open + closed <= limit / 4 + 8,
        "{open} open, {closed} closed"
    );
    assert!(open > limit / 16, "{open} open, {closed} closed");
    group.validate().unwrap();
    for page in 0..count {
        check_page(&region[page * step..page * step + PAGE], page as u64, page);
    }
}
