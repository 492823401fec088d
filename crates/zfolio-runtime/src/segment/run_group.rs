//! Named parts of a run, in the control segment.
//!
//! A name is a path: `build/cc` lies below `build`. Whoever names a group first
//! makes it, and those above it; limits are set by `zfolio run --group`. The run
//! itself is group 0. Groups are never removed.

use crate::segment::layout::{GROUP_NAME, GROUPS, RunGroup, Segment};
use core::sync::atomic::Ordering;
use zfolio_sys::lock::pause;

/// The run itself.
pub const RUN: u32 = 0;

const FREE: u32 = 0;
const BEGUN: u32 = 1;
const NAMED: u32 = 2;
/// Looks at a group that is being named, and the time between two, ns: who does
/// it may have been killed.
const LOOKS: u32 = 1000;
const LOOK_NS: u64 = 100_000;

/// Words of a name; `None` if it is none: empty, too long, with a NUL or an
/// empty part.
fn words(name: &str) -> Option<[u64; GROUP_NAME / 8]> {
    let parts = name.split('/').all(|part| !part.is_empty());
    if name.len() > GROUP_NAME || name.contains('\0') || !parts {
        return None;
    }
    let mut words = [0; GROUP_NAME / 8];
    for (word, bytes) in words.iter_mut().zip(name.as_bytes().chunks(8)) {
        let mut raw = [0; 8];
        raw[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(raw);
    }
    Some(words)
}

/// Index of the group of that name, made if there is none; `None` if that is no
/// name, or there are too many.
pub fn named(segment: &Segment, name: &str) -> Option<u32> {
    let words = words(name)?;
    let parent = match name.rsplit_once('/') {
        Some((above, _)) => named(segment, above)?,
        None => RUN,
    };
    (1..GROUPS).find_map(|index| {
        let group = &segment.groups[index];
        let claimed =
            group
                .state
                .compare_exchange(FREE, BEGUN, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_ok() {
            for (word, value) in group.name.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            group.parent.store(parent, Ordering::Relaxed);
            group.state.store(NAMED, Ordering::Release);
        }
        (await_name(group) && has_name(group, &words)).then_some(u32::try_from(index).ok()?)
    })
}

fn await_name(group: &RunGroup) -> bool {
    for _ in 0..LOOKS {
        if group.state.load(Ordering::Acquire) == NAMED {
            return true;
        }
        pause(LOOK_NS);
    }
    false
}

fn has_name(group: &RunGroup, words: &[u64]) -> bool {
    let own = group.name.iter().map(|word| word.load(Ordering::Relaxed));
    own.eq(words.iter().copied())
}

/// Every group that has a name, with its index.
pub fn all(segment: &Segment) -> impl Iterator<Item = (u32, &RunGroup)> {
    let groups = (1..).zip(&segment.groups[1..]);
    groups.filter(|(_, group)| group.state.load(Ordering::Acquire) == NAMED)
}

/// A group and those above it, the run last.
pub(crate) fn path(segment: &Segment, group: u32) -> impl Iterator<Item = (u32, &RunGroup)> {
    let at = |index: u32| Some((index, segment.groups.get(index as usize)?));
    let above = move |(index, group): &(u32, &RunGroup)| {
        // (A parent was made before: no circle, whatever somebody wrote there.)
        let parent = group.parent.load(Ordering::Relaxed);
        if parent < *index { at(parent) } else { None }
    };
    core::iter::successors(at(group), above)
}

/// Whether `below` is `group` or lies below it.
pub(crate) fn is_below(segment: &Segment, below: u32, group: u32) -> bool {
    path(segment, below).any(|(index, _)| index == group)
}
