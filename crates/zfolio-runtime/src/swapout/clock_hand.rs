//! Which pages to move out: a clock hand over the program's extents.
//!
//! There is no accessed bit to read from user space, so the guess is made
//! cheap: the hand moves folios to standby in address order. What comes back from there,
//! or from the pool soon after, is spared for a while (`policy/refault.rs`).

use crate::address_space::core::Core;
use crate::page::{EXTENT_PAGES, Vpn, address_of, addresses_of, pages_within};
use crate::segment::Counter;
use crate::swapout::Swap;
use crate::swapout::candidates::{CandidateRuns, cold_pages};
use crate::swapout::hand::ClockHand;
use crate::transfer::move_out::{EvictMode, MoveOut};
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::Errno;

/// Rounds a group is left alone after it refused to move.
const LEFT_ALONE: u8 = 60;
/// How often is looked whether pages have left, ns.
const LEAVING_NS: u64 = 20_000;

/// How what the hand gathers goes.
const GATHERED: EvictMode = EvictMode {
    huge: false,
    cold: false,
    may_fault: true,
};

/// What one step of the hand did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandStep {
    /// Pages moved out (perhaps none) from one extent.
    Moved(usize),
    /// The hand came round to the start.
    Round,
    /// A fork, a remap or an event in flight: try later.
    Later,
}

/// Why pages were not moved out.
enum Stop {
    /// An event is in flight.
    Later,
    /// No hole in the arena, or no memory.
    NoRoom,
    /// These are shared with a child of a fork, or were.
    Shared(Range<Vpn>),
}

impl Swap {
    /// Advances the hand by one extent. Small folios are gathered, and moved once they
    /// are many: [`Self::move_gathered`] moves the rest. Where what is present is
    /// scattered, an extent has a few pages that may go, and each time the core
    /// lock is held for moves whoever faults waits.
    pub(crate) fn step_hand(&self, hand: &mut ClockHand) -> HandStep {
        let step = self.look_at_extent(hand);
        if step == HandStep::Later {
            hand.scatter();
        }
        step
    }

    /// Moves what the hand gathered; returns the pages moved.
    pub(crate) fn move_gathered(&self, hand: &mut ClockHand) -> Result<usize, Errno> {
        if hand.gathered() == 0 {
            return Ok(0);
        }
        let mut moved = 0;
        let done = self.move_candidates(&mut hand.gathered, GATHERED, &mut moved);
        if done.is_err() {
            hand.scatter();
        }
        done.map(|()| moved)
    }

    fn look_at_extent(&self, hand: &mut ClockHand) -> HandStep {
        self.control_goes_on();
        let Some(rest) = hand.vmas.next(hand.at) else {
            hand.come_round();
            return HandStep::Round;
        };
        let border = (rest.start + Order::HUGE.bytes()) & !(Order::HUGE.bytes() - 1);
        let part = rest.start..rest.end.min(border);
        let whole = hand.vmas.containing(part.start).unwrap_or(part.clone());
        let ready = {
            let mut core = self.core.lock();
            if !self.may_start(&mut core) {
                return HandStep::Later;
            }
            if let Some(extent) = core.pages.extents.get_mut(part.start / PAGE_SIZE) {
                extent.pass(pages_within(part.start, part.end));
            }
            let vmas = &hand.vmas;
            // (Whether the record is right is asked before a page leaves.)
            core.pages.registered.contains(&whole)
                || self.register(&mut core, vmas, &whole)
                || self.register(&mut core, vmas, &part)
        };
        hand.at = part.end;
        if !ready {
            return HandStep::Moved(0);
        }
        let pagemap = self.fds.pagemap();
        let Ok(found) = hand.present.of(pagemap, &hand.vmas, &part) else {
            return HandStep::Moved(0);
        };
        let none = found.is_empty();
        let pages = pages_within(part.start, part.end);
        {
            let mut core = self.core.lock();
            if core.pages.extents.has_gone(pages.start) {
                self.forget_vanished(&mut core, pages);
            }
        }
        if none {
            hand.at = self.next_present(hand, part.end);
            return HandStep::Moved(0);
        }
        if hand.gathered.pages() == 0 {
            hand.since = part.start;
        }
        let mut moved = 0;
        let gathered = &mut hand.gathered;
        let mut runs = found.chunk_by(|one, other| one.is_huge() == other.is_huge());
        let all = runs.try_for_each(|runs| {
            let huge = runs[0].is_huge();
            let runs = runs
                .iter()
                .map(|run| pages_within(run.start().max(part.start), run.end().min(part.end)));
            if huge {
                let how = EvictMode { huge, ..GATHERED };
                self.move_runs(runs, how, &mut moved)
            } else {
                self.gather(gathered, runs, &mut moved)
            }
        });
        if all.is_err() {
            hand.at = part.start;
            hand.scatter();
            if moved == 0 {
                return HandStep::Later;
            }
        }
        HandStep::Moved(moved)
    }

    /// Where the hand goes on: most of what it walks over is often empty.
    fn next_present(&self, hand: &mut ClockHand, from: usize) -> usize {
        let end = hand.vmas.end();
        match hand.present.next_from(from) {
            Ok(address) => address,
            Err(from) if from >= end => end,
            Err(from) => match self.fds.pagemap().first_present(from, end) {
                Ok(Some(address)) => address,
                Ok(None) => end,
                Err(_) => from,
            },
        }
    }

    /// Moves out what a sequential reader has left behind; `None` if there is
    /// nothing. `may_fault`: see [`EvictMode`].
    pub(crate) fn reclaim_passed(&self, may_fault: bool) -> Option<HandStep> {
        let pages = self.core.lock().history.take_passed()?;
        self.passed_steps.fetch_add(1, Ordering::Relaxed);
        let huge = pages.len() == EXTENT_PAGES && self.is_huge(address_of(pages.start));
        let how = EvictMode {
            huge,
            cold: true,
            may_fault,
        };
        let moved = self.move_run(pages, how);
        Some(moved.map_or(HandStep::Later, HandStep::Moved))
    }

    /// Moves out what is cold of a run of present pages. An error means
    /// "later".
    pub(crate) fn move_run(&self, run: Range<Vpn>, how: EvictMode) -> Result<usize, Errno> {
        let mut moved = 0;
        self.move_runs(core::iter::once(run), how, &mut moved)?;
        Ok(moved)
    }

    /// As [`Self::move_run`], of several runs, adding to `moved`. Small ones leave
    /// together.
    fn move_runs(
        &self,
        runs: impl Iterator<Item = Range<Vpn>>,
        how: EvictMode,
        moved: &mut usize,
    ) -> Result<(), Errno> {
        let most = self.pages_together();
        let mut pieces = CandidateRuns::default();
        for mut run in runs {
            if how.huge && run.len() == EXTENT_PAGES {
                if self.must_stay(&addresses_of(&run)) {
                    // Its other pages go as small ones do.
                    let how = EvictMode { huge: false, ..how };
                    self.move_runs(core::iter::once(run), how, moved)?;
                } else {
                    pieces.add(run);
                    self.move_candidates(&mut pieces, how, moved)?;
                }
                continue;
            }
            while !run.is_empty() {
                let end = (run.start + most - run.start % most).min(run.end);
                if !pieces.has_room(end - run.start, most) {
                    self.move_candidates(&mut pieces, how, moved)?;
                }
                pieces.add(run.start..end);
                run.start = end;
            }
        }
        self.move_candidates(&mut pieces, how, moved)
    }

    /// Adds to `pieces` what may go of some runs, each of one mapping and one extent.
    /// Pieces that are enough are moved, and added to `moved`.
    fn gather(
        &self,
        pieces: &mut CandidateRuns,
        runs: impl Iterator<Item = Range<Vpn>>,
        moved: &mut usize,
    ) -> Result<(), Errno> {
        let most = self.pages_together();
        let mut core = self.core.lock();
        for mut run in runs {
            loop {
                let cold = cold_pages(&mut core, &mut run, GATHERED);
                if cold == 0 {
                    break;
                }
                let end = (run.start + cold).min(run.start + most - run.start % most);
                if !pieces.has_room(end - run.start, most) {
                    drop(core);
                    self.move_candidates(pieces, GATHERED, moved)?;
                    core = self.core.lock();
                }
                pieces.add(run.start..end);
                run.start = end;
            }
        }
        Ok(())
    }

    /// Pages that leave together at most.
    fn pages_together(&self) -> usize {
        self.options.folio.pages().max(self.watermarks().window())
    }

    /// Moves out the pages of some folios that may go, and forgets the folios.
    fn move_candidates(
        &self,
        pieces: &mut CandidateRuns,
        how: EvictMode,
        moved: &mut usize,
    ) -> Result<(), Errno> {
        let mut own = 0..0;
        loop {
            let stop = {
                let mut core = self.core.lock();
                if !self.may_start(&mut core) {
                    return Err(Errno::AGAIN);
                }
                self.move_candidates_locked(&mut core, pieces, how, moved, &own)
            };
            match stop {
                Ok(true) => {}
                Ok(false) => break,
                Err(Stop::Later) => return Err(Errno::AGAIN),
                Err(Stop::NoRoom) => break,
                Err(Stop::Shared(pages)) => {
                    self.make_own(pages.clone());
                    own = pages;
                }
            }
        }
        *pieces = CandidateRuns::default();
        Ok(())
    }

    /// Under the lock, which is let go after each block of holes; whether there may be
    /// more.
    fn move_candidates_locked(
        &self,
        core: &mut Core,
        pieces: &mut CandidateRuns,
        how: EvictMode,
        moved: &mut usize,
        own: &Range<Vpn>,
    ) -> Result<bool, Stop> {
        let Some(first) = pieces.first_cold(core, how) else {
            return Ok(false);
        };
        let Some(mut leaving) = self.begin_move_out(first, pieces.pages(), how) else {
            return Err(Stop::NoRoom);
        };
        self.leaving.fetch_add(1, Ordering::SeqCst);
        let stop = self.fill_move_out(core, &mut leaving, pieces, how, own);
        self.leaving.fetch_add(1, Ordering::SeqCst);
        *moved += self.finish_move_out(core, &leaving);
        stop.map(|()| true)
    }

    /// Takes along what may go of the pieces, from the front, while there is room;
    /// what was looked at is cut off them.
    fn fill_move_out(
        &self,
        core: &mut Core,
        leaving: &mut MoveOut,
        pieces: &mut CandidateRuns,
        how: EvictMode,
        own: &Range<Vpn>,
    ) -> Result<(), Stop> {
        while leaving.headroom() > 0
            && let Some(piece) = pieces.front()
        {
            // (Not registered: unmapped since; the list of mappings is old.)
            let addresses = addresses_of(piece);
            if !core.pages.registered.contains(&addresses) || core.pages.pins.overlaps(&addresses) {
                piece.start = piece.end;
                continue;
            }
            let len = cold_pages(core, piece, how);
            if len == 0 {
                continue;
            }
            let next = piece.start;
            let whole = how.huge && len == EXTENT_PAGES;
            let len = self.may_leave(next, len, whole);
            if len == 0 {
                piece.start = if whole { piece.end } else { next + 1 };
                continue;
            }
            // (What moves is of one mapping.)
            match self.holds(core, address_of(next)) {
                Ok(true) => {}
                Ok(false) => {
                    piece.start = piece.end;
                    continue;
                }
                Err(_) => return Err(Stop::Later),
            }
            let out = self.add_to_move_out(leaving, next, len);
            piece.start += out.pages;
            match out.stopped {
                None => {}
                Some(Errno::AGAIN) if out.pages == 0 => return Err(Stop::Later),
                // A hole: the page went away since the page table was read.
                Some(Errno::AGAIN | Errno::NOENT) => piece.start += usize::from(out.pages == 0),
                // No memory for page tables: others may be luckier.
                Some(Errno::NOMEM) => return Err(Stop::NoRoom),
                // Shared with a child of a fork, or was: the kernel keeps a
                // page from moving until somebody writes to it. (Left for the
                // hand, if this is not its thread.)
                Some(Errno::BUSY) if !how.may_fault => return Err(Stop::NoRoom),
                Some(Errno::BUSY) if out.pages == 0 && !own.contains(&next) => {
                    return Err(Stop::Shared(next..next + len));
                }
                Some(_) if out.pages == 0 => {
                    self.leave_alone(core, next);
                    let whole = how.huge && piece.len() == EXTENT_PAGES;
                    piece.start = if whole { piece.end } else { next + 1 };
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// How many of `len` pages from `next` on the face lets go; all or none of a huge page.
    fn may_leave(&self, next: Vpn, len: usize, whole: bool) -> usize {
        if !self.must_stay(&addresses_of(&(next..next + len))) {
            return len;
        }
        if whole {
            return 0;
        }
        let goes = |page: &Vpn| !self.must_stay(&addresses_of(&(*page..page + 1)));
        (next..next + len).take_while(goes).count()
    }

    /// Returns once no page is on its way out that the face was asked about before this call.
    /// Takes no lock: for threads of the program, in signal handlers too. Waits for single
    /// calls of the kernel, and for nothing while a fork freezes the manager.
    pub(crate) fn wait_for_leaving(&self) {
        let found = self.leaving.load(Ordering::SeqCst);
        while found % 2 == 1 && self.leaving.load(Ordering::SeqCst) == found {
            pause(LEAVING_NS);
        }
    }

    /// Locked, pinned, shared with a child of a fork: not ours to move.
    fn leave_alone(&self, core: &mut Core, vpn: Vpn) {
        core.pages
            .extents
            .entry(vpn)
            .group(vpn)
            .leave_alone(LEFT_ALONE);
        self.count(Counter::Unmovable, 1);
    }

    /// Registers every managed mapping, so that first touches come to us and
    /// wait at `high`.
    pub(crate) fn register_all(&self, hand: &ClockHand) {
        for vma in hand.vmas.iter() {
            let mut core = self.core.lock();
            if !self.may_start(&mut core) {
                return;
            }
            self.register(&mut core, &hand.vmas, vma);
        }
    }
}

#[cfg(test)]
mod tests;
