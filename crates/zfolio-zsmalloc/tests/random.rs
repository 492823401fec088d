//! Random malloc, free, pin, relocate and compaction in steps against a model
//! of the contents.

mod support;

use proptest::prelude::*;
use support::Bed;
use zfolio_mm::{Kind, PAGE_SIZE};
use zfolio_zsmalloc::{Compaction, Handle, Layout, Location, MAX_UNIT, ZsError, ZsPool};

/// Slots of the arena: few enough that it runs full.
const SLOTS: usize = 512;

#[derive(Clone, Copy, Debug)]
enum Op {
    Malloc(usize),
    /// The object chosen by the number.
    Free(usize),
    Pin(usize),
    Unpin(usize),
    /// Moves the zspage of the object chosen by the number.
    Relocate(usize),
    /// A step of the compaction under way, or the begin of one.
    Step,
    /// Ends it, by its driver or over the driver's head.
    End {
        abandon: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    // Few sizes often, so that classes have zspages in several groups.
    let size = prop_oneof![
        4 => prop::sample::select(vec![24, 100, 760, 1000, 2040, 3000, 3624, 3625, PAGE_SIZE]),
        2 => 1..=PAGE_SIZE,
        1 => prop::sample::select(vec![PAGE_SIZE + 1, 5000, 9000, 16_000, 30_000, 32_761, MAX_UNIT]),
        1 => PAGE_SIZE + 1..=MAX_UNIT,
    ];
    prop_oneof![
        6 => size.prop_map(Op::Malloc),
        4 => any::<usize>().prop_map(Op::Free),
        1 => any::<usize>().prop_map(Op::Pin),
        1 => any::<usize>().prop_map(Op::Unpin),
        2 => any::<usize>().prop_map(Op::Relocate),
        4 => Just(Op::Step),
        1 => prop::bool::weighted(0.2).prop_map(|abandon| Op::End { abandon }),
    ]
}

/// What the model knows of one object.
#[derive(Clone, Copy)]
struct Object {
    handle: Handle,
    size: usize,
    seed: u8,
    pins: usize,
}

struct Model {
    bed: Bed,
    objects: Vec<Object>,
    seed: u8,
    run: Option<Compaction>,
}

impl Model {
    fn step(&mut self, op: Op) {
        let count = self.objects.len().max(1);
        match op {
            Op::Malloc(size) => self.malloc(size),
            Op::Free(which) => self.free(which % count),
            Op::Pin(which) => {
                if let Some(object) = self.objects.get_mut(which % count) {
                    self.bed.pool.pin(object.handle);
                    object.pins += 1;
                }
            }
            Op::Unpin(which) => {
                if let Some(object) = self.objects.get_mut(which % count).filter(|o| o.pins != 0) {
                    self.bed.pool.unpin(object.handle);
                    object.pins -= 1;
                }
            }
            Op::Relocate(which) => self.relocate(which % count),
            Op::Step => self.compact(),
            Op::End { abandon } => {
                if let Some(run) = self.run.take() {
                    if abandon {
                        self.bed.pool.abandon_compaction();
                        assert_eq!(self.bed.step(&run), None);
                    }
                    self.bed.pool.end_compaction(run);
                    assert!(!self.bed.pool.is_compacting());
                }
            }
        }
    }

    /// One step; what it says must be what it did, and within its bounds.
    fn compact(&mut self) {
        let Some(run) = &self.run else {
            self.run = self.bed.pool.begin_compaction();
            assert!(self.run.is_some() && self.bed.pool.begin_compaction().is_none());
            return;
        };
        let places = |bed: &Bed, objects: &[Object]| -> Vec<Location> {
            let at = |o: &Object| bed.pool.location(o.handle);
            objects.iter().map(at).collect()
        };
        let before = places(&self.bed, &self.objects);
        let pages = self.bed.pool.pages_used();
        let Some(step) = self.bed.step(run) else {
            assert!(!self.bed.pool.is_compacting());
            self.run = None;
            return;
        };
        let after = places(&self.bed, &self.objects);
        let mut moved = 0;
        for ((object, before), after) in self.objects.iter().zip(&before).zip(&after) {
            assert!(before == after || object.pins == 0, "a pinned object moved");
            moved += usize::from(before != after);
        }
        assert_eq!(step.objs_moved, moved);
        assert!(moved != 0, "a step that does nothing");
        assert_eq!(pages - self.bed.pool.pages_used(), step.pages_freed);
        // From one zspage into one other.
        let pairs = before.iter().zip(&after).filter(|(b, a)| b != a);
        let mut pairs: Vec<_> = pairs.map(|(b, a)| (b.at, a.at)).collect();
        pairs.dedup();
        assert_eq!(pairs.len(), 1);
    }

    fn malloc(&mut self, size: usize) {
        if size > self.bed.pool.classes().largest() {
            assert_eq!(self.bed.malloc(size), Err(ZsError::BadSize));
            return;
        }
        match self.bed.malloc(size) {
            Ok(handle) => {
                assert!(
                    self.objects.iter().all(|o| o.handle != handle),
                    "handle in use"
                );
                assert!(self.bed.pool.location(handle).capacity >= size);
                self.seed = self.seed.wrapping_add(37);
                self.bed.write(handle, self.seed);
                self.objects.push(Object {
                    handle,
                    size,
                    seed: self.seed,
                    pins: 0,
                });
            }
            Err(error) => {
                assert_eq!(error, ZsError::NoMemory);
                // Only for want of a long enough run of frames.
                let class = self.bed.pool.classes().lookup(size).expect("a legal size");
                let pages = self.bed.pool.classes().classes()[class].pages;
                assert_eq!(self.bed.frames.alloc_exact(Kind::Backed, pages), None);
            }
        }
    }

    fn free(&mut self, which: usize) {
        let Some(object) = self.objects.get(which).copied() else {
            return;
        };
        if object.pins != 0 {
            assert_eq!(self.bed.free(object.handle), Err(ZsError::Pinned));
            return;
        }
        assert_eq!(self.bed.free(object.handle), Ok(()));
        assert_eq!(
            self.bed.free(object.handle),
            Err(ZsError::BadHandle),
            "freed twice"
        );
        assert_eq!(self.bed.pool.try_location(object.handle), None);
        self.objects.swap_remove(which);
    }

    fn relocate(&mut self, which: usize) {
        let Some(object) = self.objects.get(which).copied() else {
            return;
        };
        let bed = &mut self.bed;
        let from = bed.pool.location(object.handle).at;
        let pages = bed.pool.zspage_pages(from).expect("a zspage starts here");
        let Some(to) = bed.frames.alloc_exact(Kind::Backed, pages) else {
            return;
        };
        let pinned = self
            .objects
            .iter()
            .any(|o| o.pins != 0 && bed.pool.location(o.handle).at == from);
        bed.memory.copy(from, to, pages);
        if pinned {
            assert_eq!(bed.pool.relocate(from, to), Err(ZsError::Pinned));
            bed.frames.free_range(Kind::Backed, to, pages);
            return;
        }
        assert_eq!(bed.pool.relocate(from, to), Ok(()));
        bed.memory.fill(from, pages, 0xee);
        bed.frames.free_range(Kind::Backed, from, pages);
        assert_eq!(bed.pool.zspage_pages(from), None);
        assert_eq!(bed.pool.location(object.handle).at, to);
    }

    /// Invariants, contents, counters and the statistics' equations.
    fn check(&self) {
        let pool = &self.bed.pool;
        self.bed.validate();
        for object in &self.objects {
            assert!(
                self.bed
                    .is_intact_up_to(object.handle, object.seed, object.size),
                "{:?}",
                object.handle
            );
            assert!(pool.check_owner(object.handle, &self.bed.memory));
            assert!(pool.location(object.handle).capacity >= object.size);
            assert_eq!(pool.is_pinned(object.handle), object.pins != 0);
        }
        let stats = pool.stats();
        let total = stats.total();
        assert_eq!(stats.objects, self.objects.len());
        assert_eq!(total.obj_used, self.objects.len());
        assert_eq!(total.pages_used, stats.pages_used);
        assert_eq!(stats.pages_used, pool.pages_used());
        for row in &stats.classes {
            let class = pool.classes().classes().iter().find(|c| c.size == row.size);
            let class = class.expect("a class of this size");
            let zspages: usize = row.groups.iter().sum();
            let in_class = |o: &&Object| pool.location(o.handle).capacity == class.capacity();
            assert_eq!(row.class, class.index);
            assert_eq!(row.damaged, 0);
            assert_eq!(row.obj_used, self.objects.iter().filter(in_class).count());
            assert_eq!(row.obj_allocated, zspages * class.objs);
            assert_eq!(row.pages_used, zspages * class.pages);
            assert_eq!(row.pages_per_zspage, class.pages);
            let spare = row.obj_allocated - row.obj_used;
            assert_eq!(row.freeable, spare / class.objs * class.pages);
            assert_eq!(row.groups[10] == zspages, spare == 0, "full zspages");
        }
    }
}

fn run(layout: Layout, ops: Vec<Op>) {
    let bed = Bed::with_pool(SLOTS, ZsPool::with_layout(layout));
    let mut model = Model {
        bed,
        objects: Vec::new(),
        seed: 0,
        run: None,
    };
    for (n, op) in ops.into_iter().enumerate() {
        model.step(op);
        if n.is_multiple_of(7) {
            model.check();
        }
    }
    model.check();
    // Left alone and unpinned, a compaction leaves nothing to free.
    for object in &mut model.objects {
        (0..object.pins).for_each(|_| model.bed.pool.unpin(object.handle));
        object.pins = 0;
    }
    model.bed.pool.abandon_compaction();
    let guests = model.bed.pool.guests();
    assert!(layout.guests || guests == (0, 0), "{guests:?}");
    let freeable = model.bed.pool.stats().total().freeable;
    let freed = model.bed.compact();
    // With guests what is left of a class may go to others, too.
    assert!(freed == freeable || layout.guests && freed > freeable);
    assert_eq!(model.bed.pool.freeable_pages(), 0);
    model.check();
    // Emptied, the pool holds nothing.
    while let Some(object) = model.objects.pop() {
        assert_eq!(model.bed.free(object.handle), Ok(()));
    }
    model.check();
    assert_eq!(
        (model.bed.pool.objects(), model.bed.pool.pages_used()),
        (0, 0)
    );
    assert_eq!(model.bed.frames.free_pages(Kind::Backed), SLOTS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]

    #[test]
    fn objects_keep_their_bytes(
        chain in prop::sample::select(vec![1, 4, 8, 16]),
        (powers, units, guests) in any::<(bool, bool, bool)>(),
        ops in prop::collection::vec(op(), 1..400),
    ) {
        run(Layout { chain, powers, units, guests }, ops);
    }
}
