//! Which pages come back before others: refault distance.
//!
//! There is no accessed bit to read from user space. What is known of a page is how it
//! came back: from standby, or from the pool after so many other pages were stored, its
//! *refault distance*. Below what is resident, it would still be here had others gone
//! instead: such a page is spared, and each time it comes back so for twice as long. So
//! what is used often stays, and takes part in the search for what is not once in a long
//! while. (The idea is that of the kernel's `mm/workingset.c`, Weiner 2012, and of
//! CLOCK-Pro, Jiang, Chen, Zhang, USENIX 2005.)
//!
//! Time is counted in pages stored, not in rounds of the hand: a round that finds little is short,
//! so pages would age fastest exactly when little can leave. If a whole round finds too little, the
//! clock is advanced to the earliest time at which a spared page may go.

/// Ticks of the clock while as many pages are stored as are resident. A page that comes
/// back within them is of the working set.
const NEAR: u8 = 4;
/// Ticks are counted modulo this: what was before half of it looks as if it were to come.
const TICKS: u8 = 63;
/// Ticks for which a page is spared at most.
const LONGEST: u8 = TICKS / 2;
/// The most times in a row that are remembered.
const LEVELS: u8 = 3;

/// Counts stored pages.
#[derive(Default)]
pub struct StoreClock {
    /// Below [`TICKS`].
    tick: u8,
    /// Pages stored since the last tick.
    pages: usize,
}

impl StoreClock {
    /// So many pages were stored, while `resident` were not.
    pub fn stored(&mut self, pages: usize, resident: usize) {
        self.pages += pages;
        let between = (resident / usize::from(NEAR)).max(1);
        while self.pages >= between {
            self.pages -= between;
            self.advance(1);
        }
    }

    /// Moves on by so many ticks.
    pub fn advance(&mut self, ticks: u8) {
        self.tick = (self.tick + ticks) % TICKS;
    }
}

/// What is known of a page; a byte of zero: nothing. In the low six bits, while it is stored, one more than the
/// tick at which it was; else one more than that until which it is spared; 0: nothing. In
/// the high two, its level: how many times in a row it came back soon.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub struct RefaultRecord(u8);

impl RefaultRecord {
    /// Nothing is known.
    pub(crate) const NOTHING: Self = Self(0);
    const LEVEL: u32 = 6;
    const TICK: u8 = (1 << Self::LEVEL) - 1;

    const fn level(self) -> u8 {
        self.0 >> Self::LEVEL
    }

    /// Ticks from `clock` to what is noted, modulo [`TICKS`].
    fn ahead(self, clock: &StoreClock) -> Option<u8> {
        let noted = (self.0 & Self::TICK).checked_sub(1)?;
        Some((noted + TICKS - clock.tick) % TICKS)
    }

    fn new(level: u8, clock: &StoreClock, ahead: u8) -> Self {
        Self(level << Self::LEVEL | ((clock.tick + ahead) % TICKS + 1))
    }

    /// Ticks for which the page, which is present, is to stay; 0: it may go.
    pub fn spared(self, clock: &StoreClock) -> u8 {
        let ahead = self.ahead(clock).filter(|ticks| *ticks <= LONGEST);
        ahead.unwrap_or(0)
    }

    /// It is being stored.
    pub fn store(&mut self, clock: &StoreClock) {
        *self = Self::new(self.level(), clock, 0);
    }

    /// Whether it was stored within this tick.
    pub(crate) fn was_stored_now(self, clock: &StoreClock) -> bool {
        self.ahead(clock) == Some(0)
    }

    /// It came from the pool because it was asked for; whether soon, in which case it is
    /// spared.
    pub fn refault(&mut self, clock: &StoreClock) -> bool {
        let since = self.ahead(clock).map(|ahead| (TICKS - ahead) % TICKS);
        let soon = since.is_some_and(|since| since < NEAR);
        if soon {
            self.protect(clock);
        } else {
            *self = Self::default();
        }
        soon
    }

    /// It was touched in standby, or came back otherwise before its turn: it is spared.
    pub(crate) fn protect(&mut self, clock: &StoreClock) {
        let level = self.level();
        let ahead = (NEAR << level).min(LONGEST);
        *self = Self::new((level + 1).min(LEVELS), clock, ahead);
    }

    /// It came back because another page did: it is not spared.
    pub fn brought_along(&mut self) {
        self.0 &= !Self::TICK;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const RESIDENT: usize = 4000;

    fn after(clock: &mut StoreClock, pages: usize) {
        // One by one or all at once is the same.
        for _ in 0..pages / 8 {
            clock.stored(8, RESIDENT);
        }
        clock.stored(pages % 8, RESIDENT);
    }

    /// Pages stored until it is spared no longer.
    fn spared_for(past: RefaultRecord, clock: &mut StoreClock) -> usize {
        let mut pages = 0;
        while past.spared(clock) > 0 {
            clock.stored(1, RESIDENT);
            pages += 1;
        }
        pages
    }

    #[test]
    fn stored_now_is_within_a_tick() {
        let (mut clock, mut past) = (StoreClock::default(), RefaultRecord::default());
        assert!(!past.was_stored_now(&clock), "never stored");
        past.store(&clock);
        assert!(past.was_stored_now(&clock));
        after(&mut clock, RESIDENT / usize::from(NEAR) - 1);
        assert!(past.was_stored_now(&clock));
        after(&mut clock, 1);
        assert!(!past.was_stored_now(&clock));
        assert!(past.refault(&clock), "and yet it is soon");
    }

    #[test]
    fn nothing_known_is_never_spared() {
        let mut clock = StoreClock::default();
        for _ in 0..2 * TICKS {
            assert_eq!(RefaultRecord::default().spared(&clock), 0);
            let mut past = RefaultRecord::default();
            assert!(!past.refault(&clock) && past == RefaultRecord::default());
            clock.advance(1);
        }
    }

    #[test]
    fn who_comes_back_soon_is_spared_twice_as_long_each_time() {
        let mut clock = StoreClock::default();
        let mut past = RefaultRecord::default();
        let mut before = 0;
        for (round, least) in [1, 2, 4, 7, 7].into_iter().enumerate() {
            past.store(&clock);
            after(&mut clock, RESIDENT / 2);
            assert!(past.refault(&clock));
            let pages = spared_for(past, &mut clock);
            assert!(pages > (least - 1) * RESIDENT, "{round}: {pages}");
            assert!(pages <= 2 * before + 2 * RESIDENT, "{round}: {pages}");
            before = pages;
        }
    }

    #[test]
    fn who_comes_back_late_begins_anew() {
        let mut clock = StoreClock::default();
        let mut past = RefaultRecord::default();
        (0..3).for_each(|_| past.protect(&clock));
        past.store(&clock);
        after(&mut clock, 2 * RESIDENT);
        assert!(!past.refault(&clock) && past.spared(&clock) == 0);
        past.protect(&clock);
        assert!(spared_for(past, &mut clock) <= RESIDENT);
    }

    #[test]
    fn who_comes_along_keeps_its_level_and_may_go() {
        let clock = StoreClock::default();
        let mut past = RefaultRecord::default();
        past.protect(&clock);
        past.protect(&clock);
        past.brought_along();
        assert_eq!((past.spared(&clock), past.level()), (0, 2));
    }

    /// The same without the wrapping, and in pages.
    #[derive(Clone, Copy, Default)]
    struct Model {
        stored: Option<u64>,
        until: u64,
        level: u32,
    }

    proptest! {
        #[test]
        fn as_a_clock_that_never_wraps(
            steps in prop::collection::vec((0..5_u8, 0..12_u8), 1..200),
        ) {
            let (mut clock, mut now) = (StoreClock::default(), 0_u64);
            let (mut past, mut model) = (RefaultRecord::default(), Model::default());
            for (step, ticks) in steps {
                let spare = |model: &mut Model, now: u64| {
                    model.until = now + (4_u64 << model.level).min(31);
                    model.level = (model.level + 1).min(3);
                    model.stored = None;
                };
                match step {
                    0 => {
                        past.store(&clock);
                        model.stored = Some(now);
                    }
                    1 => {
                        // (Longer ago than the clock can tell, anything may be said.)
                        let since = model.stored.map(|at| now - at);
                        if since.is_none_or(|since| since >= 63) {
                            continue;
                        }
                        let soon = since.is_some_and(|since| since < 4);
                        prop_assert_eq!(past.refault(&clock), soon);
                        if soon {
                            spare(&mut model, now);
                        } else {
                            model = Model::default();
                        }
                    }
                    2 => {
                        past.protect(&clock);
                        spare(&mut model, now);
                    }
                    3 => {
                        past.brought_along();
                        model = Model { level: model.level, ..Model::default() };
                    }
                    _ => {}
                }
                clock.advance(ticks);
                now += u64::from(ticks);
                if model.stored.is_none() && now < model.until + 32 {
                    prop_assert_eq!(u64::from(past.spared(&clock)), model.until.saturating_sub(now));
                }
            }
        }
    }

    /// Memory of which a part is resident, with the hand and the standby queue as in the
    /// manager; no time but the clock's.
    struct Memory {
        pages: Vec<(Where, RefaultRecord)>,
        standby: VecDeque<usize>,
        clock: StoreClock,
        resident: usize,
        limit: usize,
        hand: usize,
        loads: usize,
        out: usize,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Where {
        Present,
        Standby,
        Stored,
    }

    impl Memory {
        fn new(pages: usize, limit: usize) -> Self {
            Self {
                pages: vec![(Where::Stored, RefaultRecord::default()); pages],
                standby: VecDeque::new(),
                clock: StoreClock::default(),
                resident: 0,
                limit,
                hand: 0,
                loads: 0,
                out: 0,
            }
        }

        fn touch(&mut self, page: usize) {
            let (place, past) = &mut self.pages[page];
            match core::mem::replace(place, Where::Present) {
                Where::Present => return,
                Where::Standby => return past.protect(&self.clock),
                Where::Stored => past.refault(&self.clock),
            };
            self.loads += 1;
            self.resident += 1;
            while self.resident > self.limit {
                self.fill_standby();
                let page = self.standby.pop_front().expect("just filled");
                let (place, past) = &mut self.pages[page];
                if *place == Where::Standby {
                    *place = Where::Stored;
                    past.store(&self.clock);
                    self.clock.stored(1, self.limit);
                    self.resident -= 1;
                }
            }
        }

        fn fill_standby(&mut self) {
            let wanted = self.limit / 16;
            let mut walked = 0;
            let stands = |memory: &Self| {
                let stands = |page: &&usize| memory.pages[**page].0 == Where::Standby;
                memory.standby.iter().filter(stands).count()
            };
            if stands(self) * 2 > wanted {
                return;
            }
            let mut lacking = wanted - stands(self);
            while lacking > 0 {
                let (place, past) = &mut self.pages[self.hand];
                if *place == Where::Present && past.spared(&self.clock) == 0 {
                    *place = Where::Standby;
                    self.standby.push_back(self.hand);
                    self.out += 1;
                    lacking -= 1;
                }
                self.hand = (self.hand + 1) % self.pages.len();
                walked += 1;
                if walked % self.pages.len() == 0 {
                    self.clock.advance(1);
                }
            }
        }
    }

    /// Loads and moves out for each 1000 touches, once it has settled.
    fn settled(
        limit: usize,
        mut next: impl FnMut(&mut dyn FnMut(usize) -> usize) -> usize,
    ) -> [usize; 2] {
        let mut memory = Memory::new(PAGES, limit);
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 33).expect("31 bits") % below
        };
        for turn in 0..TOUCHES {
            if turn == TOUCHES / 2 {
                (memory.loads, memory.out) = (0, 0);
            }
            memory.touch(next(&mut random));
        }
        [memory.loads, memory.out].map(|count| count * 2000 / TOUCHES)
    }

    const PAGES: usize = 4096;
    const TOUCHES: usize = 100_000;

    #[test]
    fn what_is_hot_stays_wherever_it_lies() {
        // Nine of ten touches to a fifth of the pages, where a quarter fits. The best there
        // is makes 75 loads, first in first out 158.
        let [loads, out] = settled(PAGES / 4, |random| {
            let among = if random(10) < 9 { PAGES / 5 } else { PAGES };
            random(among) * 2503 % PAGES
        });
        assert!(loads <= 100 && out <= 110, "{loads} loads, {out} out");
    }

    #[test]
    fn what_goes_round_past_what_is_hot_does_not_push_it_out() {
        let mut at = 0;
        let [loads, _] = settled(PAGES * 2 / 5, |random| {
            at += 1;
            if at % 2 == 0 {
                random(PAGES / 4) * 2503 % PAGES
            } else {
                (PAGES / 4 + at / 2 * 7 % (PAGES * 3 / 4)) * 2503 % PAGES
            }
        });
        // Half of the touches are of the circle. (First in first out: 709.)
        assert!(loads <= 620, "{loads} loads");
    }

    #[test]
    fn where_all_is_alike_little_goes_out_for_nothing() {
        let [loads, out] = settled(PAGES * 3 / 4, |random| random(PAGES));
        assert!(
            (240..=260).contains(&loads) && out <= 320,
            "{loads} loads, {out} out"
        );
    }
}
