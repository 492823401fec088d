//! Where mappings end because of what we did: invariant 4 of [`Words`].

use super::{FIRST, LEAF, Vpn, Word, Words};
use core::sync::atomic::Ordering;

impl Words {
    /// How often a page in a mapping of its own lies beside one that is in none, in all of memory.
    pub(crate) fn borders(&self) -> usize {
        self.borders.load(Ordering::Relaxed)
    }

    /// Whether a page is in a mapping of its own.
    fn is_apart(&self, page: Vpn) -> bool {
        (self.apart)(self.get(page))
    }

    /// Whether the page before `page` is; there is none before the first.
    fn is_apart_before(&self, page: Vpn) -> bool {
        page.checked_sub(1).is_some_and(|page| self.is_apart(page))
    }

    /// A page that was apart or not is so now or not.
    pub(super) fn count_edges(&self, page: Vpn, was: bool, is: bool) {
        if was == is {
            return;
        }
        let beside = [self.is_apart_before(page), self.is_apart(page + 1)];
        let edges = |kind: bool| beside.iter().filter(|other| **other != kind).count();
        Self::count(&self.borders, edges(was), edges(is));
    }

    /// All pages of leaves that are all of one kind, or of one leaf, are about to be of one kind.
    pub(super) fn count_borders(&self, first: usize, end: usize, untouched: bool) {
        let pages = first * LEAF..end * LEAF;
        let is = untouched && (self.apart)(Word::Untouched);
        let (left, right) = (self.is_apart_before(pages.start), self.is_apart(pages.end));
        let (first_was, last_was) = (self.is_apart(pages.start), self.is_apart(pages.end - 1));
        let edges =
            |first: bool, last: bool| usize::from(left != first) + usize::from(right != last);
        let before = self.within_leaf(first) + edges(first_was, last_was);
        Self::count(&self.borders, before, edges(is, is));
    }

    /// Borders between pages of a leaf.
    fn within_leaf(&self, leaf_of: usize) -> usize {
        let leaf = match self.says(leaf_of) {
            Some(says) if says >= FIRST => &self.leaves[(says - FIRST) as usize],
            _ => return 0,
        };
        let is_apart = |at: usize| (self.apart)(Word::of(leaf[at].load(Ordering::Relaxed)));
        (1..LEAF)
            .filter(|at| is_apart(*at) != is_apart(*at - 1))
            .count()
    }
}
