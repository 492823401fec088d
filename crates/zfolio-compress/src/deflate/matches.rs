//! Finding repeats within the window: hash chains over 4 bytes, with one step
//! of laziness.

use super::symbols::{MAX_MATCH, MIN_MATCH};
use super::tables::WINDOW;
use crate::CodecError;
use alloc::vec::Vec;

const HASH_BITS: u32 = 11;
/// Candidates looked at for each position.
const DEPTH: usize = 12;
/// A repeat of this length is taken without looking for a longer one.
const ENOUGH: usize = 32;

/// Positions seen, by hash, across units: those of earlier units are below
/// `base` and count for nothing, so nothing has to be cleared.
#[derive(Debug)]
pub(super) struct Finder {
    /// Newest position of each hash.
    head: Vec<u32>,
    /// The one before it, by position within the window.
    before: Vec<u32>,
    /// What the current unit's position 0 is called; never 0.
    base: u32,
}

/// A literal, or a repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token(u32);

impl Token {
    pub(super) fn literal(byte: u8) -> Self {
        Self(u32::from(byte))
    }

    /// `length` of 3 to 258, `distance` of 1 to 4096.
    #[allow(clippy::cast_possible_truncation, reason = "9 and 12 bits")]
    pub(super) fn repeat(length: usize, distance: usize) -> Self {
        Self(1 << 31 | (length as u32) << 12 | (distance - 1) as u32)
    }

    /// The literal, or the length and distance.
    pub(super) fn parts(self) -> Result<u8, (u32, u32)> {
        if self.0 >> 31 == 0 {
            Ok(self.0.to_le_bytes()[0])
        } else {
            Err((self.0 >> 12 & 0x1ff, (self.0 & 0xfff) + 1))
        }
    }
}

impl Finder {
    pub(super) fn new() -> Result<Self, CodecError> {
        let table = |len| {
            let mut table = Vec::new();
            table
                .try_reserve_exact(len)
                .map_err(|_| CodecError::Workspace)?;
            table.resize(len, 0);
            Ok(table)
        };
        Ok(Self {
            head: table(1 << HASH_BITS)?,
            before: table(WINDOW)?,
            base: 1,
        })
    }

    /// A new unit of `len` bytes begins.
    #[allow(clippy::cast_possible_truncation, reason = "units end at 2 MiB")]
    pub(super) fn begin(&mut self, previous: usize, len: usize) {
        let next = self.base.checked_add(previous as u32);
        match next.filter(|next| next.checked_add(len as u32).is_some()) {
            Some(next) => self.base = next,
            None => {
                self.head.fill(0);
                self.before.fill(0);
                self.base = 1;
            }
        }
    }

    /// The longest repeat at `at` among the candidates, longer than `least`;
    /// notes `at`.
    pub(super) fn find(&mut self, src: &[u8], at: usize, least: usize) -> Option<(usize, usize)> {
        let hash = hash(src, at)?;
        let mut candidate = self.note(hash, at);
        let (mut best, mut best_distance) = (least.max(MIN_MATCH - 1), 0);
        let limit = (src.len() - at).min(MAX_MATCH);
        if best >= limit {
            return None;
        }
        for _ in 0..DEPTH {
            let Some(position) = candidate.checked_sub(self.base) else {
                break;
            };
            let position = position as usize;
            // Older entries of the ring have been overwritten by newer ones.
            if position >= at || at - position > WINDOW {
                break;
            }
            if src[position + best] == src[at + best] {
                let length = common(&src[position..], &src[at..], limit);
                if length > best {
                    (best, best_distance) = (length, at - position);
                    if length >= ENOUGH || length == limit {
                        break;
                    }
                }
            }
            let next = self.before[position % WINDOW];
            if next >= candidate {
                break;
            }
            candidate = next;
        }
        (best_distance > 0).then_some((best, best_distance))
    }

    /// Notes the positions of `range` without looking.
    pub(super) fn skip(&mut self, src: &[u8], range: core::ops::Range<usize>) {
        for at in range {
            if let Some(hash) = hash(src, at) {
                self.note(hash, at);
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "units end at 2 MiB")]
    fn note(&mut self, hash: usize, at: usize) -> u32 {
        let old = core::mem::replace(&mut self.head[hash], self.base + at as u32);
        self.before[at % WINDOW] = old;
        old
    }
}

fn hash(src: &[u8], at: usize) -> Option<usize> {
    let word = src.get(at..)?.first_chunk::<4>()?;
    let mixed = u32::from_le_bytes(*word).wrapping_mul(0x9e37_79b1);
    Some((mixed >> (32 - HASH_BITS)) as usize)
}

/// Bytes at the front that are the same, `limit` at most.
fn common(a: &[u8], b: &[u8], limit: usize) -> usize {
    let (a, b) = (&a[..limit], &b[..limit]);
    let (a8, _) = a.as_chunks::<8>();
    let (b8, _) = b.as_chunks::<8>();
    for (index, (x, y)) in a8.iter().zip(b8).enumerate() {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return index * 8 + differ.trailing_zeros() as usize / 8;
        }
    }
    let done = a8.len() * 8;
    let rest = a[done..].iter().zip(&b[done..]);
    done + rest.take_while(|(x, y)| x == y).count()
}
