//! Which values of a store have which bytes of the backing.

use crate::backing::cells::Request;
use crate::backing::clusters::GRANULE;
use crate::backing::kinds::CLUSTER;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_sys::exchange::op;
use zfolio_sys::syscall::Errno;

/// Values that a read touches, at most.
pub(crate) const PARTS: usize = 2 + CLUSTER / (8 << 10);

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

/// The parts of values that make up `range` of a cluster: the value, its first byte that
/// is wanted, how many, and where they go. (Between them there is none where a
/// write failed, or goes on.)
pub(crate) fn parts_of(
    values: &Values,
    cluster: u64,
    range: Range<usize>,
    each: &mut [Option<Part>],
) -> Result<usize, Errno> {
    let all = values.get(&cluster).map_or(&[][..], |all| &all[..]);
    let first = all.partition_point(|value| value.range().end <= range.start);
    let (mut count, mut begins, mut ends) = (0, false, false);
    for value in &all[first..] {
        let of = value.range();
        if of.start >= range.end {
            break;
        }
        begins |= of.start <= range.start;
        ends |= of.end >= range.end;
        let (start, end) = (of.start.max(range.start), of.end.min(range.end));
        let slot = each.get_mut(count).ok_or(Errno::INVAL)?;
        *slot = Some((*value, start - of.start, end - start, start - range.start));
        count += 1;
    }
    if !begins || !ends {
        return Err(Errno::NOENT);
    }
    Ok(count)
}
