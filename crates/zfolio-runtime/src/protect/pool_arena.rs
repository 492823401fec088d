//! Where the pool of protected regions lives: frames come from the kernel as
//! they are first written to, and go back once there are more than a few.

use crate::frames::arena::release_free;
use alloc::string::String;
use zfolio_mm::{Frames, Kind, Memory, Pfn};
use zfolio_sys::arena::ArenaMap;
use zfolio_sys::lock::Mutex;
use zfolio_zswap::Arena;

/// Free frames that are kept, and how many more there are before the rest goes
/// back: as many pages each.
const KEPT: usize = 64;

/// Frames for a pool, as the kernel gives them.
pub struct PoolArena {
    map: ArenaMap,
    frames: Mutex<Frames>,
    /// Free frames go back together, by a call that filters of system calls seldom know.
    together: bool,
}

impl PoolArena {
    /// All of `map`, none of which anybody has used.
    #[must_use]
    pub fn new(map: ArenaMap) -> Self {
        Self {
            map,
            frames: Mutex::new(Frames::new(map.slots())),
            together: false,
        }
    }

    /// The same for a process that is managed as a whole, and has no filter of system calls of its own.
    #[must_use]
    pub fn of_process(map: ArenaMap) -> Self {
        Self {
            together: true,
            ..Self::new(map)
        }
    }

    /// Pages there may be.
    pub fn slots(&self) -> usize {
        self.map.slots()
    }

    /// Pages it has of the system.
    pub fn backed_pages(&self) -> usize {
        self.slots() - self.frames.lock().free_pages(Kind::Hole)
    }

    /// Checks the frame allocator's invariants.
    pub fn validate(&self) -> Result<(), String> {
        self.frames.lock().validate()
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
        let backed = frames.alloc_exact(Kind::Backed, pages);
        backed.or_else(|| frames.alloc_exact(Kind::Hole, pages))
    }

    fn free_frames(&self, at: Pfn, pages: usize) {
        let free = {
            let mut frames = self.frames.lock();
            frames.free_range(Kind::Backed, at, pages);
            frames.free_pages(Kind::Backed)
        };
        if free > 2 * KEPT {
            release_free(self.map, &self.frames, free - KEPT, self.together);
        }
    }
}
