//! How much to bring: one page, a batch, the folio, from what recent faults say.
//!
//! - *Streams*: a fault just past the pages brought for an earlier one doubles what is brought,
//!   up to `Watermarks::window`.
//! - *Groups*: a second fault in the same 64 KiB brings the rest of the group, if that is worth
//!   it (`Neighbours`), and so does the last of four in quick succession (`Rush`).
//! - A first fault that continues nothing brings one page: with random access, anything more
//!   would take frames that other pages need.
//!
//! What a stream has passed (*left behind*) moves out first. A program that reads more than
//! fits, round after round, then finds the rest still present; if the oldest pages went first,
//! each would have gone just before it is read again.

use crate::page::{EXTENT_PAGES, GROUP_PAGES, Vpn};
use core::ops::Range;

const STREAMS: usize = 16;
/// Most pages behind what was brought that a reader may have passed without a fault.
const PASSED: usize = 64;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// First page not brought yet.
    next: Vpn,
    /// Pages that should have been brought last time, and were.
    window: usize,
    len: usize,
    /// When it last moved, by the clock; 0: there is no such stream.
    stamp: u64,
}

/// Sequential streams among recent faults.
#[derive(Default)]
pub struct Streams {
    streams: [Stream; STREAMS],
    /// Loads that continued none.
    clock: u64,
}

/// What the streams say of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Pages to bring, from the faulting one upwards.
    pub pages: usize,
    /// The fault continues a stream.
    pub sequential: bool,
}

impl Streams {
    /// What to bring for a fault at `vpn`: for a stream `most` pages at most.
    pub fn advise(&self, vpn: Vpn, most: usize) -> Advice {
        self.advise_past(vpn, most, |_| false)
    }

    /// The same. A reader makes no fault where `is_passed` says so: it goes on behind some of that too.
    pub fn advise_past(&self, vpn: Vpn, most: usize, is_passed: impl Fn(Vpn) -> bool) -> Advice {
        match self.find(vpn, is_passed) {
            Some(index) => {
                let pages = (self.streams[index].window * 2).clamp(4, most);
                Advice {
                    pages,
                    sequential: true,
                }
            }
            None => Advice {
                pages: 1,
                sequential: false,
            },
        }
    }

    /// Remembers that `brought` was brought for a fault at its start, of
    /// `window` pages advised; returns
    /// what the same stream brought before, which its reader has left behind,
    /// once the stream is long enough to be believed.
    pub(crate) fn brought(&mut self, brought: &Range<Vpn>, window: usize) -> Option<Range<Vpn>> {
        self.brought_past(brought, window, |_| false)
    }

    /// The same, as [`Self::advise_past`].
    pub fn brought_past(
        &mut self,
        brought: &Range<Vpn>,
        window: usize,
        is_passed: impl Fn(Vpn) -> bool,
    ) -> Option<Range<Vpn>> {
        let found = self.find(brought.start, is_passed);
        self.clock += u64::from(found.is_none());
        let index = found.unwrap_or_else(|| {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, s)| s.stamp);
            oldest.map_or(0, |(index, _)| index)
        });
        let before = self.streams[index];
        self.streams[index] = Stream {
            next: brought.end,
            window,
            len: brought.len(),
            stamp: self.clock,
        };
        (found.is_some() && before.window >= GROUP_PAGES)
            .then(|| before.next - before.len..before.next)
    }

    /// Something was brought for a fault that no stream is to begin with.
    pub fn brought_for_another(&mut self) {
        self.clock += 1;
    }

    /// What was brought last for the stream that a fault at `vpn` continues: its reader has
    /// come past it.
    pub(crate) fn passed(&self, vpn: Vpn) -> Option<Range<Vpn>> {
        let stream = &self.streams[self.find(vpn, |_| false)?];
        Some(stream.next - stream.len..stream.next)
    }

    fn find(&self, vpn: Vpn, is_passed: impl Fn(Vpn) -> bool) -> Option<usize> {
        self.streams.iter().position(|s| {
            // (One that nobody has gone on in would be forgotten, had all those loads begun one.)
            let is_recent = self.clock - s.stamp < self.streams.len() as u64;
            let is_known = s.stamp > 0 && (s.window > 1 || is_recent);
            let past = vpn.checked_sub(s.next).filter(|_| is_known);
            past.is_some_and(|past| {
                past <= (s.window / 2).max(1) || past <= PASSED && (s.next..vpn).all(&is_passed)
            })
        })
    }
}

/// One group in this many is a probe.
const PROBES: usize = 8;
/// Weight of what was known before against one more probe.
const INERTIA: u32 = 16;
/// Pages of a group's other fourteen that have to be wanted to bring them all. A
/// batch of ten takes some 115 us where a page takes 20, and each page that it
/// brings for nothing is another's that goes out: compressed again, kept in the
/// meantime.
const WORTH: u32 = 8;

/// Whether a second fault in a group is a sign that the rest will be wanted.
///
/// Nobody can see which of the pages brought were touched. So in some groups,
/// the *probes*, faults bring one page each: how many there were by the time
/// the group goes out again says what bringing the rest would have saved. As
/// long as it is not known to be worth it, at the start too, all groups are probes.
pub(crate) struct Neighbours {
    /// Faults in a probe after the second, times [`INERTIA`], on average.
    wanted: u32,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            wanted: (WORTH - 1) * INERTIA,
        }
    }
}

impl Neighbours {
    /// Whether the second fault in `vpn`'s group brings the rest.
    pub(crate) fn come_along(&self, vpn: Vpn) -> bool {
        !is_probe(vpn) && self.are_worth_it()
    }

    const fn are_worth_it(&self) -> bool {
        self.wanted >= WORTH * INERTIA
    }

    /// `vpn`'s group is going out, after so many loads from the pool.
    pub(crate) fn leave(&mut self, vpn: Vpn, loads: u8) {
        if loads >= 2 && (is_probe(vpn) || !self.are_worth_it()) {
            self.wanted += u32::from(loads) - 2;
            self.wanted -= self.wanted / INERTIA;
        }
    }
}

/// What the score of [`Rush`] comes to at most, either way: pages.
const SCORE: i32 = 1024;
/// Four loads of a group are a rush if the pages out in all are so many times the loads
/// from the first of them to the last.
const RUSHED: usize = 32;

/// Whether a group is loaded from so often that all of it will be wanted.
///
/// A working set that is touched again after a while comes back page by page, and
/// nothing of it goes out again to be judged by [`Neighbours`]. But the part of memory
/// that it lies in is loaded from more often than the rest. Where every page is as likely
/// as another, two loads of a group are more than `kept / 16` loads apart; four within
/// half of that are chance a few times in a thousand.
///
/// Where only some pages of each group are hot, they are in a rush too. So what was brought
/// is marked, and known to be used or not when its turn to be stored comes: it is touched
/// in standby before, or not.
pub(crate) struct Rush {
    /// Counts loads; begins where no load was a short time ago.
    clock: u32,
    /// Pages that were used less those that were not, lately.
    score: i32,
}

impl Default for Rush {
    fn default() -> Self {
        Self {
            clock: 1 << 31,
            score: SCORE / 4,
        }
    }
}

impl Rush {
    /// Notes a load from a group, of which `at` remembers the last three.
    pub(crate) fn note(&mut self, at: &mut [u32; 3]) {
        self.clock = self.clock.wrapping_add(1);
        *at = [self.clock, at[0], at[1]];
    }

    /// Whether one more now, at `vpn`, is the fourth in a rush, with `kept` pages out in
    /// all, and that is worth bringing the group.
    pub(crate) fn is_on(&self, vpn: Vpn, at: [u32; 3], kept: usize) -> bool {
        let since = self.clock.wrapping_sub(at[2]) as usize;
        since < kept / RUSHED && (self.score > 0 || is_probe(vpn))
    }

    /// A page that was brought in a rush was used, or not.
    pub(crate) fn judge(&mut self, used: bool) {
        let by = if used { 1 } else { -1 };
        self.score = (self.score + by).clamp(-SCORE, SCORE);
    }
}

/// Spread, so that no program's layout coincides with it.
pub(crate) const fn is_probe(vpn: Vpn) -> bool {
    let mixed = (vpn / GROUP_PAGES).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32).is_multiple_of(PROBES)
}

/// The pages of `vpn`'s group.
pub(crate) const fn group(vpn: Vpn) -> Range<Vpn> {
    let start = vpn - vpn % GROUP_PAGES;
    start..start + GROUP_PAGES
}

/// The pages of `vpn`'s extent.
pub(crate) const fn extent(vpn: Vpn) -> Range<Vpn> {
    let start = vpn - vpn % EXTENT_PAGES;
    start..start + EXTENT_PAGES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::watermarks::LEAST_WINDOW;

    #[test]
    fn a_stream_grows_to_the_largest_window() {
        let (mut streams, mut vpn, mut faults) = (Streams::default(), 1000, 0);
        while vpn < 3000 {
            let pages = streams.advise(vpn, LEAST_WINDOW).pages;
            streams.brought(&(vpn..vpn + pages), pages);
            vpn += pages;
            faults += 1;
        }
        assert!(faults < 45, "{faults} faults for 2000 pages");
        assert_eq!(streams.advise(vpn, LEAST_WINDOW).pages, LEAST_WINDOW);
    }

    #[test]
    fn scattered_faults_bring_one_page_each() {
        let mut streams = Streams::default();
        for step in 0..200 {
            let vpn = (step * 7919) % 100_003 + 10;
            if streams.advise(vpn, LEAST_WINDOW).sequential {
                continue; // chance neighbours
            }
            assert_eq!(streams.advise(vpn, LEAST_WINDOW).pages, 1);
            streams.brought(&(vpn..vpn + 1), 1);
        }
    }

    /// Loads from `groups` groups at random, `hot` of ten loads from the first `part` of
    /// them; returns in how many of 1000 loads there and elsewhere there was a rush.
    fn rushes(groups: usize, part: usize, hot: u64) -> [usize; 2] {
        let mut rush = Rush::default();
        let mut at = alloc::vec![[0; 3]; groups];
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 33).expect("31 bits") % below
        };
        let (mut on, mut all) = ([0; 2], [0; 2]);
        for _ in 0..20 * groups {
            let hot = (random(10) as u64) < hot;
            let group = if hot { random(part) } else { random(groups) };
            let place = usize::from(group >= part);
            on[place] +=
                usize::from(rush.is_on(group * GROUP_PAGES, at[group], groups * GROUP_PAGES / 2));
            all[place] += 1;
            rush.note(&mut at[group]);
        }
        [on[0] * 1000 / all[0].max(1), on[1] * 1000 / all[1].max(1)]
    }

    #[test]
    fn a_working_set_that_comes_back_is_a_rush_and_random_loads_are_none() {
        let [_, even] = rushes(8192, 1, 0);
        assert!(even < 4, "{even} of 1000");
        let [hot, cold] = rushes(8192, 819, 9);
        assert!(hot > 250 && cold < 2, "{hot} and {cold} of 1000");
        let [_, even] = rushes(100_000, 1, 0);
        assert!(even < 4, "however much is out: {even} of 1000");
    }

    #[test]
    fn a_rush_that_brings_what_is_not_used_ends_but_in_probes() {
        let mut rush = Rush::default();
        let on = |rush: &Rush| {
            let groups = (0..1000).map(|group| group * GROUP_PAGES);
            groups
                .filter(|vpn| rush.is_on(*vpn, [rush.clock; 3], 4096))
                .count()
        };
        assert_eq!(on(&rush), 1000);
        (0..2000).for_each(|n| rush.judge(n % 3 == 0));
        assert!((50..250).contains(&on(&rush)), "{}", on(&rush));
        (0..6000).for_each(|n| rush.judge(n % 3 != 0));
        assert_eq!(on(&rush), 1000);
    }

    /// Loads every group of many, each with so many faults.
    fn after(neighbours: &mut Neighbours, loads: u8) -> usize {
        let groups = 0..1000 * GROUP_PAGES;
        for vpn in groups.clone().step_by(GROUP_PAGES) {
            neighbours.leave(vpn, loads);
        }
        groups
            .step_by(GROUP_PAGES)
            .filter(|vpn| neighbours.come_along(*vpn))
            .count()
    }

    #[test]
    fn neighbours_come_along_where_probes_say_so() {
        let mut neighbours = Neighbours::default();
        assert_eq!(after(&mut neighbours, 3), 0);
        assert_eq!(after(&mut neighbours, 1), 0, "one load says nothing");
        let all = after(&mut neighbours, 12);
        assert!((800..950).contains(&all), "{all} of 1000 are no probes");
        assert_eq!(after(&mut neighbours, 1), all, "one load says nothing");
        assert_eq!(after(&mut neighbours, 3), 0);
        assert_eq!(after(&mut neighbours, 255), all);
    }

    #[test]
    fn the_page_beside_what_came_long_ago_continues_nothing() {
        let mut streams = Streams::default();
        let goes_on = |streams: &Streams, vpn| streams.advise(vpn, LEAST_WINDOW).sequential;
        streams.brought(&(100..101), 1);
        streams.brought(&(200..201), 1);
        streams.brought(&(201..205), 4);
        assert!(goes_on(&streams, 101) && goes_on(&streams, 205));
        (0..STREAMS).for_each(|_| streams.brought_for_another());
        assert!(!goes_on(&streams, 101) && goes_on(&streams, 205));
    }

    #[test]
    fn several_streams_are_told_apart() {
        let mut streams = Streams::default();
        let mut at = [1000, 50_000, 90_000];
        for _ in 0..8 {
            for vpn in &mut at {
                let pages = streams.advise(*vpn, LEAST_WINDOW).pages;
                streams.brought(&(*vpn..*vpn + pages), pages);
                *vpn += pages;
            }
        }
        assert!(
            at.iter()
                .all(|vpn| streams.advise(*vpn, LEAST_WINDOW).pages == LEAST_WINDOW)
        );
    }
}
