//! Where pages and the pool live.

use zfolio_mm::{Frames, Kind, Memory, Pfn};
use zfolio_sys::arena::ArenaMap;
use zfolio_sys::lock::Mutex;
use zfolio_sys::syscall::Errno;

/// An arena that gives frames for zspages.
///
/// Called with no lock of this crate held, from any thread.
pub trait Arena: Memory + Sync {
    /// A contiguous run of `pages` (1 ..= 512) backed frames, whatever their
    /// contents; `None` when there is none to be had.
    fn alloc_frames(&self, pages: usize) -> Option<Pfn>;

    /// Takes a run back.
    fn free_frames(&self, at: Pfn, pages: usize);
}

/// An arena on its own: every slot gets its frame from the kernel when it is
/// first touched, and keeps it. For using the engine without a runtime.
#[derive(Debug)]
pub struct PlainArena {
    map: ArenaMap,
    frames: Mutex<Frames>,
}

impl PlainArena {
    /// Reserves address space for `slots` pages (a multiple of 512).
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn new(slots: usize) -> Result<Self, Errno> {
        let map = ArenaMap::reserve(slots)?;
        Ok(Self {
            map,
            frames: Mutex::new(Frames::new(slots)),
        })
    }

    /// Pages in use, the pool's included.
    pub fn used_pages(&self) -> usize {
        self.frames.lock().used_pages()
    }
}

impl Memory for PlainArena {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        self.map.with(at, offset, len, f)
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.map.with_mut(at, offset, len, f)
    }
}

impl Arena for PlainArena {
    fn alloc_frames(&self, pages: usize) -> Option<Pfn> {
        let mut frames = self.frames.lock();
        // Slots used before have their frame already.
        let backed = frames.alloc_exact(Kind::Backed, pages);
        backed.or_else(|| frames.alloc_exact(Kind::Hole, pages))
    }

    fn free_frames(&self, at: Pfn, pages: usize) {
        self.frames.lock().free_range(Kind::Backed, at, pages);
    }
}
