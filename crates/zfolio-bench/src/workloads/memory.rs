//! Records in one mapping: written once, read in order, at random, and with a
//! hot part; checked in the end, every word. The mapping is the allocator's, or a
//! region of the library's.

use super::lines::{check, tell};
use crate::sequence::Sequence;
use std::hint::black_box;
use std::thread;
use std::time::Instant;
use zfolio::{Group, Region};
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::arena::prefer_huge_pages;

const RECORD_LEN: usize = 64;
type Record = [u8; RECORD_LEN];
const RECORDS_PER_PAGE: usize = PAGE_SIZE / RECORD_LEN;

/// Of 100000 accesses of `hot` and of `tail`, these go to the hot part, and so
/// much is hot.
const HOT_ACCESSES: u64 = 90_000;
const TAIL_ACCESSES: u64 = 99_999;
const HOT_PERCENT: usize = 10;

/// What is asked of the workload.
pub(super) struct Load {
    /// Bytes of records.
    pub(super) size: usize,
    /// Threads that fill.
    pub(super) threads: usize,
    /// Bytes a region may use, if it is to be one.
    pub(super) region: Option<usize>,
    /// Accesses of a random phase.
    pub(super) reads: u64,
    pub(super) seed: u64,
}

/// Where the records are.
enum Memory {
    Plain(Vec<Record>),
    Region(Region),
}

impl Memory {
    fn records(&self) -> &[Record] {
        match self {
            Self::Plain(records) => records,
            Self::Region(region) => region.as_chunks().0,
        }
    }

    fn records_mut(&mut self) -> &mut [Record] {
        match self {
            Self::Plain(records) => records,
            Self::Region(region) => region.as_chunks_mut().0,
        }
    }
}

/// What a record holds: numbers as a program's heap has them, and one word of
/// noise, so that lz4 halves them.
fn record(seed: u64, at: u64) -> Record {
    let noise = Sequence(seed ^ at << 20).next();
    let small = noise & 0x3fff;
    let words = [
        at,
        small,
        u64::from_le_bytes(*b"customer"),
        noise,
        small * 5,
        0,
        f64::to_bits(small as f64),
        at / RECORDS_PER_PAGE as u64,
    ];
    let mut record = [0; RECORD_LEN];
    for (bytes, word) in record.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    record
}

impl Load {
    /// Runs the phases, the first of which is `fill` or `thp`, and then checks all.
    pub(super) fn run(&self, phases: &[String]) -> Result<(), String> {
        let records = (self.size / RECORD_LEN).next_multiple_of(RECORDS_PER_PAGE);
        let mut random = Sequence::named(&[self.seed, records as u64]);
        let mut phases = phases.iter();
        let first = phases.next().map(String::as_str);
        let thp = match first {
            Some("fill") => false,
            Some("thp") => true,
            _ => return Err("the first phase is not fill or thp".to_owned()),
        };
        let begin = Instant::now();
        let memory = self.filled(records, thp)?;
        tell(
            if thp { "thp" } else { "fill" },
            per_second(records, begin),
            "MB/s",
        );
        let memory = memory.records();
        for phase in phases {
            let begin = Instant::now();
            match phase.as_str() {
                "seq" => {
                    let pages = memory.chunks(RECORDS_PER_PAGE);
                    black_box(pages.fold(0_u64, |sum, page| sum + u64::from(page[0][24])));
                    tell(phase, per_second(records, begin), "MB/s");
                }
                "rand" => {
                    black_box(touch(memory, &mut random, self.reads, None));
                    tell(phase, per_access(self.reads, begin), "us");
                }
                "hot" | "tail" => {
                    let part = records / RECORDS_PER_PAGE * HOT_PERCENT / 100;
                    let accesses = if phase == "hot" {
                        HOT_ACCESSES
                    } else {
                        TAIL_ACCESSES
                    };
                    let hot = Some((part, accesses));
                    let sum = touch(memory, &mut random, self.reads, hot);
                    tell(phase, per_access(self.reads, begin), "us");
                    check(&sum.to_string());
                }
                other => {
                    let threads = other.strip_prefix("rand-").and_then(|n| n.parse().ok());
                    let threads: u64 = threads
                        .filter(|n| (1..=64).contains(n))
                        .ok_or_else(|| format!("{other} is no phase"))?;
                    let each = self.reads / threads;
                    touch_together(memory, &mut random, each, threads);
                    tell(phase, per_access(each * threads, begin), "us");
                }
            }
        }
        let begin = Instant::now();
        let bad = (0_u64..)
            .zip(memory)
            .filter(|(at, found)| record(self.seed, *at) != **found)
            .count();
        if bad > 0 {
            return Err(format!("{bad} records are not as they were written"));
        }
        tell("verify", per_second(records, begin), "MB/s");
        Ok(())
    }

    /// `thp`: huge pages are asked for.
    fn filled(&self, records: usize, thp: bool) -> Result<Memory, String> {
        let mut memory = match self.region {
            Some(high) => {
                let group = Group::new(high).map_err(|error| error.to_string())?;
                let region = Region::reserve_in(&group, records * RECORD_LEN);
                Memory::Region(region.map_err(|error| error.to_string())?)
            }
            // Zeros of the kernel's own: not touched before they are written.
            None => Memory::Plain(vec![[0; RECORD_LEN]; records]),
        };
        if let (true, Memory::Plain(records)) = (thp, &memory) {
            prefer_huge_pages(
                (records.as_ptr() as usize).next_multiple_of(PAGE_SIZE),
                (records.len() * RECORD_LEN).saturating_sub(PAGE_SIZE),
            );
        }
        let part = records.div_ceil(self.threads).max(1);
        let parts = memory.records_mut().chunks_mut(part).enumerate();
        let fill = |(which, part_of): (usize, &mut [Record])| {
            for (at, place) in (which as u64 * part as u64..).zip(part_of) {
                *place = record(self.seed, at);
            }
        };
        if self.threads == 1 {
            parts.for_each(fill);
        } else {
            thread::scope(|scope| {
                for each in parts {
                    scope.spawn(move || fill(each));
                }
            });
        }
        Ok(memory)
    }
}

/// Reads a byte of `reads` random pages; with `hot`, of the first so many these
/// times of 100000.
fn touch(memory: &[Record], random: &mut Sequence, reads: u64, hot: Option<(usize, u64)>) -> u64 {
    let pages = memory.len() / RECORDS_PER_PAGE;
    let mut sum = 0_u64;
    for _ in 0..reads {
        let among = match hot {
            Some((hot, accesses)) if random.next() % 100_000 < accesses => hot.max(1),
            _ => pages,
        };
        let word = random.next();
        #[allow(clippy::cast_possible_truncation, reason = "below a usize")]
        let page = (word % among as u64) as usize;
        #[allow(clippy::cast_possible_truncation, reason = "below a page's records")]
        let within = (word >> 58) as usize % RECORDS_PER_PAGE;
        sum += u64::from(memory[page * RECORDS_PER_PAGE + within][24]);
    }
    sum
}

fn touch_together(memory: &[Record], random: &mut Sequence, reads: u64, threads: u64) {
    thread::scope(|scope| {
        for _ in 0..threads {
            let mut own = Sequence(random.next());
            scope.spawn(move || black_box(touch(memory, &mut own, reads, None)));
        }
    });
}

/// MB/s for all records.
fn per_second(records: usize, begin: Instant) -> f64 {
    let bytes = records * RECORD_LEN;
    bytes as f64 / 1e6 / begin.elapsed().as_secs_f64().max(1e-9)
}

/// Microseconds an access.
fn per_access(reads: u64, begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6 / reads.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(threads: usize, seed: u64) -> Load {
        Load {
            size: 40 * PAGE_SIZE,
            threads,
            region: None,
            reads: 100,
            seed,
        }
    }

    #[test]
    fn threads_write_what_one_writes() {
        let records = 5 * RECORDS_PER_PAGE;
        let filled = |load: Load| {
            load.filled(records, false)
                .expect("memory")
                .records()
                .to_vec()
        };
        let one = filled(load(1, 3));
        assert_eq!(one, filled(load(3, 3)));
        assert_ne!(one, filled(load(1, 4)));
        assert_eq!(one[77], record(3, 77));
    }

    #[test]
    fn every_phase_runs_and_others_do_not() {
        let phases = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            load(2, 1).run(&names)
        };
        assert_eq!(
            phases(&["fill", "seq", "rand", "hot", "tail", "rand-4"]),
            Ok(())
        );
        assert_eq!(phases(&["thp", "seq"]), Ok(()));
        for wrong in [&[][..], &["hot"], &["fill", "rand-0"], &["fill", "thp"]] {
            assert!(phases(wrong).is_err(), "{wrong:?}");
        }
    }
}
