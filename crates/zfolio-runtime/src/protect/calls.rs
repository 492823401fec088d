//! The calls by which a program asks something of its regions. (Faults: `open.rs`.)

use super::groups::{End, State};
use super::{GroupCore, Protected};
use crate::address_space::place::Place;
use crate::error::PinError;
use crate::page::{Vpn, addresses_of, pages_within};
use crate::pager::{Access, RegionEngine};
use crate::scope::Serving;
use crate::segment::ProcessSlot;
use crate::upkeep::class_table;
use crate::upkeep::zspage_compaction::compact_on_request;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::closable::Closable;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::Slot;

impl Protected {
    /// Takes the slots of `pages` out of the words: zeros from here on.
    fn take_slots(core: &mut GroupCore, pages: Range<Vpn>) -> Vec<Slot> {
        let mut found = Vec::new();
        for (page, word) in core.extents.tracked(pages) {
            if let Place::Stored(slot) = word {
                found.push((page, slot));
            }
        }
        for (page, _) in &found {
            core.extents.set(*page, Place::Present);
        }
        found.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Groups with an address in `range`, none of which is busy.
    fn known(core: &GroupCore, range: &Range<usize>) -> Vec<(usize, State)> {
        core.table.within(range).collect()
    }

    /// A group and its state, and what of it is out.
    fn validate_group(core: &GroupCore, group: usize, state: State) -> Result<(), String> {
        let place = core.place_of(group);
        let place = place.ok_or_else(|| format!("group {group:#x} is no region's"))?;
        let pages = place.range.start / PAGE_SIZE..place.range.end / PAGE_SIZE;
        let out = core.extents.tracked(pages).count();
        if matches!(state, State::Open | State::Standby) && out > 0 {
            return Err(format!("{out} pages of a group that is {state:?} are out"));
        }
        Ok(())
    }
}

impl RegionEngine for Protected {
    fn serving(&self) -> Serving {
        Serving::Protected
    }

    fn descriptors(&self) -> Vec<usize> {
        Vec::new()
    }

    fn control_regions(&'static self) -> ! {
        self.control()
    }

    fn serving_threads(&self) -> usize {
        0
    }

    fn serve_regions(&'static self, _: usize) -> ! {
        unreachable!("no threads serve where the thread that touches does")
    }

    fn add_region(&self, range: &Range<usize>) -> Result<(), Errno> {
        let memory = Arc::new(Closable::over(range)?);
        self.core.lock().regions.insert(range.start, memory);
        Ok(())
    }

    fn remove_region(&self, range: &Range<usize>) {
        let slots = {
            let mut core = self.quiet(range);
            let pages = pages_within(range.start, range.end);
            let slots = Self::take_slots(&mut core, pages.clone());
            for (group, state) in Self::known(&core, range) {
                if state == State::Open {
                    core.table.count_run(group, false, &super::RUNS);
                }
                core.table.close(group);
            }
            core.extents.prune(pages);
            core.regions.remove(&range.start);
            slots
        };
        self.zswap.invalidate(&slots);
    }

    fn serve_here(&self, address: usize, _: Access) -> bool {
        self.serve(address)
    }

    fn pin(&self, range: Range<usize>) -> Result<(), PinError> {
        let mut core = self.core.lock();
        let place = core.place(range.start);
        if place.is_none_or(|place| place.memory.view().end < range.end) {
            return Err(PinError::NotManaged);
        }
        core.pins.hold(range, self.high.load(Ordering::Relaxed))
    }

    fn unpin(&self, range: &Range<usize>) {
        let held = self.core.lock().pins.remove(range);
        assert!(held, "a pin is removed once");
    }

    fn advise_cold(&self, range: &Range<usize>) {
        let mut core = self.core.lock();
        for (group, state) in Self::known(&core, range) {
            let Some(place) = core.place_of(group) else {
                continue;
            };
            let whole = range.start <= place.range.start && place.range.end <= page_up(range.end);
            let may = whole && !core.pins.overlaps(&place.range);
            match state {
                State::Open if may && self.close(&mut core, &place).is_ok() => {
                    self.stand_by(&mut core, &place, End::Cold);
                }
                State::Standby if may => {
                    let pages = place.pages();
                    core.table.set(group, pages, State::Standby, End::Cold);
                }
                _ => {}
            }
        }
        self.ring_at(&core);
    }

    fn discard(&self, range: &Range<usize>) {
        let pages = pages_within(range.start, range.end);
        let inner = addresses_of(&pages);
        if inner.is_empty() {
            return;
        }
        let mut core = self.quiet(&inner);
        let Some(memory) = core.place(inner.start).map(|place| place.memory) else {
            return;
        };
        // Under the lock nothing of it goes out or comes in.
        let slots = Self::take_slots(&mut core, pages);
        if let Err(errno) = memory.discard(&inner) {
            let Errno(errno) = errno;
            self.fail(format_args!(
                "the memory at {:#x} could not be given back (errno {errno})",
                inner.start
            ));
        }
        for (group, state) in Self::known(&core, &inner) {
            let Some(place) = core.place_of(group) else {
                continue;
            };
            let whole = inner.start <= place.range.start && place.range.end <= inner.end;
            if !whole || core.pins.overlaps(&place.range) {
                continue;
            }
            // (One that cannot be closed stays open, and is zeros.)
            if state == State::Standby || self.close(&mut core, &place).is_ok() {
                core.table.close(group);
            }
        }
        drop(core);
        self.zswap.invalidate(&slots);
    }

    fn next_out(&self, from: Vpn, end: Vpn) -> Option<Vpn> {
        let core = self.core.lock();
        let stored = core.extents.tracked(from..end).next();
        let range = from * PAGE_SIZE..end * PAGE_SIZE;
        let mut known = core.table.within(&range);
        let closed = known.find(|(_, state)| *state != State::Open);
        let first = |group| (core.table.addresses(group).start / PAGE_SIZE).max(from);
        [
            stored.map(|(page, _)| page),
            closed.map(|(group, _)| first(group)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn usage_bytes(&self) -> usize {
        self.usage(&self.core.lock()) * PAGE_SIZE
    }

    fn set_high_bytes(&self, bytes: usize) -> bool {
        let pages = bytes / PAGE_SIZE;
        let fits = pages <= self.zswap.arena().slots() / 2;
        if fits {
            self.high.store(pages, Ordering::Relaxed);
            self.zswap.set_limits(self.options.pool.limits(pages));
            self.ring_at(&self.core.lock());
        }
        fits
    }

    fn engines(&self) -> usize {
        0
    }

    fn engine_thread(&'static self, _: usize) {}

    fn statistics(&self) -> &'static ProcessSlot {
        self.stats
    }

    fn refresh_statistics(&self) {
        class_table::ask(self.stats);
        self.publish();
    }

    fn compact_zspages(&self) -> (u64, u64) {
        compact_on_request(&self.zswap)
    }

    fn validate(&self) -> Result<(), String> {
        {
            let core = self.core.lock();
            core.table.validate()?;
            for memory in core.regions.values() {
                for (group, state) in core.table.within(&memory.view()) {
                    Self::validate_group(&core, group, state)?;
                }
            }
            let tracked = core.regions.values().map(|memory| {
                let pages = pages_within(memory.view().start, memory.view().end);
                let words = core.extents.tracked(pages);
                words
                    .filter(|(_, word)| matches!(word, Place::Stored(_)))
                    .count()
            });
            let (tracked, kept) = (tracked.sum::<usize>(), core.extents.kept());
            if tracked != kept {
                return Err(format!("{tracked} pages of regions are out, {kept} in all"));
            }
        }
        self.zswap.arena().validate()?;
        self.zswap.validate()
    }
}

fn page_up(address: usize) -> usize {
    address.next_multiple_of(PAGE_SIZE)
}
