//! Zspage compaction: the objects of the emptiest zspages of a class move into
//! the free slots of the fullest, and what ran empty gives its frames back.
//!
//! The algorithm is that of the kernel's zsmalloc since it has fine groups. Per
//! class, from the largest to the smallest, while moving can free a zspage
//! ([`can_compact`]): a *destination* from the fullest group with room, kept
//! until it is full; *sources* from the emptiest group, each until it is empty.
//!
//! Three things differ. A source with a pinned object is passed over and the next
//! one tried, where the kernel gives the class up. And the pool is not locked
//! for the length of a class: the work is cut into steps, each from one source
//! into one destination, between which the owner drops its lock. And where a pool
//! has guests (`guests`), the objects of a class's last half-empty zspage become
//! that, if larger classes have room for all of them.
//!
//! # What may happen between steps, and what holds
//!
//! Anything: malloc, free, pin, unpin, relocate, a new compaction after
//! [`ZsPool::abandon_compaction`]. What a run remembers ([`Running`]) is
//!
//! 1. the class it works at and how many steps it may still spend there;
//! 2. the zspage it keeps as destination: *it exists and is of that class*.
//!    `release`, the only way a record is given up, makes the run forget it
//!    first, so the id cannot come to mean another zspage;
//! 3. nothing else of the zspage. That it has room, is not damaged, and is
//!    still no emptier than the source is asked anew in each step; its frames
//!    are read from the record, so it may have been relocated.
//!
//! No zspage is taken off its list between steps: allocations keep finding it.
//!
//! # Bounds
//!
//! A step copies fewer objects than one zspage holds, gives back one zspage at
//! most, and looks at no more than [`LOOKED_AT`] zspages to find a source. A
//! step fills a destination, empties a source or sets one aside, so a class is
//! done in as many steps as it had partly filled zspages when the run came to
//! it; it gets no more, however much is freed and allocated meanwhile, but for
//! [`LODGINGS`] in which it may lodge objects.
//!
//! # Damage
//!
//! An object is moved only if the header in front of it names a handle whose
//! cell names this slot; the header moves with the object. A source that has
//! objects left when all its slots were looked at has overwritten headers, and
//! is set aside as allocations do it with overwritten free lists: its objects
//! stay where they are, and its frames come back when they are freed.

use core::cmp::Reverse;

use zfolio_mm::Memory;

use super::running::{Compaction, CompactionStep, Running, Stop};
use super::zs_pool::{ZsPool, objs, take_slot};
use crate::class::{SizeClass, can_compact};
use crate::grouping::Grouping;
use crate::slot::Header;
use crate::source::FrameSource;
use crate::zspage::{DAMAGED, Zspage};
use crate::zspage_id::ZspageId;

/// Zspages a step looks at to find one without pins, before it leaves the
/// class. Readers pin for the length of a decompression, a batch each.
pub(super) const LOOKED_AT: usize = 64;

/// Steps in which what is left of a class, in one or few zspages, may go to larger
/// classes.
const LODGINGS: u8 = 16;

impl<G: Grouping> ZsPool<G> {
    /// Compacts every class in one go and returns the pages freed: 0 when a
    /// compaction is under way already. Takes as long as it takes; who shares
    /// the pool goes by [`Self::begin_compaction`].
    pub fn compact(&mut self, memory: &impl Memory, frames: &mut impl FrameSource) -> usize {
        let Some(run) = self.begin_compaction() else {
            return 0;
        };
        let mut pages = 0;
        while let Some(step) = self.compaction_step(&run, memory, frames) {
            pages += step.pages_freed;
        }
        pages
    }

    /// Begins a compaction of every class, to be driven by
    /// [`Self::compaction_step`]; `None` while one is under way.
    pub fn begin_compaction(&mut self) -> Option<Compaction> {
        self.begin_compaction_of(0..self.classes().classes().len())
    }

    /// Begins a compaction of the classes at these positions of the table;
    /// `None` while one is under way.
    ///
    /// # Panics
    /// When the table has no such positions.
    pub fn begin_compaction_of(&mut self, classes: core::ops::Range<usize>) -> Option<Compaction> {
        assert!(classes.end <= self.lists.len(), "no class at this position");
        if self.running.is_some() {
            return None;
        }
        self.tickets += 1;
        let mut running = Running {
            ticket: self.tickets,
            class: classes.end,
            first: classes.start,
            steps: 0,
            lodgings: 0,
            kept: None,
        };
        // An empty range has nothing to visit; the first step ends it.
        self.next_class(&mut running);
        self.running = Some(running);
        Some(Compaction {
            ticket: self.tickets,
        })
    }

    /// Does the next step; `None` when nothing is left to do, which ends the
    /// compaction, or when it has ended before.
    ///
    /// `frames` is given one zspage at most.
    pub fn compaction_step(
        &mut self,
        run: &Compaction,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    ) -> Option<CompactionStep> {
        let mut running = self.running.take_if(|r| r.ticket == run.ticket)?;
        loop {
            let pair = if running.steps == 0 || self.freeable(running.class) == 0 {
                None
            } else {
                self.choose(&running)
            };
            if let Some((source, destination)) = pair {
                running.steps -= 1;
                running.kept = Some(destination);
                // So that `release` finds it.
                self.running = Some(running);
                return Some(self.step(source, destination, memory, frames));
            }
            if running.lodgings != 0 {
                running.lodgings -= 1;
                if let Some((source, host)) = self.choose_lodging(running.class) {
                    self.running = Some(running);
                    let step = self.lodge_objects(source, host, memory, frames);
                    if step.objs_moved != 0 {
                        return Some(step);
                    }
                    running = self.running.take()?;
                }
            }
            if !self.next_class(&mut running) {
                return None;
            }
        }
    }

    /// Ends a compaction before it is done.
    pub fn end_compaction(&mut self, run: Compaction) {
        self.running.take_if(|r| r.ticket == run.ticket);
    }

    /// Ends whatever compaction is under way, whoever drives it: for the child
    /// of a fork, in which that thread does not exist.
    pub fn abandon_compaction(&mut self) {
        self.running = None;
    }

    /// Whether a compaction is under way.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.running.is_some()
    }

    /// Pages that compaction of every class would free: the sum of
    /// [`can_compact`]. Takes time in proportion to the classes, not to the
    /// zspages.
    #[must_use]
    pub fn freeable_pages(&self) -> usize {
        (0..self.lists.len())
            .map(|class| self.freeable(class))
            .sum()
    }

    /// Pages that compaction of one class would free: [`can_compact`] of its
    /// zspages, without the damaged, whose free slots nobody may use.
    pub(crate) fn freeable(&self, position: usize) -> usize {
        let (allocated, used) = self.slots(position);
        can_compact(&self.table.classes()[position], allocated, used)
    }

    /// Slots of one class that may be used, and those of them in use.
    fn slots(&self, position: usize) -> (usize, usize) {
        let (class, lists) = (&self.table.classes()[position], &self.lists[position]);
        let allocated = (lists.zspages() - lists.damaged()) * class.objs;
        // None, unless the arena was scribbled on.
        let damaged = lists.iter(&self.zspages, lists.list_of(DAMAGED));
        let lost: usize = damaged.map(|(_, zspage)| usize::from(zspage.inuse)).sum();
        (allocated, self.used[position] - lost)
    }

    /// Slots of one class that are free and may be used.
    pub(super) fn free_slots(&self, position: usize) -> usize {
        let (allocated, used) = self.slots(position);
        allocated.saturating_sub(used)
    }

    /// Goes on to the next smaller class; `false` after the last.
    fn next_class(&self, running: &mut Running) -> bool {
        running.kept = None;
        running.steps = 0;
        if running.class <= running.first {
            return false;
        }
        running.class -= 1;
        running.steps = self.lists[running.class].partial();
        running.lodgings = LODGINGS;
        true
    }

    /// The source and the destination of the next step.
    fn choose(&self, running: &Running) -> Option<(ZspageId, ZspageId)> {
        let lists = &self.lists[running.class];
        let full = objs(&self.table.classes()[running.class]);
        let kept = running.kept.filter(|id| {
            let zspage = self.zspages.get(*id);
            zspage.group != DAMAGED && zspage.inuse < full
        });
        let fullest = || {
            let group = lists.iter(&self.zspages, lists.fullest_list()?);
            // Of equals the first, as everywhere.
            let fullest = group
                .take(G::COMPARED)
                .min_by_key(|(_, zspage)| Reverse(zspage.inuse));
            fullest.map(|(id, _)| id)
        };
        let destination = kept.or_else(fullest)?;
        let source = self.source(running.class, destination)?;
        // Objects freed since it was chosen may have made it the emptier one.
        if self.zspages.get(destination).group < self.zspages.get(source).group {
            let destination = fullest()?;
            return Some((self.source(running.class, destination)?, destination));
        }
        Some((source, destination))
    }

    /// The emptiest zspage of a class without pins, and not the destination: of
    /// its group, the emptiest of those compared.
    fn source(&self, position: usize, destination: ZspageId) -> Option<ZspageId> {
        let mut fit = self.lists[position]
            .emptiest_first(&self.zspages)
            .take(LOOKED_AT)
            .filter(|(id, zspage)| *id != destination && zspage.pinned == 0);
        let first = fit.next()?;
        let group = first.1.group;
        let others = fit
            .take(G::COMPARED - 1)
            .take_while(|(_, zspage)| zspage.group == group);
        let all = core::iter::once(first).chain(others);
        all.min_by_key(|(_, zspage)| zspage.inuse).map(|(id, _)| id)
    }

    /// Moves objects from `source` to `destination`, both on their lists, and
    /// sorts them anew.
    fn step(
        &mut self,
        source: ZspageId,
        destination: ZspageId,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    ) -> CompactionStep {
        let position = usize::from(self.zspages.get(source).class);
        let class = self.table.classes()[position];
        let (objs_moved, stop) = self.move_objects(source, destination, memory);
        match stop {
            Stop::DestinationDamaged => self.set_aside(destination),
            _ => self.regroup(destination, &class),
        }
        let mut pages_freed = 0;
        match stop {
            Stop::SourceEmpty => {
                self.lists[position].remove(&mut self.zspages, source);
                self.release_compacted(source, frames);
                pages_freed = class.pages;
            }
            Stop::SourceDamaged => self.set_aside(source),
            _ => self.regroup(source, &class),
        }
        CompactionStep {
            objs_moved,
            pages_freed,
        }
    }

    /// Gives back a zspage that compaction has emptied, on no list, and counts
    /// that.
    pub(crate) fn release_compacted(&mut self, id: ZspageId, frames: &mut impl FrameSource) {
        self.pages_compacted += self.class_of(self.zspages.get(id)).pages as u64;
        self.release(id, frames);
    }

    /// Moves objects from the first slot of `source` on, until one of the two
    /// is done; how many, and why it stopped. Neither is sorted anew.
    pub(crate) fn move_objects(
        &mut self,
        source: ZspageId,
        destination: ZspageId,
        memory: &impl Memory,
    ) -> (usize, Stop) {
        let class = *self.class_of(self.zspages.get(source));
        let mut moved = 0;
        let stop = self.move_each(source, destination, &class, memory, &mut moved);
        self.objs_moved += moved as u64;
        (moved, stop)
    }

    fn move_each(
        &mut self,
        source: ZspageId,
        destination: ZspageId,
        class: &SizeClass,
        memory: &impl Memory,
        moved: &mut usize,
    ) -> Stop {
        let Zspage { base, fresh, .. } = *self.zspages.get(source);
        for index in 0..fresh {
            if self.zspages.get(source).inuse == 0 {
                break;
            }
            let from = usize::from(index) * class.size;
            // A free slot, or not what we wrote.
            let Header::Owned(handle) = Header::read(memory, base, from) else {
                continue;
            };
            let here = self.handles.get(handle);
            let here = here.filter(|place| place.zspage == source && place.index == index);
            let Some(here) = here else {
                continue;
            };
            let to = self.zspages.get_mut(destination);
            if to.inuse >= objs(class) {
                return Stop::DestinationFull;
            }
            let Some(slot) = take_slot(to, class, memory) else {
                return Stop::DestinationDamaged;
            };
            to.inuse += 1;
            let offset = usize::from(slot) * class.size;
            memory.with(base, from, class.size, |object| {
                memory.with_mut(to.base, offset, class.size, |place| {
                    place.copy_from_slice(object);
                });
            });
            self.handles
                .set_place(handle, destination, slot, here.distance);
            let zspage = self.zspages.get_mut(source);
            Header::Free(zspage.free).write(memory, base, from);
            zspage.free = index;
            zspage.inuse -= 1;
            *moved += 1;
        }
        match self.zspages.get(source).inuse {
            0 => Stop::SourceEmpty,
            _ => Stop::SourceDamaged,
        }
    }
}
