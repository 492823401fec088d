//! Waiting for a store without a lock.
//!
//! A page that is behind the pool in a store may take long to come, and the store may not answer
//! at all. Who needs it looks up under the core lock where it lies, lets go of the lock, reads
//! the sealed bytes into a buffer of ours, and takes the lock again: if the page is what it was, the
//! load finds the bytes there, and waits for nothing. If not, what was read is of no use, and
//! the access is repeated.
//!
//! ```text
//! lock: which pages, where they lie -> no lock: read -> lock: still there? -> load, fill
//! ```
//!
//! Meanwhile all signals of the thread are blocked, as for any fault. One that has waited for half
//! a second and has a signal to take gives up for as long as that takes: the access is repeated,
//! and goes on to wait with the deadline that it had.
//!
//! Writes are begun and settled under the core lock, and waited for by nobody ([`Zswap::writes_ahead`]).
//! Where the pool is as large as it may get until some have ended, who wants room
//! waits, without a lock.
//!
//! [`Zswap::writes_ahead`]: zfolio_zswap::Zswap::writes_ahead

use super::Vpn;
use super::bring::{Access, Brought, alike, bring, bring_run, stored_run};
use super::core::MemoryCore;
use super::own_store::{Offered, OwnStore};
use super::read_ahead::{RestOfWindow, count_out, is_out};
use super::readers::WantedPages;
use super::remote::{BYTES, Buffer, now};
use super::way::STAGE;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::program_memory;
use crate::raw::{self, OURS, SHIFT, nr};
use crate::threads::Record;
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::lock::{MutexGuard, pause};
use zfolio_sys::syscall::Errno;
use zfolio_zswap::{Parts, Slot};

/// Before a signal that a thread is to take ends its wait, ns.
const FOR_SIGNALS_NS: u64 = 500_000_000;
/// Pages that are brought at a time where it is taken for granted that a reader goes on in order.
const IN_ORDER: usize = 16;
/// Between two tries of a thread that has to wait for others, ns.
const NAP_NS: u64 = 1_000_000;

/// What is to be read before pages can be brought.
pub(super) struct Plan {
    pub(super) store: Arc<OwnStore>,
    pub(super) run: Range<Vpn>,
    /// What of a reader's window comes after them: parts of it as well.
    pub(super) rest: RestOfWindow,
    pub(super) parts: Parts,
    /// What is likely to be wanted next, where a reader goes in order: asked for and not waited for.
    pub(super) next: Parts,
}

/// How a page can be brought.
#[allow(
    clippy::large_enum_variant,
    reason = "on the stack, for one call: no heap is needed for it"
)]
enum Coming {
    /// Now; with these and the rest of a window, where that is known.
    Ready(Option<(Range<Vpn>, RestOfWindow)>),
    Fetch(Plan),
}

/// Whether a signal waits for this thread, which is in a handler of ours, that `mask` lets in.
pub(crate) fn is_called(mask: u64) -> bool {
    let mut pending = 0_u64;
    let into = (&raw mut pending) as usize;
    raw::own(nr::RT_SIGPENDING, [into, 8, 0]) == 0 && pending & !mask & !OURS != 0
}

impl Plan {
    /// What has been read is offered to the loads of `with`, which runs under the core lock.
    pub(super) fn offering<R>(&self, fetched: &Fetched<'_>, with: impl FnOnce() -> R) -> R {
        self.store.offer(Some(Offered {
            parts: self.parts,
            at: fetched.buffer.start(),
            result: fetched.result,
        }));
        let result = with();
        self.store.offer(None);
        result
    }
}

/// What was read.
pub(super) struct Fetched<'a> {
    buffer: Buffer<'a>,
    result: Result<(), Errno>,
}

impl MemoryCore {
    /// How the page can be brought.
    fn step(&mut self, state: &MemoryState, record: Option<&Record>, page: Vpn) -> Coming {
        let is_out = matches!(state.words.get(page), Word::Zero | Word::Stored(_));
        let behind = self
            .pool
            .as_ref()
            .map_or(0, |pool| pool.zswap.backing_pages());
        let store = self.way.store.as_ref().filter(|_| is_out && behind > 0);
        let Some(store) = store.map(Arc::clone) else {
            return Coming::Ready(None);
        };
        // (What does not lie side by side is not asked for together.)
        let wanted = self.ahead(state, record, page);
        let is_alone = record.is_some() && wanted.pages == 1;
        let ahead = wanted.side_by_side();
        let run = stored_run(state, self, page, ahead);
        let (with_group, rest) = self.window(state, page, wanted, is_alone);
        let nothing = |run: Range<Vpn>| (RestOfWindow::nothing(run.end), run);
        let all = [
            (rest, with_group.clone()),
            nothing(with_group),
            nothing(run),
            nothing(stored_run(state, self, page, 1)),
        ];
        for (rest, run) in all {
            match self.parts(state, &(run.start..rest.end().max(run.end))) {
                Some(parts) if parts.is_empty() => return Coming::Ready(Some((run, rest))),
                Some(parts) if parts.bytes() <= BYTES => {
                    return Coming::Fetch(Plan {
                        store,
                        parts,
                        next: self.next_parts(state, rest.end().max(run.end), ahead),
                        rest,
                        run,
                    });
                }
                _ => {}
            }
        }
        Coming::Ready(None)
    }

    /// What comes with `page`, which is out: a run that it is in, and what of a reader's window is behind that.
    fn window(
        &mut self,
        state: &MemoryState,
        page: Vpn,
        wanted: WantedPages,
        is_alone: bool,
    ) -> (Range<Vpn>, RestOfWindow) {
        let ahead = wanted.side_by_side();
        let run = stored_run(state, self, page, ahead);
        let run = self.with_group(state, run, page, is_alone);
        let rest = match ahead {
            // (What does not lie side by side is not read together.)
            1 => RestOfWindow::nothing(run.end),
            _ => self.rest(state, page, &run, wanted),
        };
        (run, rest)
    }

    /// What lies in the store of the pages that will come with the next fault of a reader who goes
    /// in order, has what comes before `end`, and is brought `ahead` pages at a time.
    fn next_parts(&mut self, state: &MemoryState, end: Vpn, ahead: usize) -> Parts {
        if ahead < IN_ORDER {
            return Parts::default();
        }
        let Some(page) = state.words.next(end, end + ahead, is_out) else {
            return Parts::default();
        };
        if self.ranges.at(page << SHIFT).is_none() {
            return Parts::default();
        }
        let (run, rest) = self.window(state, page, WantedPages::in_order(ahead), false);
        // (What lies before it comes now. What is read ahead is all taken, so that its cell is free again.)
        let run = page..rest.end().max(run.end);
        self.parts(state, &run).unwrap_or_default()
    }

    fn parts(&self, state: &MemoryState, run: &Range<Vpn>) -> Option<Parts> {
        let slots = slots_of(state, run)?;
        self.pool.as_ref()?.zswap.parts_behind(&slots[..run.len()])
    }

    /// What of a plan's pages can be brought with what it has read; `None`: nothing.
    fn still(&self, state: &MemoryState, plan: &Plan, page: Vpn) -> Option<Range<Vpn>> {
        let is_out = |word| matches!(word, Word::Zero | Word::Stored(_));
        let run = alike(state, self, page, STAGE, is_out);
        let run = run.start.max(plan.run.start)..run.end.min(plan.run.end);
        let slots = slots_of(state, &run)?;
        let zswap = self.pool.as_ref()?.zswap;
        zswap
            .is_covered(&slots[..run.len()], &plan.parts)
            .then_some(run)
    }

    /// Whether there will be room once writes that are under way have ended: then who wants some
    /// next waits, and the limit is not raised. (Not for a range that is held: who brings it cannot
    /// wait.)
    pub(super) fn awaits_writes(&self, state: &MemoryState) -> bool {
        let pool = self.pool.as_ref().filter(|_| state.remote.is_used());
        let under_way = pool.map_or(0, |pool| pool.zswap.writes_under_way());
        let awaits = under_way > 0 && self.closing.held.is_empty();
        if awaits {
            state.remote.stalled.store(true, Ordering::Relaxed);
        }
        awaits
    }

    /// Whether who wants room has to wait until writes have ended.
    fn waits_for_writes(&mut self, state: &MemoryState) -> bool {
        let Some(pool) = &mut self.pool else {
            return false;
        };
        let ended = state.write_ahead(pool.zswap, &mut pool.context);
        // (Where some have, room can be made anew.)
        let is_short = pool.zswap.wants_shrinking() || ended == 0;
        let is_under_way = pool.zswap.writes_under_way() > 0;
        let waits =
            is_short && is_under_way && !self.closes_nothing() && self.usage(state) >= self.limit();
        if !waits {
            state.remote.stalled.store(false, Ordering::Relaxed);
        }
        waits
    }
}

/// The slots of stored pages; `None` where there are none, or too many.
fn slots_of(state: &MemoryState, run: &Range<Vpn>) -> Option<[Slot; STAGE]> {
    let mut slots = [Slot::ZERO; STAGE];
    if run.is_empty() || run.len() > STAGE {
        return None;
    }
    for (slot, page) in slots.iter_mut().zip(run.clone()) {
        if let Word::Stored(of) = state.words.get(page) {
            *slot = of;
        }
    }
    Some(slots)
}

impl MemoryState {
    /// As [`bring`], under the core lock, which is let go of where a store has to be waited
    /// for. `None`: the access is to be repeated, or the call to be made anew. `mask`: signals that the
    /// program blocks.
    pub(crate) fn bring_or_fetch(
        &self,
        mut core: MutexGuard<'_, MemoryCore>,
        record: Option<&Record>,
        address: usize,
        access: Access,
        mask: u64,
    ) -> Option<Brought> {
        if !self.remote.is_used() {
            return Some(bring(self, &mut core, record, address, access));
        }
        let page = address >> SHIFT;
        let plan = match core.step(self, record, page) {
            Coming::Ready(run) => {
                return Some(bring_run(self, &mut core, record, address, access, run));
            }
            Coming::Fetch(plan) => plan,
        };
        drop(core);
        let fetched = self.fetch(&plan, page, record, mask)?;
        let mut core = self.core.lock();
        if !matches!(self.words.get(page), Word::Zero | Word::Stored(_)) {
            // (Another thread has brought it, or it has gone.)
            return Some(bring(self, &mut core, record, address, access));
        }
        // (Before, since no write ends while what was read is offered.)
        core.make_room(self, plan.run.len() + count_out(self, &plan.rest));
        if let Some(pool) = &mut core.pool {
            self.write_ahead(pool.zswap, &mut pool.context);
        }
        let run = core.still(self, &plan, page)?;
        // (Where the run is cut by what has come meanwhile its window goes on behind that.)
        let run = Some((run, plan.rest));
        let bring = || bring_run(self, &mut core, record, address, access, run);
        Some(plan.offering(&fetched, bring))
    }

    /// Reads what a plan says, for `page`. No lock is held, and all signals are blocked. `None`:
    /// it is to be tried again.
    pub(super) fn fetch(
        &self,
        plan: &Plan,
        page: Vpn,
        record: Option<&Record>,
        mask: u64,
    ) -> Option<Fetched<'_>> {
        let Some(buffer) = self.remote.take() else {
            pause(NAP_NS);
            return None;
        };
        let begun = now();
        let wait = record.map(Record::store_wait);
        let since = wait.map_or(begun, |wait| wait.begin(page, begun));
        let mut goes_on = || match now() - begun > FOR_SIGNALS_NS && is_called(mask) {
            true => Err(Errno::INTR),
            false => Ok(()),
        };
        plan.store.will_fetch(&plan.parts, &plan.next);
        let mut at = buffer.start();
        let mut result = Ok(());
        for part in plan.parts.iter() {
            // SAFETY: of a buffer that this thread has taken, and all parts fit in.
            let into = unsafe { program_memory::bytes_mut(at, part.len) };
            result = plan.store.fetch(part.offset, into, since, &mut goes_on);
            if result.is_err() {
                break;
            }
            at += part.len;
        }
        if result == Err(Errno::INTR) {
            if let Some(wait) = wait {
                wait.leave(now());
            }
            return None;
        }
        if let Some(wait) = wait {
            wait.end();
        }
        Some(Fetched { buffer, result })
    }

    /// Whether the pool takes nothing more until writes to a store have ended.
    pub(crate) fn is_stalled(&self) -> bool {
        self.remote.stalled.load(Ordering::Relaxed)
    }

    /// Waits a moment for writes that are under way, where whoever wants room has to; whether it
    /// was so. The core lock is let go of.
    pub(crate) fn nap_for_writes(&self, mut core: MutexGuard<'_, MemoryCore>) -> bool {
        let waits = core.waits_for_writes(self);
        drop(core);
        if waits {
            pause(NAP_NS);
        }
        waits
    }

    /// Waits until there is room in the pool, where a call will want some.
    pub(crate) fn wait_for_writes(&self) {
        while self.is_stalled()
            && !self.has_left()
            && self.at_rest(|| self.nap_for_writes(self.exclusive()))
        {}
    }
}
