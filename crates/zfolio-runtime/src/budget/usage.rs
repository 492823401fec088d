//! What is resident, and by which marks it is judged.

use crate::budget::Memory;
use crate::budget::fair_share::{Having, grown, high_now};
use crate::policy::watermarks::Watermarks;
use core::sync::atomic::Ordering;
use zfolio_sys::procfs::Statm;

/// What a process may have as long as somebody looks into it, pages.
const WITHOUT_END: usize = 1 << 40;

impl Memory {
    /// Resident pages as /proc has them: program, pool and frames, and files
    /// up to an eighth of `high` (mapped files are the kernel's to reclaim), which the
    /// processes that share it have together: they are mostly the same files.
    /// For regions: theirs and the arena's.
    pub(crate) fn usage(&self) -> usize {
        if let Some(charged) = self.scope.charged() {
            return self.counted_usage(charged);
        }
        let Ok(statm) = Statm::read(self.fds.statm()) else {
            return self.resident.load(Ordering::Relaxed);
        };
        let private = statm.resident.saturating_sub(statm.shared);
        let usage = private + statm.shared.min(self.files_counted());
        self.resident.store(usage, Ordering::Relaxed);
        usage
    }

    /// Pages of files that count as this process's at most.
    fn files_counted(&self) -> usize {
        self.high() / 8 / self.allowance.members.load(Ordering::Relaxed).max(1)
    }

    /// When reclaim starts and stops, by what this process may have now.
    pub(crate) fn watermarks(&self) -> Watermarks {
        let high = if self.is_inspected() {
            WITHOUT_END
        } else {
            self.allowance.pages.load(Ordering::Relaxed)
        };
        if self.scope.counts_frames() {
            Watermarks::of_regions(high)
        } else {
            Watermarks::of(high)
        }
    }

    /// Pages by which every watermark is raised now.
    pub(crate) fn overdraft(&self) -> usize {
        self.overdraft.load(Ordering::Relaxed)
    }

    /// Address space of the process, pages.
    pub(crate) fn address_space(&self) -> usize {
        Statm::read(self.fds.statm()).map_or(0, |statm| statm.size)
    }

    /// The target, pages: what the run has now, or what regions have.
    pub(crate) fn high(&self) -> usize {
        self.scope.high(high_now(self.segment(), self.options.high))
    }

    /// Pages that the program and the arena have together, of which `charged` did not come
    /// out of the arena.
    fn counted_usage(&self, charged: usize) -> usize {
        let held = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let came = held(self.arena().populated());
        let went = held(self.arena().released());
        // (Read one after the other: a sum that is off by what is under way.)
        let sum = came.wrapping_add(charged).wrapping_sub(went).cast_signed();
        usize::try_from(sum).unwrap_or(0)
    }

    /// What the pool leaves of `high`, pages.
    pub(crate) fn resident_pages(&self) -> usize {
        let allowed = self.allowance.pages.load(Ordering::Relaxed);
        allowed.saturating_sub(self.zswap.pool_pages())
    }

    /// Notes frames of regions that did not come out of the arena.
    pub(crate) fn charge(&self, pages: usize) {
        self.scope.charge(pages);
    }

    /// The opposite.
    pub(crate) fn uncharge(&self, pages: usize) {
        self.scope.uncharge(pages);
        let less = |borrowed: usize| Some(borrowed.saturating_sub(pages));
        let _ = self
            .borrowed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Takes this process's part of what backings may hold, as it is now: a file is
    /// filled in less time than lies between two publications.
    pub(crate) fn share_backing(&self) {
        let out = self.zswap.stats().snapshot().backing_used();
        let part = self.membership.backing(self.segment(), out);
        if let Some(part) = part {
            self.zswap.limit_backing(part);
        }
    }

    /// Changes what this process may have of `high`.
    pub(crate) fn set_allowance(&self, pages: usize) {
        self.allowance.pages.store(pages, Ordering::Relaxed);
    }

    /// Says what this process has and needs, and takes its share.
    /// `usage`: resident pages; `program`: what the program would have without us.
    pub(crate) fn update_share(&self, usage: usize, program: usize) {
        let kept = program > usage;
        let pool = if kept { self.zswap.pool_pages() } else { 0 };
        // And something to grow by.
        let needs = program.max(usage) + pool;
        let figures = self.zswap.charged();
        let of = Having {
            owner: self.identity(),
            resident: usage,
            needs: grown(needs),
            zswap_bytes: figures.zswap,
            swap_bytes: figures.swap,
            backing_bytes: self.zswap.stats().snapshot().backing_used(),
        };
        let begun = self.scope.high(self.options.high);
        let allowed = self.membership.update(self.segment(), of, begun);
        self.allowance.pages.store(allowed.high, Ordering::Relaxed);
        self.allowance
            .members
            .store(allowed.members, Ordering::Relaxed);
        if allowed.members > 1 {
            self.allowance.changes.store(true, Ordering::Relaxed);
        }
        if self.zswap.group_limits() != allowed.limits {
            self.zswap.set_group_limits(allowed.limits);
        }
        if self.zswap.is_backed() {
            self.zswap.limit_backing(allowed.backing);
        }
        self.hard().set_part(allowed.max, allowed.max_alone);
        self.swap_penalty_ns
            .store(allowed.swap_penalty_ns, Ordering::Relaxed);
    }
}
