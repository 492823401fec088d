//! Finds the least memory at which a program loses no more time than was asked for.
//!
//! A state machine without effects: a [`Sample`] goes in some times a second, the next `high`
//! comes out. It has no clock and makes no call, so its tests are made-up programs
//! (`simulated.rs`).
//!
//! Two figures decide. The *rate* is the time that the program's threads stood still for what came back in
//! the last window, over the time that they ran in it: with `high` as it is it goes on being lost. What comes
//! back has to leave again, so that is part of it. What moving out the first time costs is not: it is lost
//! once. The *balance* is what may still be lost over the
//! whole run: the part asked for of the time run so far, less all that was lost. What is allowed in a
//! window follows the balance; and a step down is taken only if the balance pays for what it moves out, and
//! would also pay for all that is out, should it come back at once. So what was promised holds at the end as well,
//! even if the program then reads all of its memory.
//!
//! | seen | done |
//! |---|---|
//! | the program is young, or grows | nothing is taken; what was taken stays out, `high` grows with the program |
//! | the rate is well below what is allowed | `high` goes down by a small step, as far as the balance carries it, and not to where too much is expected to be lost (`forecast`) |
//! | the rate is about what is allowed | nothing |
//! | the rate is above it | `high` goes up by the square of the error, as far as the program has a use for it |
//! | time was lost and next to nothing is saved | `high` goes up to where it began, and nothing is taken for a while, then for twice as long |
//!
//! # Invariants
//! - `high` is never above `Asked::high`, nor below `Asked::low` (unless `high` is less).
//! - `high` goes down only while the balance pays for all that is out.

pub mod division;
mod forecast;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod simulated_division;
mod terms;

use forecast::Forecast;
use std::time::Duration;
pub use terms::{Asked, Bought, Forecasts, Level, Lost, Phase, Sample};

/// Of the slowdown asked for, the part that is aimed at: estimates err.
const AIM: f64 = 0.8;
/// A window is judged once the program ran this long in it, seconds ...
const WINDOW_RUN: f64 = 0.2;
/// ... or once it lasted so long, seconds.
const WINDOW_WALL: f64 = 1.0;
/// Time run that a window counts for at least, seconds: of an idle program little can be said.
const LEAST_RUN: f64 = 0.02;
/// Time that a program runs before anything is taken, seconds.
const YOUNG_RUN: f64 = 0.8;
/// A program that grows by more than this part within a second grows.
const GROWTH: f64 = 0.1;
/// How long it must not have grown, seconds.
const SETTLED: f64 = 0.3;
/// The balance, in seconds of the time run, that moves what is allowed by all of it.
const HORIZON: f64 = 2.0;
/// Least and most that is allowed in a window, times what is aimed at.
const LEAST_ALLOWED: f64 = 0.25;
const MOST_ALLOWED: f64 = 1.5;
/// The first step down, the largest, and the largest up: parts of what the program needs. Each
/// step down that costs little is followed by one half as large again.
const FIRST_DOWN: f64 = 0.01;
const STEP_DOWN: f64 = 0.04;
const FASTER: f64 = 1.5;
const STEP_UP: f64 = 0.125;
/// What `high` may be above what the program needs, a part of that, and bytes: more is of no
/// use to it.
const ABOVE: f64 = 0.125;
const ABOVE_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// A step up of this part for each unit of the error's square.
const UP_GAIN: f64 = 1.0 / 24.0;
/// Below this part of what is allowed there is room for a step down.
const ROOM: f64 = 0.75;
/// Windows without a step down after one up.
const COOLING: u32 = 3;
/// What comes back for one byte of memory saved: what is out, over what it frees.
const OUT_PER_FREED: f64 = 1.5;
/// A saving below this part of what is needed does not pay, nor one below so many times the part
/// of the time that is lost for it.
const PAYS: f64 = 0.03;
const PAYS_TIMES: f64 = 2.0;
/// Windows in which the rate left no room, and those after one up, before that is judged.
const TRIAL: u32 = 25;
/// How long nothing is taken then, at first and at most, seconds.
const REST: f64 = 20.0;
const LONGEST_REST: f64 = 1280.0;
/// What `high` is above what is had where reclaim begins, a part of it (`policy/watermarks.rs` of
/// the runtime).
const GAP: f64 = 1.0 / 64.0;
/// Bytes that `high` is above or below what it was before it counts as moved.
const GRAIN: u64 = 1 << 20;
/// The least step down, where nothing is lost: of a small program a part would be less than that moves `high`.
const LEAST_DOWN: u64 = 2 * GRAIN;
/// What a page costs that comes back among many, at most, and before enough have: seconds.
const PAGE_BACK: f64 = 8e-6;
/// What a page costs that is moved out, before that was seen, and at most: seconds.
const PAGE_OUT: f64 = 10e-6;
const PAGE_OUT_MOST: f64 = 100e-6;
/// It is seen in windows with so many pages, each of which counts for this part.
const PAGES_SEEN: u64 = 128;
const SEEN_PART: f64 = 0.125;
/// Pages that are enough.
const PAGES_KNOWN: u64 = 4096;
const PAGE: f64 = 4096.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct Controller {
    asked: Asked,
    /// `high` now; that asked for while nothing is taken.
    high: u64,
    /// Where the window began, and the last sample.
    window: Sample,
    last: Sample,
    phase: Phase,
    /// When the program last grew, seconds.
    grew: f64,
    cooling: u32,
    /// The next step down, a part of what the program needs.
    step_down: f64,
    /// What moving a page out costs, seconds.
    page_out: f64,
    /// Since something is taken: what was lost for what came back, seconds; windows whose rate left no room;
    /// and where that began.
    rent: f64,
    windows: u32,
    began: Option<Sample>,
    /// Nothing is taken until then, and how long the next time; seconds.
    rests_until: f64,
    rest: f64,
    /// What less would cost.
    forecast: Forecast,
    /// Integrals over time, bytes times seconds: from the start, and from the first step.
    all: Means,
    since: Means,
    counts: Bought,
}

/// Integrals over time.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    seconds: f64,
    needed: f64,
    resident: f64,
}

impl Means {
    fn add(&mut self, seconds: f64, sample: &Sample) {
        self.seconds += seconds;
        self.needed += seconds * bytes(sample.needed);
        self.resident += seconds * bytes(sample.resident);
    }

    fn means(&self) -> [u64; 2] {
        let mean = |of: f64| whole(of / self.seconds.max(1e-9));
        [mean(self.needed), mean(self.resident)]
    }
}

impl Controller {
    /// Takes nothing yet.
    #[must_use]
    pub fn new(asked: Asked) -> Self {
        Self {
            asked,
            high: asked.high,
            window: Sample::default(),
            last: Sample::default(),
            phase: Phase::Young,
            grew: 0.0,
            cooling: 0,
            step_down: FIRST_DOWN,
            page_out: PAGE_OUT,
            rent: 0.0,
            windows: 0,
            began: None,
            rests_until: 0.0,
            rest: REST,
            forecast: Forecast::new(),
            all: Means::default(),
            since: Means::default(),
            counts: Bought {
                least_high: asked.high,
                ..Bought::default()
            },
        }
    }

    /// `high` as it is now, bytes.
    #[must_use]
    pub const fn high(&self) -> u64 {
        self.high
    }

    /// The most that `high` may be has changed.
    pub fn set_most(&mut self, high: u64) {
        let took_nothing = self.high == self.asked.high;
        self.asked.high = high;
        self.high = if took_nothing {
            high
        } else {
            self.high.min(high)
        };
    }

    /// What was bought so far.
    #[must_use]
    pub fn bought(&self) -> Bought {
        let [needed, resident] = self.all.means();
        let [needed_since, resident_since] = self.since.means();
        Bought {
            lost: Lost {
                all: seconds(self.last.stall) / seconds(self.last.run).max(1e-9),
                by_calls: seconds(self.last.calls) / seconds(self.last.run).max(1e-9),
            },
            run: seconds(self.last.run),
            needed,
            resident,
            needed_since,
            resident_since,
            phase: self.phase,
            forecasts: self.forecast.forecasts(),
            ..self.counts.clone()
        }
    }

    /// Takes a sample; `high` from now on, bytes.
    pub fn step(&mut self, sample: Sample) -> u64 {
        let at = seconds(sample.at);
        let passed = (at - seconds(self.last.at)).max(0.0);
        self.all.add(passed, &sample);
        if self.counts.steps[0] > 0 {
            self.since.add(passed, &sample);
        }
        let grown = bytes(sample.needed) - bytes(self.last.needed);
        self.last = sample;
        if grown > bytes(sample.needed) * GROWTH * passed.max(1e-3) {
            self.grew = at;
            self.follow_growth(&sample, grown);
        } else if at < self.rests_until {
            self.become_idle(Phase::Resting, &sample);
        } else if seconds(sample.run) < YOUNG_RUN {
            self.become_idle(Phase::Young, &sample);
        } else if at - self.grew < SETTLED {
            self.become_idle(Phase::Growing, &sample);
        } else {
            if grown > 0.0 && self.took_something() {
                self.set(bytes(self.high) + grown, false);
            }
            self.judge(&sample);
        }
        self.counts.least_high = self.counts.least_high.min(self.high);
        self.high
    }

    /// Whether `high` is less than it may be.
    #[must_use]
    pub const fn took_something(&self) -> bool {
        self.high < self.asked.high
    }

    /// Nothing is judged now: the window begins anew.
    fn become_idle(&mut self, phase: Phase, sample: &Sample) {
        self.phase = phase;
        self.window = *sample;
    }

    /// What was taken stays out; what is new has room, and as much again for what follows.
    fn follow_growth(&mut self, sample: &Sample, grown: f64) {
        if self.took_something() {
            let headroom = 2.0 * grown + bytes(sample.needed) / 32.0;
            self.set(bytes(self.high.max(sample.resident)) + headroom, false);
        }
        self.forecast.forget();
        self.become_idle(Phase::Growing, sample);
    }

    /// What was allowed so far and is not lost yet, seconds.
    fn balance(&self, sample: &Sample) -> f64 {
        self.aim() * seconds(sample.run) - seconds(sample.stall)
    }

    fn aim(&self) -> f64 {
        self.asked.slowdown * AIM
    }

    /// What it would cost if so much came back, seconds.
    fn cost_back(&self, out: u64) -> f64 {
        let each = if self.last.pages_in < PAGES_KNOWN {
            PAGE_BACK
        } else {
            let each = coming_back(&self.last) / count(self.last.pages_in);
            each.clamp(PAGE_BACK / 4.0, PAGE_BACK)
        };
        bytes(out) / PAGE * each
    }

    /// Learns what moving a page out costs, if many were in the window.
    fn learn_page_out(&mut self, sample: &Sample) {
        let went = sample.pages_out.saturating_sub(self.window.pages_out);
        if went >= PAGES_SEEN {
            let took = seconds(sample.moving_out) - seconds(self.window.moving_out);
            let each = (took / count(went)).clamp(0.0, PAGE_OUT_MOST);
            self.page_out += (each - self.page_out) * SEEN_PART;
        }
    }

    fn judge(&mut self, sample: &Sample) {
        let of = |what: fn(&Sample) -> Duration| {
            (seconds(what(sample)) - seconds(what(&self.window))).max(0.0)
        };
        let (wall, run) = (of(|s| s.at), of(|s| s.run));
        let came = sample.pages_in.saturating_sub(self.window.pages_in);
        let back = coming_back(sample) - coming_back(&self.window);
        let rent = back.max(0.0) + count(came) * self.page_out;
        let balance = self.balance(sample);
        let part = 1.0 + balance / (self.aim() * HORIZON);
        let allowed = self.aim() * part.clamp(LEAST_ALLOWED, MOST_ALLOWED);
        // More than a whole window may lose, twice: no need to wait for its end.
        let alarmed = rent > 2.0 * allowed * WINDOW_RUN.max(run);
        if !alarmed && run < WINDOW_RUN && wall < WINDOW_WALL {
            return;
        }
        let rate = rent / run.max(LEAST_RUN);
        let error = rate / allowed;
        self.learn_page_out(sample);
        self.forecast
            .note(had(sample.resident, sample), rate, seconds(sample.at));
        self.window = *sample;
        if self.took_something() {
            self.windows +=
                u32::from(self.cooling > 0 || self.wanted(sample, error) < bytes(GRAIN));
            self.rent += rent;
        }
        if error > 1.0 {
            self.go_up(sample, error);
        } else if self.cooling > 0 {
            self.cooling -= 1;
            self.phase = Phase::Holding;
        } else if error < ROOM {
            let left = balance - self.cost_back(sample.out);
            self.go_down(sample, error, allowed, left);
        } else {
            self.phase = Phase::Holding;
        }
        self.give_up_if_useless(sample);
    }

    fn go_up(&mut self, sample: &Sample, error: f64) {
        self.cooling = COOLING;
        self.step_down = FIRST_DOWN;
        let most = bytes(sample.needed) * (1.0 + ABOVE) + ABOVE_BYTES;
        if !self.took_something() || bytes(self.high) >= most {
            self.phase = Phase::Holding;
            return;
        }
        self.phase = Phase::BackingOff;
        let part = ((error * error - 1.0) * UP_GAIN).min(STEP_UP);
        let step = (bytes(sample.needed) * part).max(bytes(GRAIN));
        let from = self.high.max(sample.resident.min(self.asked.high));
        self.set((bytes(from) + step).min(most), false);
        self.counts.steps[1] += 1;
    }

    /// By how much `high` would go down if it were paid for; below 0 the rate leaves no room.
    fn wanted(&self, sample: &Sample, error: f64) -> f64 {
        let step = (bytes(sample.needed) * self.step_down).max(bytes(LEAST_DOWN));
        step * (1.0 - error / ROOM)
    }

    /// `left`: what may still be lost if all that is out comes back, seconds.
    fn go_down(&mut self, sample: &Sample, error: f64, allowed: f64, left: f64) {
        // (Where reclaim would just not begin.)
        let from = bytes(self.high).min(bytes(sample.resident) * (1.0 + GAP));
        let wanted = self.wanted(sample, error);
        // What is left pays for moving out what a step takes, and for it, should it come back too.
        let each = self.cost_back(1 << 20) / bytes(1 << 20) + self.page_out / PAGE;
        let carried = left.max(0.0) / (each * OUT_PER_FREED);
        let mut step = wanted.min(carried);
        let at = seconds(sample.at);
        // (A step that is expected to cost too much is made smaller.)
        let costs = |step: f64| {
            let expected = self.forecast.rate(had(whole(from - step), sample), at);
            expected.is_some_and(|rate| rate > ROOM * allowed)
        };
        let is_held = step >= bytes(GRAIN) && costs(step);
        while step >= bytes(GRAIN) && costs(step) {
            step /= 2.0;
        }
        let next = from - step;
        if step < bytes(GRAIN) || next < bytes(self.asked.low) {
            self.windows += u32::from(is_held && self.took_something());
            self.phase = Phase::Holding;
            return;
        }
        self.forecast.tell(had(whole(next), sample), at);
        self.began.get_or_insert(*sample);
        self.phase = Phase::Probing;
        self.set(next, true);
        self.step_down = (self.step_down * FASTER).min(STEP_DOWN);
        self.counts.steps[0] += 1;
    }

    /// `down`: only then `high` may become less.
    fn set(&mut self, high: f64, down: bool) {
        let low = self.asked.low.min(self.asked.high);
        let high = (whole(high) / GRAIN * GRAIN).clamp(low, self.asked.high);
        self.high = if down {
            high.min(self.high)
        } else {
            high.max(self.high)
        };
    }

    /// Next to nothing is saved, and that was not for nothing: all is given back for a while.
    fn give_up_if_useless(&mut self, sample: &Sample) {
        let Some(began) = self.began else { return };
        let ran = seconds(sample.run) - seconds(began.run);
        let lost = self.rent;
        let saved = bytes(sample.needed) - bytes(sample.resident.min(self.high));
        let least = PAYS.max(PAYS_TIMES * lost / ran.max(1e-3));
        let useless = saved < bytes(sample.needed) * least && lost > self.aim() * ran / 4.0;
        if self.windows < TRIAL || !useless {
            return;
        }
        self.high = self.asked.high;
        (self.windows, self.rent, self.began, self.cooling) = (0, 0.0, None, 0);
        self.rests_until = seconds(sample.at) + self.rest;
        self.rest = (self.rest * 2.0).min(LONGEST_REST);
        self.counts.rests += 1;
        self.phase = Phase::Resting;
    }
}

/// The part of what is needed that so much is.
fn had(resident: u64, sample: &Sample) -> f64 {
    bytes(resident) / bytes(sample.needed.max(1))
}

/// What was lost for what came back, seconds.
fn coming_back(sample: &Sample) -> f64 {
    let otherwise = sample.moving_out + sample.calls;
    seconds(sample.stall.saturating_sub(otherwise))
}

fn seconds(of: Duration) -> f64 {
    of.as_secs_f64()
}

#[allow(
    clippy::cast_precision_loss,
    reason = "bytes of memory: 2^53 of them are enough"
)]
fn bytes(of: u64) -> f64 {
    of as f64
}

#[allow(clippy::cast_precision_loss, reason = "a number of pages")]
fn count(of: u64) -> f64 {
    of as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and below 0 is 0"
)]
fn whole(of: f64) -> u64 {
    of as u64
}
