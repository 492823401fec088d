//! The kernel's pool, behind a zram device.

use super::interface::{Pool, State};
use crate::corpus::Page;
use crate::keeper::{Keeper, Zram};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use zfolio_mm::PAGE_SIZE;

/// What both sides compress with.
pub(super) const ALGORITHM: &str = "lz4";

pub(super) struct Kernel {
    device: File,
    zram: Zram,
}

impl Kernel {
    /// An empty device with room for `pages`.
    pub(super) fn new(keeper: &mut Keeper, pages: usize) -> Result<Self, String> {
        let zram = keeper.zram(ALGORITHM, (pages * PAGE_SIZE) as u64)?;
        let path = zram.device();
        // Past the page cache: what is written is in the pool when the call ends.
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { device, zram })
    }

    /// Removes the device.
    pub(super) fn end(self, keeper: &mut Keeper) -> Result<(), String> {
        drop(self.device);
        keeper.undo(self.zram.kept)
    }
}

const fn offset(page: usize) -> u64 {
    (page * PAGE_SIZE) as u64
}

impl Pool for Kernel {
    fn store(&mut self, at: usize, page: &Page) -> Result<(), String> {
        self.device
            .write_all_at(&page.0, offset(at))
            .map_err(|error| format!("writing to zram: {error}"))
    }

    fn free(&mut self, at: usize) -> Result<(), String> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.device, how, offset(at), PAGE_SIZE as u64)
            .map_err(|error| format!("discarding on zram: {error}"))
    }

    fn compact(&mut self) -> Result<(), String> {
        fs::write(self.zram.file("compact"), "1")
            .map_err(|error| format!("compacting zram: {error}"))
    }

    fn state(&mut self) -> Result<State, String> {
        let stat = self.zram.mm_stat()?;
        Ok(State {
            compressed: stat.compr_data_size,
            used: stat.mem_used_total,
            moved: None,
        })
    }

    fn is_intact(&mut self, at: usize, page: &Page) -> Result<bool, String> {
        let mut read = Page([0; PAGE_SIZE]);
        self.device
            .read_exact_at(&mut read.0, offset(at))
            .map_err(|error| format!("reading zram: {error}"))?;
        Ok(read == *page)
    }
}
