//! Random stores, loads, writebacks and failures, against a plain list of
//! what each slot holds.

mod support;

use proptest::prelude::*;
use support::{Content, TestArena, backed, content_of, store};
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::backing::{CLUSTER, Call};
use zfolio_zswap::{Charged, GroupLimits, Limits, MemoryBacking, Slot, StoreError, Zswap};

#[derive(Clone, Debug)]
enum Op {
    Store {
        order: u8,
        kinds: Vec<Content>,
    },
    /// With so few pages left of `swap.max`.
    StoreShort {
        order: u8,
        kinds: Vec<Content>,
        left: u64,
    },
    Load {
        at: prop::sample::Index,
        pages: usize,
    },
    Invalidate {
        at: prop::sample::Index,
        pages: usize,
    },
    WriteBack {
        goes: usize,
    },
    /// The next write fails.
    Fail {
        errno: i32,
    },
    Scan {
        entries: usize,
    },
    Tend,
    Compact,
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        1 => Just(Content::Zero),
        1 => (1..=u64::MAX).prop_map(Content::Same),
        5 => any::<u64>().prop_map(Content::Records),
        2 => any::<u64>().prop_map(Content::Noise),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let index = || any::<prop::sample::Index>();
    let folio = || (0_u8..6, prop::collection::vec(content(), 1..5));
    prop_oneof![
        5 => folio().prop_map(|(order, kinds)| Op::Store { order, kinds }),
        1 => (folio(), 0_u64..40)
            .prop_map(|((order, kinds), left)| Op::StoreShort { order, kinds, left }),
        3 => (index(), 1_usize..40).prop_map(|(at, pages)| Op::Load { at, pages }),
        3 => (index(), 1_usize..60).prop_map(|(at, pages)| Op::Invalidate { at, pages }),
        5 => (1_usize..6).prop_map(|goes| Op::WriteBack { goes }),
        1 => prop_oneof![Just(5), Just(28)].prop_map(|errno| Op::Fail { errno }),
        2 => (1_usize..80).prop_map(|entries| Op::Scan { entries }),
        1 => Just(Op::Tend),
        1 => Just(Op::Compact),
    ]
}

struct World {
    zswap: Zswap<TestArena>,
    backing: std::sync::Arc<MemoryBacking>,
    pages: Vec<(Slot, Content)>,
}

impl World {
    fn new(clusters: u64) -> Self {
        let (zswap, backing) = backed(Limits::default(), clusters * CLUSTER as u64);
        Self {
            zswap,
            backing,
            pages: Vec::new(),
        }
    }

    fn part(&self, at: prop::sample::Index, pages: usize) -> std::ops::Range<usize> {
        if self.pages.is_empty() {
            return 0..0;
        }
        let from = at.index(self.pages.len());
        from..(from + pages).min(self.pages.len())
    }

    fn store(&mut self, order: u8, kinds: &[Content]) -> Result<(), StoreError> {
        let contents: Vec<_> = (0..1_usize << order)
            .map(|page| match kinds[page % kinds.len()] {
                Content::Records(seed) => Content::Records(seed ^ page as u64),
                Content::Noise(seed) => Content::Noise(seed ^ page as u64),
                other => other,
            })
            .collect();
        let slots = store(&self.zswap, &contents)?;
        self.pages.extend(slots.into_iter().zip(contents));
        Ok(())
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Store { order, kinds } => {
                self.store(order, &kinds).expect("there is room");
            }
            Op::StoreShort { order, kinds, left } => {
                let before = self.zswap.charged();
                let page = PAGE_SIZE as u64;
                let short = GroupLimits {
                    swap_max: Some(before.swap + left * page),
                    ..GroupLimits::default()
                };
                self.zswap.set_group_limits(short);
                let stored = self.store(order, &kinds);
                self.zswap.set_group_limits(GroupLimits::default());
                let zeros =
                    (0..1_usize << order).filter(|page| kinds[page % kinds.len()] == Content::Zero);
                let wanted = (1_u64 << order) - zeros.count() as u64;
                assert_eq!(stored.is_ok(), wanted <= left, "{stored:?}");
                if stored.is_err() {
                    // All taken back, but for the event.
                    let swap_fail = before.swap_fail + 1;
                    let expected = Charged {
                        swap_fail,
                        ..before
                    };
                    assert_eq!(self.zswap.charged(), expected);
                }
            }
            Op::Load { at, pages } => {
                let part = &self.pages[self.part(at, pages)];
                let slots: Vec<_> = part.iter().map(|(slot, _)| *slot).collect();
                let frames = self.zswap.arena().take(slots.len());
                let mut context = self.zswap.context().unwrap();
                self.zswap
                    .load_batch(&mut context, &slots, &frames)
                    .unwrap();
                for ((_, content), frame) in part.iter().zip(&frames) {
                    assert!(
                        self.zswap.arena().page(*frame) == content.bytes(),
                        "{content:?}"
                    );
                }
                self.zswap.arena().give(&frames);
            }
            Op::Invalidate { at, pages } => {
                let part = self.part(at, pages);
                let slots: Vec<_> = self.pages.drain(part).map(|(slot, _)| slot).collect();
                let entries = slots.iter().filter(|slot| **slot != Slot::ZERO).count();
                assert_eq!(self.zswap.invalidate(&slots), entries);
            }
            Op::WriteBack { goes } => {
                let mut context = self.zswap.context().unwrap();
                for _ in 0..goes {
                    let before = self.zswap.backing_pages();
                    let shrunk = self.zswap.shrink_step(&mut context);
                    assert_eq!(self.zswap.backing_pages(), before + shrunk.written);
                }
            }
            Op::Scan { entries } => {
                let count = self.zswap.shrinker_count();
                let mut context = self.zswap.context().unwrap();
                let entries = entries.min(count);
                let shrunk = self.zswap.shrinker_scan(&mut context, entries);
                assert!(shrunk.scanned <= entries && shrunk.written <= shrunk.scanned);
            }
            Op::Fail { errno } => self.backing.fail(Call::Write, Errno(errno), 1),
            Op::Tend => {
                self.zswap.tend_backing();
            }
            Op::Compact => {
                let run = self.zswap.begin_compaction().expect("none is under way");
                while self.zswap.compaction_step(&run).is_some() {}
            }
        }
    }

    fn check(&self) {
        self.zswap.validate().unwrap();
        let held = self.pages.iter().filter(|(slot, _)| *slot != Slot::ZERO);
        let entries = held.count() as u64;
        assert_eq!(self.zswap.charged().swap, entries * PAGE_SIZE as u64);
        let now = self.zswap.stats().snapshot();
        assert_eq!(now.stored_pages + now.backing_pages, entries);
        assert_eq!((now.decompress_fail, now.backing_read_fail), (0, 0));
        assert_eq!(
            (now.zswpwb, now.pswpout),
            (now.written_back_pages, now.written_back_pages)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn nothing_is_lost_on_the_way_to_the_backing_and_back(
        clusters in 1_u64..12,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new(clusters);
        for op in ops {
            world.apply(op);
            world.check();
        }
        for (slot, content) in &world.pages {
            assert!(content_of(&world.zswap, *slot).unwrap() == content.bytes());
        }
        let slots: Vec<_> = world.pages.drain(..).map(|(slot, _)| slot).collect();
        world.zswap.invalidate(&slots);
        world.check();
        world.zswap.tend_backing();
        prop_assert!(world.backing.held() <= CLUSTER);
        prop_assert_eq!(world.zswap.arena().used_pages(), 0);
    }
}
