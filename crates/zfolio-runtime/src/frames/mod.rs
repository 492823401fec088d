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
pub(crate) mod huge_reserve;
pub(crate) mod page_table;

use crate::faces::manager::Manager;
use crate::frames::arena::FrameArena;
use zfolio_mm::{Order, PAGE_SHIFT, Pfn};
use zfolio_sys::arena::ArenaMap;
use zfolio_sys::syscall::Errno;

/// Address space several times `high`: frames are scarce, places to put them
/// must not be (a huge page needs 2 MiB of holes in one piece). Less where
/// address space is limited: `room` bytes.
pub fn reserve_arena(high: usize, room: usize) -> Result<ArenaMap, Errno> {
    let slots = |times: usize, least: usize| {
        (high * times)
            .clamp(least, 1 << 27)
            .next_multiple_of(Order::HUGE.pages())
    };
    [slots(8, 1 << 18), slots(2, 1 << 14)]
        .into_iter()
        .filter(|slots| slots << PAGE_SHIFT <= room)
        .find_map(|slots| ArenaMap::reserve(slots).ok())
        .ok_or(Errno::NOMEM)
}

impl Manager {
    pub(crate) fn arena(&self) -> &FrameArena {
        self.zswap.arena()
    }

    /// Address of an arena slot.
    pub(crate) fn address(&self, at: Pfn) -> usize {
        self.arena().map().address(at)
    }

    /// Registers the arena alone.
    pub(crate) fn register_arena(&self) -> Result<(), Errno> {
        let map = self.arena().map().range();
        self.arena().moves().uffd.register(map.start, map.len())
    }
}
