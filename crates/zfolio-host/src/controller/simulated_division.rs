//! Several made-up programs in one run: the controller says what all have, the rule of shares who has
//! what of it, and the division by which weights.

use super::division::{Division, Part};
use super::simulated::{Program, five_percent};
use super::*;
use proptest::prelude::*;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::fair_share::{Claim, grown, share};
use zfolio_runtime::segment::{MOST_WEIGHT, WEIGHT};

const MIB: f64 = 1024.0 * 1024.0;

struct Several {
    controller: Controller,
    division: Option<Division>,
    programs: Vec<Program>,
    weights: Vec<u32>,
}

impl Several {
    fn new(programs: &[&[(f64, f64)]], divides: bool) -> Self {
        Self {
            controller: five_percent(),
            division: divides.then(Division::default),
            programs: programs.iter().map(|kinds| Program::new(kinds)).collect(),
            weights: vec![WEIGHT; programs.len()],
        }
    }

    fn claims(&self) -> Vec<Claim> {
        let claims = self.programs.iter().zip(&self.weights);
        claims
            .map(|(program, weight)| Claim {
                needs: grown(usize::try_from(program.sample.needed).unwrap() / PAGE_SIZE),
                weight: *weight,
            })
            .collect()
    }

    fn tick(&mut self) {
        let high = usize::try_from(self.controller.high()).unwrap() / PAGE_SIZE;
        let claims = self.claims();
        for (program, claim) in self.programs.iter_mut().zip(&claims) {
            let pages = share(high, *claim, || claims.iter().copied());
            program.tick((pages * PAGE_SIZE) as u64);
        }
        let mut all = Sample::default();
        for Program { sample, .. } in &self.programs {
            all.at = sample.at;
            all.run += sample.run;
            all.stall += sample.stall;
            all.moving_out += sample.moving_out;
            all.needed += sample.needed;
            all.resident += sample.resident;
            all.out += sample.out;
            all.pages_in += sample.pages_in;
            all.pages_out += sample.pages_out;
        }
        self.controller.step(all);
        let parts: Vec<Part> = (1..)
            .zip(&self.programs)
            .map(|(id, program)| Part {
                id,
                needed: program.sample.needed,
                resident: program.sample.resident,
                stall: program.sample.stall,
            })
            .collect();
        if let Some(division) = &mut self.division {
            let takes = self.controller.took_something();
            for (id, weight) in division.step(all.at, &parts, takes) {
                self.weights[usize::try_from(id).unwrap() - 1] = weight;
            }
        }
    }

    fn run(&mut self, length: f64) {
        let until = self.programs[0].sample.at.as_secs_f64() + length;
        while self.programs[0].sample.at.as_secs_f64() < until {
            self.tick();
        }
    }

    /// What all have saved on average since something was first taken, MiB.
    fn saved(&self) -> f64 {
        let bought = self.controller.bought();
        (bytes(bought.needed_since) - bytes(bought.resident_since)) / MIB
    }
}

/// One that uses all it has, and one of which next to nothing is used.
const HOT: &[(f64, f64)] = &[(200.0, 20.0)];
const COLD: &[(f64, f64)] = &[(20.0, 20.0), (180.0, 0.0005)];

#[test]
fn memory_is_taken_where_it_costs_least() {
    for programs in [[HOT, COLD], [COLD, HOT]] {
        let [mut equal, mut divided] =
            [false, true].map(|divides| Several::new(&programs, divides));
        equal.run(180.0);
        divided.run(180.0);
        let bought = divided.controller.bought();
        assert!(bought.lost.all <= 0.05, "{bought:?}");
        let (with, without) = (divided.saved(), equal.saved());
        assert!(
            with > 1.3 * without && with > 60.0,
            "{with} MiB instead of {without}: {bought:?}, {:?}, {:?}",
            divided.weights,
            equal.controller.bought()
        );
    }
}

#[test]
fn two_alike_have_the_same() {
    let mut run = Several::new(&[COLD, COLD], true);
    run.run(120.0);
    let [one, other] = [0, 1].map(|at: usize| run.programs[at].resident());
    assert!((one - other).abs() < 2.0, "{one} {other} {:?}", run.weights);
    assert!(run.saved() > 100.0);
}

/// What was cold becomes hot, and the reverse.
#[test]
fn weights_follow_the_programs() {
    let mut run = Several::new(&[HOT, COLD], true);
    run.run(120.0);
    assert!(run.weights[0] > run.weights[1], "{:?}", run.weights);
    run.programs[0].busy = 0.01;
    run.programs[1].kinds = Program::new(HOT).kinds;
    run.run(240.0);
    assert!(run.weights[1] > run.weights[0], "{:?}", run.weights);
    assert!(run.controller.bought().lost.all <= 0.055);
}

#[test]
fn where_nothing_is_taken_all_weigh_the_same() {
    let mut division = Division::default();
    let part = |id, stall| Part {
        id,
        needed: 100 << 20,
        resident: 50 << 20,
        stall: Duration::from_millis(stall),
    };
    let at = Duration::from_secs;
    assert_eq!(division.step(at(1), &[part(1, 0), part(2, 0)], true), []);
    let changed = division.step(at(2), &[part(1, 100), part(2, 0)], true);
    assert!(
        changed
            .iter()
            .all(|(id, weight)| (*id == 1) == (*weight > WEIGHT))
    );
    assert_eq!((changed.len(), division.changes()), (2, 2));
    // Too soon, and alone: nothing changes.
    assert_eq!(division.step(at(2), &[part(1, 900), part(2, 0)], true), []);
    assert_eq!(division.step(at(3), &[part(1, 900)], true), []);
    assert_eq!(division.step(at(4), &[part(1, 900)], false), [(1, WEIGHT)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever they are: the promise is kept over a long run, and weights are within bounds.
    #[test]
    fn the_promise_is_kept_by_several(
        programs in prop::collection::vec(prop::collection::vec((5.0..100.0_f64, 0..6_usize), 1..4), 2..5),
    ) {
        const RATES: [f64; 6] = [0.0, 0.001, 0.02, 0.3, 4.0, 50.0];
        let programs: Vec<Vec<(f64, f64)>> = programs
            .iter()
            .map(|kinds| kinds.iter().map(|(size, rate)| (*size, RATES[*rate])).collect())
            .collect();
        let programs: Vec<&[(f64, f64)]> = programs.iter().map(Vec::as_slice).collect();
        let mut run = Several::new(&programs, true);
        run.run(120.0);
        let bought = run.controller.bought();
        prop_assert!(bought.lost.all <= 0.056, "{:?} {:?}", bought, run.weights);
        for weight in run.weights {
            prop_assert!((WEIGHT / MOST_WEIGHT..=WEIGHT * MOST_WEIGHT).contains(&weight));
        }
    }
}
