//! The order of events, and what it is told by.
//!
//! A thread changes the address space, lets go of it, and reports the change
//! a moment later; whoever is interrupted in between reports after changes
//! that came after its own. So events are read *nearly* in the order in which
//! the changes were made, and between two moments at which none is in flight
//! ("quiet") they are a set that has to be put in order.
//!
//! What orders them is the address space itself:
//!
//! 1. Nothing is moved to where something is. A remap whose target is taken,
//!    by what the events before it say, came after an event read later that
//!    empties it; that one is put before it. If several do, the choice is the
//!    one after which what is registered is what the kernel says. (A mapping
//!    that grows in place reports nothing, so what is taken is not always
//!    known: once no target is taken, a remap is looked at too if by the events
//!    nothing of it is left, while the kernel has a mapping that begins at its
//!    target.) Nor is anything moved from where nothing is: an order by which
//!    it would be is worse than others.
//! 2. An mremap reports twice, REMAP and then UNMAP of its source, and sleeps
//!    in between, while somebody else may take the source. The second is put
//!    right behind the first. (There is none for `MREMAP_DONTUNMAP`.)
//!
//! 3. An unmapping may have been refused after it was told
//!    ([`Event::SaidUnmapped`]): the kernel tells as it looks at the mappings, one after
//!    the other, and may find a sealed one, or too many. It is left out if what is
//!    registered fits better without it.
//!
//! Unmaps and discards need no order among themselves. The rest stays as read:
//! events of one thread are in order, since it sleeps until each is read.
//!
//! Works in place: during a fork nothing here may touch the heap.

use crate::events::event::Event;
use crate::events::ranges::Ranges;
use alloc::collections::VecDeque;
use core::ops::Range;
use zfolio_mm::PAGE_SIZE;

/// What the kernel says of its side now. `None`: it will not.
pub(crate) trait Truth {
    /// Whether an answer was refused that may be had a moment later.
    fn was_put_off(&self) -> bool;
    /// Whether `address` is registered.
    fn is_registered(&mut self, address: usize) -> Option<bool>;
    /// Whether a registered mapping begins at `address`.
    fn begins_at(&mut self, address: usize) -> Option<bool>;
}

/// What the kernel said at one moment, so that it is asked once only.
struct Asked<T> {
    truth: T,
    /// Address, whether it was asked for a beginning, and the answer.
    known: [(usize, bool, Option<bool>); KNOWN],
    /// Answers had, of which the last `KNOWN` are known.
    count: usize,
}

impl<T: Truth> Asked<T> {
    fn new(truth: T) -> Self {
        Self {
            truth,
            known: [(0, false, None); KNOWN],
            count: 0,
        }
    }

    fn ask(
        &mut self,
        address: usize,
        beginning: bool,
        ask: impl Fn(&mut T, usize) -> Option<bool>,
    ) -> Option<bool> {
        let had = &self.known[..self.count.min(KNOWN)];
        let same = |known: &&(usize, bool, _)| (known.0, known.1) == (address, beginning);
        if let Some((_, _, answer)) = had.iter().find(same) {
            return *answer;
        }
        let answer = ask(&mut self.truth, address);
        self.known[self.count % KNOWN] = (address, beginning, answer);
        self.count += 1;
        answer
    }
}

impl<T: Truth> Truth for Asked<T> {
    fn was_put_off(&self) -> bool {
        self.truth.was_put_off()
    }

    fn is_registered(&mut self, address: usize) -> Option<bool> {
        self.ask(address, false, T::is_registered)
    }

    fn begins_at(&mut self, address: usize) -> Option<bool> {
        self.ask(address, true, T::begins_at)
    }
}

/// Answers of the kernel's that are remembered.
const KNOWN: usize = 128;
/// Choices tried at most, and events that one choice is made of.
const TRIES: u32 = 64;
const PULLS: usize = 8;
/// Events above which the kernel is not asked.
const MOST_JUDGED: usize = 512;
/// Pieces of a target looked at separately; beyond, it counts as taken.
const PIECES: u32 = 32;
/// Addresses asked about for what is said to be unmapped.
const SAID: usize = 64;
/// Guesses which of them were refused.
const MOST_TRIED: usize = 256;

/// Puts `events[fixed..]` in order, and leaves out what was refused. `registered`: what was
/// before all of them. False if the kernel would not answer just now: nothing is decided then.
pub(crate) fn put_in_order(
    events: &mut VecDeque<Event>,
    fixed: usize,
    registered: &Ranges,
    truth: impl Truth,
) -> bool {
    join_halves(&mut events.make_contiguous()[fixed..]);
    let slice = events.make_contiguous();
    let mut search = Search::new(registered, truth, fixed);
    search.note_said(slice);
    search.begin(slice);
    if search.said_len > 0 && search.best_wrong > 0 {
        search.leave_out_refused(slice);
    }
    if search.truth.was_put_off() {
        return false;
    }
    for pull in &search.best[..search.best_len] {
        pull.make(slice);
    }
    for event in &mut slice[fixed..] {
        if let Event::SaidUnmapped { start, end } = *event {
            *event = Event::Unmap { start, end };
        }
    }
    if search.said_len > 0 {
        events.retain(|event| !matches!(event, Event::Refused { .. }));
    }
    true
}

/// Whether `second` may be the second half of an mremap.
fn is_half(first: &Event, second: &Event) -> bool {
    matches!(*first, Event::Remap { from, len, .. } if emptied(second) == Some(from..from + len))
}

/// Whether the event before `at` is an mremap that the one there completes.
pub(crate) fn is_joined(events: &[Event], at: usize) -> bool {
    at > 0 && at < events.len() && is_half(&events[at - 1], &events[at])
}

/// Puts each second half right behind the first: the last one that lacks it.
fn join_halves(events: &mut [Event]) {
    for at in 0..events.len() {
        if emptied(&events[at]).is_none() {
            continue;
        }
        let lacks_it = |first: &usize| {
            is_half(&events[*first], &events[at])
                && (first + 1 == at || !is_joined(events, first + 1))
        };
        let first = (0..at).rev().find(lacks_it);
        if let Some(first) = first {
            events[first + 1..=at].rotate_right(1);
        }
    }
}

/// Events that go to the front of others.
#[derive(Clone, Copy, Default)]
struct Pull {
    to: usize,
    from: usize,
    /// One, or an mremap's two.
    len: usize,
}

impl Pull {
    fn make(self, events: &mut [Event]) {
        events[self.to..self.from + self.len].rotate_right(self.len);
    }

    fn unmake(self, events: &mut [Event]) {
        events[self.to..self.from + self.len].rotate_left(self.len);
    }
}

/// Whether anything of `range` is registered after `events`.
fn is_taken(events: &[Event], registered: &Ranges, range: Range<usize>, pieces: u32) -> bool {
    let mut range = range;
    for (index, event) in events.iter().enumerate().rev() {
        if let Event::Remap { to, len, .. } = *event
            && overlap(&range, &(to..to + len))
        {
            return true;
        }
        let Some(left) = emptied(event).filter(|left| overlap(left, &range)) else {
            continue;
        };
        if pieces == 0 {
            return true;
        }
        let (before, after) = (range.start..left.start, left.end..range.end);
        match (before.is_empty(), after.is_empty()) {
            (true, true) => return false,
            (false, true) => range = before,
            (true, false) => range = after,
            (false, false) => {
                if is_taken(&events[..index], registered, before, pieces - 1) {
                    return true;
                }
                range = after;
            }
        }
    }
    registered.overlaps(&range)
}

/// What an event leaves empty.
fn emptied(event: &Event) -> Option<Range<usize>> {
    match *event {
        Event::Unmap { start, end } | Event::SaidUnmapped { start, end } => Some(start..end),
        _ => None,
    }
}

/// What an event may leave empty.
fn said_unmapped(event: &Event) -> Option<Range<usize>> {
    match *event {
        Event::SaidUnmapped { start, end } => Some(start..end),
        _ => None,
    }
}

/// What an event leaves empty, or would have.
fn either(event: &Event) -> Option<Range<usize>> {
    match *event {
        Event::SaidUnmapped { start, end } | Event::Refused { start, end } => Some(start..end),
        _ => None,
    }
}

/// What a remap fills.
fn target(event: &Event) -> Option<Range<usize>> {
    match *event {
        Event::Remap { to, len, .. } => Some(to..to + len),
        _ => None,
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The search for what to pull before what.
struct Search<'a, T> {
    registered: &'a Ranges,
    truth: Asked<T>,
    fixed: usize,
    tries: u32,
    /// One after the other.
    pulls: [Pull; PULLS],
    best: [Pull; PULLS],
    best_len: usize,
    /// Addresses at which the best order and the kernel differ.
    best_wrong: usize,
    /// Pages that are registered unless what was said to be unmapped is.
    said: [usize; SAID],
    said_len: usize,
}

impl<'a, T: Truth> Search<'a, T> {
    fn new(registered: &'a Ranges, truth: T, fixed: usize) -> Self {
        Self {
            registered,
            truth: Asked::new(truth),
            fixed,
            tries: 0,
            pulls: [Pull::default(); PULLS],
            best: [Pull::default(); PULLS],
            best_len: 0,
            best_wrong: 0,
            said: [0; SAID],
            said_len: 0,
        }
    }

    /// Notes where the kernel is to be asked about what is said to be unmapped: at its ends,
    /// and at the first page of each range that was registered in it.
    fn note_said(&mut self, events: &[Event]) {
        for said in events[self.fixed..].iter().filter_map(said_unmapped) {
            let parts = self.registered.iter().filter(|part| overlap(part, &said));
            let ends = [said.start, said.end - PAGE_SIZE];
            for address in ends
                .into_iter()
                .chain(parts.map(|part| part.start.max(said.start)))
            {
                let known = self.said[..self.said_len].contains(&address);
                if !known && self.said_len < SAID {
                    self.said[self.said_len] = address;
                    self.said_len += 1;
                }
            }
        }
    }

    /// Makes those unmappings [`Event::Refused`] without which what is registered fits better,
    /// one after another, and all that concern the same addresses at once. What is in doubt
    /// after that has happened.
    fn leave_out_refused(&mut self, events: &mut [Event]) {
        let mut found = (self.best, self.best_len, self.best_wrong);
        let mut tried = 0;
        let mut at = self.fixed;
        while at < events.len() && found.2 > 0 && !self.truth.was_put_off() {
            let Some(range) = either(&events[at]).filter(|_| !is_joined(events, at)) else {
                at += 1;
                continue;
            };
            let mut better = false;
            for alone in [true, false] {
                tried += 1;
                self.toggle(events, at, &range, alone);
                self.begin(events);
                better = self.best_wrong < found.2;
                if better {
                    found = (self.best, self.best_len, self.best_wrong);
                    break;
                }
                self.toggle(events, at, &range, alone);
            }
            // (Once one is known, others may be looked at with other eyes.)
            at = if better { self.fixed } else { at + 1 };
            if tried >= MOST_TRIED {
                break;
            }
        }
        (self.best, self.best_len, self.best_wrong) = found;
    }

    /// Has the unmapping at `at` happened, or refused, the other way round; or all of those that
    /// concern some of `range`.
    fn toggle(&self, events: &mut [Event], at: usize, range: &Range<usize>, alone: bool) {
        for other in self.fixed..events.len() {
            let concerns = either(&events[other]).is_some_and(|other| overlap(&other, range));
            if other == at || (!alone && concerns && !is_joined(events, other)) {
                events[other] = match events[other] {
                    Event::SaidUnmapped { start, end } => Event::Refused { start, end },
                    Event::Refused { start, end } => Event::SaidUnmapped { start, end },
                    event => event,
                };
            }
        }
    }

    /// Finds the best order of `events`, which stay as they are.
    fn begin(&mut self, events: &mut [Event]) {
        (self.tries, self.best_len, self.best_wrong) = (0, 0, 0);
        if self.said_len > 0 || self.first_doubtful(events).is_some() {
            self.best_wrong = usize::MAX;
            self.go(events, 0);
        }
    }

    /// The first remap to where something is; if there is none, the first that
    /// something after it undoes which, by the kernel, did not; with its target.
    fn first_doubtful(&mut self, events: &[Event]) -> Option<(usize, Range<usize>)> {
        let mut remaps = events.iter().enumerate().skip(self.fixed);
        let taken = remaps.find_map(|(index, event)| {
            let target = target(event)?;
            is_taken(&events[..index], self.registered, target.clone(), PIECES)
                .then_some((index, target))
        });
        taken.or_else(|| {
            let mut remaps = events.iter().enumerate().skip(self.fixed);
            remaps.find_map(|(index, event)| {
                let target = target(event)?;
                let page = target.start..target.start + PAGE_SIZE;
                let mut later = events[index + 1..].iter().filter_map(emptied);
                (later.any(|left| overlap(&left, &page))
                    && !is_taken(events, self.registered, page.clone(), PIECES)
                    && !self.truth.was_put_off()
                    && self.truth.begins_at(target.start) == Some(true))
                .then_some((index, target))
            })
        })
    }

    /// Tries what may come before the first doubtful remap; leaves `events`
    /// as they were.
    fn go(&mut self, events: &mut [Event], depth: usize) {
        let doubtful = self.first_doubtful(events);
        if self.truth.was_put_off() {
            return; // nothing will be decided
        }
        let Some((at, target)) = doubtful else {
            return self.judge(events, depth);
        };
        let mut tried = false;
        // What empties the whole target first.
        for whole in [true, false] {
            for from in at + 1..events.len() {
                let empties = emptied(&events[from]).filter(|left| overlap(left, &target));
                let Some(left) = empties else { continue };
                let covers = left.start <= target.start && left.end >= target.end;
                if covers != whole || depth == PULLS || self.tries >= TRIES {
                    continue;
                }
                // The first half goes with it; not that of the remap in doubt.
                let joined = usize::from(is_joined(events, from));
                if from - joined == at {
                    continue;
                }
                tried = true;
                let pull = Pull {
                    to: at,
                    from: from - joined,
                    len: 1 + joined,
                };
                self.pulls[depth] = pull;
                pull.make(events);
                self.go(events, depth + 1);
                pull.unmake(events);
                if self.best_wrong == 0 || self.truth.was_put_off() {
                    return;
                }
            }
        }
        if !tried {
            self.judge(events, depth);
        }
    }

    /// Compares the outcome with the kernel's.
    fn judge(&mut self, events: &[Event], depth: usize) {
        self.tries += 1;
        if events.len() - self.fixed > MOST_JUDGED {
            // Too many to ask about: the first order that can be.
            (self.best, self.best_len, self.best_wrong) = (self.pulls, depth, 0);
            return;
        }
        // An order still in doubt is worse than any other.
        let doubtful = self.first_doubtful(events).is_some();
        let mut wrong = if doubtful { events.len() * 8 } else { 0 };
        for (index, event) in events.iter().enumerate().skip(self.fixed) {
            // Nothing is moved from where nothing is, not in part either.
            if let Event::Remap { from, len, .. } = *event {
                let before = &events[..index];
                let said = before[self.fixed.min(index)..]
                    .iter()
                    .filter_map(said_unmapped);
                let said = said.map(|left| left.start.max(from)..left.end.min(from + len));
                let mut all = core::iter::once(from..from + len).chain(said);
                let is_left = |part: Range<usize>| {
                    !part.is_empty() && !is_taken(before, self.registered, part, PIECES)
                };
                wrong += if all.any(is_left) { 4 } else { 0 };
            }
            for range in emptied(event).into_iter().chain(target(event)) {
                wrong += self.differs(events, range.start);
                wrong += self.differs(events, range.end - PAGE_SIZE);
            }
        }
        for at in 0..self.said_len {
            wrong += self.differs(events, self.said[at]);
        }
        if self.truth.was_put_off() {
            return;
        }
        if wrong < self.best_wrong {
            self.best_wrong = wrong;
            self.best = self.pulls;
            self.best_len = depth;
        }
    }

    /// 1 if the kernel has the page registered and `events` lead to its not being so, or the
    /// other way round.
    fn differs(&mut self, events: &[Event], address: usize) -> usize {
        if self.truth.was_put_off() {
            return 0; // nothing will be decided
        }
        let page = address..address + PAGE_SIZE;
        let ours = is_taken(events, self.registered, page, PIECES);
        usize::from(self.truth.is_registered(address) == Some(!ours))
    }
}

#[cfg(test)]
mod model;
