//! Moving pages out of the program, into standby.
//!
//! Two moves: to an airlock on the descriptor with events, then to the arena.
//! The first is refused (EAGAIN) while any event is in flight; under the core
//! lock no event is read and not applied. Together: a page that moved was
//! registered, and everything the program had done to it before the move is
//! in our words. See `manager::Airlocks`. (Regions have no events, and their
//! pages move to the arena at once.)

use crate::control::Counter;
use crate::extent::{EXTENT_PAGES, Vpn};
use crate::manager::{Core, Manager, address_of};
use crate::standby::Run;
use crate::word::Place;
use core::sync::atomic::Ordering;
use zfolio_mm::{Order, PAGE_SHIFT, PAGE_SIZE, Pfn};
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::syscall::Errno;

/// How pages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Going {
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

impl Manager {
    /// Moves pages `vpn .. vpn + pages`, present and in one mapping, out.
    ///
    /// They must be `Present` by their words and registered.
    pub(crate) fn move_out(&self, core: &mut Core, vpn: Vpn, pages: usize, how: Going) -> MovedOut {
        let Going { huge, cold, .. } = how;
        let nothing = |errno| MovedOut {
            pages: 0,
            stopped: Some(errno),
        };
        let Some(order) = Order::holding(pages) else {
            return nothing(Errno::INVAL);
        };
        // Where the arena is fragmented, less at once; the caller goes on
        // from where this ends.
        let block = (0..=order.get())
            .rev()
            .filter_map(Order::new)
            .find_map(|order| self.arena().take_holes(order).map(|hole| (hole, order)));
        if order == Order::HUGE && block.is_none_or(|(_, order)| order < Order::HUGE) {
            self.block_wanted.store(true, Ordering::Relaxed);
        }
        let Some((hole, order)) = block else {
            return nothing(Errno::NOMEM);
        };
        let pages = pages.min(order.pages());
        let whole = huge && pages == EXTENT_PAGES && vpn.is_multiple_of(EXTENT_PAGES);
        if whole {
            self.arena().clear_page_table(hole);
        }
        let len = pages * PAGE_SIZE;
        let airlock = if whole {
            self.airlocks.huge
        } else {
            self.airlocks.small
        };
        let events = self.scope.is_process();
        let out = if events {
            self.fds.moves().into_held(airlock, address_of(vpn), len)
        } else {
            let arena = self.arena().moves();
            arena.into_held(self.address(hole), address_of(vpn), len)
        };
        let moved = out.done >> PAGE_SHIFT;
        self.arena()
            .give_holes(hole.offset(moved), order.pages() - moved);
        if moved > 0 {
            if events {
                self.through_airlock(airlock, hole, moved, vpn);
            }
            for index in 0..moved {
                core.extents
                    .set(vpn + index, Place::Standby(hole.offset(index)));
            }
            core.standby.pages += moved;
            let run = Run {
                vpn,
                at: hole,
                pages: moved,
            };
            if cold {
                core.standby.push_cold(run)
            } else {
                core.standby.push(run)
            }
            self.count(Counter::PagesOut, moved);
        }
        if whole && moved == pages {
            self.count_huge_move(hole, Counter::ThpSwpout, Counter::ThpSwpoutFallback);
            core.extents.entry(vpn).huge = true;
        } else if huge {
            self.count(Counter::ThpSwpoutFallback, 1);
        }
        MovedOut {
            pages: moved,
            stopped: out.stopped,
        }
    }

    /// From the airlock to the arena. Nobody else can reach a page in the
    /// airlock, so a refusal has no remedy but to give the page back.
    fn through_airlock(&self, airlock: usize, hole: Pfn, pages: usize, vpn: Vpn) {
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
                    zfolio_sys::arena::make_own(airlock + done * PAGE_SIZE, PAGE_SIZE);
                }
                Some(errno) => self.fail(format_args!(
                    "a page on its way out of {:#x} could not be taken over (errno {})",
                    address_of(vpn + done),
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

    /// Whether the 2 MiB at `start` are one huge page.
    pub(crate) fn is_huge(&self, start: usize) -> bool {
        let mut run = [PresentRun::default()];
        let found = self
            .fds
            .pagemap()
            .present(start, start + Order::HUGE.bytes(), &mut run);
        matches!(found, Ok((1, _)))
            && run[0].is_huge()
            && run[0].end() - run[0].start() == Order::HUGE.bytes()
    }
}
