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
//!    Where several orders lead to the same registrations, that one counts by which
//!    pages lie where they are lacking: what was moved out before all of the
//!    events is absent from where it lies now, and the rest is there. (One thread moves
//!    a range away and reports late; another moves a second one to its place and unmaps it
//!    there. Both orders are possible, and by each another range's pages are left.)
//! 2. An mremap reports twice, REMAP and then UNMAP of its source, and sleeps
//!    in between, while somebody else may take the source. The second is put
//!    right behind the first. (There is none for `MREMAP_DONTUNMAP`.)
//!
//! Unmaps and discards need no order among themselves. The rest stays as read:
//! events of one thread are in order, since it sleeps until each is read.
//!
//! Works in place: during a fork nothing here may touch the heap.

use crate::events::event::Event;
use crate::events::ranges::Ranges;
use crate::events::resolve::{Resolved, resolve};
use crate::page::{Vpn, pages_within};
use alloc::collections::VecDeque;
use core::ops::Range;
use zfolio_mm::PAGE_SIZE;

/// What the kernel says of its side now (`None`: it will not), and what is known of the time
/// before the events.
pub(crate) trait Truth {
    /// Whether an answer was refused that may be had a moment later.
    fn was_put_off(&self) -> bool;
    /// Whether `address` is registered.
    fn is_registered(&mut self, address: usize) -> Option<bool>;
    /// Whether a registered mapping begins at `address`.
    fn begins_at(&mut self, address: usize) -> Option<bool>;
    /// Whether [`Self::misplaced`] may be asked for, which may have to be waited for.
    fn may_look_at_pages(&self) -> bool;
    /// How many of `pages` are present though their bytes were moved out before all of the events,
    /// or absent though they were not. `word_of`: which page one was before the events; `None`: none.
    /// Put off where that cannot be told now.
    fn misplaced(&mut self, pages: Range<Vpn>, word_of: impl Fn(Vpn) -> Option<Vpn>) -> usize;
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

    fn may_look_at_pages(&self) -> bool {
        self.truth.may_look_at_pages()
    }

    fn misplaced(&mut self, pages: Range<Vpn>, word_of: impl Fn(Vpn) -> Option<Vpn>) -> usize {
        self.truth.misplaced(pages, word_of)
    }
}

/// Answers of the kernel's that are remembered.
const KNOWN: usize = 128;
/// Choices tried at most, and events that one choice is made of.
const TRIES: u32 = 64;
const PULLS: usize = 8;
/// Events above which the kernel is not asked.
const MOST_JUDGED: usize = 512;
/// Events above which the first order counts by which nothing is wrong.
const MOST_COMPARED: usize = 64;
/// Pages at most that are compared for one order.
const COMPARED: usize = 1024;
/// Pieces of a target looked at separately; beyond, it counts as taken.
const PIECES: u32 = 32;

/// Puts `events[fixed..]` in order. `registered`: what was before all of
/// them. False if the kernel would not answer just now: nothing is decided then.
pub(crate) fn put_in_order(
    events: &mut VecDeque<Event>,
    fixed: usize,
    registered: &Ranges,
    truth: impl Truth,
) -> bool {
    let events = events.make_contiguous();
    join_halves(&mut events[fixed..]);
    let mut search = Search {
        registered,
        truth: Asked::new(truth),
        fixed,
        tries: 0,
        pulls: [Pull::default(); PULLS],
        best: [Pull::default(); PULLS],
        best_len: 0,
        best_wrong: (usize::MAX, 0),
        is_tied: false,
        compares_pages: false,
    };
    let in_doubt = search.first_doubtful(events).is_some();
    if in_doubt {
        search.go(events, 0);
    }
    // (All of them by the pages, or none: where that is not waited for, the first counts.)
    if search.is_tied && search.truth.may_look_at_pages() {
        search.compares_pages = true;
        (search.tries, search.best_wrong) = (0, (usize::MAX, 0));
        search.go(events, 0);
    }
    if search.truth.was_put_off() {
        return false;
    }
    for pull in &search.best[..search.best_len] {
        pull.make(events);
    }
    true
}

/// Whether `second` may be the second half of an mremap.
fn is_half(first: &Event, second: &Event) -> bool {
    matches!((*first, *second), (Event::Remap { from, len, .. }, Event::Unmap { start, end })
        if start == from && end == from + len)
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
        Event::Unmap { start, end } => Some(start..end),
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
    /// Addresses at which the best order and the kernel differ in what is registered, and pages
    /// at which they do in what is there.
    best_wrong: (usize, usize),
    /// Another order was as good as the best.
    is_tied: bool,
    /// Pages are compared as well.
    compares_pages: bool,
}

impl<T: Truth> Search<'_, T> {
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
                let is_right = self.best_wrong == (0, 0)
                    && (self.compares_pages || events.len() - self.fixed > MOST_COMPARED);
                if is_right || self.truth.was_put_off() {
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
            (self.best, self.best_len, self.best_wrong) = (self.pulls, depth, (0, 0));
            return;
        }
        // An order still in doubt is worse than any other.
        let doubtful = self.first_doubtful(events).is_some();
        let mut wrong = if doubtful { events.len() * 8 } else { 0 };
        for (index, event) in events.iter().enumerate().skip(self.fixed) {
            // Nothing is moved from where nothing is.
            if let Event::Remap { from, len, .. } = *event
                && !is_taken(&events[..index], self.registered, from..from + len, PIECES)
            {
                wrong += 4;
            }
            for range in emptied(event).into_iter().chain(target(event)) {
                for address in [range.start, range.end - PAGE_SIZE] {
                    if self.truth.was_put_off() {
                        return;
                    }
                    let page = address..address + PAGE_SIZE;
                    let ours = is_taken(events, self.registered, page, PIECES);
                    wrong += usize::from(self.truth.is_registered(address) == Some(!ours));
                }
            }
        }
        if wrong > self.best_wrong.0 {
            return;
        }
        let misplaced = match self.compares_pages {
            true => self.misplaced(events),
            false => 0,
        };
        let wrong = (wrong, misplaced);
        self.is_tied |= wrong == self.best_wrong;
        if wrong < self.best_wrong {
            self.is_tied = false;
            self.best_wrong = wrong;
            self.best = self.pulls;
            self.best_len = depth;
        }
    }

    /// Pages that were out and are there, or the other way about, where remaps have moved them.
    /// (One that was never touched is not there by any order.)
    fn misplaced(&mut self, events: &[Event]) -> usize {
        let mut left = COMPARED;
        let targets = events[self.fixed..].iter().filter_map(target);
        let misplaced = targets.map(|target| {
            let pages = pages_within(target.start, target.end);
            let pages = pages.start..pages.end.min(pages.start + left);
            left -= pages.len();
            self.truth
                .misplaced(pages, |vpn| match resolve(events.iter(), vpn) {
                    Resolved::At(word) => Some(word),
                    Resolved::Discarded => None,
                })
        });
        misplaced.sum()
    }
}

#[cfg(test)]
mod model;
