//! The stack that a thread was made with.

use crate::raw::{self, PAGE, nr};
use alloc::vec;
use core::ops::Range;
use zfolio_sys::procfs::{File, for_each_mapping};
use zfolio_sys::region::lift_descriptor;

/// Of the first thread's stack so much is taken for it at most, bytes: other mappings lie no nearer.
const MOST: usize = 128 << 20;

/// The mapping that the byte before `end` lies in.
pub(crate) fn mapping(end: usize) -> Option<Range<usize>> {
    // (It takes a while, and other threads count on the lowest numbers.)
    let opened = File::open(c"/proc/self/maps").ok()?;
    let file = File::from_fd(lift_descriptor(opened.fd()));
    let mut buffer = vec![0; 4 * PAGE];
    let mut found = None;
    let read = for_each_mapping(file, &mut buffer, |mapping| {
        if mapping.start < end && end <= mapping.end {
            found = Some(mapping.start..mapping.end);
        }
    });
    file.close();
    read.ok().and(found)
}

/// The first thread's stack, of which `here` is an address: as far as it may grow.
pub(crate) fn of_first_thread(here: usize) -> Option<Range<usize>> {
    const STACK: usize = 3;
    let end = mapping(here)?.end;
    let mut limit = [0_u64; 2];
    let into = limit.as_mut_ptr() as usize;
    if raw::own(nr::GETRLIMIT, [STACK, into, 0]) != 0 {
        return None;
    }
    let most = usize::try_from(limit[0]).map_or(MOST, |limit| limit.min(MOST));
    Some(end.saturating_sub(most)..end)
}
