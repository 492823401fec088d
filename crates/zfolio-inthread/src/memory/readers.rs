//! Who reads on, of all threads: what a fault foretells.

use super::Vpn;
use core::ops::Range;
use zfolio_runtime::locality::Locality;
use zfolio_runtime::readahead::Streams;
use zfolio_runtime::strides::Strides;

/// Readers among recent faults: in order, and at equal distances.
#[derive(Default)]
pub(super) struct Readers {
    streams: Streams,
    strides: Strides,
    locality: Locality,
}

/// What a touch asks for: so many pages, that one among them, each `step` pages from the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WantedPages {
    pub(super) pages: usize,
    pub(super) step: isize,
}

impl WantedPages {
    /// So many from a page on.
    pub(super) const fn in_order(pages: usize) -> Self {
        Self { pages, step: 1 }
    }

    /// Pages that lie side by side.
    pub(super) const fn side_by_side(self) -> usize {
        if self.step == 1 { self.pages } else { 1 }
    }
}

impl Readers {
    /// What a fault on `page` asks for, `most` pages at most. No reader makes a fault where `is_open` says so.
    pub(super) fn ask(
        &mut self,
        page: Vpn,
        most: usize,
        is_open: impl Fn(Vpn) -> bool,
    ) -> WantedPages {
        // (Who goes on where a window ended faults at equal distances too.)
        let direct = self.streams.advise(page, most.max(LEAST));
        if direct.sequential {
            return WantedPages::in_order(direct.pages.min(most));
        }
        match self.strides.note(page).filter(|of| of.step != 1) {
            Some(of) => WantedPages {
                pages: of.pages.min(most),
                step: of.step,
            },
            None => {
                let past = self.streams.advise_past(page, most.max(LEAST), is_open);
                WantedPages::in_order(past.pages.min(most))
            }
        }
    }

    /// What of `window` was out comes, for a touch of its first page.
    pub(super) fn came_in_order(&mut self, window: &Range<Vpn>, is_open: impl Fn(Vpn) -> bool) {
        self.streams.brought_past(window, window.len(), is_open);
    }

    /// Whether all of its group comes with `page`, which is behind the pool and asks for itself alone.
    pub(super) fn brings_group(&mut self, page: Vpn) -> bool {
        self.locality.brings_group(page)
    }

    /// Pages at equal distances come. (Who touches the page beside one of them later is not one who reads on.)
    pub(super) fn came_at_distances(&mut self) {
        self.streams.brought_for_another();
    }
}

/// Pages of a window that streams begin with.
const LEAST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of a walk over `pages` by `step`, with nothing open but what came.
    fn faults(readers: &mut Readers, pages: impl Iterator<Item = Vpn>) -> (usize, usize) {
        let mut open = alloc::collections::BTreeSet::new();
        let (mut faults, mut came) = (0, 0);
        for page in pages {
            if open.contains(&page) {
                continue;
            }
            faults += 1;
            let wanted = readers.ask(page, 32, |page| open.contains(&page));
            let brought = (0..wanted.pages).map(|n| {
                let distance = n.cast_signed() * wanted.step;
                page.wrapping_add_signed(distance)
            });
            open.extend(brought);
            came += wanted.pages;
            match wanted.step {
                1 => readers.came_in_order(&(page..page + wanted.pages), |_| false),
                _ => readers.came_at_distances(),
            }
        }
        (faults, came)
    }

    #[test]
    fn who_reads_on_however_has_more_and_more_at_a_time() {
        // (Every second page is read in order, with gaps.)
        for step in [1, 3, 5, 16, 60] {
            let forwards = (1000..40_000).step_by(step);
            let walked = forwards.clone().count();
            for backwards in [false, true] {
                let readers = &mut Readers::default();
                let (faults, came) = match backwards {
                    false => faults(readers, forwards.clone()),
                    true => faults(readers, forwards.clone().rev()),
                };
                assert!(faults * 10 < walked, "{step}: {faults} of {walked}");
                assert!(came < walked + 64, "{step}: {came} for {walked}");
            }
        }
    }

    /// Column by column, each beside the one before.
    #[test]
    fn columns_bring_little_that_is_not_read() {
        let columns = (0..3).flat_map(|first| (first..20_000).step_by(5));
        let walked = columns.clone().count();
        let (faults, came) = faults(&mut Readers::default(), columns);
        assert!(faults * 10 < walked, "{faults} of {walked}");
        assert!(came < walked + walked / 20, "{came} for {walked}");
    }

    #[test]
    fn who_reads_at_random_has_one_page_each() {
        let scattered = (0..2000_usize).map(|n| n * 7919 * 7919 % 1_000_003);
        let (faults, came) = faults(&mut Readers::default(), scattered);
        assert!(came < faults + faults / 10, "{came} for {faults}");
    }
}
