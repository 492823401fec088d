//! When reclaim starts and stops, and how much is kept at hand: parts of `high`.

/// [`Watermarks::window`] of the smallest target.
pub(crate) const LEAST_WINDOW: usize = 64;

/// When reclaim starts and stops, pages.
///
/// Usage is what /proc shows as resident: program, pool, standby and free
/// frames together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watermarks {
    /// Management begins: descriptors, arena, threads.
    pub(crate) activate: usize,
    /// Reclaim works while usage is above this ...
    pub(crate) start: usize,
    /// ... until it is below this.
    pub(crate) stop: usize,
    /// Faults wait for reclaim rather than take memory from the system above this.
    pub(crate) limit: usize,
    /// A huge page may be kept ready below this.
    pub(crate) huge_limit: usize,
    /// Free frames kept at hand.
    pub(crate) free_target: usize,
    /// Reclaim starts when fewer are free.
    pub(crate) free_low: usize,
    /// Frames that only reclaim itself may take.
    pub(crate) free_reserve: usize,
    /// What all the others are parts of.
    pub(crate) high: usize,
}

impl Watermarks {
    /// Of a process: it grows unseen, where nothing is registered yet, between two looks.
    pub(crate) fn of(high: usize) -> Self {
        Self::apart(high, high / 128)
    }

    /// Of regions: each of their pages comes by a fault, or from us.
    pub(crate) fn of_regions(high: usize) -> Self {
        Self::apart(high, high / 512)
    }

    fn apart(high: usize, gap: usize) -> Self {
        let gap = gap.clamp(64, 4096);
        let free_target = (high / 128).clamp(64, 2048);
        Self {
            activate: high / 2,
            start: high - 2 * gap,
            stop: high - 3 * gap,
            limit: high - gap,
            huge_limit: high - gap * 3 / 4,
            free_target,
            free_low: free_target / 2,
            free_reserve: free_target / 8,
            high,
        }
    }

    /// Pool pages from which room is worth more than time (`auto`), and below
    /// which it is not any more. `returns`: much of what is stored comes back.
    pub(crate) const fn dense(&self, returns: bool) -> [usize; 2] {
        let [on, off] = if returns { [55, 45] } else { [35, 25] };
        [self.high * on / 100, self.high * off / 100]
    }

    /// Pool pages from which what zstd leaves at a fast level is too much, and below which
    /// it is not any more: by then a program crawls, and room is worth any time.
    pub(crate) const fn densest(&self) -> [usize; 2] {
        [self.high * 60 / 100, self.high * 40 / 100]
    }

    /// Pages that a reader in order gets at once at most, and that are moved out at
    /// once whatever the folio; a power of two. Each call has a price, above all the
    /// interrupt of other processors; but of little memory there are not as many free.
    pub(crate) fn window(&self) -> usize {
        let most = (self.free_target / 3).clamp(LEAST_WINDOW, 4 * LEAST_WINDOW);
        1 << most.ilog2()
    }

    /// Frames kept for the pool at most: what two windows free that are read and stored at
    /// the same time, so that it seldom takes others; no more than free frames are to be.
    pub(crate) fn kept_for_pool(&self) -> usize {
        (2 * self.window()).min(self.high / 128)
    }

    /// Pages kept in standby before the coldest are stored, with a pool of `pool` pages: a 64th of
    /// what is left for the program, since most of what comes back from there comes back soon.
    /// At least 4 MiB, or a tenth where that is less, so that a page can be touched again before
    /// its turn comes. Never 0, because only standby pages can be stored.
    pub(crate) fn standby(&self, pool: usize) -> usize {
        /// 4 MiB.
        const LITTLE: usize = 1024;
        let left = self.high.saturating_sub(pool);
        (left / 64).max(LITTLE.min(left / 10)).max(self.free_low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_may_stand_by_however_large_the_pool() {
        for high in [2048, 51_200, 1 << 22] {
            let w = Watermarks::of(high);
            assert_eq!(w.standby(0), (high / 64).max(1024.min(high / 10)));
            assert!(w.standby(2 * high) > 0);
        }
    }

    #[test]
    fn watermarks_are_in_order_at_every_size() {
        let both = |high| [Watermarks::of(high), Watermarks::of_regions(high)];
        for w in [1024, 2048, 51_200, 131_072, 1 << 22]
            .into_iter()
            .flat_map(both)
        {
            let high = w.high;
            assert!(w.activate < w.stop && w.stop < w.start, "{high}: {w:?}");
            assert!(w.start < w.limit, "{high}: {w:?}");
            // A quarter of a window is there before the reserve is needed.
            assert!(w.window() / 4 <= w.free_low, "{high}: {w:?}");
            assert!((64..=256).contains(&w.window()), "{high}: {w:?}");
            assert!(
                w.limit <= w.huge_limit && w.huge_limit < high,
                "{high}: {w:?}"
            );
            assert!(
                w.free_reserve < w.free_low && w.free_low < w.free_target,
                "{high}: {w:?}"
            );
        }
    }
}
