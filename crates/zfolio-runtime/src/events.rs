//! What the program did to its address space: remove, unmap, remap, fork.
//!
//! An event is applied under the core lock as it is read. Two kinds wait
//! (*parked*, and everything behind them waits too): a remap, until no event
//! is in flight, when it is known what came before it (`order`), and until no
//! operation is under way, whose pages would be published at the old address;
//! and everything during a fork, when nothing but single words may change
//! (`parked`). Parked events are applied by whoever finds that they may be (`settle`).

use crate::control::Counter;
use crate::discard::BATCH;
use crate::extent::Vpn;
use crate::manager::{Core, Fault, Manager, address_of, pages_within};
use crate::order::Truth;
use crate::regionengine::Access;
use crate::standby::Run;
use crate::vmas::Vmas;
use crate::word::Place;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::procfs::{File, for_each_mapping, private_mapping_at};
use zfolio_sys::syscall::Errno;
use zfolio_sys::uffd::{Message, RawMessage, Uffd};

/// Asks the kernel.
struct Now<'a> {
    manager: &'a Manager,
    /// An event began while it was asked.
    put_off: bool,
}

impl Truth for Now<'_> {
    fn was_put_off(&self) -> bool {
        self.put_off
    }

    fn is_registered(&mut self, address: usize) -> Option<bool> {
        let answer = self.manager.fds.program().is_registered(address);
        self.put_off |= answer == Err(Errno::AGAIN);
        answer.ok()
    }

    fn begins_at(&mut self, address: usize) -> Option<bool> {
        let maps = File::from_fd(self.manager.maps.load(Ordering::Relaxed));
        let mapping = private_mapping_at(maps, address).ok()?;
        Some(mapping.start == address && self.is_registered(address)?)
    }
}

impl Manager {
    /// Takes one message from the descriptor.
    pub(crate) fn take_message(&self, core: &mut Core, message: &RawMessage, now: u64) {
        let Some(message) = message.decode() else {
            self.fail(format_args!(
                "an event of unknown kind came from the kernel: {message:?}"
            ));
        };
        match message {
            Message::Fault {
                address,
                write,
                thread,
            } => {
                let vpn = address >> PAGE_SHIFT;
                core.pending.push_back(Fault {
                    vpn,
                    access: if write { Access::Write } else { Access::Read },
                    thread,
                    read_ns: now,
                    waits: 0,
                });
            }
            Message::Fork { fd } => self.note_fork(core, Uffd::from_fd(fd)),
            Message::Remap { .. } => core.parked.push(message),
            _ if !core.is_open() => core.parked.push(message),
            _ => self.apply(core, message),
        }
    }

    /// Whether no event is in flight, read or not.
    pub(crate) fn is_quiet(&self) -> bool {
        let elsewhere = self.address(zfolio_mm::Pfn(0));
        self.fds.program().is_quiet(elsewhere)
    }

    /// Applies what was parked, if nothing stands in the way any more.
    pub(crate) fn settle(&self, core: &mut Core) {
        let waits = |core: &Core| !core.parked.is_empty() && !core.fork_freeze;
        if !waits(core) || self.inflight.load(Ordering::Acquire) > 0 || !self.order_parked(core) {
            return;
        }
        while let Some(event) = core.parked.pop() {
            self.apply(core, event);
        }
    }

    /// Whether new operations may start, now that what can be applied is.
    pub(crate) fn opens(&self, core: &mut Core) -> bool {
        self.settle(core);
        core.is_open()
    }

    /// Puts parked events in order; false if that cannot be told yet. Does not
    /// use the heap.
    pub(crate) fn order_parked(&self, core: &mut Core) -> bool {
        if !core.parked.needs_order() {
            return true;
        }
        if !self.is_quiet() {
            return false;
        }
        let now = Now {
            manager: self,
            put_off: false,
        };
        core.parked.put_in_order(&core.registered, now)
    }

    fn apply(&self, core: &mut Core, event: Message) {
        match event {
            Message::Remove { start, end } => self.removed(core, start, end),
            Message::Unmap { start, end } => self.unmapped(core, start, end),
            Message::Remap { from, to, len } => self.remapped(core, from, to, len),
            Message::Fault { .. } | Message::Fork { .. } => {}
        }
    }

    /// mremap: words follow their pages. No operation is under way.
    fn remapped(&self, core: &mut Core, from: usize, to: usize, len: usize) {
        let source = pages_within(from, from + len);
        let target = pages_within(to, to + len);
        self.drop_contents(core, target.clone());
        let mut batch = [(0, Place::Present); BATCH];
        let mut left = source.clone();
        let mut run: Option<Run> = None;
        loop {
            let batch = core.extents.first_tracked(&mut left, &mut batch);
            if batch.is_empty() {
                break;
            }
            for (vpn, place) in batch.iter().copied() {
                core.extents.set(vpn, Place::Present);
                let vpn = vpn - source.start + target.start;
                core.extents.set(vpn, place);
                if let Place::Standby(at) = place {
                    match &mut run {
                        Some(run)
                            if run.vpn + run.pages == vpn && run.at.offset(run.pages) == at =>
                        {
                            run.pages += 1;
                        }
                        _ => {
                            core.standby.push_all(run.take());
                            run = Some(Run { vpn, at, pages: 1 });
                        }
                    }
                }
            }
        }
        core.standby.push_all(run);
        core.extents.prune(source);
        // (The source stays registered until its UNMAP, if there is one.)
        core.registered.insert(to..to + len);
        self.count(Counter::Remaps, 1);
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
        if core.registered.contains(range) {
            return true;
        }
        // Regions are registered as they are made: what is not, is gone, and
        // somebody else's by now.
        if !self.scope.is_process() {
            return false;
        }
        let maps = File::from_fd(self.maps.load(Ordering::Relaxed));
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
        if !self.is_quiet() {
            return false;
        }
        if let Err(errno) = self.fds.program().register(wide.start, wide.len()) {
            self.refused.store(errno.0, Ordering::Relaxed);
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
            let quiet = self.is_quiet();
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
        core.registered.insert(known.clone());
        Some(known)
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

/// Addresses of a range of pages.
pub(crate) const fn addresses_of(pages: &Range<Vpn>) -> Range<usize> {
    address_of(pages.start)..address_of(pages.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn ranges_are_never_rounded_outwards() {
        assert_eq!(pages_within(PAGE + 1, 3 * PAGE - 1), 2..2);
        assert_eq!(pages_within(PAGE, 3 * PAGE + 5), 1..3);
    }
}
