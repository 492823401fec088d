//! Where the pool of protected regions lives: frames come from the kernel as
//! they are first written to, and go back once there are more than a few.

use crate::frames::release_free;
use core::sync::atomic::{AtomicUsize, Ordering};
use zfolio_mm::{Frames, Kind, Memory, Pfn};
use zfolio_sys::arena::ArenaMap;
use zfolio_sys::lock::Mutex;
use zfolio_zswap::Arena;

/// Free frames that are kept, and how many more there are before the rest goes
/// back: as many pages each.
const KEPT: usize = 64;

pub(super) struct PoolArena {
    map: ArenaMap,
    frames: Mutex<Frames>,
    /// Slots with a frame, in use or free.
    backed: AtomicUsize,
}

impl PoolArena {
    pub(super) fn new(map: ArenaMap) -> Self {
        Self {
            map,
            frames: Mutex::new(Frames::new(map.slots())),
            backed: AtomicUsize::new(0),
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.map.slots()
    }

    /// Pages it has of the system.
    pub(super) fn backed_pages(&self) -> usize {
        self.backed.load(Ordering::Relaxed)
    }

    /// Checks that they are counted right.
    pub(super) fn validate(&self) -> Result<(), alloc::string::String> {
        let frames = self.frames.lock();
        frames.validate()?;
        let backed = frames.used_pages() + frames.free_pages(Kind::Backed);
        if backed != self.backed_pages() {
            return Err(alloc::format!(
                "{backed} frames, counted {}",
                self.backed_pages()
            ));
        }
        Ok(())
    }
}

impl Memory for PoolArena {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        self.map.with(at, offset, len, f)
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.map.with_mut(at, offset, len, f)
    }
}

impl Arena for PoolArena {
    fn alloc_frames(&self, pages: usize) -> Option<Pfn> {
        let mut frames = self.frames.lock();
        if let Some(at) = frames.alloc_exact(Kind::Backed, pages) {
            return Some(at);
        }
        let at = frames.alloc_exact(Kind::Hole, pages)?;
        self.backed.fetch_add(pages, Ordering::Relaxed);
        Some(at)
    }

    fn free_frames(&self, at: Pfn, pages: usize) {
        let free = {
            let mut frames = self.frames.lock();
            frames.free_range(Kind::Backed, at, pages);
            frames.free_pages(Kind::Backed)
        };
        if free > 2 * KEPT {
            let released = release_free(self.map, &self.frames, free - KEPT);
            self.backed.fetch_sub(released, Ordering::Relaxed);
        }
    }
}
