//! Random allocations, frees, pins and steps of compaction, over an arena with
//! contents. See `support`.

mod support;

use proptest::prelude::*;
use support::Arena;
use zfolio_mm::compaction::{
    Compactor, Evacuate, Folios, Goal, NotBegun, Outcome, Policy, Request, Step, variants,
};
use zfolio_mm::{Kind, Order};

const BLOCKS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// This many folios of so many pages.
    Alloc(usize, usize),
    /// Frees several folios, from the n-th on every so-many-th.
    Free(usize, usize, usize),
    Immovable(usize),
    Busy(usize),
    Unsplittable(usize),
    /// Everything may move again.
    Relax,
    Populate(u8),
    Release(u8),
    Direct(u8),
    Unasked(Request),
    Steps(usize, usize),
    Contend,
    Stop,
}

fn op() -> impl Strategy<Value = Op> {
    let any = any::<usize>;
    let goal = prop_oneof![
        Just(Goal::OneBlock),
        Just(Goal::Everything),
        (0usize..100).prop_map(Goal::Score)
    ];
    prop_oneof![
        4 => (1usize..200, prop_oneof![3 => 1usize..=8, 1 => 1usize..=512])
            .prop_map(|(n, pages)| Op::Alloc(n, pages)),
        4 => (any(), 1usize..100, 1usize..5).prop_map(|(at, n, by)| Op::Free(at, n, by)),
        1 => any().prop_map(Op::Immovable),
        1 => any().prop_map(Op::Busy),
        1 => any().prop_map(Op::Unsplittable),
        1 => Just(Op::Relax),
        2 => (0u8..=9).prop_map(Op::Populate),
        1 => (0u8..=9).prop_map(Op::Release),
        3 => (1u8..=9).prop_map(Op::Direct),
        2 => (0u8..=9, goal).prop_map(|(o, goal)| {
            Op::Unasked(Request { order: Order::new(o).expect("at most 9"), goal })
        }),
        8 => (1usize..20, 1usize..300).prop_map(|(n, budget)| Op::Steps(n, budget)),
        1 => Just(Op::Contend),
        1 => Just(Op::Stop),
    ]
}

fn ended<P: Policy>(arena: &Arena, compactor: &Compactor<P>, want: Option<Order>, how: Outcome) {
    assert_eq!(compactor.held_pages(), 0, "{how:?}");
    let larger = Order::all().filter(|order| want.is_some_and(|want| *order >= want));
    if how == Outcome::Success && want.is_some() {
        let free: usize = larger.map(|order| arena.free_blocks(order)).sum();
        assert!(free > 0, "{}: success without a block", P::NAME);
    }
    if P::NAME != variants::MigrateWhole::NAME {
        assert_ne!(how, Outcome::NoFreePage, "{}", P::NAME);
    }
}

/// `want`: the order a run under way is to make one block of.
fn perform<P: Policy>(
    arena: &mut Arena,
    compactor: &mut Compactor<P>,
    want: &mut Option<Order>,
    op: Op,
) {
    match op {
        Op::Alloc(n, pages) => (0..n).all(|_| arena.alloc(pages).is_some()).then_some(()),
        Op::Free(at, n, by) => {
            for i in 0..n {
                if let Some(at) = arena.nth(at.wrapping_add(i * by)) {
                    arena.free(at);
                }
            }
            Some(())
        }
        Op::Immovable(n) => arena.nth(n).map(|at| arena.folio_mut(at).movable = false),
        Op::Busy(n) => arena.nth(n).map(|at| arena.folio_mut(at).busy = true),
        Op::Unsplittable(n) => arena
            .nth(n)
            .map(|at| arena.folio_mut(at).splittable = false),
        Op::Relax => {
            for folio in arena.folios.values_mut() {
                (folio.movable, folio.busy) = (true, false);
            }
            Some(())
        }
        Op::Populate(o) => arena.populate(support::order(o)).map(|_| ()),
        Op::Release(o) => {
            arena.release(support::order(o));
            Some(())
        }
        Op::Direct(o) if !compactor.is_running() => {
            match compactor.begin_direct(arena, support::order(o)) {
                Ok(()) => *want = Some(support::order(o)),
                Err(NotBegun::NotNeeded) => {
                    let free = (o..=9).any(|o| arena.free_blocks(support::order(o)) > 0);
                    assert!(free, "nothing of order {o} is free");
                }
                Err(_) => {}
            }
            Some(())
        }
        Op::Unasked(request) if !compactor.is_running() => {
            compactor.begin_unasked(arena, request);
            *want = (request.goal == Goal::OneBlock).then_some(request.order);
            Some(())
        }
        Op::Steps(n, budget) => (0..n)
            .all(|_| {
                if !compactor.is_running() {
                    return false;
                }
                let step = compactor.step(arena, budget);
                arena.check(compactor);
                if let Step::Done(how) = step {
                    ended(arena, compactor, *want, how);
                }
                true
            })
            .then_some(()),
        Op::Contend => {
            arena.contended = true;
            if compactor.is_running() {
                assert_eq!(
                    compactor.step(arena, 1),
                    Step::Done(Outcome::Contended),
                    "contention ends a run"
                );
            }
            arena.contended = false;
            Some(())
        }
        Op::Stop => {
            compactor.stop(arena);
            assert_eq!(compactor.held_pages(), 0);
            Some(())
        }
        Op::Direct(_) | Op::Unasked(_) => None,
    };
}

/// The sequence, then a run to the end with nothing in the way.
fn sequence<P: Policy>(ops: &[Op]) {
    let mut arena = Arena::holes(BLOCKS);
    for _ in 0..3 {
        arena.populate(Order::HUGE);
    }
    let mut compactor = Compactor::<P>::new(arena.slots());
    let mut want = None;
    for op in ops {
        perform(&mut arena, &mut compactor, &mut want, *op);
        arena.check(&compactor);
    }
    compactor.stop(&mut arena);
    let request = Request {
        order: Order::HUGE,
        goal: Goal::Everything,
    };
    let pages: usize = arena.folios.values().map(|folio| folio.pages).sum();
    compactor.begin_unasked(&arena, request);
    let how = compactor.run(&mut arena);
    ended(&arena, &compactor, None, how);
    arena.check(&compactor);
    let after: usize = arena.folios.values().map(|folio| folio.pages).sum();
    assert_eq!(pages, after, "folios are conserved");
    assert_eq!(arena.frames.used_pages(), pages);
    let free: usize = Kind::ALL.iter().map(|k| arena.frames.free_pages(*k)).sum();
    assert_eq!(free + pages, BLOCKS * 512);
}

/// Cases of each variant: `ZFOLIO_CASES` for a long run.
fn cases() -> u32 {
    let set = std::env::var("ZFOLIO_CASES").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(48)
}

macro_rules! models {
    ($($name:ident: $policy:ty;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig {
                cases: cases(), failure_persistence: None, ..Default::default()
            })]
            $(#[test]
            fn $name(ops in prop::collection::vec(op(), 1..80)) {
                sequence::<$policy>(&ops);
            })*
        }
    };
}

models! {
    evacuate: Evacuate;
    base: variants::Base;
    split_folios: variants::SplitFolios;
    migrate_whole: variants::MigrateWhole;
    split_free: variants::SplitFree;
    sort_sources: variants::SortSources;
}
