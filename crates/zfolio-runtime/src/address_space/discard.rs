//! What the program gives up: discarded and unmapped pages, and what is kept for them.
//!
//! An event may be of gigabytes. It is worked on in batches of a fixed size, without the
//! heap, and pages of which nothing is kept cost nothing.

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::page::{Vpn, addresses_of, pages_within};
use crate::segment::Counter;
use core::ops::Range;
use zfolio_mm::PAGE_SHIFT;
use zfolio_zswap::Slot;

/// Pages looked at together.
pub(crate) const BATCH: usize = 256;
/// Pages of a discard marked without a look at which of them are there, at most.
const MARKED_UNSEEN: usize = 64;

impl Space {
    /// madvise: the range is about to be discarded. Pages still present
    /// vanish some time after this; until we have filled them again they must
    /// not be moved out, or the old contents would come back. (What is absent now may be
    /// touched by another thread before that: what it writes then may stay, as it would had
    /// it come later.)
    pub(crate) fn removed(&self, core: &mut Core, start: usize, end: usize) {
        let pages = pages_within(start, end);
        self.drop_contents(core, pages.clone());
        let mut any = false;
        // Pages not marked might be moved out, and come back undiscarded.
        if self.is_held() && pages.len() <= MARKED_UNSEEN {
            // (The page table cannot be read before the hold ends.)
            any = true;
            pages
                .clone()
                .for_each(|vpn| core.pages.extents.set(vpn, Place::Gone));
        } else {
            self.mark_occupied(core, &pages, &mut any);
        }
        self.count(Counter::Removes, 1);
        if !any {
            core.pages.extents.prune(pages);
        } else if let Some(oldest) = core.pages.vanishing.push(pages) {
            self.forget_vanished(core, oldest);
        }
    }

    fn mark_occupied(&self, core: &mut Core, pages: &Range<Vpn>, any: &mut bool) {
        self.for_each_occupied(addresses_of(pages), |run| {
            for vpn in run.start.max(pages.start)..run.end.min(pages.end) {
                core.pages.extents.set(vpn, Place::Gone);
                *any = true;
            }
        })
        .unwrap_or_else(|errno| {
            self.fail(format_args!(
                "the page table cannot be read (errno {})",
                errno.0
            ))
        });
    }

    pub(crate) fn unmapped(&self, core: &mut Core, start: usize, end: usize) {
        let pages = pages_within(start, end);
        core.pages.registered.remove(start..end);
        self.drop_contents(core, pages.clone());
        core.pages.extents.prune(pages);
        self.count(Counter::Unmaps, 1);
    }

    /// Takes the word off those pages that were discarded and have vanished since: what
    /// comes there now comes by a fault. The others stay `Gone`.
    pub(crate) fn forget_vanished(&self, core: &mut Core, pages: Range<Vpn>) {
        let mut from = pages.start;
        let all = self.for_each_occupied(addresses_of(&pages), |run| {
            core.pages.extents.forget_gone(from..run.start);
            from = run.end;
        });
        if all.is_ok() {
            core.pages.extents.forget_gone(from..pages.end);
            core.pages.extents.prune(pages);
        }
    }

    /// Frees what is kept for `pages`, which have no word then.
    /// A page being stored or loaded belongs to that operation, which finds
    /// the word changed and frees what it holds.
    pub(crate) fn drop_contents(&self, core: &mut Core, pages: Range<Vpn>) {
        self.drop_kept(core, pages, |_| true);
    }

    /// As [`Self::drop_contents`], of pages in such places only.
    pub(crate) fn drop_kept(
        &self,
        core: &mut Core,
        mut pages: Range<Vpn>,
        which: impl Fn(Place) -> bool,
    ) {
        let mut batch = [(0, Place::Present); BATCH];
        let mut slots = [Slot::ZERO; BATCH];
        let mut any = false;
        loop {
            let batch = core.pages.extents.first_tracked(&mut pages, &mut batch);
            if batch.is_empty() {
                break;
            }
            let mut count = 0;
            for (vpn, place) in batch.iter().filter(|(_, place)| which(*place)) {
                match *place {
                    Place::Stored(slot) | Place::Clean(slot) => {
                        slots[count] = slot;
                        count += 1;
                    }
                    Place::Standby(at) => {
                        self.arena().give_frames(at, 1);
                        core.pages.standby.note_left(1);
                    }
                    Place::Present | Place::Storing(_) | Place::Loading(_) | Place::Gone => {}
                }
                core.pages.extents.set(*vpn, Place::Present);
            }
            self.zswap.invalidate(&slots[..count]);
            any |= count > 0;
        }
        if any {
            self.wakeups.frames_freed();
        }
    }

    /// Drops the words of pages that were copied in while words had to stay.
    /// Before parked events are applied: they move words.
    pub(crate) fn drop_superseded(&self, core: &mut Core) {
        while let Some(vpn) = core.freeze.superseded.pop() {
            self.drop_stale(core, vpn..vpn + 1);
        }
    }

    /// In the child of a fork: drops what is kept for pages that are present
    /// all the same, since the parent copied one in and had not noted it yet
    /// when the image was taken. (With other threads about, what is present
    /// at an address may be another mapping's.)
    pub(crate) fn reconcile(&self, core: &mut Core) {
        let registered = core.pages.registered.clone();
        for range in registered.iter() {
            let _ = self.for_each_occupied(range, |run| self.drop_stale(core, run));
        }
    }

    /// Drops all that is kept: the child of a fork has it all.
    pub(crate) fn drop_everything(&self, core: &mut Core) {
        self.drop_contents(core, 0..usize::MAX >> PAGE_SHIFT);
    }

    fn drop_stale(&self, core: &mut Core, pages: Range<Vpn>) {
        self.drop_kept(core, pages, |place| {
            matches!(place, Place::Stored(_) | Place::Standby(_))
        });
    }
}
