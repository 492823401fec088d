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
//! event. A mapping that grows in place (mremap) sends no event: addresses where
//! the parent's own mappings now are not what all the events lead to are left out,
//! and one that was unmapped, though nothing was known of it, says nothing of the time before.
//!
//! The beginning is no longer than what had been read at the first moment after the
//! fork at which no event was in flight. The thread that forks by libc goes on only
//! after such a moment (`fork_handshake.rs`), so nothing that it does next is ever
//! in doubt; what others did until then happened while fork was being called.
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
    /// Says something of lengths from here on.
    known_from: usize,
}

/// How many of `events` the child has in its past.
///
/// `most`: so many at most; `mark`: events that were read before the FORK event.
/// `registered`: what was before all of them, as far as it is known. `child` and `ours`
/// ask the kernel what is registered there now; `None`: it will not say.
pub(crate) fn past_length(
    events: &[Event],
    most: usize,
    mark: usize,
    registered: &Ranges,
    mut child: impl FnMut(usize) -> bool,
    mut ours: impl FnMut(usize) -> Option<bool>,
) -> usize {
    let most = most.min(events.len());
    let mut after_all = registered.clone();
    events.iter().for_each(|event| apply(&mut after_all, event));
    let as_told =
        |address: &usize| ours(*address).is_none_or(|now| now == holds(&after_all, *address));
    // Each address once, however many events are of it.
    let mut addresses: Vec<usize> = events[..most].iter().flat_map(ends).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let probes: Vec<Probe> = addresses
        .into_iter()
        .filter(as_told)
        .map(|address| Probe {
            address,
            childs: child(address),
            known_from: known_from(events, registered, address),
        })
        .collect();
    let mut state = registered.clone();
    let mut best = (usize::MAX, usize::MAX, 0);
    for length in 0..=most {
        if length > 0 {
            apply(&mut state, &events[length - 1]);
        }
        if is_joined(events, length) {
            continue; // between the halves of an mremap no fork can be
        }
        let wrong = probes
            .iter()
            .filter(|probe| length >= probe.known_from)
            .filter(|probe| holds(&state, probe.address) != probe.childs)
            .count();
        best = best.min((wrong, length.abs_diff(mark), length));
    }
    best.2
}

/// From which length on it is known whether `address` is registered. Where nothing was known of it
/// and it was unmapped all the same, it had grown there, before the fork or after it.
fn known_from(events: &[Event], registered: &Ranges, address: usize) -> usize {
    if holds(registered, address) {
        return 0;
    }
    let touching = events.iter().enumerate().find_map(|(index, event)| {
        let is_within = |start: usize, end: usize| (start..end).contains(&address);
        match *event {
            Event::Unmap { start, end } => is_within(start, end).then_some(index + 1),
            // (Nothing is moved to where something is.)
            Event::Remap { to, len, .. } => is_within(to, to + len).then_some(0),
            _ => None,
        }
    });
    touching.unwrap_or(usize::MAX)
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
                    events.len(),
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
        let found = past_length(
            &[unmap(0)],
            1,
            1,
            &before.ranges(),
            |_| true,
            |_| Some(true),
        );
        assert_eq!(found, 1);
    }

    #[test]
    fn what_grew_and_was_moved_was_there() {
        // Slot 0 had grown, unknown to us, when the fork was made; then slot 3 was discarded, and
        // slot 0 moved away and back. To take that for the child's past would lose slot 3 there.
        let before = Space([None, None, None, Some(3), None, None, None, None]);
        let mut childs = before.clone();
        childs.0[0] = Some(0);
        let events = [
            Event::Remove {
                start: at(3),
                end: at(4),
            },
            remap(0, 6),
            unmap(0),
            remap(6, 0),
            unmap(6),
        ];
        let now = Space([Some(0), None, None, Some(3), None, None, None, None]);
        for most in 0..=events.len() {
            let found = past_length(
                &events,
                most,
                0,
                &before.ranges(),
                |address| childs.holds(address),
                |address| Some(now.holds(address)),
            );
            assert_eq!(found, 0, "of {most}");
        }
    }

    #[test]
    fn what_grew_after_the_fork_is_no_evidence_of_before() {
        // Slot 3 was discarded; slot 0 was moved to 6, grew there over 7, shrank, and came back.
        // The child has none of that, nor an unmapping of slot 4 that came first.
        let before = Space([Some(0), None, None, Some(3), Some(4), None, None, None]);
        let events = [
            unmap(4),
            Event::Remove {
                start: at(3),
                end: at(4),
            },
            remap(0, 6),
            unmap(0),
            unmap(7),
            remap(6, 0),
            unmap(6),
        ];
        let now = Space([Some(0), None, None, Some(3), None, None, None, None]);
        let found = past_length(
            &events,
            events.len(),
            3,
            &before.ranges(),
            |address| before.holds(address),
            |address| Some(now.holds(address)),
        );
        assert_eq!(found, 0);
    }

    #[test]
    fn many_events_of_one_address_are_no_more_than_one() {
        // Slot 0 had grown, and was shrunk and grown again, which no event tells of; slots 3
        // and 4 were unmapped after the fork.
        let before = Space([None, None, None, Some(3), Some(4), None, None, None]);
        let mut childs = before.clone();
        childs.0[0] = Some(0);
        let mut events = std::vec![unmap(3)];
        (0..4)
            .for_each(|_| events.extend([remap(0, 6), unmap(0), unmap(0), remap(6, 0), unmap(6)]));
        events.extend([unmap(4), unmap(0)]);
        let found = past_length(
            &events,
            events.len(),
            0,
            &before.ranges(),
            |address| childs.holds(address),
            |_| Some(false),
        );
        assert_eq!(found, 0);
    }

    #[test]
    fn what_was_read_after_a_quiet_moment_came_after_the_fork() {
        // Only what the child has speaks for it: that it does (MADV_DONTFORK), falsely.
        let mut before = Space::default();
        (0..4).for_each(|slot| before.0[slot] = Some(slot));
        let events = [unmap(1), unmap(2), unmap(3)];
        let found = |most| {
            past_length(
                &events,
                most,
                1,
                &before.ranges(),
                |address| {
                    Space([Some(0), None, Some(2), None, None, None, None, None]).holds(address)
                },
                |address| Some(Space::default().holds(address) || address < at(1)),
            )
        };
        assert_eq!(found(1), 1);
        assert_eq!(found(0), 0);
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
                events.len(),
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
