//! The walker that checks a [`Buddy`]'s invariants.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use super::{BLOCK_SLOTS, Buddy, NEXT, PREV, from_link, mark, to_link};
use crate::types::{Order, Pfn};

impl Buddy {
    /// Checks the invariants at the module's head. Takes time and memory in
    /// proportion to the slots: for tests.
    ///
    /// # Errors
    /// A sentence on the first invariant found broken.
    pub fn validate(&self) -> Result<(), String> {
        let mut seen = vec![false; self.slots];
        let mut pages = 0;
        let mut blocks = 0;
        for order in Order::all() {
            let count = self.validate_list(order, &mut seen)?;
            if (self.nonempty >> order.get()) & 1 != u16::from(count != 0) {
                return Err(format!("order {}: bit of nonempty is wrong", order.get()));
            }
            pages += count << order.get();
            blocks += count;
        }
        if pages != self.free_pages {
            return Err(format!(
                "free_pages {} but {pages} in blocks",
                self.free_pages
            ));
        }
        for (block, (seen, counted)) in seen.chunks(BLOCK_SLOTS).zip(&self.in_pageblock).enumerate()
        {
            let free = seen.iter().filter(|free| **free).count();
            if free != usize::from(*counted) {
                return Err(format!("pageblock {block}: {counted} counted, {free} free"));
            }
        }
        let marks = self.marks.iter().filter(|m| **m != 0).count();
        if marks != blocks {
            return Err(format!("{marks} marks for {blocks} blocks"));
        }
        Ok(())
    }

    /// Walks one list, notes its slots in `seen`, returns its length.
    fn validate_list(&self, order: Order, seen: &mut [bool]) -> Result<usize, String> {
        let o = order.get();
        let mut count = 0;
        let mut before = 0;
        let mut link = self.heads[order.index()];
        while let Some(at) = from_link(link) {
            if !self.contains(at, order.pages()) || !at.is_aligned(order) {
                return Err(format!("order {o}: {at} misaligned or out of range"));
            }
            let cell = self.cell(at, order);
            if self.marks[cell] != mark(order) {
                return Err(format!("order {o}: {at} marked {}", self.marks[cell]));
            }
            if self.links[cell][PREV] != before {
                return Err(format!("order {o}: {at} has a wrong back link"));
            }
            if order < Order::HUGE {
                let buddy = Pfn(at.0 ^ (1 << o));
                if self.marks[self.cell(buddy, order)] == mark(order) {
                    return Err(format!("order {o}: {at} and its buddy did not merge"));
                }
            }
            let run = &mut seen[at.index()..at.index() + order.pages()];
            if run.contains(&true) {
                return Err(format!("order {o}: {at} overlaps another free block"));
            }
            run.fill(true);
            before = to_link(at);
            link = self.links[cell][NEXT];
            count += 1;
        }
        if count != self.blocks[order.index()] {
            return Err(format!(
                "order {o}: {} counted, {count} listed",
                self.blocks[order.index()]
            ));
        }
        Ok(count)
    }
}
