//! Whether a page that is read from behind the pool brings its neighbours.
//!
//! What was stored together lies together there, and one read of a whole group costs less than
//! a read for each of its pages, but several times one of a single page; and as many pages go out for it. So pages
//! come alone at first, and their group is remembered for a while: one that is wanted from a fourth time
//! comes whole. Where that becomes of most groups that a page came of (*local*), all of a group comes with its first page, but for
//! a sample of them by which that goes on being known.

use crate::page::{GROUP_PAGES, Vpn};
use crate::policy::readahead::is_probe;

/// Groups that are remembered.
const RECENT: usize = 64;
/// Pages of a group that come alone, at most.
const ALONE: u32 = 3;
/// What the share of groups that come whole comes to at most, and how much of it one more is, as a part.
const WHOLE: u32 = 1 << 10;
const WEIGHT: u32 = 32;

/// A group of which pages came alone: its number, and a bit for each of them. No bit: there is no group.
#[derive(Clone, Copy, Default)]
struct Recent {
    group: usize,
    pages: u16,
}

/// What recent reads say of it.
pub struct Locality {
    /// Groups that were not wanted from often enough yet.
    recent: [Recent; RECENT],
    /// The oldest of them.
    next: usize,
    /// Of [`WHOLE`], how many became whole.
    whole: u32,
}

impl Default for Locality {
    fn default() -> Self {
        Self {
            recent: [Recent::default(); RECENT],
            next: 0,
            whole: 0,
        }
    }
}

impl Locality {
    /// Whether all of its group comes with `vpn`, which is behind the pool and wanted by itself.
    /// (The same page once more, as after a signal, is nothing new.)
    pub fn brings_group(&mut self, vpn: Vpn) -> bool {
        let (group, page) = (vpn / GROUP_PAGES, 1 << (vpn % GROUP_PAGES));
        let known = |of: &Recent| of.pages != 0 && of.group == group;
        if let Some(place) = self.recent.iter().position(known) {
            let recent = &mut self.recent[place];
            if recent.pages & page == 0 && recent.pages.count_ones() >= ALONE {
                *recent = Recent::default();
                self.note(true);
                return true;
            }
            recent.pages |= page;
            return false;
        }
        if self.is_local() && !is_probe(vpn) {
            return true;
        }
        let now = Recent { group, pages: page };
        let before = core::mem::replace(&mut self.recent[self.next], now);
        if before.pages != 0 {
            self.note(false);
        }
        self.next = (self.next + 1) % RECENT;
        false
    }

    const fn is_local(&self) -> bool {
        self.whole >= WHOLE / 2
    }

    fn note(&mut self, whole: bool) {
        self.whole -= self.whole / WEIGHT;
        self.whole += if whole { WHOLE / WEIGHT } else { 0 };
    }
}

const _: () = assert!(GROUP_PAGES == u16::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    /// Faults at `pages`, of which those that came stay; faults, and pages that came.
    fn faults(locality: &mut Locality, pages: &[Vpn]) -> (usize, usize) {
        let mut open = BTreeSet::new();
        let mut faults = 0;
        for page in pages {
            if open.contains(page) {
                continue;
            }
            faults += 1;
            open.insert(*page);
            if locality.brings_group(*page) {
                open.extend(crate::policy::readahead::group(*page));
            }
        }
        (faults, open.len())
    }

    fn scattered(count: usize, among: usize) -> impl Iterator<Item = usize> {
        let mut state = 1_u64;
        (0..count).map(move |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 33).expect("31 bits") % among
        })
    }

    #[test]
    fn pages_at_random_come_alone() {
        let pages: Vec<Vpn> = scattered(2000, 1_000_003).collect();
        let (faults, came) = faults(&mut Locality::default(), &pages);
        assert!(
            faults > 1900 && came < 2300,
            "{faults} faults, {came} pages"
        );
    }

    #[test]
    fn groups_come_whole_where_they_are_wanted_whole() {
        let groups = scattered(1000, 100_003).collect::<BTreeSet<_>>();
        let pages: Vec<Vpn> = groups
            .iter()
            .flat_map(|group| [3, 9, 1, 14, 7, 0].map(|page| group * GROUP_PAGES + page))
            .collect();
        let (faults, _) = faults(&mut Locality::default(), &pages);
        // (One in eight has four, and so have the first some 22.)
        let most = groups.len() + groups.len() * 3 / 5;
        assert!(faults < most, "{faults} faults for {} groups", groups.len());
    }

    #[test]
    fn what_changes_is_found_out() {
        let mut locality = Locality::default();
        let local: Vec<Vpn> = (0..400)
            .flat_map(|group| [0, 1, 5, 9].map(|page| group * 7 * GROUP_PAGES + page))
            .collect();
        let random: Vec<Vpn> = scattered(4000, 1_000_003)
            .map(|page| page + (1 << 20))
            .collect();
        for _ in 0..3 {
            faults(&mut locality, &local);
            assert!(locality.is_local());
            faults(&mut locality, &random);
            assert!(!locality.is_local());
        }
    }

    #[test]
    fn a_few_pages_of_each_group_come_alone() {
        let pages: Vec<Vpn> = (0..4000)
            .flat_map(|group| [2, 8, 9].map(|page| group * 3 * GROUP_PAGES + page))
            .collect();
        let (faults, came) = faults(&mut Locality::default(), &pages);
        assert_eq!((faults, came), (pages.len(), pages.len()));
    }

    #[test]
    fn the_same_page_again_is_nothing_new() {
        let mut locality = Locality::default();
        assert!((0..100).all(|_| !locality.brings_group(5)));
        assert!([6, 7, 5].iter().all(|vpn| !locality.brings_group(*vpn)));
        assert!(locality.brings_group(8));
    }
}
