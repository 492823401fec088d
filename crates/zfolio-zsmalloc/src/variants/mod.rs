//! What the experiment compares the pool with. Nothing of it is used by the
//! pool itself, which is generic where they differ and pays nothing for it.
//!
//! | what | here | the pool's own |
//! |---|---|---|
//! | grouping | [`Coarse`]: the kernel's old four groups, [`CoarseFullerFirst`]: with the lists' older rule; [`PlainTenths`]: its twelve; [`Exact`]: one per slot in use | [`Tenths`]: twelve, members compared |
//! | compaction of a class | [`FreshDestination`]: the kernel's old loop | [`KeptDestination`]: as [`ZsPool::compact`] |
//!
//! [`Tenths`]: crate::grouping::Tenths
//! [`ZsPool::compact`]: crate::pool::ZsPool::compact

mod algorithm;
mod coarse;
mod fine;
mod fresh;

pub use algorithm::{Algorithm, KeptDestination};
pub use coarse::{Coarse, CoarseFullerFirst};
pub use fine::{Exact, PlainTenths};
pub use fresh::FreshDestination;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grouping::{Grouping, MAX_GROUPS, Tenths};

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
        follows_the_rules::<PlainTenths>();
        follows_the_rules::<Coarse>();
        follows_the_rules::<CoarseFullerFirst>();
    }
}
