//! How the zspages of a class are sorted by how full they are.
//!
//! Both users of the order want an end of it: an allocation and a compaction's
//! destination the fullest zspage that has room, a compaction's source the
//! emptiest. The pool sorts by [`Tenths`], the kernel's twelve groups, in which a
//! list move is rare enough; allocations take the head of a group, compaction,
//! which pays for each object it copies, compares a few members. A list for
//! each number of slots in use, and the groups the kernel had before, are in
//! [`crate::variants`].

use core::fmt::Debug;

use crate::fullness::{Fullness, GROUPS};

/// Most groups a class may have.
pub const MAX_GROUPS: usize = 257;

/// Sorts zspages by how full they are.
///
/// # Rules
///
/// For a class with `objs` slots per zspage, `1 <= objs < MAX_GROUPS`:
/// `of(inuse, objs) < groups(objs) <= MAX_GROUPS`; it never falls when `inuse`
/// grows; it is 0 exactly for `inuse == 0` and `groups(objs) - 1` exactly for
/// `inuse == objs`. The tests hold each grouping to them.
pub trait Grouping: Debug {
    /// Members at the head of a group among which a compaction looks for the
    /// fullest or the emptiest, at least 1.
    const COMPARED: usize;

    /// A zspage with fewer slots in use than the head of its list goes second there, not
    /// first.
    const FULLER_FIRST: bool = false;

    /// Groups of a class, the empty and the full one included.
    fn groups(objs: u16) -> u16;

    /// The group of a zspage with `inuse` of `objs` slots in use.
    fn of(inuse: u16, objs: u16) -> u16;
}

/// The twelve groups of [`Fullness`].
#[derive(Clone, Copy, Debug)]
pub struct Tenths;

impl Grouping for Tenths {
    /// 28 bytes each to read under the lock; more gained nothing measurable.
    const COMPARED: usize = 16;

    fn groups(_objs: u16) -> u16 {
        u16::try_from(GROUPS).unwrap_or(u16::MAX)
    }

    fn of(inuse: u16, objs: u16) -> u16 {
        // At most 11.
        u16::try_from(Fullness::of(inuse, objs).index()).unwrap_or(0)
    }
}
