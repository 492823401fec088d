//! Memory that churns: small pages of all sizes once compressed, of which most are
//! discarded where they lie, stored; and huge pages that go out and come back
//! meanwhile, or are mapped anew. Every word is checked in the end, and of the huge
//! pages each round.
//!
//! What is left of the small ones lies scattered over the arena, and the huge ones
//! want blocks of 2 MiB there.

use super::lines::{check, fingerprint, tell};
use crate::sequence::Sequence;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::arena::{avoid_huge_pages, discard, prefer_huge_pages};

const WORDS: usize = PAGE_SIZE / size_of::<u64>();
/// Buffers of huge pages; one is mapped anew each round.
const BUFFERS: usize = 4;
/// Of a hundred small pages, so many are discarded each round.
const DISCARDED: u32 = 75;
/// Of a hundred huge pages, so many are written anew each round.
const REWRITTEN: u32 = 40;
/// Time in which the program touches nothing, each round.
const CALM: Duration = Duration::from_millis(250);

/// What is asked of the workload.
pub(super) struct Churn {
    /// Bytes: one half of small pages, one of huge ones.
    pub(super) size: usize,
    pub(super) rounds: u64,
    /// Addresses the process may have in all, bytes.
    pub(super) addresses: Option<u64>,
    pub(super) seed: u64,
}

/// Pages in a row that all are small, or may be huge.
struct Pages {
    memory: Vec<u64>,
    /// First word of the first page.
    first: usize,
    /// What was written to each page, as a number; 0: nothing, it holds zeros.
    written: Vec<u64>,
}

/// Word `at` of a page written as `number`: some noise, a different amount for each,
/// and one word over and over.
fn word(number: u64, at: usize) -> u64 {
    let noisy = 40 + (Sequence(number).next() % 400) as usize;
    Sequence(number ^ (at.min(noisy) as u64) << 40).next()
}

impl Pages {
    fn new(pages: usize, huge: bool) -> Result<Self, String> {
        let align = if huge { Order::HUGE.pages() } else { 1 };
        let words = (pages + align) * WORDS;
        let mut probe: Vec<u64> = Vec::new();
        probe
            .try_reserve_exact(words)
            .map_err(|error| error.to_string())?;
        drop(probe);
        // Of the size just had: zeros of the kernel's own, in a mapping of its own.
        let memory = vec![0_u64; words];
        let start = memory.as_ptr() as usize;
        let skip = start.next_multiple_of(align * PAGE_SIZE) - start;
        if huge {
            prefer_huge_pages(start + skip, pages * PAGE_SIZE);
        } else {
            avoid_huge_pages(start + skip, pages * PAGE_SIZE);
        }
        Ok(Self {
            memory,
            first: skip / size_of::<u64>(),
            written: vec![0; pages],
        })
    }

    fn page(&mut self, page: usize) -> &mut [u64] {
        let first = self.first + page * WORDS;
        // What was discarded behind the compiler's back is seen.
        black_box(&mut self.memory[first..first + WORDS])
    }

    fn write(&mut self, page: usize, number: u64) {
        for (at, place) in self.page(page).iter_mut().enumerate() {
            *place = word(number, at);
        }
        self.written[page] = number;
    }

    fn discard(&mut self, page: usize) -> Result<(), String> {
        let start = self.page(page).as_ptr() as usize;
        self.written[page] = 0;
        discard(start, PAGE_SIZE).map_err(|errno| format!("madvise: errno {}", errno.0))
    }

    fn check(&mut self, page: usize) -> Result<(), String> {
        let number = self.written[page];
        let is = |at| if number == 0 { 0 } else { word(number, at) };
        let wrong = (0_usize..)
            .zip(self.page(page))
            .find(|(at, found)| **found != is(*at));
        wrong.map_or(Ok(()), |(at, found)| {
            Err(format!("page {page}: word {at} is {found:#x}"))
        })
    }

    fn check_all(&mut self) -> Result<(), String> {
        (0..self.written.len()).try_for_each(|page| self.check(page))
    }
}

impl Churn {
    /// Runs the rounds, then checks everything.
    pub(super) fn run(&self) -> Result<(), String> {
        if let Some(addresses) = self.addresses {
            let limit = Rlimit {
                current: Some(addresses),
                maximum: getrlimit(Resource::As).maximum,
            };
            setrlimit(Resource::As, limit).map_err(|error| format!("setrlimit: {error}"))?;
        }
        let begin = Instant::now();
        let mut random = Sequence::named(&[self.seed]);
        let pages = self.size / 2 / PAGE_SIZE;
        let mut small = Pages::new(pages, false)?;
        let huge = pages / BUFFERS;
        let huge = huge.next_multiple_of(Order::HUGE.pages());
        let mut buffers = Vec::new();
        for _ in 0..BUFFERS {
            buffers.push(filled(huge, &mut random)?);
        }
        for (_, anew) in (0..self.rounds).zip((0..BUFFERS).cycle()) {
            for page in 0..pages {
                if small.written[page] == 0 {
                    small.write(page, random.next() | 1);
                }
            }
            for buffer in &mut buffers {
                rewrite(buffer, &mut random)?;
            }
            for page in 0..pages {
                if random.chance(DISCARDED) {
                    small.discard(page)?;
                }
            }
            buffers[anew] = filled(huge, &mut random)?;
            for buffer in &mut buffers {
                rewrite(buffer, &mut random)?;
            }
            thread::sleep(CALM);
        }
        tell("churn", begin.elapsed().as_secs_f64(), "s");
        small.check_all()?;
        for buffer in &mut buffers {
            buffer.check_all()?;
        }
        let all = buffers
            .iter()
            .chain([&small])
            .flat_map(|pages| &pages.written);
        let bytes: Vec<u8> = all.flat_map(|number| number.to_le_bytes()).collect();
        check(&format!("{:016x}", fingerprint(&bytes)));
        Ok(())
    }
}

/// Huge pages, mapped and written.
fn filled(pages: usize, random: &mut Sequence) -> Result<Pages, String> {
    let mut buffer = Pages::new(pages, true)?;
    for page in 0..pages {
        buffer.write(page, random.next() | 1);
    }
    Ok(buffer)
}

/// Goes over huge pages in order: each is checked, and some are written anew.
fn rewrite(buffer: &mut Pages, random: &mut Sequence) -> Result<(), String> {
    let huge = Order::HUGE.pages();
    for first in (0..buffer.written.len()).step_by(huge) {
        let anew = random.chance(REWRITTEN);
        for page in first..first + huge {
            buffer.check(page)?;
            if anew {
                buffer.write(page, random.next() | 1);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn churn(seed: u64) -> Churn {
        Churn {
            size: 16 << 20,
            rounds: 1,
            addresses: None,
            seed,
        }
    }

    #[test]
    fn what_was_written_is_what_is_checked() {
        churn(1).run().expect("every word right");
        let mut pages = Pages::new(4, false).expect("memory");
        pages.write(1, 9);
        pages.write(2, 11);
        pages.discard(2).expect("madvise");
        pages.check_all().expect("two of zeros, one written");
        pages.page(1)[100] ^= 1;
        assert!(pages.check_all().is_err());
    }

    #[test]
    fn pages_compress_to_all_sizes() {
        let noisy = |number: u64| {
            let last = word(number, WORDS - 1);
            (0..WORDS).filter(|at| word(number, *at) != last).count()
        };
        let of: Vec<usize> = (1..200).map(noisy).collect();
        assert!(of.iter().all(|noisy| (40..440).contains(noisy)));
        assert!(of.iter().any(|noisy| *noisy < 80) && of.iter().any(|noisy| *noisy > 400));
    }
}
