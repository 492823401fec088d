//! Shares and parts by their rules, and what `swap.high` costs.

extern crate std;
use super::rule::{Claim, Holder, Part, part_of_high, part_of_max, share, swap_penalty};
use crate::segment::WEIGHT;
use proptest::prelude::*;
use std::vec::Vec;

fn shares(high: usize, needs: &[usize]) -> Vec<usize> {
    let one = |mine: &usize| {
        share(high, (*mine).into(), || {
            needs.iter().copied().map(Claim::from)
        })
    };
    needs.iter().map(one).collect()
}

/// The same, of needs and weights.
fn weighed(high: usize, claims: &[(usize, u32)]) -> Vec<usize> {
    let claims: Vec<_> = claims
        .iter()
        .map(|(needs, weight)| Claim {
            needs: *needs,
            weight: *weight,
        })
        .collect();
    let one = |mine: &Claim| share(high, *mine, || claims.iter().copied());
    claims.iter().map(one).collect()
}

#[test]
fn what_is_left_is_shared_by_weight() {
    let (one, three) = (WEIGHT, 3 * WEIGHT);
    assert_eq!(weighed(100, &[(500, one), (500, three)]), [25, 75]);
    assert_eq!(weighed(100, &[(10, one), (500, three)]), [10, 90]);
    // Who needs no more than its part gets it, however little it weighs.
    assert_eq!(weighed(100, &[(20, one), (60, three)]), [20 + 10, 60 + 10]);
    assert_eq!(weighed(100, &[(60, one), (60, three)]), [40, 60]);
}

#[test]
fn who_needs_little_gets_it_and_the_rest_is_shared() {
    assert_eq!(shares(100, &[500]), [100]);
    assert_eq!(shares(100, &[50, 500]), [50, 50]);
    assert_eq!(shares(100, &[10, 500, 500]), [10, 45, 45]);
    assert_eq!(shares(100, &[10, 20, 500]), [10, 20, 70]);
    assert_eq!(shares(100, &[10, 30]), [40, 60]);
}

/// Of each: resident, needs.
fn parts_of_high(high: usize, all: &[(usize, usize)]) -> Vec<Part> {
    let holder = |at: usize, me: usize| Holder {
        resident: all[at].0,
        claim: all[at].1.into(),
        is_me: at == me,
    };
    let one = |me: usize| {
        part_of_high(high, holder(me, me), || {
            (0..all.len()).map(|at| holder(at, me))
        })
    };
    (0..all.len()).map(one).collect()
}

fn now(high: usize, all: &[(usize, usize)]) -> Vec<usize> {
    let parts = parts_of_high(high, all);
    parts.iter().map(|part| part.now).collect()
}

#[test]
fn what_nobody_has_may_be_had() {
    // (3200, of which a 32nd is nobody's.)
    assert_eq!(now(3200, &[(1000, 9000)]), [3200]);
    // Their fair parts are 1600, and together they have 1900: each may grow by half of the rest.
    assert_eq!(now(3200, &[(1400, 9000), (500, 9000)]), [2000, 1600]);
    // Who needs little keeps nobody from having the rest, and may grow to its part.
    assert_eq!(now(3200, &[(2500, 9000), (100, 200)]), [3000, 1600]);
}

#[test]
fn who_has_more_than_its_part_gives_back_what_is_too_much() {
    // 100 too much, and only the first is above its part.
    assert_eq!(now(3200, &[(2400, 9000), (800, 9000)]), [2300, 1600]);
    // Two are, one by three times as much as the other.
    assert_eq!(
        now(3000, &[(1450, 9000), (1150, 9000), (406, 9000)]),
        [1375, 1125, 1000]
    );
    // None falls below its part, however much the others say they have.
    assert_eq!(now(3200, &[(2000, 9000), (usize::MAX, 9000)])[0], 1600);
}

#[test]
fn a_new_process_may_grow_to_its_part_at_once() {
    let parts = parts_of_high(3200, &[(3100, 9000), (10, 12)]);
    assert_eq!(parts[1].assured, 1600);
    assert_eq!(parts[0].assured, 3188);
}

fn parts(max: usize, have: &[usize]) -> Vec<usize> {
    let one = |mine: &usize| part_of_max(max, *mine, || have.iter().copied());
    have.iter().map(one).collect()
}

#[test]
fn who_has_more_out_than_swap_high_waits_by_the_square_of_it() {
    let waits = [100, 101, 106, 112, 113, 1000].map(|swap| swap_penalty(swap << 20, 100 << 20));
    assert_eq!(waits[0], 0);
    assert!((60_000..70_000).contains(&waits[1]), "{waits:?}");
    assert!((2_200_000..2_400_000).contains(&waits[2]), "{waits:?}");
    assert!(waits[3] < 10_000_000);
    assert_eq!(waits[4..], [10_000_000; 2]);
    assert_eq!((swap_penalty(1, 0), swap_penalty(0, 0)), (10_000_000, 0));
}

#[test]
fn of_max_each_may_have_what_the_others_leave() {
    assert_eq!(parts(100, &[70]), [100]);
    assert_eq!(parts(100, &[10, 60]), [50, 90]);
    // Together too much: whoever has less than an equal part stays.
    assert_eq!(parts(100, &[10, 95]), [90, 90]);
    assert_eq!(parts(100, &[60, 70]), [50, 50]);
}

proptest! {
    #[test]
    fn max_is_exceeded_by_one_if_it_is_by_all(max in 1000_usize..1_000_000, have in prop::collection::vec(0_usize..400_000, 1..40)) {
        let parts = parts(max, &have);
        let over = parts.iter().zip(&have).any(|(part, have)| have > part);
        let all: usize = have.iter().sum();
        prop_assert!(!over || all > max, "nobody is over while there is room");
        prop_assert!(over || all <= max + have.len(), "somebody is when there is none");
        let equal = max / have.len();
        prop_assert!(parts.iter().all(|part| *part >= equal));
    }

    #[test]
    fn parts_of_high_lead_to_no_more_than_high(
        high in 10_000_usize..1_000_000,
        all in prop::collection::vec((0_usize..400_000, 0_usize..400_000), 1..40),
    ) {
        let all: Vec<_> = all.iter().map(|(has, out)| (*has, has + out)).collect();
        let mut has = all;
        // (Each grows to what it may have, or is brought down to it, again and again.)
        for _ in 0..200 {
            let parts = now(high, &has);
            for (one, part) in has.iter_mut().zip(&parts) {
                one.0 = one.1.min(*part);
            }
        }
        let total: usize = has.iter().map(|(has, _)| has).sum();
        prop_assert!(total <= high + has.len(), "{total} of {high}");
        // Who lacks some has its fair part.
        let fair = shares(high, &has.iter().map(|(_, needs)| *needs).collect::<Vec<_>>());
        for ((has, needs), fair) in has.iter().zip(&fair) {
            prop_assert!(*has >= (*needs).min(*fair), "{has} of {fair}");
        }
    }

    #[test]
    fn shares_are_fair(high in 1000_usize..1_000_000, needs in prop::collection::vec(0_usize..400_000, 1..40)) {
        let shares = shares(high, &needs);
        prop_assert!(shares.iter().sum::<usize>() <= high, "within `high`");
        let equal = high / needs.len();
        for (share, needs) in shares.iter().zip(&needs) {
            prop_assert!(*share >= (*needs).min(equal), "nobody is worse off than with an equal part");
        }
        // Nothing is kept back while somebody lacks it.
        if needs.iter().sum::<usize>() >= high {
            prop_assert!(shares.iter().sum::<usize>() + needs.len() > high);
        }
        // Equal weights are equal parts, whatever they are.
        let same: Vec<(usize, u32)> = needs.iter().map(|needs| (*needs, 7)).collect();
        prop_assert_eq!(&weighed(high, &same), &shares);
        // Who gets less than it needs gets no less than anybody.
        for (share, mine) in shares.iter().zip(&needs) {
            if share < mine {
                prop_assert!(shares.iter().all(|other| other <= share));
            }
        }
    }

    #[test]
    fn weighed_shares_are_within_high_and_leave_nothing(
        high in 1000_usize..1_000_000,
        claims in prop::collection::vec((0_usize..400_000, WEIGHT / 16..WEIGHT * 16), 1..40),
    ) {
        let shares = weighed(high, &claims);
        let sum: usize = shares.iter().sum();
        prop_assert!(sum <= high);
        if claims.iter().map(|(needs, _)| needs).sum::<usize>() >= high {
            prop_assert!(sum + claims.len() > high, "{sum} of {high}");
        }
        // Who lacks some has no less for its weight than anybody.
        for (share, (needs, weight)) in shares.iter().zip(&claims) {
            if share < needs {
                for (other, (_, others)) in shares.iter().zip(&claims) {
                    prop_assert!(*other as u64 * u64::from(*weight) <= (*share as u64 + 1) * u64::from(*others));
                }
            }
        }
    }
}
