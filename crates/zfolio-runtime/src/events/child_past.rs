//! Which events a child of a fork has in its past.
//!
//! Other threads of the parent may unmap, remap or discard at the moment of
//! the fork. The child's mappings tell whether that came before the fork; its
//! image of our words does not, since an event is read after the fact. And
//! where the FORK event stands in the queue tells it roughly only: whoever
//! waited for the fork to let go of the address space often queues first.
//!
//! So of the events of the time, which are parked in the order they came, the
//! child's past is a *beginning*, and how long is read off the mappings: after
//! every number of events it is known what would be registered at the ends of
//! the ranges concerned, and that is compared with what is registered in the
//! child. The best match counts; among equals, the one nearest to the FORK
//! event. Addresses where the parent's own mappings now are not what all the
//! events lead to are left out: something has grown there (an mremap that
//! grows in place sends no event).
//!
//! A discard leaves no trace in the mappings, so it follows its neighbours.
//! Read before an event that the child has, it began before the fork; read
//! after one that the child has not, it ended after the fork. In between
//! either order is a right one.

use crate::events::event::Event;
use crate::events::order::is_joined;
use crate::events::ranges::Ranges;
use alloc::vec::Vec;
use zfolio_mm::PAGE_SIZE;

/// An address by which states are told apart.
struct Probe {
    address: usize,
    /// Registered in the child.
    childs: bool,
}

/// How many of `events` the child has in its past.
///
/// `mark`: events that were read before the FORK event. `registered`: what was
/// before all of them. `child` and `ours` ask the kernel what is registered
/// there now; `None`: it will not say.
pub(crate) fn past_length(
    events: &[Event],
    mark: usize,
    registered: &Ranges,
    mut child: impl FnMut(usize) -> bool,
    mut ours: impl FnMut(usize) -> Option<bool>,
) -> usize {
    let mut after_all = registered.clone();
    events.iter().for_each(|event| apply(&mut after_all, event));
    let as_told =
        |address: &usize| ours(*address).is_none_or(|now| now == holds(&after_all, *address));
    let probes: Vec<Probe> = events
        .iter()
        .flat_map(ends)
        .filter(as_told)
        .map(|address| Probe {
            address,
            childs: child(address),
        })
        .collect();
    let mut state = registered.clone();
    let mut best = (usize::MAX, usize::MAX, 0);
    for length in 0..=events.len() {
        if length > 0 {
            apply(&mut state, &events[length - 1]);
        }
        if is_joined(events, length) {
            continue; // between the halves of an mremap no fork can be
        }
        let wrong = probes
            .iter()
            .filter(|probe| holds(&state, probe.address) != probe.childs)
            .count();
        best = best.min((wrong, length.abs_diff(mark), length));
    }
    best.2
}

fn holds(ranges: &Ranges, address: usize) -> bool {
    ranges.contains(&(address..address + PAGE_SIZE))
}

/// First and last pages of the ranges that an event maps or unmaps.
fn ends(event: &Event) -> impl Iterator<Item = usize> + use<> {
    let of = |start: usize, end: usize| [start, end.saturating_sub(PAGE_SIZE)];
    let (first, second) = match *event {
        Event::Unmap { start, end } => (Some(of(start, end)), None),
        Event::Remap { from, to, len } => (Some(of(from, from + len)), Some(of(to, to + len))),
        _ => (None, None),
    };
    first.into_iter().chain(second).flatten()
}

fn apply(registered: &mut Ranges, event: &Event) {
    match *event {
        Event::Unmap { start, end } => registered.remove(start..end),
        Event::Remap { to, len, .. } => registered.insert(to..to + len),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::format;

    const SLOTS: usize = 8;

    fn at(slot: usize) -> usize {
        (slot + 1) * 16 * PAGE_SIZE
    }

    fn remap(from: usize, to: usize) -> Event {
        Event::Remap {
            from: at(from),
            to: at(to),
            len: 2 * PAGE_SIZE,
        }
    }

    fn unmap(slot: usize) -> Event {
        Event::Unmap {
            start: at(slot),
            end: at(slot) + 2 * PAGE_SIZE,
        }
    }

    /// An address space of slots that hold something known by a number.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Space([Option<usize>; SLOTS]);

    impl Space {
        fn ranges(&self) -> Ranges {
            let mut ranges = Ranges::default();
            for slot in (0..SLOTS).filter(|slot| self.0[*slot].is_some()) {
                ranges.insert(at(slot)..at(slot) + 2 * PAGE_SIZE);
            }
            ranges
        }

        fn holds(&self, address: usize) -> bool {
            self.0[address / (16 * PAGE_SIZE) - 1].is_some()
        }
    }

    #[test]
    fn what_the_child_lacks_happened() {
        let space = |slots: &[usize]| {
            let mut space = Space::default();
            slots.iter().for_each(|slot| space.0[*slot] = Some(*slot));
            space
        };
        let events = [unmap(0), remap(1, 2), unmap(1), unmap(3)];
        let before = space(&[0, 1, 3]);
        let [gone, moved, all] = [space(&[1, 3]), space(&[2, 3]), space(&[2])];
        let states = [(0, before.clone()), (1, gone), (3, moved), (4, all.clone())];
        for (length, child) in states {
            for mark in 0..=events.len() {
                let found = past_length(
                    &events,
                    mark,
                    &before.ranges(),
                    |address| child.holds(address),
                    |address| Some(all.holds(address)),
                );
                assert_eq!(found, length, "mark {mark}");
            }
        }
    }

    #[test]
    fn growth_in_place_is_no_evidence() {
        // Unmapped, then grown over before the fork.
        let mut before = Space::default();
        before.0[0] = Some(0);
        let found = past_length(&[unmap(0)], 1, &before.ranges(), |_| true, |_| Some(true));
        assert_eq!(found, 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// Random remaps and unmaps, a fork after any number of them, its event
        /// read some events later: the past gives what the child had.
        #[test]
        fn the_past_leads_to_the_child(
            ops in prop::collection::vec((0..SLOTS, 0..SLOTS + 2), 1..12),
            fork in 0..12_usize,
            late in 0..3_usize,
        ) {
            let mut space = Space::default();
            for slot in 0..SLOTS / 2 {
                space.0[slot] = Some(slot);
            }
            let before = space.clone();
            let mut events = Vec::new();
            // With the events that lead to each: an mremap is two.
            let mut states = std::vec![(0, space.clone())];
            for (from, to) in ops {
                if space.0[from].is_none() || from == to {
                    continue;
                }
                if to < SLOTS && space.0[to].is_none() {
                    space.0[to] = space.0[from].take();
                    events.extend([remap(from, to), unmap(from)]);
                } else {
                    space.0[from] = None;
                    events.push(unmap(from));
                }
                states.push((events.len(), space.clone()));
            }
            let (fork, child) = &states[fork.min(states.len() - 1)];
            let mark = (fork + late).min(events.len());
            let length = past_length(
                &events,
                mark,
                &before.ranges(),
                |address| child.holds(address),
                |address| Some(space.holds(address)),
            );
            let occupied = |space: &Space| space.0.map(|held| held.is_some());
            let found = states.iter().find(|(events, _)| *events == length);
            let found = found.map(|(_, space)| occupied(space));
            prop_assert_eq!(found, Some(occupied(child)), "{:?}", events);
            // States that look alike may differ (two exchanged their places):
            // then the FORK event's place decides.
            let alike = states.iter().filter(|(_, space)| occupied(space) == occupied(child));
            let nearest = alike.map(|(events, _)| events.abs_diff(mark)).min();
            prop_assert_eq!(Some(length.abs_diff(mark)), nearest, "{}", format!("{states:?}"));
        }
    }
}
