//! How much the shrinker looks at: the two figures it keeps from one call to the next.
//!
//! Both follow the kernel's rules:
//!
//! - Each page read from the backing holds one entry back, once. Reads beyond the entries that
//!   there are hold back as many of a later call.
//! - What a call was asked for and did not look at is asked for again by the next, together
//!   with what that one counts itself: at most twice its own count. A call that counts nothing
//!   changes nothing.

/// What the shrinker keeps between calls. Under the pool lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shrinker {
    /// Pages read from the backing that have held back no entry yet.
    swapins: usize,
    /// Entries asked for and not looked at yet.
    deferred: usize,
}

impl Shrinker {
    /// A page was read from the backing.
    pub(crate) fn note_swapin(&mut self) {
        self.swapins += 1;
    }

    /// Of `entries`, those that reads from the backing do not hold back; the reads that hold
    /// back the others are used up by it.
    pub(crate) fn unprotected(&mut self, entries: usize) -> usize {
        let held_back = self.swapins.min(entries);
        self.swapins -= held_back;
        entries - held_back
    }

    /// How many entries a call that counts `count` is to look at, and puts them off until
    /// [`Self::note_scanned`] says otherwise.
    pub(crate) fn ask(&mut self, count: usize) -> usize {
        if count == 0 {
            return 0;
        }
        self.deferred = self.deferred.saturating_add(count).min(2 * count);
        self.deferred
    }

    /// So many entries were looked at.
    pub(crate) fn note_scanned(&mut self, entries: usize) {
        self.deferred = self.deferred.saturating_sub(entries);
    }
}

#[cfg(test)]
mod tests {
    use super::Shrinker;
    use proptest::prelude::*;

    #[test]
    fn each_read_holds_back_one_entry_once() {
        let mut shrinker = Shrinker::default();
        (0..5).for_each(|_| shrinker.note_swapin());
        assert_eq!(shrinker.unprotected(3), 0);
        assert_eq!(shrinker.unprotected(3), 1, "two of five are left");
        assert_eq!(shrinker.unprotected(3), 3);
    }

    #[test]
    fn what_was_not_looked_at_is_asked_for_again() {
        let mut shrinker = Shrinker::default();
        assert_eq!(shrinker.ask(300), 300);
        shrinker.note_scanned(256);
        assert_eq!(shrinker.ask(0), 0, "nothing may go");
        assert_eq!(shrinker.ask(100), 144);
        shrinker.note_scanned(144);
        assert_eq!(shrinker.ask(100), 100, "nothing is left");
        assert_eq!(shrinker.ask(30), 60, "twice its own count at most");
        shrinker.note_scanned(500);
        assert_eq!(shrinker.ask(7), 7);
    }

    proptest! {
        /// Nothing is held back twice, and no call is asked for more than its bound.
        #[test]
        fn the_sums_are_right(calls in prop::collection::vec((0..50_usize, 0..90_usize, 0..90_usize), 1..60)) {
            let mut shrinker = Shrinker::default();
            let (mut read, mut held_back) = (0, 0);
            let (mut counted, mut scanned) = (0, 0);
            for (reads, entries, most) in calls {
                (0..reads).for_each(|_| shrinker.note_swapin());
                read += reads;
                let count = shrinker.unprotected(entries);
                held_back += entries - count;
                prop_assert!(held_back <= read && (count == 0 || held_back == read));
                let asked = shrinker.ask(count);
                prop_assert!((count..=2 * count).contains(&asked));
                let looked = asked.min(most);
                shrinker.note_scanned(looked);
                counted += count;
                scanned += looked;
                prop_assert!(scanned <= counted);
            }
        }
    }
}
