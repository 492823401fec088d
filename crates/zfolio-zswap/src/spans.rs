//! Several places of the arena at once.
//!
//! [`Memory`] lends one place for the length of a call; a batch wants eight.
//! The calls are nested: each lends one more place and calls the next. Each has an array of all
//! on the stack, so it is no longer than needed: without engines [`LOAD_BATCH`], which fits the
//! stacks of those who serve themselves.

use crate::{LOAD_BATCH, MAX_BATCH};
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
    if spans.len() <= LOAD_BATCH {
        lend(memory, spans, [&[]; LOAD_BATCH], 0, f);
    } else {
        lend(memory, spans, [&[]; MAX_BATCH], 0, f);
    }
}

fn lend<M: Memory, const N: usize>(
    memory: &M,
    spans: &[Span],
    lent: [&[u8]; N],
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
    if spans.len() <= LOAD_BATCH {
        lend_mut(memory, spans, nothing::<LOAD_BATCH>(), 0, f);
    } else {
        lend_mut(memory, spans, nothing::<MAX_BATCH>(), 0, f);
    }
}

fn nothing<'a, const N: usize>() -> [&'a mut [u8]; N] {
    core::array::from_fn(|_| <&mut [u8]>::default())
}

fn lend_mut<M: Memory, const N: usize>(
    memory: &M,
    spans: &[Span],
    mut lent: [&mut [u8]; N],
    count: usize,
    f: &mut dyn FnMut(&mut [&mut [u8]]),
) {
    let Some((first, rest)) = spans.split_first() else {
        return f(&mut lent[..count]);
    };
    memory.with_mut(first.at, first.offset, first.len, |bytes| {
        let mut lent: [&mut [u8]; N] = lent;
        lent[count] = bytes;
        lend_mut(memory, rest, lent, count + 1, f);
    });
}
