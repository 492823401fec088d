//! Calls whose arguments say where the buffers are: vectors, messages, words to wait on.
//!
//! There may be many buffers, and a thread has few pins: one goes from the first buffer of a
//! kind to the last.

use super::pinning::{END, Keeper};
use crate::raw::{self, PAGE};
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

/// From the first byte of some ranges to the last.
#[derive(Clone, Copy)]
struct Hull {
    start: usize,
    end: usize,
}

impl Hull {
    const NONE: Self = Self {
        start: usize::MAX,
        end: 0,
    };

    fn add(&mut self, range: &Range<usize>) {
        self.start = self.start.min(range.start);
        self.end = self.end.max(range.end);
    }
}

/// What a buffer of a message is.
#[derive(Clone, Copy)]
enum Part {
    Name,
    Control,
    Vectors,
    Buffer,
}
const PARTS: usize = 4;

/// The addresses of `len` bytes; `None` where there is nothing that the kernel would touch.
fn range_of(address: usize, len: usize) -> Option<Range<usize>> {
    let is_one = len > 0 && (PAGE..END).contains(&address);
    is_one.then(|| address..address.saturating_add(len).min(END))
}

fn word(words: &[u64], at: usize) -> usize {
    usize::try_from(words[at]).unwrap_or(0)
}

/// Tells each buffer of `count` vectors.
fn each_buffer(address: usize, count: usize, mut told: impl FnMut(Range<usize>)) {
    for index in 0..count.min(VECTORS) {
        let Some(vector) = raw::read::<[u64; 2]>(address.wrapping_add(index * VECTOR)) else {
            return;
        };
        if let Some(range) = range_of(word(&vector, 0), word(&vector, 1)) {
            told(range);
        }
    }
}

/// Tells each part of the message at `address`.
fn each_part(address: usize, mut told: impl FnMut(Part, Range<usize>)) {
    // name, its length, vectors, their count, control data, its length, flags
    let Some(words) = raw::read::<[u64; 7]>(address) else {
        return;
    };
    let count = word(&words, 3).min(VECTORS);
    for (part, at, len) in [
        (Part::Name, 0, word(&words, 1) & 0xffff_ffff),
        (Part::Control, 4, word(&words, 5)),
        (Part::Vectors, 2, count * VECTOR),
    ] {
        if let Some(range) = range_of(word(&words, at), len) {
            told(part, range);
        }
    }
    each_buffer(word(&words, 2), count, |range| told(Part::Buffer, range));
}

impl Keeper<'_> {
    /// Keeps buffers and what they are described by.
    pub(crate) fn keep_vectors(&self, address: usize, count: usize) {
        let count = count.min(VECTORS);
        self.keep(address, count * VECTOR);
        let mut hull = Hull::NONE;
        each_buffer(address, count, |range| hull.add(&range));
        if self.keep_hull(hull) {
            each_buffer(address, count, |range| self.bring(&range));
        }
    }

    fn keep_hull(&self, hull: Hull) -> bool {
        hull.start < hull.end && self.publish(&(hull.start..hull.end))
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
        let each = |told: &mut dyn FnMut(Part, Range<usize>)| {
            for index in 0..count {
                each_part(address.wrapping_add(index * MESSAGES), &mut *told);
            }
        };
        let mut hulls = [Hull::NONE; PARTS];
        each(&mut |part, range| hulls[part as usize].add(&range));
        for hull in hulls {
            self.keep_hull(hull);
        }
        each(&mut |_, range| self.bring(&range));
    }

    /// Keeps the words that a thread is to wait on.
    pub(super) fn keep_words(&self, address: usize, count: usize) {
        let count = count.min(WORDS);
        self.keep(address, count * WORD);
        let all = || {
            // value, address, flags
            (0..count).filter_map(|index| {
                let words = raw::read::<[u64; 2]>(address.wrapping_add(index * WORD))?;
                range_of(word(&words, 1), 8)
            })
        };
        let mut hull = Hull::NONE;
        all().for_each(|range| hull.add(&range));
        if self.keep_hull(hull) {
            all().for_each(|range| self.bring(&range));
        }
    }
}
