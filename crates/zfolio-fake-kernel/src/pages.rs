//! Which pages are present, where, and for whom.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE};

/// What fills a page that was present and is no longer.
pub const ABSENT: u8 = 0xdb;

/// A page by its number: its address >> 12.
pub(crate) type Page = usize;

/// What is known of a page that was present once.
#[derive(Clone, Copy, Default)]
pub(crate) struct State {
    pub(crate) present: bool,
    /// Write-protected with userfaultfd.
    pub(crate) protected: bool,
    /// Pinned: it does not move.
    pub(crate) pinned: bool,
    /// Shared with the child of a fork: it does not move until it is written to.
    pub(crate) shared: bool,
}

/// A range registered with a descriptor.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) pages: Range<Page>,
    pub(crate) fd: usize,
    /// Pages of it can be write-protected.
    pub(crate) protects: bool,
}

/// Spreads page numbers, which nobody chooses to do harm.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_usize((*byte).into()));
    }

    fn write_usize(&mut self, page: usize) {
        self.0 = (self.0 ^ page as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// The page table and the registrations.
#[derive(Default)]
pub(crate) struct Pages {
    states: HashMap<Page, State, BuildHasherDefault<Spread>>,
    /// Pages that are present.
    pub(crate) all: usize,
    pub(crate) registered: Vec<Registered>,
}

/// The pages of `len` bytes at `start`.
pub(crate) fn of(start: usize, len: usize) -> Range<Page> {
    assert!(
        start.is_multiple_of(PAGE_SIZE) && len.is_multiple_of(PAGE_SIZE),
        "whole pages: {start:#x} {len:#x}"
    );
    start >> PAGE_SHIFT..(start + len) >> PAGE_SHIFT
}

impl Pages {
    pub(crate) fn state(&self, page: Page) -> State {
        self.states.get(&page).copied().unwrap_or_default()
    }

    pub(crate) fn is_present(&self, page: Page) -> bool {
        self.state(page).present
    }

    /// Changes what is known of a page that is present.
    pub(crate) fn change(&mut self, page: Page, how: impl FnOnce(&mut State)) {
        let state = self.states.get_mut(&page).filter(|state| state.present);
        how(state.expect("a page that is present"));
    }

    /// Who has a page registered.
    pub(crate) fn registration(&self, page: Page) -> Option<&Registered> {
        self.registered.iter().find(|one| one.pages.contains(&page))
    }

    /// Takes a range out of every registration.
    pub(crate) fn unregister(&mut self, pages: &Range<Page>) {
        let parts = self.registered.drain(..).flat_map(|one| {
            let part = |pages: Range<Page>| Registered {
                pages,
                ..one.clone()
            };
            let before = one.pages.start..one.pages.end.min(pages.start);
            let after = one.pages.start.max(pages.end)..one.pages.end;
            [part(before), part(after)]
        });
        self.registered = parts.filter(|one| !one.pages.is_empty()).collect();
    }

    /// Gives the memory of all pages back to the system, where they read as zeros.
    pub(crate) fn give_back(&mut self) {
        let mut pages: Vec<Page> = self.states.drain().map(|(page, _)| page).collect();
        pages.sort_unstable();
        for run in pages.chunk_by(|one, other| one + 1 == *other) {
            let (start, len) = (run[0] << PAGE_SHIFT, run.len() * PAGE_SIZE);
            zfolio_sys::arena::discard(start, len).expect("memory of this process");
        }
    }

    /// How many pages of a range are present.
    pub(crate) fn count(&self, pages: Range<Page>) -> usize {
        if pages.len() < self.states.len() {
            return pages.filter(|page| self.is_present(*page)).count();
        }
        let known = self.states.iter();
        let there = known.filter(|(page, state)| state.present && pages.contains(page));
        there.count()
    }

    /// Puts a page in place, with the bytes at `from`, or zeros.
    ///
    /// # Safety
    /// `page` is mapped, to be written to, and nobody has a reference to it; `from` is a
    /// readable page.
    pub(crate) unsafe fn come(&mut self, page: Page, from: Option<usize>, protected: bool) {
        let was = self.states.insert(
            page,
            State {
                present: true,
                protected,
                ..State::default()
            },
        );
        let at = (page << PAGE_SHIFT) as *mut u8;
        // SAFETY: by contract.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, PAGE_SIZE) };
        let absent = if was.is_some() { ABSENT } else { 0 };
        assert!(was.is_none_or(|was| !was.present), "a page that is there");
        self.all += 1;
        assert!(
            bytes.iter().all(|byte| *byte == absent),
            "somebody wrote to page {page:#x}, which was absent"
        );
        match from {
            // SAFETY: by contract; the pages are not the same.
            Some(from) => unsafe { at.copy_from_nonoverlapping(from as *const u8, PAGE_SIZE) },
            None => bytes.fill(0),
        }
    }

    /// Takes a page away.
    ///
    /// # Safety
    /// As for [`Self::come`].
    pub(crate) unsafe fn go(&mut self, page: Page) {
        let state = self.states.get_mut(&page).filter(|state| state.present);
        let Some(state) = state else { return };
        *state = State::default();
        self.all -= 1;
        // SAFETY: by contract.
        unsafe { ((page << PAGE_SHIFT) as *mut u8).write_bytes(ABSENT, PAGE_SIZE) };
    }
}
