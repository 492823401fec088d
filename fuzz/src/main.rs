//! Draws sequences of operations over the pool and the frames, and checks after
//! each that every object has its bytes and every invariant holds.
//!
//! ```text
//! cargo run --release --manifest-path fuzz/Cargo.toml -- [SECONDS [SEED]]
//! cargo run --release --manifest-path fuzz/Cargo.toml -- --replay FILE
//! ```
//!
//! A sequence is a string of bytes, any string is one ([`sequence`]). Half of them
//! are drawn, the others made of one drawn before by changing, dropping and
//! repeating parts; no corpus is needed. What fails is written to `fuzz-failed`
//! beforehand, so that it is there however the process ends.

mod sequence;

use std::time::{Duration, Instant};

/// Longest sequence, bytes.
const LONGEST: usize = 4096;

/// A sequence of numbers (splitmix64).
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.word() % bound as u64) as usize
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [replay, file] = &arguments[..]
        && replay == "--replay"
    {
        let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        sequence::run(&bytes);
        println!("{} bytes: nothing found", bytes.len());
        return;
    }
    let number = |nth: usize, default: u64| {
        arguments.get(nth).map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{text}: not a number"))
        })
    };
    let end = Instant::now() + Duration::from_secs(number(0, 10));
    let mut random = Random(number(1, 1));
    let mut last: Vec<u8> = Vec::new();
    let (mut sequences, mut operations) = (0_u64, 0_u64);
    while Instant::now() < end {
        let bytes = if last.is_empty() || random.below(2) == 0 {
            (0..random.below(LONGEST))
                .map(|_| random.word() as u8)
                .collect()
        } else {
            changed(&last, &mut random)
        };
        std::fs::write("fuzz-failed", &bytes).expect("a file in the current directory");
        operations += sequence::run(&bytes);
        sequences += 1;
        last = bytes;
    }
    std::fs::remove_file("fuzz-failed").expect("the file just written");
    println!("{sequences} sequences, {operations} operations: nothing found");
}

/// Some parts of a sequence changed, dropped, repeated.
fn changed(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(8) {
        if bytes.is_empty() {
            break;
        }
        let from = random.below(bytes.len());
        let to = (from + random.below(64)).min(bytes.len());
        match random.below(3) {
            0 => bytes[from] = random.word() as u8,
            1 => drop(bytes.drain(from..to)),
            _ => {
                let part = bytes[from..to].to_vec();
                let at = random.below(bytes.len());
                bytes.splice(at..at, part);
            }
        }
    }
    bytes.truncate(LONGEST);
    bytes
}
