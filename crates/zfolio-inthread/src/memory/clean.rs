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
use super::core::MemoryCore;
use super::way::STAGE;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{PAGE, SHIFT};
use core::ops::Range;
use zfolio_sys::procfs::PresentRun;
use zfolio_zswap::Slot;

impl MemoryCore {
    /// Whether what comes back for `access` is to be clean.
    pub(super) fn comes_clean(&mut self, run: &Range<Vpn>, access: Access) -> bool {
        access == Access::Read
            && self.way.tells_written()
            && self.closing.clean.most > 0
            && !(run.len() == 1 && self.closing.clean.comes_soon(run.start))
    }

    /// The pages of `run` were filled as clean ones. What the pool has of them is in `slots`.
    pub(super) fn note_clean(&mut self, state: &MemoryState, run: &Range<Vpn>, slots: &[Slot]) {
        for (page, slot) in run.clone().zip(slots) {
            if *slot == Slot::ZERO {
                set(state, self, page, Word::OPEN);
                continue;
            }
            set(state, self, page, Word::Clean(*slot));
            self.closing.clean.queue.push_back((page, *slot));
        }
        while self.closing.clean.queue.len() > self.closing.clean.most
            && let Some(oldest) = self.closing.clean.queue.pop_front()
        {
            disown(state, self, oldest);
        }
    }

    /// Lets the oldest clean pages go until usage is at `goal`, or no more are there than may
    /// well be. In a batch.
    pub(super) fn drop_clean(&mut self, state: &MemoryState, goal: usize) {
        while state.words.clean() > self.closing.clean.most / 2 && self.usage(state) > goal {
            let mut pages = [(0, Slot::ZERO); STAGE];
            let mut count = 0;
            while count < STAGE
                && let Some((page, slot)) = self.closing.clean.queue.pop_front()
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
    pub(super) fn oldest_clean(&mut self, state: &MemoryState, pages: &mut [(Vpn, Slot)]) -> usize {
        let mut count = 0;
        while count < pages.len()
            && state.words.clean() > self.closing.clean.most / 2 + count
            && let Some((page, slot)) = self.closing.clean.queue.pop_front()
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
    fn drop_clean_run(&mut self, state: &MemoryState, run: &[(Vpn, Slot)]) {
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
    fn let_go(&mut self, state: &MemoryState, run: &[(Vpn, Slot)]) {
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
            self.closing.clean.note_left(*page);
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
pub(super) fn disown(state: &MemoryState, core: &MemoryCore, (page, slot): (Vpn, Slot)) {
    if state.words.get(page) == Word::Clean(slot) {
        set(state, core, page, Word::Open { heat: 1 });
    }
}
