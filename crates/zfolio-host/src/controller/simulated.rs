//! The controller against made-up programs.
//!
//! A program is a few kinds of pages, each touched at its own rate. What is moved out is
//! chosen as a clock hand does: mostly what is touched least, one part in eight anything. A
//! touch of what is out costs time and brings it back.

use super::*;
use proptest::prelude::*;

const MIB: f64 = 1024.0 * 1024.0;
/// A look each so often, seconds.
const TICK: f64 = 0.1;
/// Of what is moved out, the part that is chosen without regard to its use.
const BLIND: f64 = 0.125;
/// What is out takes this part of its size in the pool.
const POOL: f64 = 0.35;

/// Pages of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// MiB.
    size: f64,
    /// Of these, out.
    out: f64,
    /// Touches of each page in a second of the program's time.
    rate: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) kinds: Vec<Kind>,
    /// Part of the time that it runs.
    pub(super) busy: f64,
    /// What a page costs that comes back, and one that is moved out, seconds.
    cost: f64,
    cost_out: f64,
    /// Of the time that it runs, the part that its calls take longer.
    calls: f64,
    pub(super) sample: Sample,
    /// Pages that came back, and that were moved out.
    back: f64,
    gone: f64,
}

impl Program {
    pub(super) fn new(kinds: &[(f64, f64)]) -> Self {
        let kinds = kinds.iter().map(|&(size, rate)| Kind {
            size,
            rate,
            out: 0.0,
        });
        Self {
            kinds: kinds.collect(),
            busy: 1.0,
            cost: 12e-6,
            cost_out: 0.0,
            calls: 0.0,
            sample: Sample::default(),
            back: 0.0,
            gone: 0.0,
        }
    }

    fn size(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.size).sum()
    }

    fn out(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.out).sum()
    }

    pub(super) fn resident(&self) -> f64 {
        self.size() - self.out() * (1.0 - POOL)
    }

    /// A tick with so much `high`, bytes.
    pub(super) fn tick(&mut self, high: u64) {
        let time = TICK * self.busy;
        // As many come back as are touched, until the tick is over.
        let touched = |kind: &Kind| kind.out * (1.0 - (-kind.rate * time).exp());
        let pages: f64 = self.kinds.iter().map(touched).sum::<f64>() * MIB / PAGE;
        let fits = (time / (pages * self.cost).max(1e-12)).min(1.0);
        for kind in &mut self.kinds {
            kind.out -= touched(kind) * fits;
        }
        self.back += pages * fits;
        let went = self.squeeze(bytes(high) / MIB) * MIB / PAGE;
        self.gone += went;
        let moving_out = went * self.cost_out;
        let calls = time * self.calls;
        let stall = pages * fits * self.cost + moving_out + calls;
        let add = |to: &mut Duration, seconds: f64| *to += Duration::from_secs_f64(seconds);
        add(&mut self.sample.at, TICK);
        add(&mut self.sample.run, (time - stall).max(0.0));
        add(&mut self.sample.stall, stall);
        add(&mut self.sample.moving_out, moving_out);
        add(&mut self.sample.calls, calls);
        self.sample.needed = whole(self.size() * MIB);
        self.sample.resident = whole(self.resident() * MIB);
        self.sample.out = whole(self.out() * MIB);
        self.sample.pages_in = whole(self.back);
        self.sample.pages_out = whole(self.gone);
    }

    /// Moves out until `high` (MiB) is kept, as fast as 100 MiB a second; how much, MiB.
    fn squeeze(&mut self, high: f64) -> f64 {
        let before = self.out();
        let mut left = ((self.resident() - high) / (1.0 - POOL)).clamp(0.0, 100.0 * TICK);
        let present: f64 = self.kinds.iter().map(|kind| kind.size - kind.out).sum();
        let blind = left * BLIND / present.max(1e-9);
        for kind in &mut self.kinds {
            kind.out += (kind.size - kind.out) * blind.min(1.0);
        }
        left *= 1.0 - BLIND;
        let mut order: Vec<usize> = (0..self.kinds.len()).collect();
        order.sort_by(|a, b| self.kinds[*a].rate.total_cmp(&self.kinds[*b].rate));
        for at in order {
            let kind = &mut self.kinds[at];
            let more = (kind.size - kind.out).min(left);
            kind.out += more;
            left -= more;
        }
        self.out() - before
    }
}

/// `--slowdown 5%` on a machine of 8 GiB.
pub(super) fn five_percent() -> Controller {
    Controller::new(Asked {
        slowdown: 0.05,
        low: 8 << 20,
        high: 4 << 30,
    })
}

/// Runs for so many seconds; `change` is called at each tick.
fn run(
    controller: &mut Controller,
    program: &mut Program,
    length: f64,
    mut change: impl FnMut(f64, &mut Program),
) {
    let mut at = 0.0;
    while at < length {
        change(at, program);
        program.tick(controller.high());
        controller.step(program.sample);
        at += TICK;
    }
}

fn mib(of: u64) -> f64 {
    bytes(of) / MIB
}

#[test]
fn what_is_never_touched_is_taken() {
    let mut controller = five_percent();
    let mut program = Program::new(&[(60.0, 20.0), (140.0, 0.0005)]);
    run(&mut controller, &mut program, 60.0, |_, _| {});
    let bought = controller.bought();
    assert!(bought.lost.all <= 0.05, "{bought:?}");
    // 140 MiB take 49 in the pool.
    assert!(program.resident() < 125.0, "{bought:?} {program:?}");
    assert_eq!(bought.rests, 0, "{bought:?}");
}

/// A hundredth of it is less than `high` is told in.
#[test]
fn a_small_program_is_taken_from_as_well() {
    for size in [20.0, 60.0, 99.0] {
        let mut controller = five_percent();
        let mut program = Program::new(&[(size / 5.0, 20.0), (size * 0.8, 0.0005)]);
        run(&mut controller, &mut program, 60.0, |_, _| {});
        let bought = controller.bought();
        assert!(bought.lost.all <= 0.05, "{size}: {bought:?}");
        assert!(program.resident() < 0.7 * size, "{size}: {bought:?}");
    }
}

/// On a processor of its own each page that is moved out takes as much of the program's time as it costs
/// us. That is lost once, and no reason to give memory back.
#[test]
fn what_moving_out_costs_is_paid_and_is_not_taken_for_pages_in_use() {
    for (length, least) in [(20.0, 0.18), (90.0, 0.5)] {
        let mut controller = five_percent();
        let mut program = Program::new(&[(30.0, 20.0), (250.0, 0.0005)]);
        program.cost_out = 21e-6;
        run(&mut controller, &mut program, length, |_, _| {});
        let bought = controller.bought();
        assert!(bought.lost.all <= 0.05, "{length}: {bought:?}");
        assert_eq!(bought.rests, 0, "{length}: {bought:?}");
        let saved = 1.0 - program.resident() / program.size();
        assert!(saved >= least, "{length}: {saved} {bought:?}");
    }
}

/// What calls cost is of what was asked for, and what comes back does not look dearer by it.
#[test]
fn what_calls_cost_is_not_spent_on_memory() {
    let bought = |calls| {
        let mut controller = five_percent();
        let mut program = Program::new(&[(30.0, 20.0), (250.0, 0.002)]);
        (program.cost_out, program.calls) = (10e-6, calls);
        run(&mut controller, &mut program, 60.0, |_, _| {});
        let bought = controller.bought();
        assert!(bought.lost.all <= 0.055, "{calls}: {bought:?}");
        assert_eq!(bought.rests, 0, "{calls}: {bought:?}");
        bought
    };
    let [none, some, all] = [0.0, 0.02, 0.05].map(bought);
    assert!(
        some.lost.by_calls > 0.018 && none.lost.by_calls == 0.0,
        "{some:?}"
    );
    let saved = |of: &Bought| 1.0 - bytes(of.resident) / bytes(of.needed);
    assert!(
        saved(&none) > saved(&some) && saved(&some) > 0.1,
        "{none:?} {some:?}"
    );
    assert_eq!(all.needed_since, 0, "{all:?}");
}

/// A large program's memory takes long to move out: not paying yet is not useless.
#[test]
fn a_large_program_is_not_given_up() {
    let mut controller = Controller::new(Asked {
        slowdown: 0.05,
        low: 8 << 20,
        high: 16 << 30,
    });
    let mut program = Program::new(&[(400.0, 20.0), (7600.0, 0.0001)]);
    program.cost_out = 21e-6;
    run(&mut controller, &mut program, 600.0, |_, _| {});
    let bought = controller.bought();
    assert!(bought.lost.all <= 0.05 && bought.rests == 0, "{bought:?}");
    assert!(program.resident() < 0.8 * program.size(), "{bought:?}");
}

#[test]
fn a_working_set_stays_and_the_promise_is_kept() {
    for rate in [0.02, 0.1, 0.5, 2.0, 50.0] {
        let mut controller = five_percent();
        let mut program = Program::new(&[(200.0, rate)]);
        run(&mut controller, &mut program, 120.0, |_, _| {});
        let bought = controller.bought();
        assert!(bought.lost.all <= 0.05, "{rate}: {bought:?}");
        if rate >= 2.0 {
            assert!(bought.rests > 0, "{rate}: it does not pay: {bought:?}");
            assert_eq!(bought.phase, Phase::Resting, "{rate}");
        }
    }
}

#[test]
fn nothing_is_taken_while_it_grows() {
    let mut controller = five_percent();
    let mut program = Program::new(&[(1.0, 0.0)]);
    run(&mut controller, &mut program, 5.0, |_, program| {
        program.kinds[0].size += 20.0 * TICK + program.kinds[0].size * TICK * 0.2;
    });
    let bought = controller.bought();
    assert_eq!(bought.steps, [0, 0], "{bought:?}");
    assert_eq!(controller.high(), 4 << 30);
    // Once it has grown its memory is taken.
    run(&mut controller, &mut program, 20.0, |_, _| {});
    assert!(controller.bought().steps[0] > 0);
}

#[test]
fn one_that_grows_again_has_room_for_it() {
    let mut controller = five_percent();
    let mut program = Program::new(&[(50.0, 20.0), (150.0, 0.0)]);
    run(&mut controller, &mut program, 30.0, |_, _| {});
    let out = program.out();
    assert!(out > 100.0, "{program:?}");
    run(&mut controller, &mut program, 4.0, |_, program| {
        program.kinds[0].size += 50.0 * TICK;
    });
    assert!(
        mib(controller.high()) >= program.resident() - 1.0,
        "{} MiB, {program:?}",
        mib(controller.high())
    );
    assert!(controller.bought().lost.all <= 0.05);
}

#[test]
fn a_scan_of_everything_is_paid_for_before() {
    // Each ends by reading all of its memory, in order.
    for length in [3.0, 6.0, 12.0, 60.0] {
        let mut controller = five_percent();
        let mut program = Program::new(&[(40.0, 20.0), (160.0, 0.0)]);
        run(&mut controller, &mut program, length, |_, _| {});
        assert!(program.out() > 20.0, "{length} s: {program:?}");
        program.cost = 5e-6;
        for kind in &mut program.kinds {
            kind.rate = 20.0;
        }
        while program.out() > 5.0 {
            // (As it ends nobody takes anything more.)
            program.tick(4 << 30);
            controller.step(program.sample);
        }
        let bought = controller.bought();
        assert!(bought.lost.all <= 0.055, "{length} s: {bought:?}");
    }
}

#[test]
fn phases_are_followed() {
    let mut controller = five_percent();
    let mut program = Program::new(&[(60.0, 20.0), (60.0, 0.0), (60.0, 0.0)]);
    let mut least = f64::INFINITY;
    run(&mut controller, &mut program, 200.0, |at, program| {
        // Another part is hot every 20 s.
        let phase = (at / 20.0).floor() % 3.0;
        for (kind, its) in program.kinds.iter_mut().zip([0.0, 1.0, 2.0]) {
            let is_hot: bool = (phase - its).abs() < 0.5;
            kind.rate = if is_hot { 20.0 } else { 0.0 };
        }
        least = least.min(program.resident());
    });
    let bought = controller.bought();
    assert!(bought.lost.all <= 0.05, "{bought:?}");
    assert!(least < 140.0, "{least} MiB, {bought:?}");
}

#[test]
fn an_idle_program_may_be_taken_and_wakes_cheaply() {
    let mut controller = five_percent();
    let mut program = Program::new(&[(200.0, 1.0)]);
    run(&mut controller, &mut program, 4.0, |_, _| {});
    program.busy = 0.0;
    run(&mut controller, &mut program, 120.0, |_, _| {});
    program.busy = 1.0;
    for kind in &mut program.kinds {
        kind.rate = 20.0;
    }
    run(&mut controller, &mut program, 8.0, |_, _| {});
    let bought = controller.bought();
    assert!(bought.lost.all <= 0.06, "{bought:?}");
}

/// A step down is expected to cost what it does cost, within a point of the time that the program runs.
#[test]
fn steps_down_cost_what_was_expected() {
    for kinds in [
        &[(200.0, 0.02)][..],
        &[
            (10.0, 20.0),
            (20.0, 5.0),
            (40.0, 1.0),
            (60.0, 0.1),
            (70.0, 0.01),
        ],
    ] {
        let mut controller = five_percent();
        let mut program = Program::new(kinds);
        run(&mut controller, &mut program, 60.0, |_, _| {});
        let of = controller.bought().forecasts;
        assert!(of.count > 10, "{of:?}");
        assert!(of.mean(of.error) < 0.01, "{of:?}");
        let curve = of.curve;
        assert!(curve.len() > 4, "{curve:?}");
        assert!(curve.is_sorted_by(|one, next| one.part > next.part));
        assert!(curve[0].rate < curve[curve.len() - 1].rate, "{curve:?}");
    }
}

/// Where a level cost too much a moment ago it is not tried again at once: of a program that uses all it has
/// less is lost by that.
#[test]
fn what_cost_too_much_is_not_tried_again_at_once() {
    let mut controller = five_percent();
    let mut program = Program::new(&[(200.0, 20.0)]);
    program.cost_out = 21e-6;
    run(&mut controller, &mut program, 180.0, |_, _| {});
    let bought = controller.bought();
    assert!(bought.lost.all < 0.007, "{bought:?}");
}

#[test]
fn one_that_ends_at_once_is_left_alone() {
    let mut controller = five_percent();
    let mut program = Program::new(&[(200.0, 1.0)]);
    run(&mut controller, &mut program, 0.4, |_, _| {});
    assert_eq!(controller.bought().steps, [0, 0]);
    assert_eq!(controller.bought().phase, Phase::Young);
}

#[test]
fn floor_and_ceiling_are_kept() {
    let mut controller = Controller::new(Asked {
        slowdown: 0.05,
        low: 100 << 20,
        high: 180 << 20,
    });
    let mut program = Program::new(&[(10.0, 20.0), (190.0, 0.0)]);
    run(&mut controller, &mut program, 60.0, |_, _| {});
    let bought = controller.bought();
    assert!(bought.least_high >= 100 << 20, "{bought:?}");
    assert!(bought.least_high < 110 << 20, "{bought:?}");
    controller.set_most(90 << 20);
    assert_eq!(controller.high(), 90 << 20, "less than the floor is less");
    controller.set_most(180 << 20);
    assert!(controller.high() <= 180 << 20);
}

#[test]
fn where_nothing_is_taken_the_most_is_had() {
    let mut controller = five_percent();
    controller.set_most(1 << 30);
    assert_eq!(controller.high(), 1 << 30);
    controller.set_most(2 << 30);
    assert_eq!(controller.high(), 2 << 30);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the program does: the bounds are kept, and over a long run the promise.
    #[test]
    fn the_promise_is_kept(
        sizes in prop::collection::vec((5.0..200.0_f64, 0..6_usize), 1..5),
        slowdown in 1..20_u32,
        cost in 4e-6..25e-6_f64,
        cost_out in 0.0..40e-6_f64,
        turns in prop::collection::vec((0..5_usize, 0..6_usize, 3.0..30.0_f64), 0..6),
    ) {
        const RATES: [f64; 6] = [0.0, 0.001, 0.02, 0.3, 4.0, 50.0];
        let kinds: Vec<(f64, f64)> = sizes.iter().map(|(size, rate)| (*size, RATES[*rate])).collect();
        let asked = Asked { slowdown: f64::from(slowdown) / 100.0, low: 8 << 20, high: 1 << 30 };
        let mut controller = Controller::new(asked);
        let mut program = Program::new(&kinds);
        (program.cost, program.cost_out) = (cost, cost_out);
        let check = |controller: &Controller| {
            assert!((asked.low..=asked.high).contains(&controller.high()));
        };
        run(&mut controller, &mut program, 10.0, |_, _| {});
        for (at, rate, length) in turns {
            let count = program.kinds.len();
            program.kinds[at % count].rate = RATES[rate];
            run(&mut controller, &mut program, length, |_, _| {});
            check(&controller);
        }
        run(&mut controller, &mut program, 60.0, |_, _| {});
        let bought = controller.bought();
        prop_assert!(bought.lost.all <= asked.slowdown * 1.1, "{:?}", bought);
    }

    /// Samples of any kind, in any order.
    #[test]
    fn no_sample_is_too_odd(
        samples in prop::collection::vec(any::<[u32; 10]>(), 1..60),
    ) {
        let mut controller = five_percent();
        for [at, run, stall, moving_out, calls, needed, resident, out, pages_in, pages_out] in samples {
            let high = controller.step(Sample {
                at: Duration::from_millis(at.into()),
                run: Duration::from_millis(run.into()),
                stall: Duration::from_millis(stall.into()),
                moving_out: Duration::from_millis(moving_out.into()),
                calls: Duration::from_millis(calls.into()),
                needed: needed.into(),
                resident: resident.into(),
                out: out.into(),
                pages_in: pages_in.into(),
                pages_out: pages_out.into(),
            });
            prop_assert!((8 << 20..=4 << 30).contains(&high));
        }
    }
}
