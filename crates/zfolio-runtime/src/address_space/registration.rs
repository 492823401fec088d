//! What is registered, as we keep it and as the kernel has it.
//!
//! Our record follows events. A call that unmaps without one (`shmat` with `SHM_REMAP`)
//! would make it wrong: pages would be moved out of a mapping whose faults come to nobody, or
//! what was kept of an old mapping would be brought into a new one. So the kernel is asked
//! wherever the record is relied on ([`Space::holds`]): before pages of a mapping leave,
//! and before anything is registered at addresses that the record has already. What it does
//! not have any more is dropped, with all that was kept for it.

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::address_space::mappings::Vmas;
use crate::kernel::File;
use crate::page::{addresses_of, pages_within};
use crate::segment::Counter;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::procfs::for_each_mapping;
use zfolio_sys::procmap::private_mapping_at;
use zfolio_sys::syscall::Errno;

impl Space {
    /// Whether the mapping at `address`, which the record has as registered, is so.
    ///
    /// Registered and unregistered mappings never merge: the answer is for all of the
    /// mapping. If it is not registered, all of it is forgotten.
    ///
    /// # Errors
    /// `AGAIN`: an event is in flight, and it cannot be told now.
    pub(crate) fn holds(&self, core: &mut Core, address: usize) -> Result<bool, Errno> {
        // (Regions have no events, and nobody else maps there.)
        if !self.scope.has_events() {
            return Ok(true);
        }
        if self.fds.program().is_registered(address)? {
            return Ok(true);
        }
        // First the mapping, then once more whether it is registered: the mapping is then
        // one that no event changed meanwhile.
        let maps = self.fds.maps();
        let mapping = mapping_at(maps, address).unwrap_or(address..address + PAGE_SIZE);
        if self.fds.program().is_registered(address)? {
            return Ok(true);
        }
        self.forget_lost(core, mapping);
        Ok(false)
    }

    /// Forgets those parts of a range to be registered that the record has and the kernel
    /// has not; false if that cannot be told now.
    fn forget_what_left(&self, core: &mut Core, wide: &Range<usize>) -> bool {
        if !core.pages.registered.overlaps(wide) {
            return true;
        }
        let maps = self.fds.maps();
        let recorded = core.pages.registered.clone();
        for part in recorded.iter().filter(|part| overlap(part, wide)) {
            let (mut at, end) = (part.start.max(wide.start), part.end.min(wide.end));
            while at < end {
                // (Nothing there, or nothing private: one page further.)
                let until = mapping_at(maps, at).map_or(at + PAGE_SIZE, |found| found.end);
                let until = until.min(end);
                match self.fds.program().is_registered(at) {
                    Ok(true) => {}
                    Ok(false) => self.forget_lost(core, at..until),
                    Err(_) => return false,
                }
                at = until;
            }
        }
        true
    }

    /// What is not registered any more though no event said so: nothing of it is kept.
    fn forget_lost(&self, core: &mut Core, range: Range<usize>) {
        let pages = pages_within(range.start, range.end);
        core.pages.registered.remove(addresses_of(&pages));
        self.drop_contents(core, pages.clone());
        core.pages.extents.prune(pages);
        self.count(Counter::RegistrationsLost, 1);
    }

    /// Registers a range that the list of mappings gave, or what is left of
    /// it; false if not all of it is registered now.
    ///
    /// The list may be old: parts may have been unmapped, and registering says
    /// nothing of gaps. A gap believed registered would be moved out of after
    /// somebody maps it anew, and never faulted back. So only what is, after
    /// the call, one mapping with the start of the range, and registered, is recorded:
    /// registered and unregistered mappings never merge.
    ///
    /// Nor may it cut a mapping in two, as an old list's borders would: mremap of
    /// such a mapping is refused. What crosses a border is registered whole, but for what
    /// is ours: the kernel makes one mapping of a stack of ours and the program's memory
    /// beside it, and nobody would serve the faults of our own threads. What the program
    /// maps between our question and the call, which waits for a fork's copying of the
    /// address space, may be cut all the same; it is made whole at once.
    pub(crate) fn register(&self, core: &mut Core, vmas: &Vmas, range: &Range<usize>) -> bool {
        if core.pages.registered.contains(range) {
            return self.holds(core, range.start) == Ok(true);
        }
        // Regions are registered as they are made: what is not, is gone, and
        // somebody else's by now.
        if !self.scope.has_events() {
            return false;
        }
        let maps = self.fds.maps();
        let (Some(first), Some(last)) = (
            mapping_at(maps, range.start),
            mapping_at(maps, range.end - PAGE_SIZE),
        ) else {
            return false; // the list is old
        };
        let Some(wide) = vmas.around(range, first.start..last.end) else {
            return false;
        };
        let before = beside(maps, &wide);
        // (Quiet: what left these addresses before is known to have left.)
        if !self.is_quiet() || !self.forget_what_left(core, &wide) {
            return false;
        }
        if let Err(errno) = self.fds.program().register(wide.start, wide.len()) {
            self.unregistered.store(errno.0, Ordering::Relaxed);
            return false;
        }
        self.make_whole(core, maps, vmas, (&wide, &before));
        let known = self.note_registered(core, maps, &wide, range.start);
        known.is_some_and(|known| known.start <= range.start && range.end <= known.end)
    }

    /// Registers what has come to lie beside `wide` since `before`, which the call may have
    /// cut off: mappings that are registered alike become one again. (Not what lay there
    /// before: the kernel had its reason to keep that apart, and it may be a library's.)
    fn make_whole(
        &self,
        core: &mut Core,
        maps: File,
        vmas: &Vmas,
        (wide, before): (&Range<usize>, &Beside),
    ) {
        for (now, before) in beside(maps, wide).into_iter().zip(before) {
            let Some(cut) = now.filter(|now| Some(now) != before.as_ref()) else {
                continue;
            };
            let next = if cut.end == wide.start {
                cut.end - PAGE_SIZE..cut.end
            } else if cut.start == wide.end {
                cut.start..cut.start + PAGE_SIZE
            } else {
                continue; // one with `wide`
            };
            let Some(part) = vmas.around(&next, cut) else {
                continue; // ours
            };
            let quiet = self.is_quiet() && self.forget_what_left(core, &part);
            if self.fds.program().register(part.start, part.len()).is_ok() && quiet {
                self.note_registered(core, maps, &part, next.start);
            }
        }
    }

    /// Notes as registered what of `asked` is one mapping with `address` after the call.
    ///
    /// First the mapping is asked for, then whether it is registered: what was unmapped
    /// before the call, and mapped anew since, is not. A mapping that is not registered
    /// becomes so by us only, or by an mremap, which is an event in flight (no answer);
    /// what is may change by events only, and those are applied before a page moves.
    fn note_registered(
        &self,
        core: &mut Core,
        maps: File,
        asked: &Range<usize>,
        address: usize,
    ) -> Option<Range<usize>> {
        let mapping = mapping_at(maps, address)?;
        if self.fds.program().is_registered(address) != Ok(true) {
            return None;
        }
        let known = asked.start.max(mapping.start)..asked.end.min(mapping.end);
        core.pages.registered.insert(known.clone());
        Some(known)
    }

    /// With what a range was last refused; 0: none was.
    pub(crate) fn last_unregistered(&self) -> Errno {
        Errno(self.unregistered.load(Ordering::Relaxed))
    }

    /// Whether the face wants any of a range to stay where it is.
    pub(crate) fn must_stay(&self, range: &Range<usize>) -> bool {
        // (Where what is given to a call begins at address 0 the kernel does not bring what is absent: EFAULT.)
        range.start == 0 || (self.rules.left_alone)(range)
    }
}

/// The mappings right below and right above a range, if there are.
type Beside = [Option<Range<usize>>; 2];

/// See [`Beside`]; none before Linux 6.11, where each would be a reading of the whole list.
fn beside(maps: File, range: &Range<usize>) -> Beside {
    [range.start.wrapping_sub(PAGE_SIZE), range.end]
        .map(|address| private_mapping_at(maps, address).ok())
}

/// The private anonymous mapping at `address`; before Linux 6.11 by reading
/// the whole list.
fn mapping_at(maps: File, address: usize) -> Option<Range<usize>> {
    match private_mapping_at(maps, address) {
        Ok(mapping) => return Some(mapping),
        Err(Errno::NOTTY) => {}
        Err(_) => return None,
    }
    let mut found = None;
    let mut buffer = alloc::vec![0; 16 << 10];
    for_each_mapping(maps, &mut buffer, |mapping| {
        let range = mapping.start..mapping.end;
        if range.contains(&address) && mapping.perms == b"rw-p" && mapping.inode == 0 {
            found = Some(range);
        }
    })
    .ok()?;
    found
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}
