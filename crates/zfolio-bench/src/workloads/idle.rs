//! More memory than there is to be, filled once; then hardly touched for a while, then
//! read at random. Every page is checked in the end.
//!
//! It tells how much of it is resident, twice a second while it is idle.

use super::lines::{fingerprint, print_line, tell};
use crate::sequence::Sequence;
use serde_json::json;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use zfolio_compress::sample;
use zfolio_mm::PAGE_SIZE;

/// Between two touches while it is idle.
const TOUCHES: Duration = Duration::from_millis(50);
/// Touches between two looks at what is resident.
const LOOKS: u64 = 10;

/// What is asked of the workload.
pub(super) struct Idle {
    pub(super) size: usize,
    /// Where the pages are from, over and over; records if nowhere.
    pub(super) file: Option<PathBuf>,
    pub(super) seconds: u64,
    pub(super) reads: u64,
    pub(super) seed: u64,
}

impl Idle {
    /// Fills, idles, reads and checks.
    pub(super) fn run(&self) -> Result<(), String> {
        let pages = self.size / PAGE_SIZE;
        let mut memory = vec![0_u8; pages * PAGE_SIZE];
        let mut sums = Vec::with_capacity(pages);
        let source = self.file.as_ref().map(File::open).transpose();
        let source = source.map_err(|error| format!("the pages: {error}"))?;
        let begin = Instant::now();
        for (number, page) in (0_u64..).zip(memory.chunks_exact_mut(PAGE_SIZE)) {
            match &source {
                Some(source) => fill(source, number, page)?,
                None => sample::records(page, self.seed, number * PAGE_SIZE as u64),
            }
            sums.push(fingerprint(page));
        }
        tell("fill", begin.elapsed().as_secs_f64(), "s");
        let mut random = Sequence::named(&[self.seed]);
        let mut at = |len: usize| usize::try_from(random.next() % len as u64).unwrap_or(0);
        let begin = Instant::now();
        let end = Duration::from_secs(self.seconds);
        for touch in 0_u64.. {
            let now = begin.elapsed();
            if touch % LOOKS == 0 || now >= end {
                let at = now.as_secs_f64();
                print_line(
                    &json!({ "phase": "idle", "value": resident()?, "unit": "bytes", "at": at }),
                );
            }
            if now >= end {
                break;
            }
            black_box(memory[at(memory.len())]);
            thread::sleep(TOUCHES);
        }
        let begin = Instant::now();
        for _ in 0..self.reads {
            black_box(memory[at(memory.len())]);
        }
        let each = begin.elapsed().as_secs_f64() * 1e6 / self.reads.max(1) as f64;
        tell("rand", each, "us");
        for (number, (page, sum)) in memory.chunks_exact(PAGE_SIZE).zip(&sums).enumerate() {
            if fingerprint(page) != *sum {
                return Err(format!("page {number} is not as it was written"));
            }
        }
        Ok(())
    }
}

/// The page of a file with this number, counted round and round.
fn fill(source: &File, number: u64, page: &mut [u8]) -> Result<(), String> {
    let failed = |error| format!("the pages: {error}");
    let pages = source.metadata().map_err(failed)?.len() / PAGE_SIZE as u64;
    let number = number.checked_rem(pages).ok_or("there are no pages")?;
    source
        .read_exact_at(page, number * PAGE_SIZE as u64)
        .map_err(failed)
}

/// Bytes of the process that are resident.
fn resident() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/self/statm").map_err(|error| error.to_string())?;
    let pages = text.split_whitespace().nth(1);
    let pages: Option<u64> = pages.and_then(|pages| pages.parse().ok());
    Ok(pages.ok_or("/proc/self/statm has no second field")? * PAGE_SIZE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_come_round_again_and_damage_would_be_seen() {
        let mut file = tempfile::tempfile().unwrap();
        let mut two = vec![1; PAGE_SIZE];
        two.extend(vec![2; PAGE_SIZE]);
        file.write_all(&two).unwrap();
        let mut page = vec![0; PAGE_SIZE];
        for (number, byte) in [(0, 1), (1, 2), (2, 1), (7, 2)] {
            fill(&file, number, &mut page).unwrap();
            assert!(page.iter().all(|found| *found == byte), "{number}");
        }
        file.set_len(100).unwrap();
        assert!(fill(&file, 0, &mut page).is_err());
        assert!(resident().unwrap() > 0);
    }

    #[test]
    fn it_runs_bare() {
        let idle = Idle {
            size: 1 << 20,
            file: None,
            seconds: 0,
            reads: 10,
            seed: 1,
        };
        idle.run().unwrap();
    }
}
