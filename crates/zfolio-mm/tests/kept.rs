//! Memory that is read in order over and over: what the pool takes and frees must not cut
//! up the runs that stores free.

use std::collections::VecDeque;
use zfolio_mm::{Frames, Kind, Order, Pfn};

const BLOCKS: usize = 256;
/// Frames that faults leave to the pool.
const RESERVE: usize = 96;

/// Swap-out and swap-in by turns, with a pool of zspages of one to four pages, of which the
/// oldest go first. The pool frees its own as `freed`.
struct Churn {
    frames: Frames,
    freed: Kind,
    pool: VecDeque<(Pfn, usize)>,
    turn: usize,
    /// Moves in, and their pages.
    moves: usize,
    pages: usize,
}

impl Churn {
    fn new(freed: Kind) -> Self {
        Self {
            frames: Frames::new(BLOCKS * Order::HUGE.pages()),
            freed,
            pool: VecDeque::new(),
            turn: 0,
            moves: 0,
            pages: 0,
        }
    }

    /// 256 pages move to holes and are stored, 16 at a time, three pages to one frame.
    fn out(&mut self, reads: bool) {
        let order = Order::new(8).expect("at most 9");
        let largest = self.frames.largest_free_order(Kind::Hole).expect("holes");
        let order = order.min(largest);
        let at = self.frames.alloc(Kind::Hole, order).expect("of that order");
        for folio in (0..order.pages()).step_by(16) {
            let mut wanted = 5 + usize::from(self.turn.is_multiple_of(3));
            while wanted > 0 {
                self.turn += 1;
                let pages = (1 + self.turn * 7 % 4).min(wanted);
                wanted -= pages;
                let kept = self.frames.alloc_exact(Kind::Kept, pages);
                let own = kept.or_else(|| self.frames.alloc_exact(Kind::Backed, pages));
                // (None at first: from the system.)
                let own = own.or_else(|| self.frames.alloc_exact(Kind::Hole, pages));
                self.pool.push_back((own.expect("addresses"), pages));
            }
            let pages = order.pages().min(16);
            self.frames
                .free_range(Kind::Backed, at.offset(folio), pages);
            if reads {
                self.bring();
            }
        }
    }

    /// What is free moves in, the largest runs first; as much of the pool is free then.
    fn bring(&mut self) {
        let mut brought = 0;
        while self.frames.free_pages(Kind::Backed) > RESERVE {
            let left = self.frames.free_pages(Kind::Backed) - RESERVE;
            let most = Order::holding_at_most(left);
            let (at, order) = self.frames.take_free(Kind::Backed, most).expect("free");
            self.frames.free(Kind::Hole, at, order);
            self.moves += 1;
            brought += order.pages();
        }
        self.pages += brought;
        let mut freed = 0;
        while freed < brought / 3
            && let Some((at, pages)) = self.pool.pop_front()
        {
            self.frames.free_range(self.freed, at, pages);
            freed += pages;
        }
    }

    /// Pages of a move in, after many passes.
    fn run(mut self) -> usize {
        for _ in 0..128 {
            self.out(false);
            // (Filling: frames go to new pages.)
            while let Some((at, order)) = self.frames.take_free(Kind::Backed, Order::HUGE) {
                self.frames.free(Kind::Hole, at, order);
            }
        }
        for _ in 0..3_000 {
            self.out(true);
        }
        self.frames.validate().expect("the invariants");
        self.pages / self.moves
    }
}

#[test]
fn frames_kept_for_the_pool_leave_runs_whole() {
    let mixed = Churn::new(Kind::Backed).run();
    let kept = Churn::new(Kind::Kept).run();
    assert!(kept >= 12, "{kept} pages a move; mixed {mixed}");
    assert!(
        mixed < 8,
        "{mixed} pages a move: this shows nothing any more"
    );
}
