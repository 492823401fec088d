//! Random folios in and out, against a plain list of what each slot holds.

mod support;

use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use support::{Content, TestArena, gauges, store};
use zfolio_compress::Codec;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_zswap::TIER_STEP as STEP;
use zfolio_zswap::{Compaction, Learning, Limits, Slot, Snapshot, StoreError, TierContext, Zswap};

#[derive(Clone, Debug)]
enum Op {
    /// A folio of an order, its contents drawn from a few kinds.
    Store { order: u8, kinds: Vec<Content> },
    /// The same with only so many frames for the pool.
    StoreShort {
        order: u8,
        kinds: Vec<Content>,
        frames: usize,
    },
    /// The same with a limit at the pool's present size, less some.
    StoreFull {
        order: u8,
        kinds: Vec<Content>,
        less: usize,
    },
    Load {
        folio: prop::sample::Index,
        from: prop::sample::Index,
        pages: usize,
        how: How,
    },
    Invalidate {
        folio: prop::sample::Index,
        from: prop::sample::Index,
        pages: usize,
    },
    /// So many steps of compaction; a run goes on where the last op left it.
    Compact { steps: usize },
    /// So many steps of the tier, with only so many frames for the pool.
    Recompress { steps: usize, frames: usize },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Batch,
    Exclusive,
    Into,
    One,
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        1 => Just(Content::Zero),
        1 => (1..=u64::MAX).prop_map(Content::Same),
        4 => any::<u64>().prop_map(Content::Records),
        1 => any::<u64>().prop_map(Content::Noise),
        4 => (0_u64..3, any::<u64>()).prop_map(|(kind, seed)| Content::Phrases(kind, seed)),
        3 => (any::<u64>(), 0..PAGE_SIZE - 16).prop_map(|(seed, from)| Content::Tail(seed, from)),
    ]
}

fn folio() -> impl Strategy<Value = (u8, Vec<Content>)> {
    let order = prop_oneof![8 => 0_u8..=5, 2 => 6_u8..=8, 1 => Just(9_u8)];
    (order, prop::collection::vec(content(), 1..6))
}

fn op() -> impl Strategy<Value = Op> {
    let index = || any::<prop::sample::Index>();
    let how = prop_oneof![
        Just(How::Batch),
        Just(How::Exclusive),
        Just(How::Into),
        Just(How::One)
    ];
    prop_oneof![
        4 => folio().prop_map(|(order, kinds)| Op::Store { order, kinds }),
        2 => (folio(), 0_usize..24)
            .prop_map(|((order, kinds), frames)| Op::StoreShort { order, kinds, frames }),
        1 => (folio(), 0_usize..3)
            .prop_map(|((order, kinds), less)| Op::StoreFull { order, kinds, less }),
        4 => (index(), index(), 1_usize..40, how)
            .prop_map(|(folio, from, pages, how)| Op::Load { folio, from, pages, how }),
        3 => (index(), index(), 1_usize..80)
            .prop_map(|(folio, from, pages)| Op::Invalidate { folio, from, pages }),
        2 => (1_usize..40).prop_map(|steps| Op::Compact { steps }),
        2 => (1_usize..100, prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..4])
            .prop_map(|(steps, frames)| Op::Recompress { steps, frames }),
    ]
}

/// What each slot of each folio stored holds; `None` once invalidated.
#[derive(Default)]
struct Model {
    tier: Option<TierContext>,
    folios: Vec<Vec<(Slot, Option<Content>)>>,
    compaction: Option<Compaction>,
    objs_moved: u64,
    pages_compacted: u64,
    recompressed: [u64; 6],
    /// The event counters as they should be.
    zswpin: u64,
    zswpout: u64,
    swpin_zero: u64,
    swpout_zero: u64,
    alloc_fails: u64,
    hits: u64,
    order_zswpout: [u64; 10],
    order_fallback: [u64; 10],
}

impl Model {
    fn stored(&mut self, order: u8, contents: &[Content], slots: Vec<Slot>) {
        let zeros = contents
            .iter()
            .filter(|content| **content == Content::Zero)
            .count() as u64;
        self.swpout_zero += zeros;
        self.zswpout += contents.len() as u64 - zeros;
        self.order_zswpout[usize::from(order)] += u64::from(zeros < contents.len() as u64);
        self.folios.push(
            slots
                .into_iter()
                .zip(contents.iter().copied().map(Some))
                .collect(),
        );
    }

    fn refused(&mut self, order: u8) {
        self.order_fallback[usize::from(order)] += u64::from(order > 0);
    }

    /// Part of a folio that still holds pages.
    fn pick(
        &mut self,
        folio: prop::sample::Index,
        from: prop::sample::Index,
        pages: usize,
    ) -> &mut [(Slot, Option<Content>)] {
        if self.folios.is_empty() {
            return &mut [];
        }
        let folio = folio.index(self.folios.len());
        let pages_of = &mut self.folios[folio];
        let from = from.index(pages_of.len());
        let to = (from + pages).min(pages_of.len());
        &mut pages_of[from..to]
    }

    fn check(&self, now: &Snapshot) {
        let live = || {
            self.folios
                .iter()
                .flatten()
                .filter_map(|(_, content)| *content)
        };
        let of = |wanted: fn(&Content) -> bool| live().filter(wanted).count() as u64;
        assert_eq!(now.stored_pages, of(|content| *content != Content::Zero));
        assert_eq!(
            now.same_filled_pages,
            of(|content| matches!(content, Content::Same(_)))
        );
        let noise = of(|content| matches!(content, Content::Noise(_)));
        let maybe = of(|content| matches!(content, Content::Tail(_, from) if *from < 600));
        let raw = now.stored_incompressible_pages;
        // (What comes again and again is what a dictionary is made of, noise or not.)
        let least = if now.dictionary_installed == 0 {
            noise
        } else {
            0
        };
        assert!(
            least <= raw && raw <= noise + maybe,
            "{noise} <= {raw} <= {noise} + {maybe}"
        );
        assert_eq!(
            [now.zswpin, now.zswpout, now.swpin_zero, now.swpout_zero],
            [self.zswpin, self.zswpout, self.swpin_zero, self.swpout_zero]
        );
        assert_eq!(
            [now.reject_alloc_fail, now.pool_limit_hit],
            [self.alloc_fails, self.hits]
        );
        assert_eq!(now.decompress_fail, 0);
        assert_eq!(
            [now.objs_moved, now.pages_compacted],
            [self.objs_moved, self.pages_compacted]
        );
        assert_eq!(
            [
                now.recompressed_pages,
                now.recompress_poor,
                now.recompress_saved_bytes,
                now.dictionary_drained_pages,
                now.dictionary_drained_bytes,
                now.unit_split_pages,
            ],
            self.recompressed
        );
        assert_eq!(now.order_zswpout, self.order_zswpout);
        assert_eq!(now.order_swpout_fallback, self.order_fallback);
    }
}

fn contents_of(order: u8, kinds: &[Content]) -> Vec<Content> {
    let pages = 1_usize << order;
    (0..pages)
        .map(|i| match kinds[(i * 7 + i / 5) % kinds.len()] {
            // Pages of one kind differ from each other.
            Content::Records(seed) => Content::Records(seed ^ i as u64),
            Content::Noise(seed) => Content::Noise(seed ^ i as u64),
            Content::Tail(seed, from) => Content::Tail(seed ^ i as u64, from),
            other => other,
        })
        .collect()
}

fn apply(zswap: &Zswap<TestArena>, model: &mut Model, op: Op) {
    let before = zswap.stats().snapshot();
    let unwound = || {
        assert_eq!(gauges(&zswap.stats().snapshot()), gauges(&before));
    };
    match op {
        Op::Store { order, kinds } => {
            let contents = contents_of(order, &kinds);
            let slots = store(zswap, &contents).expect("the arena is large enough");
            model.stored(order, &contents, slots);
        }
        Op::StoreShort {
            order,
            kinds,
            frames,
        } => {
            let contents = contents_of(order, &kinds);
            zswap.arena().budget.store(frames, Relaxed);
            let result = store(zswap, &contents);
            zswap.arena().budget.store(usize::MAX, Relaxed);
            match result {
                Ok(slots) => model.stored(order, &contents, slots),
                Err(error) => {
                    assert_eq!(error, StoreError::NoMemory);
                    unwound();
                    model.alloc_fails += 1;
                    model.refused(order);
                }
            }
        }
        Op::StoreFull { order, kinds, less } => {
            let contents = contents_of(order, &kinds);
            let max = zswap.pool_pages().saturating_sub(less);
            zswap.set_limits(Limits {
                max_pool_pages: Some(max),
                ..Limits::default()
            });
            let result = store(zswap, &contents);
            zswap.set_limits(Limits::default());
            // Pages without an object are never refused.
            let objects = contents
                .iter()
                .any(|content| !matches!(content, Content::Zero | Content::Same(_)));
            match result {
                Ok(slots) => {
                    assert!(!objects);
                    model.stored(order, &contents, slots);
                }
                Err(error) => {
                    assert!(objects);
                    assert_eq!(error, StoreError::PoolFull);
                    unwound();
                    model.hits += 1;
                    model.refused(order);
                    // The mark of having been full outlives the limit. Clear it.
                    assert_eq!(
                        store(zswap, &[Content::Records(1)])
                            .map(|slots| { zswap.invalidate(&slots) }),
                        Ok(1)
                    );
                    model.zswpout += 1;
                    model.order_zswpout[0] += 1;
                }
            }
        }
        Op::Load {
            folio,
            from,
            pages,
            how,
        } => load(zswap, model, (folio, from, pages), how),
        Op::Compact { steps } => compact(zswap, model, steps),
        Op::Recompress { steps, frames } => {
            zswap.arena().budget.store(frames, Relaxed);
            recompress(zswap, model, steps);
            zswap.arena().budget.store(usize::MAX, Relaxed);
        }
        Op::Invalidate { folio, from, pages } => {
            let part = model.pick(folio, from, pages);
            let slots: Vec<_> = part
                .iter()
                .map(|(slot, content)| if content.is_some() { *slot } else { Slot::ZERO })
                .collect();
            let entries = slots.iter().filter(|slot| **slot != Slot::ZERO).count();
            part.iter_mut().for_each(|(_, content)| *content = None);
            assert_eq!(zswap.invalidate(&slots), entries);
        }
    }
}

fn recompress(zswap: &Zswap<TestArena>, model: &mut Model, steps: usize) {
    if model.tier.is_none() {
        // A dictionary out of a few pages, gone when most are.
        let learning = Learning {
            sample: 8,
            shown: 12,
            least_bytes: 32 << 10,
            few: 6,
            rest: 1,
            units: true,
        };
        model.tier = zswap.tier_context_that(learning).unwrap();
    }
    let Some(context) = &mut model.tier else {
        return;
    };
    for step in 0..steps {
        if step % 3 == 0 && zswap.dictionary_step(context) {
            continue;
        }
        let before = zswap.stats().snapshot();
        let done = zswap.recompress_step(context, 1 + step % STEP);
        let now = zswap.stats().snapshot();
        assert_eq!(
            before.compressed_bytes + (done.bytes_lost + done.split_lost) as u64,
            now.compressed_bytes + (done.bytes_saved + done.split_saved) as u64
        );
        assert_eq!(now.stored_pages, before.stored_pages);
        model.recompressed[0] += done.recompressed as u64;
        model.recompressed[1] += done.poor as u64;
        model.recompressed[2] += done.bytes_saved as u64;
        model.recompressed[3] += done.drained as u64;
        model.recompressed[4] += done.bytes_lost as u64;
        model.recompressed[5] += done.split as u64;
    }
}

fn compact(zswap: &Zswap<TestArena>, model: &mut Model, steps: usize) {
    let whole = model.compaction.is_none();
    let run = model
        .compaction
        .take()
        .unwrap_or_else(|| zswap.begin_compaction().expect("none is under way"));
    assert!(zswap.begin_compaction().is_none(), "a second one");
    for _ in 0..steps {
        let pool = zswap.pool_pages();
        let Some(step) = zswap.compaction_step(&run) else {
            // (What was freed behind a run that was interrupted is the next one's.)
            assert!(!whole || zswap.freeable_pages() == 0, "nobody pins here");
            return;
        };
        assert_eq!(zswap.pool_pages(), pool - step.pages_freed);
        model.objs_moved += step.objs_moved as u64;
        model.pages_compacted += step.pages_freed as u64;
    }
    model.compaction = Some(run);
}

fn load(
    zswap: &Zswap<TestArena>,
    model: &mut Model,
    (folio, from, pages): (prop::sample::Index, prop::sample::Index, usize),
    how: How,
) {
    let part = model.pick(folio, from, pages);
    let (slots, contents): (Vec<_>, Vec<_>) = part
        .iter()
        .filter_map(|(slot, content)| Some((*slot, (*content)?)))
        .unzip();
    if how == How::Exclusive {
        part.iter_mut().for_each(|(_, content)| *content = None);
    }
    let arena = zswap.arena();
    let frames = support::fill_pages(arena, &vec![Content::Noise(9); slots.len()]);
    let mut context = zswap.context().unwrap();
    let mut plain = vec![1; PAGE_SIZE];
    match how {
        How::Batch => zswap.load_batch(&mut context, &slots, &frames).unwrap(),
        How::Exclusive => zswap.load_exclusive(&mut context, &slots, &frames).unwrap(),
        How::One => {
            for (slot, frame) in slots.iter().zip(&frames) {
                zswap.load_page(&mut context, *slot, *frame).unwrap();
            }
        }
        How::Into => {
            for (slot, content) in slots.iter().zip(&contents) {
                zswap.load_into(&mut context, *slot, &mut plain).unwrap();
                assert!(plain == content.bytes());
            }
        }
    }
    if how != How::Into {
        for (frame, content) in frames.iter().zip(&contents) {
            assert!(
                arena.page(*frame) == content.bytes(),
                "{content:?} by {how:?}"
            );
        }
    }
    arena.give(&frames);
    let zeros = contents
        .iter()
        .filter(|content| **content == Content::Zero)
        .count() as u64;
    model.swpin_zero += zeros;
    model.zswpin += contents.len() as u64 - zeros;
}

fn run(codec: Codec, ops: Vec<Op>) {
    let zswap = Zswap::new(TestArena::new(), codec, Limits::default());
    let mut model = Model::default();
    for op in ops {
        apply(&zswap, &mut model, op);
        zswap.validate().unwrap();
        model.check(&zswap.stats().snapshot());
        // Every frame in use is the pool's: nothing leaks.
        assert_eq!(zswap.arena().used_pages(), zswap.pool_pages());
    }
    // Everything still there is what it was.
    for (slot, content) in model.folios.iter().flatten() {
        if let Some(content) = content {
            let mut page = vec![1; PAGE_SIZE];
            let mut context = zswap.context().unwrap();
            zswap.load_into(&mut context, *slot, &mut page).unwrap();
            assert!(page == content.bytes());
            assert_eq!(
                zswap.invalidate(&[*slot]),
                usize::from(*content != Content::Zero)
            );
        }
    }
    zswap.validate().unwrap();
    assert_eq!(gauges(&zswap.stats().snapshot()), [0; 5]);
    assert_eq!(zswap.arena().used_pages(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn folios_come_back_as_they_went_lz4(ops in prop::collection::vec(op(), 1..24)) {
        run(Codec::LZ4, ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn folios_come_back_as_they_went_zstd(ops in prop::collection::vec(op(), 1..12)) {
        run(Codec::ZSTD, ops);
    }

    #[test]
    fn folios_come_back_as_they_went_with_a_second_tier(
        ops in prop::collection::vec(op(), 1..24),
    ) {
        run(Codec::Auto, ops);
    }

    #[test]
    fn every_point_of_failure_is_unwound(
        kinds in prop::collection::vec(content(), 1..6),
        order in 0_u8..=6,
    ) {
        let contents = contents_of(order, &kinds);
        let zswap = Zswap::new(TestArena::new(), Codec::LZ4, Limits::default());
        // Something that stays, so that zspages are shared.
        store(&zswap, &[Content::Records(1), Content::Tail(2, 2000)]).unwrap();
        let before = gauges(&zswap.stats().snapshot());
        for frames in 0.. {
            zswap.arena().budget.store(frames, Relaxed);
            let result = store(&zswap, &contents);
            zswap.validate().unwrap();
            if result.is_ok() {
                break;
            }
            prop_assert_eq!(gauges(&zswap.stats().snapshot()), before);
        }
        let order = Order::new(order).unwrap().index();
        let tries = zswap.stats().snapshot().reject_alloc_fail;
        prop_assert_eq!(
            zswap.stats().snapshot().order_swpout_fallback[order],
            if order == 0 { 0 } else { tries }
        );
    }
}
