//! How fast a region is: filled, read in order, at random, and with a hot set.
//!
//!     cargo run --release -p zfolio --example region_speed [MIB [HIGH_MIB [THREADS]]]
//!
//! `SERVING=in-thread,protected RUNS=5` measures both ways in turn, in one process,
//! and says how many times as long the second takes. (`threads` is the third; with one
//! name only that is measured.) `CODEC` is `lz4` if it is not set.
//!
//! Every page read is checked. The contents compress to about a third with
//! lz4. Figures are of the one run; compare medians of interleaved runs.

use std::cell::RefCell;
use std::time::{Duration, Instant};
use zfolio::{Codec, Group, Region, Serving};

const PAGE: usize = 4096;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// A page: its number at the start, then text-like runs.
fn write(page: &mut [u8], number: usize) {
    let mut state = number as u64;
    for chunk in page.chunks_exact_mut(64) {
        let word = random(&mut state).to_le_bytes();
        chunk[..8].copy_from_slice(&word);
        chunk[8..16].copy_from_slice(&word);
        let again = (number as u64 % 251).to_le_bytes();
        for part in chunk[16..].chunks_exact_mut(8) {
            part.copy_from_slice(&again);
        }
    }
    page[..8].copy_from_slice(&(number as u64).to_le_bytes());
}

fn check(page: &[u8], number: usize) {
    let found = u64::from_le_bytes(page[..8].try_into().expect("eight bytes"));
    assert_eq!(found, number as u64, "wrong bytes in page {number}");
}

/// A name of `SERVING`.
fn serving(name: &str) -> Serving {
    match name {
        "in-thread" => Serving::InThread,
        "threads" => Serving::Threads,
        "protected" => Serving::Protected,
        other => panic!("SERVING: {other} is none of in-thread, threads, protected"),
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let mut next = |default| args.next().map_or(default, |arg| arg.expect("a number"));
    let sizes = [next(512), next(256), next(1)];
    let names = std::env::var("SERVING").unwrap_or("in-thread".into());
    let runs: usize = std::env::var("RUNS").map_or(1, |runs| runs.parse().expect("a number"));
    let ways: Vec<&str> = names.split(',').collect();
    // By way, then by part: the times of all runs, in turn.
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..runs {
        for (way, times) in ways.iter().zip(&mut times) {
            println!("-- {way}");
            times.push(measure(serving(way), sizes));
        }
    }
    let [first, rest @ ..] = &times[..] else {
        return;
    };
    for (way, other) in ways[1..].iter().zip(rest) {
        println!("-- {way}: times what {} takes, median of {runs}", ways[0]);
        for (at, (part, _)) in first[0].iter().enumerate() {
            let mut ratios: Vec<f64> = first
                .iter()
                .zip(other)
                .map(|(one, two)| two[at].1 / one[at].1)
                .collect();
            ratios.sort_by(f64::total_cmp);
            println!("{part:<12} {:8.2}", ratios[runs / 2]);
        }
    }
}

/// One run; what each part of it took, seconds of wall time.
fn measure(serving: Serving, [mib, high, threads]: [usize; 3]) -> Vec<(&'static str, f64)> {
    let codec = Codec::parse(&std::env::var("CODEC").unwrap_or("lz4".into())).expect("a codec");
    let group = Group::builder(high << 20).serving(serving).codec(codec);
    let group = group.build().expect("a group");
    let mut region = Region::reserve_in(&group, mib << 20).expect("a region");
    let pages = region.len() / PAGE;
    let times = RefCell::new(Vec::new());
    let rate = |what: &'static str, took: Duration| {
        times.borrow_mut().push((what, took.as_secs_f64()));
        let rate = (mib as f64) / took.as_secs_f64();
        let stats = group.stats();
        println!(
            "{what:<12} {rate:8.0} MiB/s    used {:4} MiB  faults {}",
            stats.used >> 20,
            stats.faults
        );
    };

    let start = Instant::now();
    let part = pages.div_ceil(threads) * PAGE;
    std::thread::scope(|scope| {
        for (index, bytes) in region.chunks_mut(part).enumerate() {
            scope.spawn(move || {
                for (page, bytes) in bytes.chunks_mut(PAGE).enumerate() {
                    write(bytes, index * part / PAGE + page);
                }
            });
        }
    });
    rate("fill", start.elapsed());

    for _ in 0..2 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for (index, bytes) in region.chunks(part).enumerate() {
                scope.spawn(move || {
                    for (page, bytes) in bytes.chunks(PAGE).enumerate() {
                        check(bytes, index * part / PAGE + page);
                    }
                });
            }
        });
        rate("seq", start.elapsed());
    }

    let reads = |what: &'static str, count: usize, pick: &(dyn Fn(&mut u64) -> usize + Sync)| {
        let before = group.stats();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let region = &region;
                scope.spawn(move || {
                    let mut state = thread as u64 * 77 + 1;
                    for _ in 0..count {
                        let page = pick(&mut state);
                        check(&region[page * PAGE..(page + 1) * PAGE], page);
                    }
                });
            }
        });
        let took = start.elapsed().as_secs_f64();
        times.borrow_mut().push((what, took));
        let took = took * 1e6 / count as f64;
        let after = group.stats();
        let misses = (after.faults - before.faults) as f64 / (count * threads) as f64;
        println!("{what:<12} {took:8.2} us an access a thread, {misses:.2} missed");
    };
    let index = |state: &mut u64, bound: usize| {
        usize::try_from(random(state) % bound as u64).expect("below the bound")
    };
    reads("random", 200_000, &|state| index(state, pages));
    // Nine in ten to a tenth of the data.
    let hot = pages / 10;
    reads("hot", 400_000, &|state| {
        if random(state) % 10 < 9 {
            index(state, hot)
        } else {
            index(state, pages)
        }
    });
    times.into_inner()
}
