//! Several places of the arena at once.
//!
//! [`Memory`] lends one place for the length of a call; a batch wants eight.
//! The calls are nested: each lends one more place and calls the next.

use crate::MAX_BATCH;
use zfolio_mm::{Memory, PAGE_SIZE, Pfn};

/// A place in the arena: `len` bytes from `offset` bytes into slot `at`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) at: Pfn,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Span {
    /// A whole page.
    pub(crate) fn page(at: Pfn) -> Self {
        Self {
            at,
            offset: 0,
            len: PAGE_SIZE,
        }
    }
}

/// Runs `f` on the bytes of all `spans`, at most [`MAX_BATCH`] of them.
pub(crate) fn with_all<M: Memory>(memory: &M, spans: &[Span], f: &mut dyn FnMut(&[&[u8]])) {
    lend(memory, spans, [&[]; MAX_BATCH], 0, f);
}

fn lend<M: Memory>(
    memory: &M,
    spans: &[Span],
    lent: [&[u8]; MAX_BATCH],
    count: usize,
    f: &mut dyn FnMut(&[&[u8]]),
) {
    let Some((first, rest)) = spans.split_first() else {
        return f(&lent[..count]);
    };
    memory.with(first.at, first.offset, first.len, |bytes| {
        let mut lent = lent;
        lent[count] = bytes;
        lend(memory, rest, lent, count + 1, f);
    });
}

/// Runs `f` on the writable bytes of all `spans`, which must not overlap, at
/// most [`MAX_BATCH`] of them.
pub(crate) fn with_all_mut<M: Memory>(
    memory: &M,
    spans: &[Span],
    f: &mut dyn FnMut(&mut [&mut [u8]]),
) {
    lend_mut(
        memory,
        spans,
        core::array::from_fn(|_| <&mut [u8]>::default()),
        0,
        f,
    );
}

fn lend_mut<M: Memory>(
    memory: &M,
    spans: &[Span],
    mut lent: [&mut [u8]; MAX_BATCH],
    count: usize,
    f: &mut dyn FnMut(&mut [&mut [u8]]),
) {
    let Some((first, rest)) = spans.split_first() else {
        return f(&mut lent[..count]);
    };
    memory.with_mut(first.at, first.offset, first.len, |bytes| {
        let mut lent: [&mut [u8]; MAX_BATCH] = lent;
        lent[count] = bytes;
        lend_mut(memory, rest, lent, count + 1, f);
    });
}
