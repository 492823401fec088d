//! How the zspages of a class are sorted by how full they are.
//!
//! Both users of the order want an end of it: an allocation and a compaction's
//! destination the fullest zspage that has room, a compaction's source the
//! emptiest. The finer the groups, the nearer to that end is the head of the
//! first group that has a member. [`Exact`] has a group for each number of
//! slots in use, so the head *is* the fullest or the emptiest; it is what the
//! pool uses. [`Tenths`] are the kernel's twelve groups; the groups it had
//! before are in [`crate::variants`].

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
    /// Groups of a class, the empty and the full one included.
    fn groups(objs: u16) -> u16;

    /// The group of a zspage with `inuse` of `objs` slots in use.
    fn of(inuse: u16, objs: u16) -> u16;
}

/// A group for each number of slots in use.
#[derive(Clone, Copy, Debug)]
pub struct Exact;

impl Grouping for Exact {
    fn groups(objs: u16) -> u16 {
        objs + 1
    }

    fn of(inuse: u16, _objs: u16) -> u16 {
        inuse
    }
}

/// The twelve groups of [`Fullness`].
#[derive(Clone, Copy, Debug)]
pub struct Tenths;

impl Grouping for Tenths {
    fn groups(_objs: u16) -> u16 {
        u16::try_from(GROUPS).unwrap_or(u16::MAX)
    }

    fn of(inuse: u16, objs: u16) -> u16 {
        // At most 11.
        u16::try_from(Fullness::of(inuse, objs).index()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants::Coarse;

    fn follows_the_rules<G: Grouping>() {
        for objs in 1..=256 {
            let groups = G::groups(objs);
            assert!(usize::from(groups) <= MAX_GROUPS);
            for inuse in 0..=objs {
                let group = G::of(inuse, objs);
                assert!(group < groups, "{inuse} of {objs}");
                assert_eq!(group == 0, inuse == 0, "{inuse} of {objs}");
                assert_eq!(group == groups - 1, inuse == objs, "{inuse} of {objs}");
                assert!(
                    inuse == 0 || G::of(inuse - 1, objs) <= group,
                    "{inuse} of {objs}"
                );
            }
        }
    }

    #[test]
    fn every_grouping_follows_the_rules() {
        follows_the_rules::<Exact>();
        follows_the_rules::<Tenths>();
        follows_the_rules::<Coarse>();
    }
}
