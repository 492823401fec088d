//! How many mappings a process may have, and how many pages are closed together so that they do.

use zfolio_sys::limits::most_mappings;

/// Most mappings of a process where the kernel does not tell: its default.
const USUAL: usize = 65_530;
/// Pages closed together by protect, up to so many sixteenths of the mappings that there may be.
const GROUPS: [(usize, usize); 2] = [(10, 1), (12, 4)];
/// Pages closed together beyond these.
const LARGEST_GROUP: usize = 16;
/// Sixteenths of the mappings beyond which cuts are mended.
pub(super) const SCARCE: usize = 14;
/// As [`SCARCE`]: down to which.
pub(super) const MENDED: usize = 13;

/// How many mappings there may be.
pub(super) struct MappingLimit {
    most: usize,
    /// As long as there are fewer than that, mending would be in vain: it was, with a few less.
    pub(super) in_vain: usize,
    /// Where mending goes on by guard. An address.
    pub(super) hand: usize,
    /// Cuts that were mended, and are not published yet.
    pub(super) mended: u64,
}

impl MappingLimit {
    pub(super) fn new() -> Self {
        Self {
            most: most_mappings().unwrap_or(USUAL),
            in_vain: 0,
            hand: 0,
            mended: 0,
        }
    }

    /// So many sixteenths of them.
    pub(super) const fn part(&self, sixteenths: usize) -> usize {
        self.most / 16 * sixteenths
    }

    /// Pages closed together by protect, where there are `made`.
    pub(super) fn group(&self, made: usize) -> usize {
        GROUPS
            .iter()
            .find(|(most, _)| made < self.part(*most))
            .map_or(LARGEST_GROUP, |(_, pages)| *pages)
    }

    /// There are `made`, and the kernel makes no more.
    pub(super) fn note_refused(&mut self, made: usize) {
        self.most = self.most.min(made - made / 16);
        self.in_vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewer_are_left_the_larger_the_groups() {
        let mut mappings = MappingLimit {
            most: 1600,
            in_vain: 7,
            hand: 0,
            mended: 0,
        };
        for (made, pages) in [
            (0, 1),
            (999, 1),
            (1000, 4),
            (1199, 4),
            (1200, 16),
            (5000, 16),
        ] {
            assert_eq!(mappings.group(made), pages, "{made}");
        }
        mappings.note_refused(800);
        assert_eq!((mappings.most, mappings.in_vain), (750, 0));
        assert!(mappings.part(SCARCE) < 800, "there are none left at 800");
        mappings.note_refused(10_000);
        assert_eq!(mappings.most, 750);
    }
}
