//! What of the program's memory cannot leave, and why: counted while usage is above what the process may
//! have, for whoever asks why `high` was not kept.
//!
//! Ticks do it, calls that follow `high`, and the end of the process (many are above it for less than the 50 ms
//! of a tick): in a thread of the program, for a hundredth of the time at most, and never under the core lock, so
//! that nobody's fault waits for it.

use crate::memory::layer::MemoryState;
use crate::raw::PAGE;
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::{Staying, Why};
use zfolio_sys::heap;
use zfolio_sys::procfs::{File, Mapping, Pagemap, for_each_mapping};
use zfolio_sys::thread::{Clock, now_ns};

/// Bytes of the list that are read at a time, on the service stack: more than a line with the longest path.
const BUFFER: usize = 8 << 10;
/// How names of memory begin that is ours.
const OURS: &[u8] = b"[anon:zfolio";

impl MemoryState {
    /// Counts it, if usage is above what the process may have and a look is due; what is told is of the look
    /// that found most. The core lock is not held, all signals are blocked, and this is the service stack.
    pub(crate) fn count_what_stays(&self) {
        let begun = now_ns(Clock::Monotonic);
        let following = &self.following;
        if following.slot.load(Ordering::Relaxed).is_null() || !following.looks.is_due(begun) {
            return;
        }
        let asked = {
            let core = self.core.lock();
            let stats = core.pool.as_ref().map(|pool| pool.stats);
            // (Not the limit: that is raised where nothing more can leave.)
            let is_above = core.usage(self) > core.high && !core.closes_nothing();
            stats.filter(|_| is_above).zip(core.way.map_files())
        };
        let Some((slot, (maps, pagemap))) = asked else {
            return;
        };
        if !self.following.looks.begins(begun) {
            return;
        }
        let descriptors = self.descriptors();
        let found = self.look_at_what_stays(maps, pagemap);
        // (Where the program took one of our numbers meanwhile it was another file that was read.)
        if descriptors == self.descriptors()
            && let Some(found) = found
        {
            found.tell(slot);
        }
        let ended = now_ns(Clock::Monotonic);
        self.following.looks.ends(begun, ended);
    }

    fn look_at_what_stays(&self, maps: File, pagemap: Pagemap) -> Option<Staying> {
        let (mut found, mut are_told) = (Staying::default(), false);
        let mut buffer = [0; BUFFER];
        let each = |mapping: &Mapping<'_>| {
            if mapping.name.starts_with(OURS) {
                are_told = true;
                return;
            }
            let (range, why) = (mapping.start..mapping.end, Why::of(mapping));
            let mut at = range.start;
            while at < range.end {
                let part = self.core.lock().ranges.unmanaged_from(at..range.end);
                at = part.end;
                found.look(pagemap, part, why);
            }
        };
        for_each_mapping(maps, &mut buffer, each).ok()?;
        if !are_told {
            // (A kernel that keeps no names of memory: what is ours looks like the program's.)
            let pool = self.core.lock().pool_pages() * PAGE;
            let (_, heap) = heap::usage::bytes();
            found.remove(Why::Apart, pool + heap);
        }
        Some(found)
    }
}
