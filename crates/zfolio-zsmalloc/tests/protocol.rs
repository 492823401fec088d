//! The protocol of readers, zspage compaction, relocation and frees, in the
//! orders that threads may take (loom).
//!
//! The pool is the real one. Around it is what its owner does: a lock for every
//! call, and between two of them a reader that has pinned its object reads the
//! bytes without it. Who uses a half page, which is a slot here, is counted: two at
//! once, one of them writing, is a failure. (Headers are not: they are only touched
//! under the pool's lock.)

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use zfolio_mm::{Frames, Kind, Memory, Order, PAGE_SIZE, Pfn};
use zfolio_zsmalloc::{Handle, ZsError, ZsPool};

/// Slots of the class used: two a page.
const HALF: usize = PAGE_SIZE / 2;
const PAYLOAD: usize = HALF - 8;

/// Pages of the arena that are used.
const PAGES: usize = 4;

/// Preemptions in an order that is tried: beyond two bugs are rare, and three
/// threads make ten times as many orders with each.
const PREEMPTIONS: usize = 3;

/// What a writer adds to the users of a half page.
const WRITER: usize = 1 << 16;

/// A half page, and who uses it just now.
struct Half {
    users: AtomicUsize,
    bytes: std::sync::RwLock<Vec<u8>>,
}

impl Half {
    /// Runs `f` as a user who bears with so many others.
    fn as_user<R>(&self, weight: usize, most: usize, f: impl FnOnce() -> R) -> R {
        let others = self.users.fetch_add(weight, Ordering::AcqRel);
        assert!(others < most, "two at once, one of them writing");
        let result = f();
        self.users.fetch_sub(weight, Ordering::AcqRel);
        result
    }
}

struct Halves(Vec<Half>);

impl Halves {
    fn new() -> Self {
        let half = || Half {
            users: AtomicUsize::new(0),
            bytes: std::sync::RwLock::new(vec![0; HALF]),
        };
        Self((0..2 * PAGES).map(|_| half()).collect())
    }

    fn half(&self, at: Pfn, offset: usize, len: usize) -> (&Half, core::ops::Range<usize>) {
        let byte = at.index() * PAGE_SIZE + offset;
        assert!(byte % HALF + len <= HALF, "over the end of a slot");
        (&self.0[byte / HALF], byte % HALF..byte % HALF + len)
    }
}

impl Memory for Halves {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let (half, range) = self.half(at, offset, len);
        let look = || f(&half.bytes.read().expect("no panic")[range]);
        if len == 8 {
            look()
        } else {
            half.as_user(1, WRITER, look)
        }
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let (half, range) = self.half(at, offset, len);
        let change = || f(&mut half.bytes.write().expect("no panic")[range]);
        if len == 8 {
            change()
        } else {
            half.as_user(WRITER, 1, change)
        }
    }
}

struct World {
    pool: Mutex<(ZsPool, Frames)>,
    memory: Halves,
}

impl World {
    /// Two zspages with one object each, of two: what compaction makes one of.
    fn new() -> (Arc<Self>, [Handle; 2]) {
        let mut frames = Frames::new(512);
        let at = frames.alloc(Kind::Hole, Order::new(2).expect("at most 9"));
        frames.free(
            Kind::Backed,
            at.expect("holes"),
            Order::new(2).expect("at most 9"),
        );
        let memory = Halves::new();
        let mut pool = ZsPool::with_chain(1);
        let mut objects = Vec::new();
        for _ in 0..4 {
            objects.push(pool.malloc(PAYLOAD, &memory, &mut frames).expect("room"));
        }
        for (byte, nth) in [(1, 0), (2, 2)] {
            pool.free(objects[nth + 1], &memory, &mut frames)
                .expect("live");
            let place = pool.location(objects[nth]);
            memory.with_mut(place.at, place.offset, PAYLOAD, |bytes| bytes.fill(byte));
        }
        let world = Self {
            pool: Mutex::new((pool, frames)),
            memory,
        };
        (Arc::new(world), [objects[0], objects[2]])
    }

    /// Reads an object as a load does; `None` when it was freed before.
    fn read(&self, handle: Handle, pins: bool) -> Option<u8> {
        let place = {
            let mut guard = self.pool.lock().expect("no panic");
            let pool = &mut guard.0;
            let place = pool.try_location(handle)?;
            assert!(pool.check_owner(handle, &self.memory));
            if pins {
                pool.pin(handle);
            }
            place
        };
        let byte = self.memory.with(place.at, place.offset, PAYLOAD, |bytes| {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn object");
            bytes[0]
        });
        if pins {
            self.pool.lock().expect("no panic").0.unpin(handle);
        }
        Some(byte)
    }

    /// Relocates the zspage an object is in, as folio compaction does: the copy
    /// is made under the lock.
    fn relocate(&self, handle: Handle) {
        let mut guard = self.pool.lock().expect("no panic");
        let (pool, frames) = &mut *guard;
        let Some(place) = pool.try_location(handle) else {
            return;
        };
        let Some(to) = frames.alloc_exact(Kind::Backed, 1) else {
            return;
        };
        let moved = pool.move_zspage(place.at, to, 1, || {
            for half in [0, HALF] {
                self.memory.with(place.at, half, HALF, |bytes| {
                    let copy = |to: &mut [u8]| to.copy_from_slice(bytes);
                    self.memory.with_mut(to, half, HALF, copy);
                });
            }
            true
        });
        let left = if moved.is_ok() { place.at } else { to };
        frames.free_range(Kind::Backed, left, 1);
    }

    fn compact(&self) {
        let Some(run) = self.pool.lock().expect("no panic").0.begin_compaction() else {
            return;
        };
        loop {
            let mut guard = self.pool.lock().expect("no panic");
            let (pool, frames) = &mut *guard;
            if pool.compaction_step(&run, &self.memory, frames).is_none() {
                return;
            }
        }
    }

    fn free(&self, handle: Handle) -> Result<(), ZsError> {
        let mut guard = self.pool.lock().expect("no panic");
        let (pool, frames) = &mut *guard;
        pool.free(handle, &self.memory, frames)
    }

    fn validate(&self) {
        let guard = self.pool.lock().expect("no panic");
        guard.0.validate(&self.memory).expect("the invariants");
        assert_eq!(
            guard.0.pages_used() + guard.1.free_pages(Kind::Backed),
            PAGES
        );
    }
}

/// All orders of these, on threads of their own; then what must be true.
fn in_all_orders(
    threads: &'static [fn(&World, [Handle; 2])],
    then: impl Fn(&World, [Handle; 2]) + Sync + Send + 'static,
) {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(PREEMPTIONS);
    orders.check(move || {
        let (world, objects) = World::new();
        let running: Vec<_> = threads
            .iter()
            .map(|thread| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || thread(&world, objects))
            })
            .collect();
        for thread in running {
            thread.join().expect("no panic");
        }
        world.validate();
        then(&world, objects);
    });
}

#[test]
fn who_reads_sees_its_bytes_beside_relocation() {
    in_all_orders(
        &[
            |world, [a, _]| assert_eq!(world.read(a, true), Some(1)),
            |world, [a, _]| world.relocate(a),
        ],
        |world, [a, b]| {
            assert_eq!(
                (world.read(a, true), world.read(b, true)),
                (Some(1), Some(2))
            );
        },
    );
}

#[test]
fn who_reads_sees_its_bytes_beside_relocation_and_compaction() {
    in_all_orders(
        &[
            |world, [a, _]| assert_eq!(world.read(a, true), Some(1)),
            |world, [_, b]| world.relocate(b),
            |world, _| world.compact(),
        ],
        |world, [a, b]| {
            assert_eq!(
                (world.read(a, true), world.read(b, true)),
                (Some(1), Some(2))
            );
        },
    );
}

#[test]
fn what_is_freed_meanwhile_is_gone_or_was_pinned() {
    in_all_orders(
        &[
            |world, [a, _]| assert!(matches!(world.read(a, true), Some(1) | None)),
            |world, [a, _]| {
                let freed = world.free(a);
                assert!(matches!(freed, Ok(()) | Err(ZsError::Pinned)));
            },
            |world, [a, b]| {
                world.relocate(a);
                world.relocate(b);
            },
        ],
        |world, [_, b]| assert_eq!(world.read(b, true), Some(2)),
    );
}

/// That the model sees what it is to see: without pins a reader meets a writer.
#[test]
#[should_panic(expected = "two at once")]
fn without_pins_it_goes_wrong() {
    in_all_orders(
        &[
            |world, [a, _]| {
                let _ = world.read(a, false);
            },
            |world, [a, b]| {
                world.relocate(a);
                world.relocate(b);
            },
        ],
        |_, _| {},
    );
}
