//! Folios: how the pages of a run are stored, counted and, where not all of them find room,
//! split.
//!
//! A run is made of folios: powers of two, naturally aligned, of `--folio` at most. They are
//! compressed page by page and go into the pool together, all of them or none. Where it refuses
//! them each is tried alone; one that does not go whole is split and goes page by page, as far
//! as there is room.

use super::Vpn;
use super::core::MemoryCore;
use super::reclaim::OUT;
use super::way::STAGE;
use super::words::Word;
use crate::memory::layer::MemoryState;
use core::ops::Range;
use zfolio_mm::Order;

/// The largest folio there is in these ways: what is moved or protected at a time.
pub const LARGEST_FOLIO: Order = match Order::new(6) {
    Some(order) => order,
    None => Order::PAGE,
};
const _: () = assert!(LARGEST_FOLIO.pages() == STAGE);

/// The folio that begins at `run.start`.
fn first_folio(run: &Range<Vpn>, most: Order) -> Range<Vpn> {
    let aligned = 1_usize << run.start.trailing_zeros().min(STAGE.trailing_zeros());
    let pages = run.len().min(aligned).min(most.pages());
    run.start..run.start + Order::holding_at_most(pages).pages()
}

/// The folios of a run, one after the other.
fn folios(run: &Range<Vpn>, most: Order) -> impl Iterator<Item = Range<Vpn>> {
    let mut rest = run.clone();
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let folio = first_folio(&rest, most);
        rest.start = folio.end;
        Some(folio)
    })
}

impl MemoryState {
    /// Most pages of a run that is stored, beginning at `start`: it ends where a folio does.
    pub(super) fn most_stored(&self, start: Vpn) -> usize {
        let most = self.options.folio.pages().clamp(OUT, STAGE);
        most - start % most
    }
}

impl MemoryCore {
    /// Stores and closes a run of pages, or as many of them as there is room for.
    pub(super) fn store(&mut self, state: &MemoryState, run: &Range<Vpn>) {
        if self.closing.bounds.is_refused() {
            return;
        }
        let most = state.options.folio;
        let Err(error) = self.store_run(state, run) else {
            for folio in folios(run, most) {
                self.count_folio(state, &folio);
            }
            return;
        };
        let together = first_folio(run, most) != *run;
        for folio in folios(run, most) {
            let mut rest = folio.clone();
            if !self.closing.bounds.is_refused()
                && together
                && self.store_run(state, &folio).is_ok()
            {
                self.count_folio(state, &folio);
                continue;
            }
            if !self.closing.bounds.is_refused() {
                rest.start = self.store_split(state, &folio);
            }
            if !rest.is_empty() {
                if !self.closing.bounds.is_refused() {
                    state.count_refusal(error);
                }
                self.closing.bounds.note_refused();
                self.stay(state, &rest);
            }
        }
    }

    /// Stores a folio that did not go whole page by page; where it could go no further.
    fn store_split(&mut self, state: &MemoryState, folio: &Range<Vpn>) -> Vpn {
        let order = Order::holding_at_most(folio.len());
        self.count_refused(order);
        if order == Order::PAGE {
            return folio.start;
        }
        let mut page = folio.start;
        while page < folio.end && self.store_run(state, &(page..page + 1)).is_ok() {
            self.count_folio(state, &(page..page + 1));
            page += 1;
        }
        if let Some(pool) = &self.pool {
            pool.zswap.count_split(order, page > folio.start);
        }
        page
    }

    /// Counts the folios of a run of pages that were stored beside other threads, as [`Self::store`] does.
    pub(super) fn count_folios(&self, state: &MemoryState, run: &Range<Vpn>) {
        for folio in folios(run, state.options.folio) {
            self.count_folio(state, &folio);
        }
    }

    /// Counts a folio that was stored: if it was all, and anything in it but zeros.
    fn count_folio(&self, state: &MemoryState, folio: &Range<Vpn>) {
        let words = || folio.clone().map(|page| state.words.get(page));
        let stored = words().any(|word| matches!(word, Word::Stored(_)));
        if let Some(pool) = &self.pool
            && stored
            && words().all(Word::is_closed)
        {
            let order = Order::holding_at_most(folio.len());
            pool.zswap.count_store(order, true);
        }
    }

    fn count_refused(&self, order: Order) {
        if let Some(pool) = &self.pool {
            pool.zswap.count_store(order, false);
        }
    }

    /// Counts what was brought back together; `before`: [`Self::loaded_from_behind`] before it.
    pub(super) fn count_loaded(&self, pages: usize, before: u64) {
        let read = self.loaded_from_behind() - before;
        if let Some(pool) = &self.pool {
            let backed = read == pages as u64;
            pool.zswap.count_load(Order::holding_at_most(pages), backed);
        }
    }

    /// Pages that were read from behind the pool so far, under the core lock.
    pub(super) fn loaded_from_behind(&self) -> u64 {
        let pool = self.pool.as_ref();
        pool.map_or(0, |pool| pool.context.loaded_from_backing())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_run_is_made_of_aligned_powers_of_two() {
        let of = |run: Range<Vpn>, most| folios(&run, most).map(|f| f.len()).collect::<Vec<_>>();
        assert_eq!(of(5..16, Order::K64), [1, 2, 8]);
        assert_eq!(of(16..32, Order::K64), [16]);
        assert_eq!(of(64..128, LARGEST_FOLIO), [64]);
        assert_eq!(of(64..128, Order::K64), [16, 16, 16, 16]);
        assert_eq!(of(3..7, Order::PAGE), [1, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn folios_are_all_of_a_run(start in 0_usize..5000, len in 1_usize..=64, order in 0_u8..=6) {
            let most = Order::new(order).unwrap();
            let mut at = start;
            for folio in folios(&(start..start + len), most) {
                prop_assert_eq!(folio.start, at);
                prop_assert!(folio.len().is_power_of_two() && folio.len() <= most.pages());
                prop_assert_eq!(folio.start % folio.len(), 0);
                at = folio.end;
            }
            prop_assert_eq!(at, start + len);
        }
    }
}
