//! Moving pages out of the program, into standby.
//!
//! Two moves: to an airlock on the descriptor with events, then to the arena.
//! The first is refused (EAGAIN) while any event is in flight; under the core
//! lock no event is read and not applied. Together: a page that moved was
//! registered, and everything the program had done to it before the move is
//! in our words. See [`Airlocks`](crate::transfer::airlocks::Airlocks). (Regions have no events, and their
//! pages move to the arena at once.)

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::address_space::standby::StandbyRun;
use crate::page::{EXTENT_PAGES, GROUP_PAGES, Vpn, address_of};
use crate::segment::Counter;
use crate::transfer::Transfer;
use core::ops::Range;
use zfolio_mm::{Order, PAGE_SHIFT, PAGE_SIZE, Pfn};
use zfolio_sys::syscall::Errno;

/// Most runs that leave together, each by a MOVE under the core lock. The first MOVE interrupts the
/// other processors (10 us); later ones cost 1 us each, because threads that fault are by then
/// waiting for this lock.
pub(crate) const RUNS: usize = 64;

/// How pages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EvictMode {
    /// The page table says one huge page.
    pub(crate) huge: bool,
    /// No second chance: stored next.
    pub(crate) cold: bool,
    /// The thread may wait for a fault of the program's memory. A thread that
    /// serves faults may not: it could be the one waited for.
    pub(crate) may_fault: bool,
}

/// How a move out ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MovedOut {
    /// Pages moved, from the front.
    pub(crate) pages: usize,
    /// Why not all of them.
    pub(crate) stopped: Option<Errno>,
}

/// Runs that leave together: a move of each to the airlock, one move of all from
/// there to a block of holes. Under one hold of the core lock.
pub(crate) struct MoveOut {
    how: EvictMode,
    hole: Pfn,
    order: Order,
    /// 512 pages, which are to stay one huge page.
    whole: bool,
    /// Slots before the first page: see [`place_for`].
    lead: usize,
    runs: [(Vpn, usize); RUNS],
    count: usize,
    pages: usize,
}

impl MoveOut {
    /// Pages that still fit; none where there is no place for another run.
    pub(crate) fn headroom(&self) -> usize {
        if self.count == RUNS {
            0
        } else {
            self.order.pages() - self.lead - self.pages
        }
    }

    /// Where the first page goes.
    fn first(&self) -> Pfn {
        self.hole.offset(self.lead)
    }
}

/// How large a block is for `pages` pages of which the first is `vpn`, and how many slots
/// of it are left out before that: a folio that lies in the arena as in the program is one
/// free block when it is stored, and its frames come back to a fault with one move.
fn place_for(vpn: Vpn, pages: usize) -> Option<(Order, usize)> {
    let order = Order::holding(pages)?;
    if pages < GROUP_PAGES {
        return Some((order, 0));
    }
    let lead = vpn % Order::holding_at_most(pages).pages();
    let larger = Order::holding(lead + pages).filter(|order| *order < Order::HUGE);
    Some((larger.unwrap_or(order), lead))
}

impl Transfer {
    /// Registers the arena and the airlocks with their descriptors.
    pub(crate) fn register_own(&self) -> Result<(), Errno> {
        self.register_arena()?;
        for range in self.airlocks.ranges() {
            self.fds.program().register(range.start, range.len())?;
        }
        Ok(())
    }

    /// Begins to move out `pages` pages, or less where the arena is fragmented; the
    /// first of them is `vpn`. `None` if it has no hole.
    pub(crate) fn begin_move_out(&self, vpn: Vpn, pages: usize, how: EvictMode) -> Option<MoveOut> {
        let (order, lead) = place_for(vpn, pages)?;
        let block = (0..=order.get())
            .rev()
            .filter_map(Order::new)
            .find_map(|order| self.arena().take_holes(order).map(|hole| (hole, order)));
        if block.is_none_or(|(_, got)| got < order) {
            self.want_block(order);
        }
        let (hole, order) = block?;
        let aligned = vpn.is_multiple_of(EXTENT_PAGES);
        let whole = how.huge && pages.min(order.pages()) == EXTENT_PAGES && aligned;
        if whole {
            self.arena().clear_page_table(hole);
        }
        let fits = lead + pages <= order.pages();
        Some(MoveOut {
            how,
            hole,
            order,
            whole,
            lead: if fits { lead } else { 0 },
            runs: [(0, 0); RUNS],
            count: 0,
            pages: 0,
        })
    }

    /// Moves pages `vpn .. vpn + pages` along, as many as there is room for.
    ///
    /// They must be `Present` by their words, registered, and in one mapping.
    pub(crate) fn add_to_move_out(
        &self,
        leaving: &mut MoveOut,
        vpn: Vpn,
        pages: usize,
    ) -> MovedOut {
        let len = pages.min(leaving.headroom()) * PAGE_SIZE;
        let out = if self.scope.uses_airlock() {
            let to = self.airlock(leaving) + leaving.pages * PAGE_SIZE;
            self.fds.moves().into_held(to, address_of(vpn), len)
        } else {
            let to = self.address(leaving.first().offset(leaving.pages));
            self.arena().moves().into_held(to, address_of(vpn), len)
        };
        let moved = out.done >> PAGE_SHIFT;
        if moved > 0 {
            leaving.runs[leaving.count] = (vpn, moved);
            leaving.count += 1;
            leaving.pages += moved;
        }
        MovedOut {
            pages: moved,
            stopped: out.stopped,
        }
    }

    /// What was taken along stands by. Returns its pages.
    pub(crate) fn finish_move_out(&self, core: &mut Core, leaving: &MoveOut) -> usize {
        let MoveOut { how, pages, .. } = *leaving;
        let first = leaving.first();
        self.arena().give_holes(leaving.hole, leaving.lead);
        self.arena().give_holes(
            first.offset(pages),
            leaving.order.pages() - leaving.lead - pages,
        );
        if pages > 0 && self.scope.uses_airlock() {
            self.through_airlock(self.airlock(leaving), first, pages);
        }
        let mut at = first;
        for (vpn, pages) in leaving.runs[..leaving.count].iter().copied() {
            for index in 0..pages {
                let place = Place::Standby(at.offset(index));
                core.pages.extents.set(vpn + index, place);
            }
            let run = StandbyRun { vpn, at, pages };
            if how.cold {
                core.pages.standby.push_cold(run);
            } else {
                core.pages.standby.push(run);
            }
            at = at.offset(pages);
        }
        core.pages.standby.note_standing_by(pages);
        self.count(Counter::PagesOut, pages);
        let whole = leaving.whole && pages == EXTENT_PAGES && leaving.count == 1;
        if whole && self.options.folios.split_huge_pages {
            // It moves as one, and is no huge page from here on.
            self.count(Counter::ThpSwpoutFallback, 1);
            if self.is_huge(self.address(first)) {
                self.zswap.count_store(Order::HUGE, false);
                self.zswap.count_split(Order::HUGE, true);
            }
            core.pages.extents.entry(leaving.runs[0].0).set_huge(false);
        } else if whole {
            self.count_huge_move(first, Counter::ThpSwpout, Counter::ThpSwpoutFallback);
            core.pages.extents.entry(leaving.runs[0].0).set_huge(true);
        } else if how.huge {
            // Once for each, however many pieces it goes in.
            let runs = leaving.runs[..leaving.count].iter();
            let begun = runs.filter(|(vpn, _)| vpn.is_multiple_of(EXTENT_PAGES));
            self.count(Counter::ThpSwpoutFallback, begun.count());
        }
        pages
    }

    fn airlock(&self, leaving: &MoveOut) -> usize {
        if leaving.whole {
            self.airlocks.huge
        } else {
            self.airlocks.small
        }
    }

    /// From the airlock to the arena. Nobody else can reach a page in the
    /// airlock, so a refusal has no remedy but to give the page back.
    fn through_airlock(&self, airlock: usize, hole: Pfn, pages: usize) {
        let mut done = 0;
        while done < pages {
            let to = self.address(hole.offset(done));
            let from = airlock + done * PAGE_SIZE;
            let progress = self
                .arena()
                .moves()
                .out_of_held(to, from, (pages - done) * PAGE_SIZE);
            done += progress.done >> PAGE_SHIFT;
            if done == pages {
                return;
            }
            match progress.stopped {
                None => {}
                Some(Errno::AGAIN | Errno::NOMEM) => zfolio_sys::thread::yield_now(),
                // A raw fork has just taken an image, airlock included.
                Some(Errno::BUSY) => {
                    crate::kernel::make_own(airlock + done * PAGE_SIZE, PAGE_SIZE);
                }
                Some(errno) => self.fail(format_args!(
                    "a page on its way out could not be taken over (errno {})",
                    errno.0
                )),
            }
        }
    }

    /// Counts a huge move as whole only if the page table agrees.
    pub(crate) fn count_huge_move(&self, at: Pfn, whole: Counter, fallback: Counter) {
        let start = self.address(at);
        let counter = if self.is_huge(start) { whole } else { fallback };
        self.count(counter, 1);
    }

    /// Addresses that are registered in every process.
    pub(crate) fn first_page_of_airlock(&self) -> Range<usize> {
        self.airlocks.small..self.airlocks.small + PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folio_lies_in_the_arena_as_in_the_program() {
        for pages in 1..=EXTENT_PAGES {
            for vpn in 0..EXTENT_PAGES {
                let (order, lead) = place_for(vpn, pages).expect("at most 512 pages");
                assert!(pages <= order.pages());
                assert!(order.pages() < 4 * pages.max(GROUP_PAGES), "{vpn} {pages}");
                if pages >= GROUP_PAGES {
                    assert_eq!(lead % GROUP_PAGES, vpn % GROUP_PAGES);
                } else {
                    assert_eq!(lead, 0);
                }
            }
        }
        assert_eq!(place_for(0, EXTENT_PAGES + 1), None);
    }
}
