//! Requests to the pager, each in a cell of this process's ring of the exchange.

use core::sync::atomic::Ordering;
use zfolio_sys::brief_wait::BriefWait;
use zfolio_sys::exchange::{CELLS, Cell, Data, Exchange, state};
use zfolio_sys::lock::{futex_wait, pause};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};

/// Cells that writes and deletions may have; reads have the others as well.
pub(crate) const OF_WRITES: usize = 6;
/// Between two looks at what else there is, by one who waits, ns.
const LOOK_NS: u64 = 100_000_000;
/// Between two looks for a free cell, ns.
const PAUSE_NS: u64 = 100_000;

/// What a cell is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Read,
    Write,
}

/// What is asked for: one of [`zfolio_sys::exchange::op`], of which value, from which byte on
/// and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: u32,
    pub(crate) id: u64,
    /// Where the value's copies are; the pager's word, which it is handed back.
    pub(crate) salts: u32,
    pub(crate) from: usize,
    pub(crate) len: usize,
}

/// A cell of ours, with a request in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    cell: usize,
}

/// The cells of this process.
pub(crate) struct Cells {
    pub(crate) exchange: Exchange,
    /// For answers.
    brief: BriefWait,
}

impl Cells {
    pub(crate) fn of(exchange: Exchange) -> Self {
        Self {
            exchange,
            brief: BriefWait::default(),
        }
    }

    fn cells(&self) -> &'static [Cell; CELLS] {
        &self.exchange.ring().cells
    }

    /// The data of a cell that was claimed.
    pub(crate) fn data(&self, cell: usize) -> &'static Data {
        &self.exchange.ring().data[cell]
    }

    /// What was answered, as far as it has data.
    pub(crate) fn data_of(&self, asked: &Asked) -> &'static Data {
        self.data(asked.cell)
    }

    /// Whether there are `count` cells for writes now.
    pub(crate) fn has_free(&self, count: usize) -> bool {
        let cells = self.cells()[..OF_WRITES].iter();
        let free = cells.filter(|cell| cell.state.load(Ordering::Relaxed) == state::FREE);
        free.count() >= count
    }

    /// A cell that is free now.
    pub(crate) fn claim_now(&self, for_: Use) -> Option<usize> {
        let is_claimed = |cell: &Cell| change(cell, state::FREE, state::CLAIMED);
        match for_ {
            Use::Write => self.cells()[..OF_WRITES].iter().position(is_claimed),
            Use::Read => self.cells().iter().rposition(is_claimed),
        }
    }

    /// A cell that is free now, for what nobody waits for yet.
    pub(crate) fn claim_ahead(&self) -> Option<usize> {
        let others = self.cells()[OF_WRITES..].iter();
        let claimed = others
            .rev()
            .position(|cell| change(cell, state::FREE, state::CLAIMED));
        claimed.map(|back| CELLS - 1 - back)
    }

    /// A cell, waited for until `goes_on` has an error.
    pub(crate) fn claim(
        &self,
        for_: Use,
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        loop {
            if let Some(cell) = self.claim_now(for_) {
                return Ok(cell);
            }
            goes_on()?;
            pause(PAUSE_NS);
        }
    }

    /// Gives a cell back that was claimed, and not used.
    pub(crate) fn unclaim(&self, cell: usize) {
        self.cells()[cell]
            .state
            .store(state::FREE, Ordering::Release);
    }

    /// Asks, in a cell that was claimed; the pager is still to be told
    /// ([`Exchange::ring_the_bell`]).
    pub(crate) fn post(&self, cell: usize, request: &Request) -> Asked {
        let of = &self.cells()[cell];
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        of.op.store(request.op, Ordering::Relaxed);
        of.id.store(request.id, Ordering::Relaxed);
        of.salts.store(request.salts, Ordering::Relaxed);
        of.from.store(word(request.from), Ordering::Relaxed);
        of.len.store(word(request.len), Ordering::Relaxed);
        of.state.store(state::POSTED, Ordering::Release);
        self.exchange.note_posted(cell);
        Asked { cell }
    }

    /// The answer, if it is there: the salts. The cell is to be freed ([`Self::free`]) once its
    /// data has been taken; after an error it is not the caller's any more.
    pub(crate) fn answer_now(&self, asked: &Asked) -> Option<Result<u32, Errno>> {
        let of = &self.cells()[asked.cell];
        if of.state.load(Ordering::Acquire) != state::DONE {
            return None;
        }
        match of.errno.load(Ordering::Relaxed) {
            0 => Some(Ok(of.salts.load(Ordering::Relaxed))),
            errno => {
                self.free(asked);
                Some(Err(errno_of(errno)))
            }
        }
    }

    /// Waits for the answer, until `goes_on` has an error: then the request is given up.
    pub(crate) fn answer(
        &self,
        asked: &Asked,
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<u32, Errno> {
        match self.wait(asked, goes_on) {
            Ok(_) => self.answer_now(asked).unwrap_or(Err(Errno::IO)),
            Err(errno) => self.give_up(asked, errno),
        }
    }

    /// Waits until there is an answer, which stays, or until `goes_on` has an error. The answer's
    /// error, if it is one.
    pub(crate) fn wait(
        &self,
        asked: &Asked,
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<Option<Errno>, Errno> {
        let of = &self.cells()[asked.cell];
        let is_done = || of.state.load(Ordering::Acquire) == state::DONE;
        let may = self.exchange.head().may_stay_awake.load(Ordering::Relaxed) != 0;
        let sleep = || {
            self.sleep(asked);
            if is_done() { Ok(()) } else { goes_on() }
        };
        self.brief.wait(may, is_done, sleep)?;
        Ok(match of.errno.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(errno_of(errno)),
        })
    }

    /// Sleeps until there is an answer, or a while.
    pub(crate) fn sleep(&self, asked: &Asked) {
        let word = &self.cells()[asked.cell].state;
        let now = word.load(Ordering::Acquire);
        if now != state::DONE {
            futex_wait(word, now, Some(LOOK_NS));
        }
    }

    /// Gives a request up, unless it was answered this moment.
    pub(crate) fn give_up(&self, asked: &Asked, errno: Errno) -> Result<u32, Errno> {
        let cell = &self.cells()[asked.cell];
        let given_up = change(cell, state::POSTED, state::FREE)
            || change(cell, state::TAKEN, state::ABANDONED);
        if given_up {
            // (It is the pager's, or another thread's of this process by now.)
            return Err(errno);
        }
        self.answer_now(asked).unwrap_or(Err(errno))
    }

    /// Gives a request up that nobody waits for, whatever came of it.
    pub(crate) fn abandon(&self, asked: &Asked) {
        if self.give_up(asked, Errno::INTR).is_ok() {
            self.free(asked);
        }
    }

    /// A cell whose answer was taken is free.
    pub(crate) fn free(&self, asked: &Asked) {
        change(&self.cells()[asked.cell], state::DONE, state::FREE);
    }
}

fn errno_of(word: u32) -> Errno {
    Errno(i32::try_from(word).unwrap_or(Errno::IO.0))
}

fn change(cell: &Cell, from: u32, to: u32) -> bool {
    let changed = cell
        .state
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    changed.is_ok()
}

/// Now, CLOCK_MONOTONIC, ns.
pub(crate) fn now() -> u64 {
    now_ns(Clock::Monotonic)
}
