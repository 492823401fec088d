//! Random operations on `Frames` against a model with one entry per slot.
//!
//! Blocks merge as far as they can, so the free blocks follow from the free
//! slots alone: each free slot belongs to the largest aligned block that is
//! free throughout. The model derives them anew and every count must agree.

use proptest::prelude::*;
use zfolio_mm::{Frames, Kind, Order, Pfn};

/// Slots of the arena under test: a few blocks of the largest order.
const SLOTS: usize = 1024;

#[derive(Clone, Copy, Debug)]
enum Op {
    Alloc(Kind, Order),
    AllocExact(Kind, usize),
    TakeFree(Kind, Order),
    /// Takes the free block that starts at a slot, if one does.
    TakeBlock(Kind, usize),
    /// Gives a whole run back, chosen by the first number.
    Free(usize, Kind),
    /// Gives part of a run back; what lies before and after stays in use.
    FreePart(usize, Kind, usize, usize),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Backed), Just(Kind::Hole), Just(Kind::Kept)]
}

fn order() -> impl Strategy<Value = Order> {
    // Small orders more often, or everything is taken at once.
    prop_oneof![3 => 0u8..=3, 2 => 0u8..=9].prop_map(|o| Order::new(o).expect("at most 9"))
}

fn op() -> impl Strategy<Value = Op> {
    let any = any::<usize>;
    prop_oneof![
        3 => (kind(), order()).prop_map(|(k, o)| Op::Alloc(k, o)),
        3 => (kind(), 0usize..=520).prop_map(|(k, pages)| Op::AllocExact(k, pages)),
        1 => (kind(), order()).prop_map(|(k, o)| Op::TakeFree(k, o)),
        2 => (kind(), 0..SLOTS, 0usize..=9).prop_map(|(k, slot, o)| {
            Op::TakeBlock(k, slot >> o << o)
        }),
        4 => (any(), kind()).prop_map(|(which, k)| Op::Free(which, k)),
        2 => (any(), kind(), any(), any()).prop_map(|(w, k, a, b)| Op::FreePart(w, k, a, b)),
    ]
}

/// What the model knows of the arena.
struct Model {
    /// Per slot: the kind it is free as, `None` in use.
    free: Vec<Option<Kind>>,
    /// Runs in use: first slot, pages.
    runs: Vec<(usize, usize)>,
}

impl Model {
    fn new() -> Self {
        Self {
            free: vec![Some(Kind::Hole); SLOTS],
            runs: Vec::new(),
        }
    }

    fn is_free(&self, kind: Kind, start: usize, pages: usize) -> bool {
        self.free[start..start + pages]
            .iter()
            .all(|slot| *slot == Some(kind))
    }

    /// Free blocks: first slot and order.
    fn list(&self, kind: Kind) -> Vec<(usize, Order)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < SLOTS {
            let largest = Order::all()
                .rev()
                .find(|o| at.is_multiple_of(o.pages()) && self.is_free(kind, at, o.pages()));
            found.extend(largest.map(|order| (at, order)));
            at += largest.map_or(1, Order::pages);
        }
        found
    }

    /// Free blocks per order.
    fn blocks(&self, kind: Kind) -> [usize; 10] {
        let mut counts = [0; 10];
        for (_, order) in self.list(kind) {
            counts[order.index()] += 1;
        }
        counts
    }

    fn block_at(&self, kind: Kind, slot: usize) -> Option<Order> {
        let list = self.list(kind);
        let found = list.iter().find(|(at, _)| *at == slot);
        found.map(|(_, order)| *order)
    }

    fn largest(&self, kind: Kind) -> Option<Order> {
        let blocks = self.blocks(kind);
        Order::all().rev().find(|o| blocks[o.index()] != 0)
    }

    /// Notes that a run was handed out; it must have been free as `kind`.
    fn take(&mut self, kind: Kind, at: Pfn, pages: usize) {
        let start = at.index();
        assert!(
            self.is_free(kind, start, pages),
            "{at}: handed out though not free"
        );
        self.free[start..start + pages].fill(None);
        self.runs.push((start, pages));
    }

    fn give(&mut self, kind: Kind, start: usize, pages: usize) {
        assert!(self.free[start..start + pages].iter().all(Option::is_none));
        self.free[start..start + pages].fill(Some(kind));
    }
}

fn pfn(slot: usize) -> Pfn {
    Pfn(0).offset(slot)
}

fn step(frames: &mut Frames, model: &mut Model, op: Op) {
    match op {
        Op::Alloc(kind, order) => {
            let fits = model.largest(kind).is_some_and(|largest| largest >= order);
            let at = frames.alloc(kind, order);
            assert_eq!(at.is_some(), fits, "alloc of {order:?} as {kind:?}");
            if let Some(at) = at {
                assert!(at.is_aligned(order));
                model.take(kind, at, order.pages());
            }
        }
        Op::AllocExact(kind, pages) => {
            let order = Order::holding(pages);
            let fits = order.is_some_and(|o| model.largest(kind).is_some_and(|l| l >= o));
            let at = frames.alloc_exact(kind, pages);
            assert_eq!(at.is_some(), fits, "alloc of {pages} pages as {kind:?}");
            if let Some(at) = at {
                assert!(order.is_some_and(|o| at.is_aligned(o)));
                model.take(kind, at, pages);
            }
        }
        Op::TakeFree(kind, max) => {
            let expected = model.largest(kind).map(|largest| largest.min(max));
            let taken = frames.take_free(kind, max);
            assert_eq!(taken.map(|(_, order)| order), expected);
            if let Some((at, order)) = taken {
                model.take(kind, at, order.pages());
            }
        }
        Op::TakeBlock(kind, slot) => {
            let expected = model.block_at(kind, slot);
            let taken = frames.take_block(kind, pfn(slot));
            assert_eq!(taken, expected, "the block of {kind:?} at {slot}");
            if let Some(order) = taken {
                model.take(kind, pfn(slot), order.pages());
            }
        }
        Op::Free(which, kind) if !model.runs.is_empty() => {
            let (start, pages) = model.runs.swap_remove(which % model.runs.len());
            model.give(kind, start, pages);
            match Order::holding(pages).filter(|o| o.pages() == pages) {
                Some(order) if pfn(start).is_aligned(order) => {
                    frames.free(kind, pfn(start), order);
                }
                _ => frames.free_range(kind, pfn(start), pages),
            }
        }
        Op::FreePart(which, kind, from, len) if !model.runs.is_empty() => {
            let (start, pages) = model.runs.swap_remove(which % model.runs.len());
            let skip = from % pages;
            let part = 1 + len % (pages - skip);
            model.give(kind, start + skip, part);
            frames.free_range(kind, pfn(start + skip), part);
            let rest = [(start, skip), (start + skip + part, pages - skip - part)];
            model
                .runs
                .extend(rest.into_iter().filter(|(_, pages)| *pages != 0));
        }
        Op::Free(..) | Op::FreePart(..) => {}
    }
}

fn agree(frames: &Frames, model: &Model) {
    frames.validate().expect("invariants");
    let in_use: usize = model.runs.iter().map(|(_, pages)| pages).sum();
    assert_eq!(frames.used_pages(), in_use);
    for kind in Kind::ALL {
        let pages = model
            .free
            .iter()
            .filter(|slot| **slot == Some(kind))
            .count();
        assert_eq!(frames.free_pages(kind), pages);
        assert_eq!(frames.largest_free_order(kind), model.largest(kind));
        for (block, slots) in model.free.chunks(512).enumerate() {
            let free = slots.iter().filter(|slot| **slot == Some(kind)).count();
            assert_eq!(frames.of(kind).free_in_pageblock(block), free);
        }
        let blocks = model.blocks(kind);
        for order in Order::all() {
            assert_eq!(
                frames.free_blocks(kind, order),
                blocks[order.index()],
                "{order:?}"
            );
            assert_eq!(
                frames.of(kind).iter_free(order).count(),
                blocks[order.index()]
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn frames_agree_with_the_model(ops in prop::collection::vec(op(), 1..120)) {
        let mut frames = Frames::new(SLOTS);
        let mut model = Model::new();
        agree(&frames, &model);
        for op in ops {
            step(&mut frames, &mut model, op);
            agree(&frames, &model);
        }
        // Everything back as holes: the arena is whole again.
        for (start, pages) in core::mem::take(&mut model.runs) {
            frames.free_range(Kind::Hole, pfn(start), pages);
        }
        for kind in [Kind::Backed, Kind::Kept] {
            while let Some((at, order)) = frames.take_free(kind, Order::HUGE) {
                frames.free(Kind::Hole, at, order);
            }
        }
        frames.validate().expect("invariants");
        prop_assert_eq!(frames.free_blocks(Kind::Hole, Order::HUGE), SLOTS / 512);
        prop_assert_eq!(frames.used_pages(), 0);
    }
}
