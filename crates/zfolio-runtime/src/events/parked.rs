//! Events that wait (*parked*), and where they leave a page meanwhile.

use crate::events::event::Event;
use crate::events::order::{Truth, put_in_order};
use crate::events::ranges::Ranges;
use crate::events::resolve::{Resolved, resolve};
use crate::page::Vpn;
use alloc::collections::VecDeque;

/// Events for which there is room without the heap.
const PARKED: usize = 1 << 16;

/// Events read and not applied yet, FORK events among them to mark their place.
pub(crate) struct ParkedEvents {
    events: VecDeque<Event>,
    /// The first so many are in the order in which they happened.
    in_order: usize,
    /// How often the order of the others was put off.
    put_off: u32,
}

impl ParkedEvents {
    pub(crate) fn new() -> Self {
        Self {
            events: VecDeque::with_capacity(PARKED),
            in_order: 0,
            put_off: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn has_room(&self, messages: usize) -> bool {
        self.events.len() + messages <= PARKED
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Whether the events may not be applied as they are: there are remaps
    /// among those that came last.
    pub(crate) fn needs_order(&mut self) -> bool {
        let last = self.events.range(self.in_order..);
        let needed = last.into_iter().any(|e| matches!(e, Event::Remap { .. }));
        if !needed {
            self.in_order = self.events.len();
        }
        needed
    }

    /// How often the order was put off, because the kernel would not answer.
    pub(crate) fn put_off(&self) -> u32 {
        self.put_off
    }

    /// What is in order.
    pub(crate) fn ordered(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.range(..self.in_order)
    }

    /// Puts all in order, at a moment when no event was in flight; false if the
    /// kernel would not answer what has to be asked.
    pub(crate) fn put_in_order(&mut self, registered: &Ranges, truth: impl Truth) -> bool {
        let done = put_in_order(&mut self.events, self.in_order, registered, truth);
        if done {
            self.in_order = self.events.len();
        }
        self.put_off = if done { 0 } else { self.put_off + 1 };
        done
    }

    /// Replaces what is parked by events in order.
    pub(crate) fn replace(&mut self, events: impl Iterator<Item = Event>) {
        self.events.clear();
        self.events.extend(events);
        self.in_order = self.events.len();
    }

    /// The next to apply.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.in_order = self.in_order.saturating_sub(1);
        self.events.pop_front()
    }

    /// Which word page `vpn` has, as if the parked events were applied.
    pub(crate) fn resolve(&self, vpn: Vpn) -> Resolved {
        resolve(self.events.iter(), vpn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn parked_events_resolve_in_order() {
        let mut parked = ParkedEvents::new();
        parked.push(Event::Remove {
            start: 10 * PAGE,
            end: 12 * PAGE,
        });
        parked.push(Event::Remap {
            from: 8 * PAGE,
            to: 100 * PAGE,
            len: 4 * PAGE,
        });
        assert_eq!(parked.resolve(100), Resolved::At(8));
        assert_eq!(
            parked.resolve(102),
            Resolved::Discarded,
            "removed before it was moved"
        );
        assert_eq!(parked.resolve(9), Resolved::Discarded, "moved away");
        assert_eq!(parked.resolve(50), Resolved::At(50));
        parked.push(Event::Unmap {
            start: 100 * PAGE,
            end: 101 * PAGE,
        });
        assert_eq!(parked.resolve(100), Resolved::Discarded);
        assert_eq!(parked.resolve(101), Resolved::At(9));
    }
}
