//! What is in a store, back into the pool: for calls that need all of it under the core lock (a
//! fork, mlock, the end of management, who looks into the process). It is read in parts before, without the lock.

use super::Vpn;
use super::core::MemoryCore;
use super::fetch::Plan;
use super::read_ahead::RestOfWindow;
use super::remote::{BYTES, now};
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{Blocked, SHIFT};
use crate::threads::{self, on_service_stack};
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_zswap::{GroupLimits, Limits, Parts, Slot};

/// As long as that after a step of it nothing is written back, ns.
const RECALLS_NS: u64 = 1_000_000_000;
/// Pages recalled at a time.
const RECALLED: usize = 32;

/// Where pages lie in a store, which they are, and how many.
type Away = (Plan, [(Vpn, Slot); RECALLED], usize);

impl MemoryCore {
    /// Pages from `at` on that are in a store: some of them, where they lie, and where to go on.
    fn next_away(&self, state: &MemoryState, at: &mut Vpn, end: Vpn) -> Option<Away> {
        let store = self.way.store.as_ref()?;
        let zswap = self.pool.as_ref()?.zswap;
        if zswap.backing_pages() == 0 {
            return None;
        }
        let mut all = [(0, Slot::ZERO); RECALLED];
        let (mut count, mut next) = (0, *at);
        while count < RECALLED {
            let is_one = |word: Word| matches!(word, Word::Stored(_));
            let found = self.next_managed(state, next, end, is_one);
            next = found.map_or(end, |page| page + 1);
            let Some(page) = found else { break };
            let word = state.words.get(page);
            if let Word::Stored(slot) = word
                && self.is_behind(word)
            {
                all[count] = (page, slot);
                count += 1;
            }
        }
        while count > 0 {
            let slots = all.map(|(_, slot)| slot);
            let parts = zswap.parts_behind(&slots[..count]);
            let Some(parts) = parts.filter(|parts| parts.bytes() <= BYTES) else {
                count /= 2;
                continue;
            };
            *at = match count {
                RECALLED => next,
                _ => all[count - 1].0 + 1,
            };
            let plan = Plan {
                store: Arc::clone(store),
                run: all[0].0..all[count - 1].0 + 1,
                rest: RestOfWindow::nothing(all[count - 1].0 + 1),
                parts,
                next: Parts::default(),
            };
            return Some((plan, all, count));
        }
        None
    }

    /// The first page of `from..end` in managed memory whose word is one.
    fn next_managed(
        &self,
        state: &MemoryState,
        from: Vpn,
        end: Vpn,
        is_one: impl Fn(Word) -> bool,
    ) -> Option<Vpn> {
        let mut at = from << SHIFT;
        while let Some(range) = self.ranges.managed_from(at) {
            let (start, stop) = (
                (range.start.max(at)) >> SHIFT,
                (range.end >> SHIFT).min(end),
            );
            if start >= end {
                break;
            }
            if let Some(page) = state.words.next(start, stop, &is_one) {
                return Some(page);
            }
            at = range.end;
        }
        None
    }

    /// Runs `with` while the pool takes whatever comes.
    pub(super) fn without_limits<R>(&mut self, with: impl FnOnce(&mut Self) -> R) -> R {
        let zswap = self.pool.as_ref().map(|pool| pool.zswap);
        let before = zswap.map(|zswap| (zswap.limits(), zswap.group_limits()));
        if let Some(zswap) = zswap {
            zswap.set_limits(Limits::default());
            zswap.set_group_limits(GroupLimits::default());
        }
        let result = with(self);
        if let Some((zswap, (limits, group))) = zswap.zip(before) {
            zswap.set_limits(limits);
            zswap.set_group_limits(group);
        }
        result
    }
}

impl MemoryState {
    /// Reads what of `pages` is in a store back into the pool, without a lock while it waits: for
    /// what needs all of them under the lock. What is written back meanwhile is not.
    pub(crate) fn recall_away(&self, pages: Range<Vpn>) {
        if !self.remote.is_used() || self.has_left() {
            return;
        }
        let mut at = pages.start;
        loop {
            let blocked = Blocked::new();
            let mask = blocked.mask();
            let more = on_service_stack(&blocked, || self.recall_some(&mut at, pages.end, mask));
            drop(blocked);
            if !more {
                return;
            }
        }
    }

    /// Some of them; whether there is more.
    fn recall_some(&self, at: &mut Vpn, end: Vpn, mask: u64) -> bool {
        let from = *at;
        let next = self.exclusive().next_away(self, at, end);
        let Some((plan, all, count)) = next else {
            return false;
        };
        let until = now() + RECALLS_NS;
        self.remote.recalls_until.store(until, Ordering::Relaxed);
        let Some(fetched) = self.fetch(&plan, plan.run.start, threads::current(), mask) else {
            *at = from;
            return true;
        };
        let mut core = self.exclusive();
        // (Until it is written back again, which is a while after the last of it.)
        if let Some(pool) = &core.pool {
            pool.zswap.set_limits(Limits::default());
        }
        let mut still = [(0, Slot::ZERO); RECALLED];
        let mut left = 0;
        for (page, slot) in &all[..count] {
            let zswap = core.pool.as_ref().map(|pool| pool.zswap);
            let is_same = self.words.get(*page) == Word::Stored(*slot)
                && zswap.is_some_and(|zswap| {
                    zswap.is_in_backing(*slot) && zswap.is_covered(&[*slot], &plan.parts)
                });
            if is_same {
                still[left] = (*page, *slot);
                left += 1;
            }
        }
        left == 0
            || plan.offering(&fetched, || {
                core.without_limits(|core| core.recall_batch(self, &still[..left]))
            })
    }
}
