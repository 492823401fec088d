//! Calls whose arguments say where the buffers are: vectors, messages, words to wait on.
//!
//! There may be many buffers, and a thread has few pins: those that lie near each other share
//! one ([`Hulls`]).

use super::pinning::{END, Keeper, closable};
use crate::program_memory;
use core::ops::Range;

/// Vectors looked at; a call with more is refused by the kernel.
const VECTORS: usize = 1024;
/// Bytes of a `struct iovec`, `msghdr`, `mmsghdr`.
const VECTOR: usize = 16;
const MESSAGE: usize = 56;
const MESSAGES: usize = 64;
/// Bytes of a `struct futex_waitv`, and most of them in a call.
const WORD: usize = 24;
const WORDS: usize = 128;

/// Most pins of a call of this kind.
const HULLS: usize = 8;
/// Ranges nearer than this are of one pin, bytes.
const NEAR: usize = 64 << 10;

/// Some ranges that cover all that were added: [`HULLS`] at most, each from the first byte of
/// those that lie together to the last. What lies between two of them may go.
struct Hulls {
    all: [Range<usize>; HULLS],
    count: usize,
}

impl Hulls {
    const fn new() -> Self {
        Self {
            all: [const { 0..0 }; HULLS],
            count: 0,
        }
    }

    fn add(&mut self, range: &Range<usize>) {
        let apart = |hull: &Range<usize>| {
            let before = range.start.saturating_sub(hull.end);
            before.max(hull.start.saturating_sub(range.end))
        };
        let nearest = self.all[..self.count]
            .iter()
            .enumerate()
            .map(|(at, hull)| (apart(hull), at))
            .min();
        match nearest {
            Some((apart, at)) if apart < NEAR || self.count == HULLS => {
                let hull = &mut self.all[at];
                *hull = hull.start.min(range.start)..hull.end.max(range.end);
            }
            _ => {
                self.all[self.count] = range.clone();
                self.count += 1;
            }
        }
    }
}

pub(crate) fn word(words: &[u64], at: usize) -> usize {
    usize::try_from(words[at]).unwrap_or(0)
}

/// Tells where each of `count` vectors begins, and its bytes.
fn each_vector(address: usize, count: usize, mut told: impl FnMut(usize, usize)) {
    for index in 0..count.min(VECTORS) {
        let Some(vector) = program_memory::read::<[u64; 2]>(address.wrapping_add(index * VECTOR))
        else {
            return;
        };
        told(word(&vector, 0), word(&vector, 1));
    }
}

/// Tells each buffer of `count` vectors.
fn each_buffer(address: usize, count: usize, mut told: impl FnMut(Range<usize>)) {
    each_vector(address, count, |at, len| {
        closable(at, len).into_iter().for_each(&mut told);
    });
}

/// Bytes of all buffers of `count` vectors.
pub(crate) fn length_of(address: usize, count: usize) -> usize {
    let mut all = 0_usize;
    each_vector(address, count, |_, len| all = all.saturating_add(len));
    all
}

/// The vectors of a call that the kernel takes as they are: there are not too many, and each lies
/// within a program's addresses.
pub(crate) struct Vectors {
    at: usize,
    count: usize,
    len: usize,
}

impl Vectors {
    pub(crate) fn read(at: usize, count: usize) -> Option<Self> {
        if count > VECTORS {
            return None;
        }
        let mut len = 0_usize;
        for index in 0..count {
            let vector = program_memory::read::<[u64; 2]>(at.wrapping_add(index * VECTOR))?;
            let (from, of) = (word(&vector, 0), word(&vector, 1));
            from.checked_add(of).filter(|end| *end <= END)?;
            len = len.saturating_add(of);
        }
        Some(Self { at, count, len })
    }

    /// Bytes of all buffers.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What begins `done` bytes into them, of `most` bytes at most: vectors of the program's (their
    /// address, how many, their bytes); or, with 0 as the address, a part of one, in `vector`.
    pub(crate) fn part(
        &self,
        done: usize,
        most: usize,
        vector: &mut [u64; 2],
    ) -> (usize, usize, usize) {
        let (mut before, mut whole, mut len) = (0, None, 0);
        for index in 0..self.count {
            let at = self.at.wrapping_add(index * VECTOR);
            let Some(here) = program_memory::read::<[u64; 2]>(at) else {
                break;
            };
            let (from, of) = (word(&here, 0), word(&here, 1));
            match whole {
                Some((first, at)) if len + of > most => return (at, index - first, len),
                Some(_) => len += of,
                None if before + of <= done => before += of,
                None if before == done && of <= most => (whole, len) = (Some((index, at)), of),
                None => {
                    let skipped = done - before;
                    let part = (of - skipped).min(most);
                    *vector = [(from + skipped) as u64, part as u64];
                    return (0, 1, part);
                }
            }
        }
        whole.map_or((0, 1, 0), |(first, at)| (at, self.count - first, len))
    }
}

/// The vectors of a message, likewise.
pub(crate) fn of_message(header: &[u64; 7]) -> Option<Vectors> {
    Vectors::read(word(header, 2), word(header, 3))
}

/// Whether all control data of a message, which is pinned, is descriptors for the other side.
pub(crate) fn is_only_descriptors(at: usize, len: usize) -> bool {
    // (The level and the type, SOL_SOCKET and SCM_RIGHTS.)
    const DESCRIPTORS: u64 = 1 << 32 | 1;
    let header = program_memory::read::<[u64; 2]>(at);
    header
        .is_some_and(|header| header[1] == DESCRIPTORS && word(&header, 0).saturating_add(7) >= len)
}

/// Tells each part of the message at `address`.
fn each_part(address: usize, mut told: impl FnMut(Range<usize>)) {
    // name, its length, vectors, their count, control data, its length, flags
    let Some(words) = program_memory::read::<[u64; 7]>(address) else {
        return;
    };
    let count = word(&words, 3).min(VECTORS);
    for (at, len) in [
        (0, word(&words, 1) & 0xffff_ffff),
        (4, word(&words, 5)),
        (2, count * VECTOR),
    ] {
        if let Some(range) = closable(word(&words, at), len) {
            told(range);
        }
    }
    each_buffer(word(&words, 2), count, told);
}

impl Keeper<'_> {
    /// Keeps buffers and what they are described by.
    pub(crate) fn keep_vectors(&self, address: usize, count: usize) {
        let count = count.min(VECTORS);
        self.keep(address, count * VECTOR);
        let mut hulls = Hulls::new();
        each_buffer(address, count, |range| self.add(&mut hulls, &range));
        if self.keep_hulls(&hulls) {
            each_buffer(address, count, |range| self.bring(&range));
        }
    }

    fn add(&self, hulls: &mut Hulls, range: &Range<usize>) {
        if !self.is_of_stack(range) {
            hulls.add(range);
        }
    }

    fn keep_hulls(&self, hulls: &Hulls) -> bool {
        hulls.all[..hulls.count]
            .iter()
            .all(|hull| self.publish(hull))
    }

    pub(super) fn keep_message(&self, address: usize) {
        self.keep(address, MESSAGE);
        self.keep_parts_of(address, 1);
    }

    pub(super) fn keep_messages(&self, address: usize, count: usize) {
        let count = count.min(VECTORS);
        self.keep(address, count * MESSAGES);
        self.keep_parts_of(address, count);
    }

    fn keep_parts_of(&self, address: usize, count: usize) {
        let each = |told: &mut dyn FnMut(Range<usize>)| {
            for index in 0..count {
                each_part(address.wrapping_add(index * MESSAGES), &mut *told);
            }
        };
        let mut hulls = Hulls::new();
        each(&mut |range| self.add(&mut hulls, &range));
        if self.keep_hulls(&hulls) {
            each(&mut |range| self.bring(&range));
        }
    }

    /// Keeps the words that a thread is to wait on.
    pub(crate) fn keep_words(&self, address: usize, count: usize) {
        let count = count.min(WORDS);
        self.keep(address, count * WORD);
        let all = || {
            // value, address, flags
            (0..count).filter_map(|index| {
                let words = program_memory::read::<[u64; 2]>(address.wrapping_add(index * WORD))?;
                closable(word(&words, 1), 8)
            })
        };
        let mut hulls = Hulls::new();
        all().for_each(|range| self.add(&mut hulls, &range));
        if self.keep_hulls(&hulls) {
            all().for_each(|range| self.bring(&range));
        }
    }
}
