//! A set of page numbers that only grows, for threads that may be interrupted anywhere.
//!
//! Nothing here allocates, waits or takes a lock.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Page numbers other than 0, up to three quarters of `PLACES`, a power of two; when one more
/// comes, every page is in it.
///
/// Once [`Self::insert`] has returned, every [`Self::overlaps`] that begins later sees the page.
pub struct PageSet<const PLACES: usize> {
    /// Each page at its hash or behind it; 0: nothing.
    places: [AtomicUsize; PLACES],
    /// Whether there is a page, or about to be.
    any: AtomicBool,
    all: AtomicBool,
    count: AtomicUsize,
}

impl<const PLACES: usize> PageSet<PLACES> {
    /// How many places are taken at most: searches stay short.
    const MOST: usize = PLACES / 4 * 3;

    /// An empty set: only zeros.
    #[must_use]
    pub const fn new() -> Self {
        assert!(PLACES.is_power_of_two() && PLACES > 1);
        Self {
            places: [const { AtomicUsize::new(0) }; PLACES],
            any: AtomicBool::new(false),
            all: AtomicBool::new(false),
            count: AtomicUsize::new(0),
        }
    }

    /// Adds a page. (One that another thread has just added is there to be seen as well.)
    pub fn insert(&self, page: usize) {
        self.any.store(true, Ordering::SeqCst);
        for place in self.places(page) {
            match place.compare_exchange(0, page, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    if self.count.fetch_add(1, Ordering::SeqCst) >= Self::MOST {
                        self.all.store(true, Ordering::SeqCst);
                    }
                    return;
                }
                Err(found) if found == page => return,
                Err(_) => {}
            }
        }
        self.all.store(true, Ordering::SeqCst);
    }

    /// Whether any of the pages is in the set.
    #[must_use]
    pub fn overlaps(&self, pages: &Range<usize>) -> bool {
        let has = |page: usize| {
            let found = self.places(page).map(|at| at.load(Ordering::SeqCst));
            found
                .take_while(|found| *found != 0)
                .any(|found| found == page)
        };
        self.any.load(Ordering::SeqCst)
            && (self.all.load(Ordering::SeqCst) || pages.clone().any(has))
    }

    /// The places a page may be in, in order.
    fn places(&self, page: usize) -> impl Iterator<Item = &AtomicUsize> {
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - PLACES.ilog2());
        (0..PLACES).map(move |step| &self.places[(hash + step) % PLACES])
    }
}

impl<const PLACES: usize> Default for PageSet<PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn what_was_added_is_in_it_and_its_neighbours_are_not() {
        let set = PageSet::<64>::new();
        assert!(!set.overlaps(&(0..100)));
        [77, 79, 77].into_iter().for_each(|page| set.insert(page));
        assert!(set.overlaps(&(77..78)) && set.overlaps(&(70..78)) && set.overlaps(&(79..100)));
        assert!(!set.overlaps(&(78..79)) && !set.overlaps(&(80..90)) && !set.overlaps(&(70..77)));
    }

    #[test]
    fn one_more_than_there_is_room_for_and_all_are_in_it() {
        let set = PageSet::<64>::new();
        (1..=48).for_each(|page| set.insert(page * 512));
        (1..=48).for_each(|page| set.insert(page * 512));
        assert!((1..=48).all(|page| set.overlaps(&(page * 512..page * 512 + 1))));
        assert!(!set.overlaps(&(513..600)));
        set.insert(7);
        assert!(set.overlaps(&(7..8)) && set.overlaps(&(513..514)));
    }

    #[test]
    fn threads_that_add_lose_none() {
        let set = PageSet::<4096>::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let set = &set;
                scope.spawn(move || {
                    for page in (1..700).map(|n| n * 4 + thread / 2) {
                        set.insert(page);
                        assert!(set.overlaps(&(page..page + 1)));
                    }
                });
            }
        });
        assert_eq!(set.count.load(Ordering::SeqCst), 2 * 699);
        assert!(!set.overlaps(&(3..4)) && !set.overlaps(&(6..8)));
    }
}
