//! What the program did to its address space: remove, unmap, remap, fork.
//!
//! An event is applied under the core lock as it is read. Two kinds wait
//! (*parked*, and everything behind them waits too): a remap, until no event
//! is in flight, when it is known what came before it (`order`), and until no
//! operation is under way, whose pages would be published at the old address;
//! and everything during a fork, when nothing but single words may change
//! (`parked`). Parked events are applied by whoever finds that they may be (`apply_parked`).

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::address_space::discard::BATCH;
use crate::address_space::freeze::Freeze;
use crate::address_space::pages::Pages;
use crate::address_space::place::Place;
use crate::address_space::standby::StandbyRun;
use crate::events::event::Event;
use crate::events::order::Truth;
use crate::page::{Vpn, addresses_of, pages_within};
use crate::segment::Counter;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::procmap::private_mapping_at;
use zfolio_sys::syscall::Errno;

/// So often the order of some events is put off because the page table cannot be read without an
/// event in flight: a program that leaves no such moment but those of holds may not wait for ever.
const MOST_PUT_OFF: u32 = 64;

/// Asks the kernel.
struct Now<'a> {
    space: &'a Space,
    pages: &'a Pages,
    freeze: &'a Freeze,
    /// A moment is waited for at which the page table can be read.
    is_patient: bool,
    /// An event began while it was asked.
    put_off: bool,
}

impl Now<'_> {
    fn was_out(&self, vpn: Vpn) -> bool {
        let is_kept = matches!(
            self.pages.extents.place(vpn),
            Place::Standby(_) | Place::Storing(_) | Place::Stored(_) | Place::Loading(_)
        );
        is_kept && !self.freeze.superseded.contains(&vpn)
    }
}

impl Truth for Now<'_> {
    fn was_put_off(&self) -> bool {
        self.put_off
    }

    fn is_registered(&mut self, address: usize) -> Option<bool> {
        let answer = self.space.fds.program().is_registered(address);
        self.put_off |= answer == Err(Errno::AGAIN);
        answer.ok()
    }

    fn begins_at(&mut self, address: usize) -> Option<bool> {
        let mapping = private_mapping_at(self.space.fds.maps(), address).ok()?;
        // (Asked in any case: the list says nothing of events in flight.)
        let registered = self.is_registered(address)?;
        Some(mapping.start == address && registered)
    }

    fn may_look_at_pages(&self) -> bool {
        self.is_patient
    }

    fn misplaced(&mut self, pages: Range<Vpn>, word_of: impl Fn(Vpn) -> Option<Vpn>) -> usize {
        // (The page table cannot be read before the end of a hold.)
        if self.space.is_held() {
            self.put_off = true;
            return 0;
        }
        let (mut misplaced, mut next) = (0, pages.start);
        let mut compare = |run: Range<Vpn>, present: bool| {
            let is_so = |vpn: &Vpn| word_of(*vpn).is_some_and(|word| self.was_out(word) == present);
            misplaced += run.filter(is_so).count();
        };
        let read = self.space.for_each_occupied(addresses_of(&pages), |run| {
            compare(next..run.start, false);
            next = run.end;
            compare(run, true);
        });
        compare(next..pages.end, false);
        self.put_off |= read.is_err() || !self.space.is_quiet();
        misplaced
    }
}

impl Space {
    /// Applies what was parked, if nothing stands in the way any more.
    pub(crate) fn apply_parked(&self, core: &mut Core) {
        let waits = |core: &Core| !core.inbox.parked.is_empty() && !core.freeze.is_frozen();
        if !waits(core) || self.inflight.load(Ordering::Acquire) > 0 || !self.order_parked(core) {
            return;
        }
        while let Some(event) = core.inbox.parked.pop() {
            self.apply(core, event);
        }
    }

    /// Whether new operations may start, now that what can be applied is.
    pub(crate) fn may_start(&self, core: &mut Core) -> bool {
        self.apply_parked(core);
        core.is_open()
    }

    /// Puts parked events in order; false if that cannot be told yet. Does not
    /// use the heap.
    pub(crate) fn order_parked(&self, core: &mut Core) -> bool {
        if !core.inbox.parked.needs_order() {
            return true;
        }
        if !self.is_quiet() {
            return false;
        }
        let now = Now {
            space: self,
            pages: &core.pages,
            freeze: &core.freeze,
            is_patient: core.inbox.parked.put_off() < MOST_PUT_OFF,
            put_off: false,
        };
        core.inbox.parked.put_in_order(&core.pages.registered, now)
    }

    pub(crate) fn apply(&self, core: &mut Core, event: Event) {
        match event {
            Event::Remove { start, end } => self.removed(core, start, end),
            Event::Unmap { start, end } => self.unmapped(core, start, end),
            Event::Remap { from, to, len } => self.remapped(core, from, to, len),
            Event::Fork { .. } => {}
        }
    }

    /// mremap: words follow their pages. No operation is under way.
    fn remapped(&self, core: &mut Core, from: usize, to: usize, len: usize) {
        let source = pages_within(from, from + len);
        let target = pages_within(to, to + len);
        self.drop_contents(core, target.clone());
        let mut batch = [(0, Place::Present); BATCH];
        let mut left = source.clone();
        let mut run: Option<StandbyRun> = None;
        loop {
            let batch = core.pages.extents.first_tracked(&mut left, &mut batch);
            if batch.is_empty() {
                break;
            }
            for (vpn, place) in batch.iter().copied() {
                core.pages.extents.set(vpn, Place::Present);
                let vpn = vpn - source.start + target.start;
                core.pages.extents.set(vpn, place);
                if let Place::Standby(at) = place {
                    match &mut run {
                        Some(run)
                            if run.vpn + run.pages == vpn && run.at.offset(run.pages) == at =>
                        {
                            run.pages += 1;
                        }
                        _ => {
                            core.pages.standby.push_all(run.take());
                            run = Some(StandbyRun { vpn, at, pages: 1 });
                        }
                    }
                }
            }
        }
        core.pages.standby.push_all(run);
        core.pages.extents.prune(source);
        // (The source stays registered until its UNMAP, if there is one.)
        core.pages.registered.insert(to..to + len);
        self.count(Counter::Remaps, 1);
    }
}
