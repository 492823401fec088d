//! Which values of a store have which bytes of the backing.

use crate::backing::cells::Request;
use crate::backing::clusters::GRANULE;
use crate::backing::kinds::CLUSTER;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_sys::exchange::op;
use zfolio_sys::syscall::Errno;

/// Parts of a [`Piece`], at most.
const MOST: usize = 2 + CLUSTER / (8 << 10);

/// A value: where in its cluster it begins, and what it is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    /// Bytes from the beginning of the cluster, in granules.
    pub(crate) start: u16,
    /// Granules.
    pub(crate) len: u16,
    /// Where its copies are; the pager's word, which it is handed back.
    pub(crate) salts: u32,
    pub(crate) id: u64,
}

impl Value {
    /// Asks for a part of it.
    pub(crate) fn request(&self, from: usize, len: usize) -> Request {
        Request {
            op: op::GET,
            id: self.id,
            salts: self.salts,
            from,
            len,
        }
    }

    /// Its bytes within the cluster.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = usize::from(self.start) * GRANULE;
        start..start + usize::from(self.len) * GRANULE
    }
}

/// Which values have which bytes, by cluster; each cluster's in order.
pub(crate) type Values = BTreeMap<u64, Vec<Value>>;

/// A part of a value: the first byte of it that is wanted, how many, and where they go.
pub(crate) type Part = (Value, usize, usize, usize);

/// The first of the parts of values that make up a range of a cluster, in order.
pub(crate) struct Piece {
    parts: [Option<Part>; MOST],
    count: usize,
    /// What of the range lies behind them: it is looked up when they have been read.
    pub(crate) rest: Range<usize>,
}

impl Piece {
    /// The parts of `range` of a cluster, as many as a piece has. (Between them there is none where
    /// a write failed, or goes on.)
    ///
    /// # Errors
    /// `NOENT` where a value does not begin or end it.
    pub(crate) fn of(values: &Values, cluster: u64, range: Range<usize>) -> Result<Self, Errno> {
        let all = values.get(&cluster).map_or(&[][..], |all| &all[..]);
        let first = all.partition_point(|value| value.range().end <= range.start);
        let is_within = |value: &&Value| value.range().start < range.end;
        let mut within = all[first..].iter().take_while(is_within);
        let mut piece = Self {
            parts: [None; MOST],
            count: 0,
            rest: range.end..range.end,
        };
        let mut ends = range.start;
        for (part, value) in piece.parts.iter_mut().zip(within.by_ref()) {
            let of = value.range();
            if piece.count == 0 && of.start > range.start {
                return Err(Errno::NOENT);
            }
            let (start, end) = (of.start.max(range.start), of.end.min(range.end));
            *part = Some((*value, start - of.start, end - start, start - range.start));
            piece.count += 1;
            ends = end;
        }
        match within.next() {
            Some(next) => piece.rest.start = next.range().start,
            None if ends < range.end => return Err(Errno::NOENT),
            None => {}
        }
        Ok(piece)
    }

    /// Its parts.
    pub(crate) fn parts(&self) -> &[Option<Part>] {
        &self.parts[..self.count]
    }
}
