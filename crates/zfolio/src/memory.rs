//! The mapping behind a region, and who manages it.

use crate::error::Error;
use crate::group::Inner;
use crate::process;
use crate::table::{self, Engine};
use core::ops::Range;
use std::sync::Arc;
use zfolio_sys::region::{SignalsBlocked, map_plain, map_region, unmap_region};

/// A mapping, unmapped on drop.
///
/// # Invariants
/// As long as it lives, `range` is mapped readable and writable in the process
/// that made it. With an engine, the range is in its record and in the table.
pub(crate) struct Memory {
    range: Range<usize>,
    group: Arc<Inner>,
    generation: u32,
}

impl Memory {
    pub(crate) fn map(group: &Arc<Inner>, len: usize) -> Result<Self, Error> {
        let too_large = |_| Error::TooLarge { bytes: len };
        let pages = len
            .checked_next_multiple_of(4096)
            .ok_or(Error::TooLarge { bytes: len })?;
        let Some(engine) = group.engine else {
            return Ok(Self {
                range: map_plain(pages).map_err(too_large)?,
                group: Arc::clone(group),
                generation: process::generation(),
            });
        };
        let locked = process::lock()?;
        crate::signals::install();
        let range = map_region(pages).map_err(too_large)?;
        let entered = engine
            .add_region(&range)
            .map_err(|errno| Error::refused("registering a region", errno))
            .and_then(|()| {
                if table::add(&range, engine) {
                    return Ok(());
                }
                engine.remove_region(&range);
                Err(Error::TooManyRegions)
            });
        if let Err(error) = entered {
            // SAFETY: nobody has learnt of it.
            unsafe { unmap_region(&range) };
            return Err(error);
        }
        drop(locked);
        Ok(Self {
            range,
            group: Arc::clone(group),
            generation: process::generation(),
        })
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    pub(crate) fn group(&self) -> &Arc<Inner> {
        &self.group
    }

    /// Calls `f` with the engine, signals blocked; `None` where there is
    /// none, or it is another process's.
    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(Engine) -> R) -> Option<R> {
        let engine = self.group.engine?;
        if self.generation != process::generation() || !process::is_original() {
            return None;
        }
        let _blocked = SignalsBlocked::new();
        Some(f(engine))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(engine) = self.group.engine else {
            // (Plain memory the child of a fork has as well.)
            // SAFETY: the owner of the region is going away.
            unsafe { unmap_region(&self.range) };
            return;
        };
        let Ok(_locked) = process::lock() else {
            return; // a copy of the process, which does not have it
        };
        table::remove(&self.range);
        if self.generation == process::generation() {
            engine.remove_region(&self.range);
            // SAFETY: as above; the engine has forgotten it.
            unsafe { unmap_region(&self.range) };
        }
    }
}
