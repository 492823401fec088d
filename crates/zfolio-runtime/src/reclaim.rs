//! Which pages to move out: a clock hand over the program's extents.
//!
//! There is no accessed bit to read from user space, so the guess is made
//! cheap instead of good: the hand moves folios to standby in address order,
//! and what comes back from there is spared for some rounds (`heat`). What
//! came back from the pool without being part of a sequential read is spared
//! one round.

use crate::control::Counter;
use crate::events::addresses_of;
use crate::extent::{EXTENT_PAGES, GROUP_PAGES, Vpn, group_of};
use crate::manager::{Core, Manager, address_of, pages_within};
use crate::moveout::Going;
use crate::vmas::Vmas;
use crate::word::Place;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::Order;
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::syscall::Errno;

/// Pages moved out at once, whatever the folio: each call has a price, and the
/// core lock is held for some 15 us by these.
const PIECE: usize = 64;
/// Most degrees of heat: rounds for which a group is spared.
pub(crate) const HOTTEST: u8 = 6;
/// Rounds a group is left alone after it refused to move.
const UNMOVABLE_HEAT: u8 = 60;

/// The hand and what it walks over.
pub(crate) struct Reclaim {
    pub(crate) vmas: Vmas,
    /// Next address to look at.
    hand: usize,
    runs: alloc::vec::Vec<PresentRun>,
}

impl Reclaim {
    pub(crate) fn new(vmas: Vmas) -> Self {
        Self {
            vmas,
            hand: 0,
            runs: alloc::vec![PresentRun::default(); EXTENT_PAGES],
        }
    }
}

/// What one step of the hand did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Pages moved out (perhaps none) from one extent.
    Moved(usize),
    /// The hand came round to the start.
    Round,
    /// A fork, a remap or an event in flight: try later.
    Later,
}

impl Manager {
    /// Advances the hand by one extent.
    pub(crate) fn step_hand(&self, reclaim: &mut Reclaim) -> Step {
        self.control_goes_on();
        let Some(rest) = reclaim.vmas.next(reclaim.hand) else {
            reclaim.hand = 0;
            return Step::Round;
        };
        let border = (rest.start + Order::HUGE.bytes()) & !(Order::HUGE.bytes() - 1);
        let part = rest.start..rest.end.min(border);
        let whole = reclaim.vmas.containing(part.start).unwrap_or(part.clone());
        let ready = {
            let mut core = self.core.lock();
            if !self.opens(&mut core) {
                return Step::Later;
            }
            self.register(&mut core, &whole) || self.register(&mut core, &part)
        };
        reclaim.hand = part.end;
        if !ready {
            return Step::Moved(0);
        }
        let found = self
            .fds
            .pagemap()
            .present(part.start, part.end, &mut reclaim.runs);
        let Ok((count, _)) = found else {
            return Step::Moved(0);
        };
        if count == 0 {
            reclaim.hand = self.next_present(part.end, reclaim.vmas.end());
        }
        let mut moved = 0;
        for run in &reclaim.runs[..count] {
            let how = Going {
                huge: run.is_huge(),
                cold: false,
                may_fault: true,
            };
            match self.move_run(pages_within(run.start(), run.end()), how) {
                Ok(pages) => moved += pages,
                Err(_) => {
                    reclaim.hand = part.start;
                    return if moved > 0 {
                        Step::Moved(moved)
                    } else {
                        Step::Later
                    };
                }
            }
        }
        Step::Moved(moved)
    }

    /// Where the hand goes on: most of what it walks over is often empty.
    fn next_present(&self, from: usize, end: usize) -> usize {
        match self.fds.pagemap().first_present(from, end) {
            Ok(Some(address)) => address,
            Ok(None) => end,
            Err(_) => from,
        }
    }

    /// Moves out what a sequential reader has left behind; `None` if there is
    /// nothing. `may_fault`: see [`Going`].
    pub(crate) fn step_behind(&self, may_fault: bool) -> Option<Step> {
        let pages = self.core.lock().behind.pop_front()?;
        self.behind_steps.fetch_add(1, Ordering::Relaxed);
        let huge = pages.len() == EXTENT_PAGES && self.is_huge(address_of(pages.start));
        let how = Going {
            huge,
            cold: true,
            may_fault,
        };
        let moved = self.move_run(pages, how);
        Some(moved.map_or(Step::Later, Step::Moved))
    }

    /// Moves out what is cold of a run of present pages. An error means
    /// "later".
    pub(crate) fn move_run(&self, run: Range<Vpn>, how: Going) -> Result<usize, Errno> {
        if how.huge && run.len() == EXTENT_PAGES {
            return self.move_piece(run, how);
        }
        let mut moved = 0;
        let mut next = run.start;
        while next < run.end {
            let folio = self.options.folio.pages().max(PIECE);
            let end = (next + folio - next % folio).min(run.end);
            moved += self.move_piece(next..end, how)?;
            next = end;
        }
        Ok(moved)
    }

    /// Moves out the pages of one folio that may go.
    fn move_piece(&self, piece: Range<Vpn>, how: Going) -> Result<usize, Errno> {
        let mut core = self.core.lock();
        if !self.opens(&mut core) {
            return Err(Errno::AGAIN);
        }
        // Under the lock: who asks for it to be left alone waits a moment only.
        // (Not registered: unmapped since; the list of mappings is old.)
        let addresses = addresses_of(&piece);
        let movable = |core: &Core| {
            core.registered.contains(&addresses)
                && !core.pins.overlaps(&addresses)
                && !(self.left_alone)(&addresses)
        };
        if !movable(&core) {
            return Ok(0);
        }
        let mut moved = 0;
        let mut next = piece.start;
        let mut made_own = false;
        let whole = how.huge && piece.len() == EXTENT_PAGES;
        while next < piece.end {
            if !how.cold && self.spare(&mut core, next) {
                next = if whole {
                    piece.end
                } else {
                    end_of_group(next).min(piece.end)
                };
                continue;
            }
            let present = |page: &Vpn| core.extents.place(*page) == Place::Present;
            let len = (next..piece.end).take_while(present).count();
            if len == 0 {
                next += 1;
                continue;
            }
            let out = self.move_out(&mut core, next, len, how);
            moved += out.pages;
            next += out.pages;
            match out.stopped {
                None => {}
                Some(Errno::AGAIN) if out.pages == 0 => return Err(Errno::AGAIN),
                // A hole: the page went away since the page table was read.
                Some(Errno::AGAIN | Errno::NOENT) => next += usize::from(out.pages == 0),
                // No hole in the arena, or no memory for page tables: others
                // may be luckier.
                Some(Errno::NOMEM) => return Ok(moved),
                // Shared with a child of a fork, or was: the kernel keeps a
                // page from moving until somebody writes to it. (Left for the
                // hand, if this is not its thread.)
                Some(Errno::BUSY) if !how.may_fault => return Ok(moved),
                Some(Errno::BUSY) if out.pages == 0 && !made_own => {
                    drop(core);
                    made_own = true;
                    self.make_own(next..next + len);
                    core = self.core.lock();
                    if !core.is_open() || !movable(&core) {
                        return Ok(moved);
                    }
                }
                Some(_) if out.pages == 0 => {
                    self.leave_alone(&mut core, next);
                    next = if whole { piece.end } else { next + 1 };
                }
                Some(_) => {}
            }
        }
        Ok(moved)
    }

    /// Has the kernel write to those of `pages` that are present, as if the
    /// program had. The others may never have been touched: a write there is a
    /// fault, which another of our threads would have to serve.
    fn make_own(&self, pages: Range<Vpn>) {
        let Range { mut start, end } = addresses_of(&pages);
        let mut runs = [PresentRun::default(); 16];
        while start < end {
            let Ok((count, reached)) = self.fds.pagemap().present(start, end, &mut runs) else {
                return;
            };
            for run in &runs[..count] {
                zfolio_sys::arena::make_own(run.start(), run.end() - run.start());
            }
            if reached <= start {
                return;
            }
            start = reached;
        }
    }

    /// Whether `vpn`'s group is spared this round, which costs it a degree.
    fn spare(&self, core: &mut Core, vpn: Vpn) -> bool {
        let Some(extent) = core.extents.get_mut(vpn) else {
            return false;
        };
        let heat = &mut extent.heat[group_of(vpn)];
        let was = *heat;
        *heat = was.saturating_sub(1);
        core.spared |= (1..=HOTTEST).contains(&was);
        was > 0
    }

    /// Locked, pinned, shared with a child of a fork: not ours to move.
    fn leave_alone(&self, core: &mut Core, vpn: Vpn) {
        core.extents.entry(vpn).heat[group_of(vpn)] = UNMOVABLE_HEAT;
        self.count(Counter::Unmovable, 1);
    }

    /// Registers every managed mapping, so that first touches come to us and
    /// wait at `high`.
    pub(crate) fn register_all(&self, reclaim: &Reclaim) {
        for vma in reclaim.vmas.iter() {
            let mut core = self.core.lock();
            if !self.opens(&mut core) {
                return;
            }
            self.register(&mut core, vma);
        }
    }
}

/// First page after `vpn`'s group.
const fn end_of_group(vpn: Vpn) -> Vpn {
    vpn + GROUP_PAGES - vpn % GROUP_PAGES
}
