//! The arena as the runtime uses it: frames that circulate.
//!
//! ```text
//! program page --MOVE out--> hole slot      (now backed: standby)
//! standby      --compress--> pool object    (slot: free, backed)
//! free backed  --decompress, MOVE in--> program   (slot: a hole again)
//! free backed  --release--> hole            (memory back to the system)
//! hole         --populate--> free backed
//! ```
//!
//! Address space is plentiful (the arena is several times `high`), frames are
//! not: so a contiguous run of backed slots is always to be had as long as
//! single frames are, by *gathering* them into a run of holes, a MOVE each.

use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use zfolio_mm::frames::{Frames, Kind};
use zfolio_mm::{Memory, Order, PAGE_SIZE, Pfn};
use zfolio_sys::arena::{ArenaMap, discard};
use zfolio_sys::lock::Mutex;
use zfolio_sys::moves::Moves;
use zfolio_sys::procfs::{File, Pagemap};
use zfolio_sys::uffd::Uffd;

/// What new frames are copied from.
static ZEROS: [u8; 16 * PAGE_SIZE] = [0; 16 * PAGE_SIZE];

/// The arena, its two allocators, and the descriptor its slots are
/// registered with.
pub(crate) struct FrameArena {
    map: ArenaMap,
    frames: Mutex<Frames>,
    /// Changes in the child of a fork.
    uffd: AtomicI32,
    /// As does this.
    pagemap: AtomicUsize,
    /// Frames taken from the system.
    pub(crate) populated: AtomicU64,
    /// Frames given back.
    pub(crate) released: AtomicU64,
}

impl FrameArena {
    pub(crate) fn new(map: ArenaMap, uffd: Uffd, pagemap: Pagemap) -> Self {
        Self {
            map,
            frames: Mutex::new(Frames::new(map.slots())),
            uffd: AtomicI32::new(uffd.fd()),
            pagemap: AtomicUsize::new(pagemap.file().fd()),
            populated: AtomicU64::new(0),
            released: AtomicU64::new(0),
        }
    }

    pub(crate) fn map(&self) -> ArenaMap {
        self.map
    }

    fn uffd(&self) -> Uffd {
        Uffd::from_fd(self.uffd.load(Ordering::Relaxed))
    }

    /// What moves pages into its slots.
    pub(crate) fn moves(&self) -> Moves {
        let pagemap = File::from_fd(self.pagemap.load(Ordering::Relaxed));
        Moves {
            uffd: self.uffd(),
            pagemap: Pagemap::from_file(pagemap),
        }
    }

    /// For the child of a fork: its own descriptors, and locks that no thread
    /// of the child holds.
    pub(crate) fn adopt(&self, uffd: Uffd, pagemap: Pagemap) {
        // SAFETY of the protocol: the fork was taken while no operation ran.
        zfolio_sys::lock::reset_in_fork_child(&self.frames);
        self.uffd.store(uffd.fd(), Ordering::Relaxed);
        self.pagemap.store(pagemap.file().fd(), Ordering::Relaxed);
    }

    /// Free backed frames, pages.
    pub(crate) fn free_frames(&self) -> usize {
        self.frames.lock().free_pages(Kind::Backed)
    }

    /// A block of holes to move pages into.
    pub(crate) fn take_holes(&self, order: Order) -> Option<Pfn> {
        self.frames.lock().alloc(Kind::Hole, order)
    }

    /// Slots whose frames were moved away.
    pub(crate) fn give_holes(&self, at: Pfn, pages: usize) {
        if pages > 0 {
            self.frames.lock().free_range(Kind::Hole, at, pages);
        }
    }

    /// Frames whose contents nobody needs any more.
    pub(crate) fn give_frames(&self, at: Pfn, pages: usize) {
        if pages > 0 {
            self.frames.lock().free_range(Kind::Backed, at, pages);
        }
    }

    /// A contiguous run of free frames, without asking the system for memory.
    pub(crate) fn take_frames(&self, pages: usize) -> Option<Pfn> {
        let mut frames = self.frames.lock();
        if let Some(run) = frames.alloc_exact(Kind::Backed, pages) {
            return Some(run);
        }
        if frames.free_pages(Kind::Backed) < pages {
            return None;
        }
        drop(frames);
        self.gather(pages)
    }

    /// Moves single frames into a run of holes.
    fn gather(&self, pages: usize) -> Option<Pfn> {
        let run = self.take_run_of_holes(pages)?;
        for filled in 0..pages {
            let single = self.frames.lock().alloc(Kind::Backed, Order::PAGE);
            let moved = single.is_some_and(|single| self.relocate(single, run.offset(filled)));
            if !moved && !self.populate(run.offset(filled), 1) {
                self.give_frames(run, filled);
                self.give_holes(run.offset(filled), pages - filled);
                return None;
            }
        }
        Some(run)
    }

    /// Moves one free frame into a hole; false if the frame would not move
    /// (shared with a child of a fork): it is free again then.
    fn relocate(&self, from: Pfn, to: Pfn) -> bool {
        let (source, target) = (self.map.address(from), self.map.address(to));
        let moved = self.moves().out_of_held(target, source, PAGE_SIZE).done == PAGE_SIZE;
        let kind = if moved { Kind::Hole } else { Kind::Backed };
        self.frames.lock().free(kind, from, Order::PAGE);
        moved
    }

    fn take_run_of_holes(&self, pages: usize) -> Option<Pfn> {
        self.frames.lock().alloc_exact(Kind::Hole, pages)
    }

    /// Takes frames from the system for slots the caller holds.
    fn populate(&self, at: Pfn, pages: usize) -> bool {
        let source = ZEROS.as_ptr() as usize;
        let mut done = 0;
        while done < pages {
            let part = (pages - done).min(ZEROS.len() / PAGE_SIZE);
            let target = self.map.address(at.offset(done));
            let progress = self.uffd().copy_pages(target, source, part * PAGE_SIZE);
            done += progress.done / PAGE_SIZE;
            self.populated
                .fetch_add((progress.done / PAGE_SIZE) as u64, Ordering::Relaxed);
            if progress.done == 0 {
                let _ = discard(self.map.address(at), done * PAGE_SIZE);
                return false;
            }
        }
        true
    }

    /// A contiguous run of frames, from the system if none is free.
    pub(crate) fn take_or_populate(&self, pages: usize) -> Option<Pfn> {
        self.take_frames(pages).or_else(|| self.populate_run(pages))
    }

    /// Moves a huge page that the caller holds elsewhere into a slot of its
    /// own; `None` if it did not arrive whole (what arrived is free).
    pub(crate) fn adopt_huge_page(&self, from: usize) -> Option<Pfn> {
        let (bytes, pages) = (Order::HUGE.bytes(), Order::HUGE.pages());
        let at = self.take_holes(Order::HUGE)?;
        self.clear_page_table(at);
        let out = self.moves().out_of_held(self.map.address(at), from, bytes);
        let moved = out.done / PAGE_SIZE;
        self.populated.fetch_add(moved as u64, Ordering::Relaxed);
        if moved == pages {
            return Some(at);
        }
        self.give_frames(at, moved);
        self.give_holes(at.offset(moved), pages - moved);
        None
    }

    /// Before a huge page is moved to 2 MiB of holes: an empty page table left
    /// there by small pages would split it on arrival, and discarding lets the
    /// kernel free that.
    pub(crate) fn clear_page_table(&self, at: Pfn) {
        let _ = discard(self.map.address(at), Order::HUGE.bytes());
    }

    /// A contiguous run of frames from the system.
    pub(crate) fn populate_run(&self, pages: usize) -> Option<Pfn> {
        let run = self.take_run_of_holes(pages)?;
        if self.populate(run, pages) {
            return Some(run);
        }
        self.give_holes(run, pages);
        None
    }

    /// Gives up to `pages` free frames back to the system, large blocks
    /// first; returns how many.
    pub(crate) fn release(&self, pages: usize) -> usize {
        let mut released = 0;
        while released < pages {
            let order = Order::holding_at_most(pages - released);
            let Some((block, order)) = self.frames.lock().take_free(Kind::Backed, order) else {
                break;
            };
            if discard(self.map.address(block), order.bytes()).is_err() {
                self.give_frames(block, order.pages());
                break;
            }
            self.give_holes(block, order.pages());
            released += order.pages();
        }
        self.released.fetch_add(released as u64, Ordering::Relaxed);
        released
    }
}

impl Memory for FrameArena {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        self.map.with(at, offset, len, f)
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.map.with_mut(at, offset, len, f)
    }
}

/// The pool's side: a store may always have a frame, since it frees more than
/// it takes.
impl zfolio_zswap::Arena for FrameArena {
    fn alloc_frames(&self, pages: usize) -> Option<Pfn> {
        self.take_or_populate(pages)
    }

    fn free_frames(&self, at: Pfn, pages: usize) {
        self.give_frames(at, pages);
    }
}
