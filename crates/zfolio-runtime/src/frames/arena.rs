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
//! Frames that the pool frees are *kept* for it, up to a limit ([`Kind::Kept`]): so what
//! it takes does not come out of the runs that stores free and faults are to have whole.
//!
//! Address space is plentiful (the arena is several times `high`), frames are
//! not: so a contiguous run of backed slots is always to be had as long as
//! single frames are, by *gathering* them into a run of holes, a MOVE each.

use crate::kernel::{File, Moves, Pagemap, Uffd, discard, discard_all};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use zfolio_mm::frames::{Frames, Kind};
use zfolio_mm::{Memory, Order, PAGE_SIZE, Pfn};
use zfolio_sys::arena::{ArenaMap, Discarded};
use zfolio_sys::lock::{Mutex, MutexGuard};

/// What new frames are copied from.
static ZEROS: [u8; 16 * PAGE_SIZE] = [0; 16 * PAGE_SIZE];

/// Blocks released at once.
const RELEASED_TOGETHER: usize = 64;

/// Frames made up for at once, pages: what fits where little is free.
const SMALL_RUN: usize = 16;

/// The arena, its two allocators, and the descriptor its slots are
/// registered with.
pub(crate) struct FrameArena {
    map: ArenaMap,
    frames: Mutex<Frames>,
    /// Frames kept for the pool at most.
    most_kept: AtomicUsize,
    /// Changes in the child of a fork.
    uffd: AtomicI32,
    /// As does this.
    pagemap: AtomicUsize,
    /// Frames taken from the system.
    populated: AtomicU64,
    /// Frames given back.
    released: AtomicU64,
}

impl FrameArena {
    pub(crate) fn new(map: ArenaMap, uffd: Uffd, pagemap: Pagemap) -> Self {
        Self {
            map,
            frames: Mutex::new(Frames::new(map.slots())),
            most_kept: AtomicUsize::new(0),
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

    /// Which slots are free.
    pub(crate) fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock()
    }

    /// Frames taken from the system so far.
    pub(crate) fn populated(&self) -> u64 {
        self.populated.load(Ordering::Relaxed)
    }

    /// Frames given back to it so far.
    pub(crate) fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Moves pages to holes; how many, from the front.
    pub(super) fn move_pages(&self, from: Pfn, to: Pfn, pages: usize) -> usize {
        let (source, target) = (self.map.address(from), self.map.address(to));
        let out = self.moves().out_of_held(target, source, pages * PAGE_SIZE);
        out.done / PAGE_SIZE
    }

    /// Fills a hole with a copy of a page.
    pub(super) fn copy_page(&self, from: Pfn, to: Pfn) -> bool {
        let (source, target) = (self.map.address(from), self.map.address(to));
        let copied = self.uffd().copy_pages(target, source, PAGE_SIZE).done == PAGE_SIZE;
        self.populated
            .fetch_add(u64::from(copied), Ordering::Relaxed);
        copied
    }

    /// Makes the 512 slots at `at`, which the caller holds and `backed` of which
    /// have frames, one free block of holes; frames that are wanted are taken
    /// elsewhere. `keep`: free frames that there must be.
    pub(crate) fn give_block(&self, at: Pfn, backed: usize, keep: usize) {
        let pages = Order::HUGE.pages();
        if backed > 0 && discard(self.map.address(at), Order::HUGE.bytes()).is_err() {
            // Cannot be, for a range of ours; nothing is known of its pages then.
            return;
        }
        self.released.fetch_add(backed as u64, Ordering::Relaxed);
        self.give_holes(at, pages);
        let short = keep.saturating_sub(self.free_frames()).min(backed);
        for done in (0..short).step_by(SMALL_RUN) {
            let run = (short - done).min(SMALL_RUN);
            // From the smallest block of holes there is, as every run.
            let Some(frames) = self.populate_run(run) else {
                return;
            };
            self.give_frames(frames, run);
        }
    }

    /// Has at most `pages` frames kept for the pool from now on.
    pub(crate) fn keep_at_most(&self, pages: usize) {
        self.most_kept.store(pages, Ordering::Relaxed);
    }

    /// Makes frames that are kept for the pool anybody's, until `most` are left.
    fn give_kept(frames: &mut Frames, most: usize) {
        while frames.free_pages(Kind::Kept) > most
            && let Some((at, order)) = frames.take_free(Kind::Kept, Order::HUGE)
        {
            frames.free(Kind::Backed, at, order);
        }
    }

    /// Free backed frames, pages; without those kept for the pool.
    pub(crate) fn free_frames(&self) -> usize {
        self.frames.lock().free_pages(Kind::Backed)
    }

    /// Free frames that are kept for the pool, pages.
    pub(crate) fn kept_frames(&self) -> usize {
        self.frames.lock().free_pages(Kind::Kept)
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

    /// Takes free frames, as many of `pages` as there are, in as few runs as can be,
    /// and adds them to `frames`; how many.
    pub(crate) fn take_scattered(&self, pages: usize, frames: &mut Vec<Pfn>) -> usize {
        let mut free = self.frames.lock();
        let mut taken = 0;
        while taken < pages {
            let left = pages - taken;
            let whole = free.alloc_exact(Kind::Backed, left).map(|at| (at, left));
            let part = || {
                let (at, order) = free.take_free(Kind::Backed, Order::holding_at_most(left))?;
                Some((at, order.pages()))
            };
            let Some((at, run)) = whole.or_else(part) else {
                break;
            };
            frames.extend((0..run).map(|slot| at.offset(slot)));
            taken += run;
        }
        taken
    }

    /// Gives back what [`Self::take_scattered`] took.
    pub(crate) fn give_scattered(&self, frames: &[Pfn]) {
        for run in runs_of(frames) {
            self.give_frames(run[0], run.len());
        }
    }

    /// Moves free frames into a run of holes, block by block: each is a MOVE.
    fn gather(&self, pages: usize) -> Option<Pfn> {
        let run = self.take_run_of_holes(pages)?;
        let mut filled = 0;
        while filled < pages {
            let most = Order::holding_at_most(pages - filled);
            let block = self.frames.lock().take_free(Kind::Backed, most);
            let moved = block.map_or(0, |(at, order)| {
                self.relocate(at, run.offset(filled), order.pages())
            });
            filled += moved;
            if moved == 0 && !self.populate(run.offset(filled), pages - filled) {
                self.give_frames(run, filled);
                self.give_holes(run.offset(filled), pages - filled);
                return None;
            } else if moved == 0 {
                break;
            }
        }
        Some(run)
    }

    /// Moves free frames into holes; how many. Those that would not move (shared with
    /// a child of a fork) are free again then.
    fn relocate(&self, from: Pfn, to: Pfn, pages: usize) -> usize {
        let moved = self.move_pages(from, to, pages);
        self.give_holes(from, moved);
        self.give_frames(from.offset(moved), pages - moved);
        moved
    }

    fn take_run_of_holes(&self, pages: usize) -> Option<Pfn> {
        self.frames.lock().alloc_exact(Kind::Hole, pages)
    }

    /// Takes frames from the system for slots the caller holds.
    pub(super) fn populate(&self, at: Pfn, pages: usize) -> bool {
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
                if discard(self.map.address(at), done * PAGE_SIZE).is_ok() {
                    self.released.fetch_add(done as u64, Ordering::Relaxed);
                }
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
    /// first; returns how many. By threads of our own.
    pub(crate) fn release(&self, pages: usize) -> usize {
        let released = release_free(self.map, &self.frames, pages, true);
        self.released.fetch_add(released as u64, Ordering::Relaxed);
        released
    }
}

/// Frames that lie together, run by run.
pub(crate) fn runs_of(frames: &[Pfn]) -> impl Iterator<Item = &[Pfn]> {
    frames.chunk_by(|one, other| one.offset(1) == *other)
}

/// Gives up to `pages` free frames of an arena back to the system, large blocks
/// first; returns how many. `own`: on a thread of our own.
pub(crate) fn release_free(
    map: ArenaMap,
    frames: &Mutex<Frames>,
    pages: usize,
    own: bool,
) -> usize {
    let mut blocks = [(Pfn(0), Order::PAGE); RELEASED_TOGETHER];
    let mut ranges = [Discarded::default(); RELEASED_TOGETHER];
    let mut released = 0;
    loop {
        let (mut count, mut taken) = (0, released);
        let mut free = frames.lock();
        while count < blocks.len() && taken < pages {
            let most = Order::holding_at_most(pages - taken);
            let Some(block) = free.take_free(Kind::Backed, most) else {
                break;
            };
            let (start, len) = (map.address(block.0), block.1.bytes());
            blocks[count] = block;
            ranges[count] = Discarded { start, len };
            count += 1;
            taken += block.1.pages();
        }
        drop(free);
        let gone = discard_all(&ranges[..count], own);
        let mut free = frames.lock();
        for (index, (at, order)) in blocks[..count].iter().copied().enumerate() {
            if index < gone {
                free.free(Kind::Hole, at, order);
                released += order.pages();
            } else {
                free.free(Kind::Backed, at, order);
            }
        }
        if gone < RELEASED_TOGETHER {
            return released;
        }
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
        let kept = self.frames.lock().alloc_exact(Kind::Kept, pages);
        kept.or_else(|| self.take_or_populate(pages)).or_else(|| {
            // The system has no memory either: one by one they may do.
            Self::give_kept(&mut self.frames.lock(), 0);
            self.take_frames(pages)
        })
    }

    fn free_frames(&self, at: Pfn, pages: usize) {
        let mut frames = self.frames.lock();
        frames.free_range(Kind::Kept, at, pages);
        Self::give_kept(&mut frames, self.most_kept.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use zfolio_sys::uffd;

    /// An arena of its own.
    pub(crate) fn arena() -> FrameArena {
        let uffd = Uffd::open(uffd::FEATURE_MOVE | uffd::FEATURE_SIGBUS).expect("userfaultfd");
        let pagemap = Pagemap::open().expect("a page map");
        let map = ArenaMap::reserve(1024).expect("addresses");
        let registered = uffd.register(map.range().start, map.range().len());
        registered.expect("registering");
        FrameArena::new(map, uffd, pagemap)
    }

    pub(crate) fn has_frame(arena: &FrameArena, at: Pfn) -> bool {
        let start = arena.map.address(at);
        let found = arena
            .moves()
            .pagemap
            .first_present(start, start + PAGE_SIZE);
        found.expect("a page map").is_some()
    }

    #[test]
    fn a_block_given_is_one_of_holes_and_its_frames_are_made_up_for() {
        let arena = arena();
        let at = arena.take_holes(Order::HUGE).expect("holes");
        assert!(arena.populate(at, 40));
        arena.give_block(at, 40, 20);
        assert_eq!(arena.free_frames(), 20);
        let frames = arena.frames();
        frames.validate().expect("the invariants");
        assert_eq!(frames.used_pages(), 0);
        drop(frames);
        let run = arena.take_frames(20).expect("free frames");
        assert!((0..20).all(|slot| has_frame(&arena, run.offset(slot))));
        assert_eq!(arena.released.load(Ordering::Relaxed), 40);
    }

    #[test]
    fn what_the_pool_frees_is_the_pools_up_to_a_limit() {
        use zfolio_zswap::Arena;
        let arena = arena();
        let counts = |arena: &FrameArena| (FrameArena::free_frames(arena), arena.kept_frames());
        arena.keep_at_most(6);
        let run = arena.populate_run(16).expect("holes");
        Arena::free_frames(&arena, run, 4);
        assert_eq!(counts(&arena), (0, 4));
        assert_eq!(arena.take_frames(1), None, "not for faults");
        assert_eq!(
            Arena::alloc_frames(&arena, 4),
            Some(run),
            "but for the pool"
        );
        Arena::free_frames(&arena, run, 12);
        let (free, kept) = counts(&arena);
        assert_eq!(free + kept, 12);
        assert!(kept <= 6, "{kept} beyond the limit");
        Arena::free_frames(&arena, run.offset(12), 4);
        arena.frames().validate().expect("the invariants");
        assert_eq!(arena.populated.load(Ordering::Relaxed), 16);
    }
}
