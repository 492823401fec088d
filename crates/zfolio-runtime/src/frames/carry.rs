//! Pages of the arena from slots to slots: folio compaction, and blocks given whole.

use super::arena::FrameArena;
use crate::kernel::discard;
use zfolio_mm::{Memory, PAGE_SIZE, Pfn};

/// Tries to bring a page back to where it came from.
const UNDO_TRIES: u32 = 10_000;

impl FrameArena {
    /// Carries at most 64 pages that the caller holds at `from` to slots it holds at
    /// `to`; bit n of `backed` says that slot n of these has a frame. To a frame a
    /// page is copied, to a hole it is moved, or copied if it will not move (shared
    /// with a child of a fork). Bit n of what is returned says that slot n of `from`
    /// still has its frame. `None` when it could not be: all is as it was then.
    ///
    /// # Panics
    /// When not even undoing is possible: pages would be lost.
    pub(crate) fn carry(&self, from: Pfn, to: Pfn, pages: usize, backed: u64) -> Option<u64> {
        let has_frame = |page: usize| backed >> page & 1 != 0;
        // Pages whose frames went along.
        let mut moved = 0_u64;
        let mut page = 0;
        while page < pages {
            let (source, target) = (from.offset(page), to.offset(page));
            let holes = (page..pages).take_while(|page| !has_frame(*page)).count();
            if holes == 0 {
                self.with(source, 0, PAGE_SIZE, |bytes| {
                    self.with_mut(target, 0, PAGE_SIZE, |copy| copy.copy_from_slice(bytes));
                });
                page += 1;
                continue;
            }
            let done = self.move_pages(source, target, holes);
            (page..page + done).for_each(|page| moved |= 1 << page);
            page += done;
            if done > 0 {
                continue;
            }
            if !self.copy_page(source, target) {
                self.carry_back(from, to, page, backed, moved);
                return None;
            }
            page += 1;
        }
        Some(!moved)
    }

    /// Undoes what [`Self::carry`] did to the first `pages` pages.
    fn carry_back(&self, from: Pfn, to: Pfn, pages: usize, backed: u64, moved: u64) {
        for page in 0..pages {
            let (home, at) = (from.offset(page), to.offset(page));
            if moved >> page & 1 != 0 {
                // It left a moment ago; what is in the way now passes.
                let undone = (0..UNDO_TRIES).any(|_| {
                    let home = self.move_pages(at, home, 1) == 1 || self.copy_page(at, home);
                    if !home {
                        zfolio_sys::thread::yield_now();
                    }
                    home
                });
                assert!(undone, "a page of the pool can neither go nor return");
            }
            // A hole it was, and is again, whatever was copied there.
            if backed >> page & 1 == 0 {
                let _ = discard(self.map().address(at), PAGE_SIZE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::arena::tests::{arena, has_frame};
    use super::*;
    use zfolio_mm::Order;

    fn frames_of(arena: &FrameArena, at: Pfn) -> [bool; 4] {
        [0, 1, 2, 3].map(|slot| has_frame(arena, at.offset(slot)))
    }

    fn write(arena: &FrameArena, at: Pfn, byte: u8) {
        arena.with_mut(at, 0, PAGE_SIZE, |bytes| bytes.fill(byte));
    }

    fn holds(arena: &FrameArena, at: Pfn, byte: u8) -> bool {
        arena.with(at, 0, PAGE_SIZE, |bytes| bytes.iter().all(|b| *b == byte))
    }

    /// Four pages and four slots to carry them to, the second of which has a frame.
    fn places(arena: &FrameArena) -> (Pfn, Pfn) {
        let from = arena.populate_run(4).expect("holes");
        for (slot, byte) in (0..4).zip(1..) {
            write(arena, from.offset(slot), byte);
        }
        let to = arena
            .take_holes(Order::new(2).expect("at most 9"))
            .expect("holes");
        assert!(arena.populate(to.offset(1), 1));
        write(arena, to.offset(1), 99);
        (from, to)
    }

    #[test]
    fn pages_are_moved_to_holes_and_copied_to_frames() {
        let arena = arena();
        let (from, to) = places(&arena);
        let left = arena
            .carry(from, to, 4, 0b0010)
            .expect("nothing in the way");
        assert_eq!(left & 0b1111, 0b0010);
        for (slot, byte) in (0..4).zip(1..) {
            assert!(holds(&arena, to.offset(slot), byte), "page {slot}");
        }
        assert_eq!(frames_of(&arena, from), [false, true, false, false]);
    }

    #[test]
    fn what_cannot_be_carried_whole_is_left_as_it_was() {
        let arena = arena();
        let (from, to) = places(&arena);
        // To a frame that is said to be a hole nothing can be moved nor copied.
        assert!(arena.populate(to.offset(3), 1));
        assert_eq!(arena.carry(from, to, 4, 0b0010), None);
        for (slot, byte) in (0..4).zip(1..) {
            assert!(holds(&arena, from.offset(slot), byte), "page {slot}");
        }
        assert_eq!(frames_of(&arena, from), [true; 4]);
        assert_eq!(frames_of(&arena, to), [false, true, false, true]);
    }
}
