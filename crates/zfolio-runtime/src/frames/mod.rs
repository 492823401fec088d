//! Physical memory: the arena and the frames in it.
//!
//! - [`arena`]: the slots of the arena as zswap sees them. A slot is backed (there is a frame)
//!   or a hole; MOVE takes frames out and puts them in.
//! - [`page_table`]: what is present, and whether it is a huge page.
//! - [`huge_reserve`]: one frame that is a huge page, kept ready for a reader of huge pages.
//!
//! State: `FrameArena` (inside `Zswap`), `HugeFrames`.
//!
//! Lock: the frame allocator's, which is the last in the order: nothing is locked while it is
//! held. Frames that are taken belong to whoever took them.
//!
//! Below: the segment, for its counters.

pub(crate) mod arena;
mod carry;
pub(crate) mod huge_reserve;
pub(crate) mod page_table;

use crate::descriptors::Descriptors;
use crate::frames::arena::FrameArena;
use crate::frames::huge_reserve::HugeFrames;
use core::sync::atomic::{AtomicU8, Ordering};
use zfolio_compress::adaptive::Density;
use zfolio_mm::{Order, PAGE_SHIFT, Pfn};
use zfolio_sys::arena::ArenaMap;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::Zswap;

/// Slots of an arena at least, where addresses are plenty and where they are not. (A test walks
/// through all of them after each step.)
const LEAST: [usize; 2] = if cfg!(test) {
    [1 << 12, 1 << 12]
} else {
    [1 << 18, 1 << 14]
};

/// Address space several times `high`: frames are scarce, places to put them
/// must not be (a huge page needs 2 MiB of holes in one piece). Less where
/// address space is limited: `headroom` bytes.
pub fn reserve_arena(high: usize, headroom: usize) -> Result<ArenaMap, Errno> {
    let slots = |times: usize, least: usize| {
        (high * times)
            .clamp(least, 1 << 27)
            .next_multiple_of(Order::HUGE.pages())
    };
    [slots(8, LEAST[0]), slots(2, LEAST[1])]
        .into_iter()
        .filter(|slots| slots << PAGE_SHIFT <= headroom)
        .find_map(|slots| ArenaMap::reserve(slots).ok())
        .ok_or(Errno::NOMEM)
}

/// Frames, and what is stored in them.
pub struct Physical {
    pub(crate) fds: Descriptors,
    pub(crate) zswap: Zswap<FrameArena>,
    /// Which codec `auto` uses.
    pub(crate) density: Density,
    pub(crate) huge_frames: HugeFrames,
    /// The largest order of which something on its way out found no block of holes; 0: none
    /// was missed.
    block_wanted: AtomicU8,
}

impl Physical {
    pub(crate) fn new(
        fds: Descriptors,
        zswap: Zswap<FrameArena>,
        density: Density,
        nursery: usize,
    ) -> Self {
        Self {
            fds,
            zswap,
            density,
            huge_frames: HugeFrames::new(nursery),
            block_wanted: AtomicU8::new(0),
        }
    }

    pub(crate) fn arena(&self) -> &FrameArena {
        self.zswap.arena()
    }

    /// Address of an arena slot.
    pub(crate) fn address(&self, at: Pfn) -> usize {
        self.arena().map().address(at)
    }

    /// The largest order of which something on its way out found no block of holes.
    pub(crate) fn wanted_block(&self) -> Option<Order> {
        let wanted = Order::new(self.block_wanted.load(Ordering::Relaxed));
        wanted.filter(|order| *order > Order::PAGE)
    }

    /// Something found none of `order`.
    pub(crate) fn want_block(&self, order: Order) {
        self.block_wanted.fetch_max(order.get(), Ordering::Relaxed);
    }

    /// There is one now, or was none to be had; `again`: it is to be looked for once more.
    pub(crate) fn block_was_looked_for(&self, again: Option<Order>) {
        let wanted = again.map_or(0, Order::get);
        self.block_wanted.store(wanted, Ordering::Relaxed);
    }

    /// Registers the arena alone.
    pub(crate) fn register_arena(&self) -> Result<(), Errno> {
        let map = self.arena().map().range();
        self.arena().moves().uffd.register(map.start, map.len())
    }

    /// Frames that a store has emptied: kept if they are the huge page somebody
    /// wishes for, else free.
    pub(crate) fn give_stored_frames(&self, at: Pfn, pages: usize) {
        let kept = pages == Order::HUGE.pages()
            && self.huge_frames.is_wanted()
            && self.is_huge(self.address(at))
            && self.huge_frames.fulfil(at);
        if !kept {
            self.arena().give_frames(at, pages);
        }
    }
}
