//! Room is made beside other threads: by the thread that wants it, or by the one of ours that reclaims
//! ([`reclaimer`](crate::memory::reclaimer)).

use super::batch::MOST;
use super::stage::Taken;
use super::swap_out::send_next;
use crate::memory::core::MemoryCore;
use crate::memory::layer::MemoryState;
use crate::memory::reclaim::{ROOM, SLACK};
use crate::memory::words::LEAF;
use zfolio_runtime::segment::GroupEvent;
use zfolio_sys::thread::{Clock, now_ns};

/// For whom.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::memory) enum Whom {
    /// The caller, who brings so many pages next.
    Caller(usize),
    /// The threads that will want some.
    Others,
}

impl Whom {
    const fn pages(self) -> usize {
        match self {
            Self::Caller(pages) => pages,
            Self::Others => 0,
        }
    }
}

impl MemoryCore {
    /// The usage to close down to.
    fn goal(&self, whom: Whom) -> usize {
        let Whom::Caller(pages) = whom else {
            return self.goal_ahead();
        };
        // (More than is asked for: a span costs the same, and others find room.)
        let beyond = if self.closes_in_place() {
            self.slack().clamp(SLACK, MOST)
        } else {
            SLACK
        };
        self.limit().saturating_sub(pages + beyond)
    }

    /// Begins; how many pages the pool has.
    fn begin_room(&mut self, state: &MemoryState, whom: Whom) -> usize {
        // (Spans are few: each may look.)
        let now = self.closes_in_place();
        self.look(state, now);
        if whom != Whom::Others {
            self.figures.waits += 1;
            state
                .membership
                .count_event(state.segment, GroupEvent::High);
        }
        self.pool_pages()
    }

    /// Ends: `closed` pages have left, and the pool had `pool` before. `helpless`: there are more than the goal.
    fn end_room(&mut self, whom: Whom, helpless: bool, closed: usize, pool: usize) {
        let pool = self.pool_pages().saturating_sub(pool);
        if !helpless || closed >= 2 * pool + SLACK {
            self.closing.overdraft -= self.closing.overdraft.div_ceil(64);
        } else if whom != Whom::Others {
            // (The limit is raised by who wants room, and by nobody else.)
            self.closing.overdraft += ROOM.max(whom.pages());
        }
    }
}

/// Closes pages until `whom` has room, as [`MemoryCore::make_room`] does, or there is nothing to be
/// closed; how many.
pub(in crate::memory) fn make_room(
    state: &MemoryState,
    taken: &mut Taken<'_>,
    whom: Whom,
) -> usize {
    let begun = now_ns(Clock::Monotonic);
    let work = state.begin_work();
    let is_called_off = || whom == Whom::Others && state.pressure.is_to_end();
    state.compact_beside(whom == Whom::Others, is_called_off);
    let (mut looked, mut closed) = (0_usize, 0);
    let mut pool = None;
    loop {
        let mut guard = state.at_gate();
        let core = &mut *guard;
        if core.closes_nothing() || core.pool.is_none() || is_called_off() {
            return closed;
        }
        // (Where there are limits room is made with nothing beside.)
        if !state.is_beside() {
            return closed;
        }
        let pool = *pool.get_or_insert_with(|| core.begin_room(state, whom));
        let goal = core.goal(whom);
        let most = 3 * core.ranges.managed_pages() + LEAF;
        let beyond = core.beyond(state, goal);
        if beyond == 0 || looked >= most {
            core.end_room(whom, beyond > 0, closed, pool);
            if whom != Whom::Others {
                core.figures.waited_ns += now_ns(Clock::Monotonic) - begun;
                state.end_reclaim(work);
                state.pressure.note_made(closed, begun);
            }
            return closed;
        }
        closed += send_next(state, guard, taken, goal, &mut looked);
    }
}
