//! What a program does, and what a test looks at in its name.

use crate::pages::{Page, of};
use crate::{World, with};
use std::collections::VecDeque;
use std::ops::Range;
use zfolio_mm::{Order, PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::arena::ArenaMap;

/// A change of the address space.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Pages are discarded once the event was read.
    Remove(Range<usize>),
    /// They were unmapped.
    Unmap(Range<usize>),
}

/// An event, until the program's thread goes on.
pub(crate) struct Event {
    pub(crate) fd: usize,
    pub(crate) change: Change,
    pub(crate) read: bool,
}

/// Events in flight, mappings, and who was woken.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) flying: VecDeque<Event>,
    pub(crate) mapped: Vec<Range<Page>>,
    pub(crate) woken: Vec<Page>,
}

/// Why an access did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The page is missing, in a range that is registered.
    Missing,
    /// The page is write-protected.
    Protected,
}

/// Maps `pages` pages of private memory, aligned to 2 MiB, for the life of the test.
///
/// # Panics
/// When there is no memory.
#[must_use]
pub fn map(pages: usize) -> Range<usize> {
    let slots = pages.next_multiple_of(Order::HUGE.pages());
    let start = ArenaMap::reserve(slots).expect("addresses").range().start;
    let range = start..start + pages * PAGE_SIZE;
    with(|world| world.events.mapped.push(of(range.start, range.len())));
    range
}

impl World {
    /// The page of an address that a program may touch, or why it may not.
    fn touch(&mut self, address: usize, write: bool) -> Result<Page, Stopped> {
        let page = address >> PAGE_SHIFT;
        let mapped = self.events.mapped.iter().any(|one| one.contains(&page));
        assert!(mapped, "nothing is mapped at {address:#x}");
        if !self.pages.is_present(page) {
            if self.pages.registration(page).is_some() {
                return Err(Stopped::Missing);
            }
            // SAFETY: mapped by `map`, which keeps no reference.
            unsafe { self.pages.come(page, None, false) };
        }
        if write && self.pages.state(page).protected {
            return Err(Stopped::Protected);
        }
        if write {
            self.pages.change(page, |state| state.shared = false);
        }
        Ok(page)
    }
}

/// Reads the page at `address`.
///
/// # Errors
/// [`Stopped::Missing`]: the thread waits for it.
///
/// # Panics
/// Where nothing is mapped.
pub fn read(address: usize) -> Result<Vec<u8>, Stopped> {
    with(|world| {
        let page = world.touch(address, false)?;
        let at = (page << PAGE_SHIFT) as *const u8;
        // SAFETY: mapped by `map`, and nobody has a reference to it.
        Ok(unsafe { std::slice::from_raw_parts(at, PAGE_SIZE) }.to_vec())
    })
}

/// Writes the page at `address`.
///
/// # Errors
/// The thread waits.
///
/// # Panics
/// Where nothing is mapped, or if `bytes` are no page.
pub fn write(address: usize, bytes: &[u8]) -> Result<(), Stopped> {
    assert_eq!(bytes.len(), PAGE_SIZE, "a page");
    with(|world| {
        let page = world.touch(address, true)?;
        let at = (page << PAGE_SHIFT) as *mut u8;
        // SAFETY: mapped by `map`, and nobody has a reference to it.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), PAGE_SIZE) };
        Ok(())
    })
}

/// Pins the page at `address`, which is present, or lets it move again.
pub fn pin(address: usize, pinned: bool) {
    with(|world| {
        let page = address >> PAGE_SHIFT;
        world.pages.change(page, |state| state.pinned = pinned);
    });
}

/// The page at `address`, which is present, is shared with the child of a fork now.
pub fn share(address: usize) {
    with(|world| {
        let page = address >> PAGE_SHIFT;
        world.pages.change(page, |state| state.shared = true);
    });
}

/// The page at `address` is gone, and nobody is told.
pub fn lose(address: usize) {
    with(|world| {
        // SAFETY: of `map`, or of an arena, where nobody has a reference to it.
        unsafe { world.pages.go(address >> PAGE_SHIFT) };
    });
}

/// Whether the page at `address` is present.
#[must_use]
pub fn is_present(address: usize) -> bool {
    with(|world| world.pages.is_present(address >> PAGE_SHIFT))
}

/// Whether the page at `address` is write-protected.
#[must_use]
pub fn is_protected(address: usize) -> bool {
    with(|world| world.pages.state(address >> PAGE_SHIFT).protected)
}

/// Pages of a range that are present.
#[must_use]
pub fn present(range: &Range<usize>) -> usize {
    with(|world| world.pages.count(of(range.start, range.len())))
}

/// Pages whose waiters were woken since this was last asked.
#[must_use]
pub fn woken() -> Vec<usize> {
    let pages = with(|world| std::mem::take(&mut world.events.woken));
    pages.into_iter().map(|page| page << PAGE_SHIFT).collect()
}

/// The program begins to discard pages (madvise): an event is in flight until
/// [`settle`] after it was read.
pub fn discard(range: Range<usize>) {
    begin(Change::Remove(range));
}

/// The program unmaps pages: as [`discard`].
pub fn unmap(range: Range<usize>) {
    let pages = of(range.start, range.len());
    with(|world| {
        // SAFETY: mapped by `map`, and nobody has a reference to it.
        pages
            .clone()
            .for_each(|page| unsafe { world.pages.go(page) });
    });
    begin(Change::Unmap(range));
    with(|world| {
        world.pages.unregister(&pages);
        let parts = world.events.mapped.drain(..).flat_map(|one| {
            [
                one.start..one.end.min(pages.start),
                one.start.max(pages.end)..one.end,
            ]
        });
        world.events.mapped = parts.filter(|part| !part.is_empty()).collect();
    });
}

fn begin(change: Change) {
    let (Change::Remove(range) | Change::Unmap(range)) = &change;
    let pages = of(range.start, range.len());
    with(|world| {
        let fd = pages
            .clone()
            .find_map(|page| world.pages.registration(page));
        let Some(fd) = fd.map(|one| one.fd) else {
            // Nobody is told.
            // SAFETY: mapped by `map`, and nobody has a reference to it.
            return pages.for_each(|page| unsafe { world.pages.go(page) });
        };
        world.events.flying.push_back(Event {
            fd,
            change,
            read: false,
        });
    });
}

/// The program's threads go on whose events were read; how many events are in flight yet.
pub fn settle() -> usize {
    with(|world| {
        let (done, left): (VecDeque<_>, _) =
            world.events.flying.drain(..).partition(|event| event.read);
        world.events.flying = left;
        for event in done {
            if let Change::Remove(range) = event.change {
                for page in of(range.start, range.len()) {
                    // SAFETY: mapped by `map`, and nobody has a reference to it.
                    unsafe { world.pages.go(page) };
                }
            }
        }
        world.events.flying.len()
    })
}
