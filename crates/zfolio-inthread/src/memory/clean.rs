//! Clean pages: open, and in the pool still. What comes back to be read is filled
//! write-protected, in a mode in which the kernel ends the protection by itself when the page
//! is written to, and tells of it (userfaultfd's asynchronous mode, Linux 6.7). Until then the
//! page may leave as it came: nothing is compressed, and with one thread nothing moved.
//!
//! The pool has such pages besides, so there are few: they go first, the oldest first, and one
//! that comes back soon after it has left stays, as a page of the program's alone. (S3-FIFO,
//! Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023, has such a small queue before its main one.)
//!
//! With one thread nobody writes between the question whether a page was written to and its
//! discard. With several the page is moved away first, and compared with what the pool has.
//!
//! # Invariants
//! Under the core lock:
//! 1. A page whose word is `Clean` is in the queue with its slot.
//! 2. One that is present and that the kernel says nobody wrote to equals what the slot holds.

use super::Vpn;
use super::bring::{Access, set};
use super::core::Core;
use super::way::STAGE;
use super::words::Word;
use crate::raw::{PAGE, SHIFT};
use crate::state::State;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::ops::Range;
use zfolio_sys::procfs::PresentRun;
use zfolio_zswap::Slot;

/// Of the pages that may be resident one in so many is clean at most; and how many may be,
/// however few or many that is.
const PART: usize = 64;
const FEWEST: usize = 128;
const MOST: usize = 1 << 16;
/// A page comes back soon if fewer have left clean since than this part of those that may be
/// resident.
const SOON: usize = 2;
/// Most pages that are noted as having left: 8 bytes each, twice.
const MOST_NOTED: usize = 1 << 18;

/// Those that are clean, and those that left so lately.
#[derive(Default)]
pub(crate) struct CleanPages {
    /// In the order in which they came. A hint: a page may have become something else since.
    queue: VecDeque<(Vpn, Slot)>,
    /// Most of them.
    most: usize,
    /// By a page's number: which page it was, and the count of those that had left.
    left: Box<[(u32, u32)]>,
    count: u32,
    soon: u32,
}

impl CleanPages {
    /// For a process that may have `high` pages: nothing is allocated later.
    pub(crate) fn of(high: usize) -> Self {
        let most = (high / PART).clamp(FEWEST, MOST);
        let soon = (high / SOON).clamp(FEWEST, MOST_NOTED);
        Self {
            queue: VecDeque::with_capacity(most + STAGE),
            most,
            left: vec![(0, 0); (2 * soon).next_power_of_two()].into_boxed_slice(),
            count: 0,
            soon: u32::try_from(soon).unwrap_or(u32::MAX),
        }
    }

    /// Where a page is noted, and as which.
    fn place(&self, page: Vpn) -> (usize, u32) {
        let bits = self.left.len().trailing_zeros();
        let tag = u32::try_from(page >> bits).unwrap_or(u32::MAX);
        (page & (self.left.len() - 1), tag + 1)
    }

    pub(super) fn note_left(&mut self, page: Vpn) {
        let (place, tag) = self.place(page);
        self.left[place] = (tag, self.count);
        self.count = self.count.wrapping_add(1);
    }

    /// Whether it left lately; it is asked once.
    fn comes_soon(&mut self, page: Vpn) -> bool {
        let (place, tag) = self.place(page);
        let (noted, at) = self.left[place];
        let soon = noted == tag && self.count.wrapping_sub(at) < self.soon;
        if soon {
            self.left[place] = (0, 0);
        }
        soon
    }
}

impl Core {
    /// Whether what comes back for `access` is to be clean.
    pub(super) fn comes_clean(&mut self, run: &Range<Vpn>, access: Access) -> bool {
        access == Access::Read
            && self.way.tells_written()
            && self.clean.most > 0
            && !(run.len() == 1 && self.clean.comes_soon(run.start))
    }

    /// The pages of `run` were filled as clean ones. What the pool has of them is in `slots`.
    pub(super) fn note_clean(&mut self, state: &State, run: &Range<Vpn>, slots: &[Slot]) {
        for (page, slot) in run.clone().zip(slots) {
            if *slot == Slot::ZERO {
                set(state, self, page, Word::OPEN);
                continue;
            }
            set(state, self, page, Word::Clean(*slot));
            self.clean.queue.push_back((page, *slot));
        }
        while self.clean.queue.len() > self.clean.most
            && let Some(oldest) = self.clean.queue.pop_front()
        {
            disown(state, self, oldest);
        }
    }

    /// Lets the oldest clean pages go until usage is at `goal`, or no more are there than may
    /// well be. In a batch.
    pub(super) fn drop_clean(&mut self, state: &State, goal: usize) {
        while state.words.clean() > self.clean.most / 2 && self.usage(state) > goal {
            let mut pages = [(0, Slot::ZERO); STAGE];
            let mut count = 0;
            while count < STAGE
                && let Some((page, slot)) = self.clean.queue.pop_front()
            {
                if state.words.get(page) != Word::Clean(slot) {
                    continue;
                }
                let addresses = page << SHIFT..(page + 1) << SHIFT;
                if self.is_held(&addresses) || self.seen.covers(&addresses) {
                    disown(state, self, (page, slot));
                    continue;
                }
                pages[count] = (page, slot);
                count += 1;
            }
            if count == 0 {
                return;
            }
            pages[..count].sort_unstable_by_key(|(page, _)| *page);
            for run in pages[..count].chunk_by(|one, next| one.0 + 1 == next.0) {
                self.drop_clean_run(state, run);
            }
        }
    }

    /// Takes the oldest clean pages out of the queue that may go, as many as there is room
    /// for in `pages` and more than may well be. In a batch.
    pub(super) fn oldest_clean(&mut self, state: &State, pages: &mut [(Vpn, Slot)]) -> usize {
        let mut count = 0;
        while count < pages.len()
            && state.words.clean() > self.clean.most / 2 + count
            && let Some((page, slot)) = self.clean.queue.pop_front()
        {
            if state.words.get(page) != Word::Clean(slot) {
                continue;
            }
            if self.seen.covers(&(page << SHIFT..(page + 1) << SHIFT)) {
                disown(state, self, (page, slot));
                continue;
            }
            pages[count] = (page, slot);
            count += 1;
        }
        count
    }

    /// Lets pages go that follow one another, those of them that nobody wrote to.
    fn drop_clean_run(&mut self, state: &State, run: &[(Vpn, Slot)]) {
        let start = run[0].0;
        let mut runs = [PresentRun::default(); STAGE];
        let addresses = start << SHIFT..(start + run.len()) << SHIFT;
        let mut at = 0;
        for unwritten in self.way.unwritten(&addresses, &mut runs) {
            let [from, to] = [unwritten.start(), unwritten.end()].map(|at| (at >> SHIFT) - start);
            for page in &run[at..from] {
                disown(state, self, *page);
            }
            self.let_go(state, &run[from..to]);
            at = to;
        }
        for page in &run[at..] {
            disown(state, self, *page);
        }
    }

    /// Lets pages go that follow one another, and that nobody had written to a moment ago.
    fn let_go(&mut self, state: &State, run: &[(Vpn, Slot)]) {
        let addresses = run[0].0 << SHIFT..(run[0].0 + run.len()) << SHIFT;
        let gone = if state.is_several() {
            self.move_away(&addresses, run)
        } else if self.way.discard(&addresses).is_ok() {
            run.len()
        } else {
            0
        };
        for (page, slot) in &run[..gone] {
            set(state, self, *page, Word::Stored(*slot));
            self.clean.note_left(*page);
        }
        for page in &run[gone..] {
            disown(state, self, *page);
        }
        self.figures.pages_out += gone as u64;
        self.figures.clean += gone as u64;
    }

    /// Moves pages away and compares them with what the pool has. How many have gone, from the
    /// front; all others are where they were.
    fn move_away(&mut self, addresses: &Range<usize>, run: &[(Vpn, Slot)]) -> usize {
        let Ok(frozen) = self.way.freeze(addresses, true) else {
            return 0;
        };
        let frozen = addresses.start..addresses.start + frozen;
        let count = frozen.len() / PAGE;
        let equal = (0..count).take_while(|at| self.is_in_pool(&frozen, *at, run[*at].1));
        let is_same = equal.count() == count;
        let done = if is_same {
            self.way.commit(&frozen, true)
        } else {
            self.way.undo(&frozen, true)
        };
        if let Err(errno) = done {
            self.fail(format_args!(
                "the memory at {:#x} could not be let go, nor opened again (errno {})",
                frozen.start, errno.0
            ));
        }
        if is_same { count } else { 0 }
    }
}

/// A clean page is the program's alone from here on.
pub(super) fn disown(state: &State, core: &Core, (page, slot): (Vpn, Slot)) {
    if state.words.get(page) == Word::Clean(slot) {
        set(state, core, page, Word::Open { heat: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_lately_comes_soon_once() {
        let mut clean = CleanPages::of(2000);
        assert_eq!((clean.most, clean.soon), (128, 1000));
        for page in 0..1500 {
            clean.note_left(page * 7);
        }
        assert!(!clean.comes_soon(3), "it never left");
        assert!(!clean.comes_soon(400 * 7), "1100 have left since");
        assert!(clean.comes_soon(1499 * 7));
        assert!(!clean.comes_soon(1499 * 7), "it is asked once");
        // Of the same place, another page.
        assert!(!clean.comes_soon(1498 * 7 + clean.left.len()));
        assert!(clean.comes_soon(1498 * 7));
    }
}
