//! A sequence of operations from a string of bytes, against a model.

use std::cell::RefCell;

use zfolio_mm::compaction::{
    Compactor, Evacuate, Folios, Found, Goal, PageblockCounts, Refused, Request, Step,
};
use zfolio_mm::{Frames, Kind, Memory, Order, PAGE_SIZE, Pfn};
use zfolio_zsmalloc::{Compaction, Handle, Layout, Location, ZsError, ZsPool};

/// Slots of the arena: few enough to run full.
const SLOTS: usize = 1024;

/// The bytes of the arena.
struct Bytes(RefCell<Vec<u8>>);

impl Memory for Bytes {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let start = at.index() * PAGE_SIZE + offset;
        let bytes = self.0.borrow()[start..start + len].to_vec();
        f(&bytes)
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let start = at.index() * PAGE_SIZE + offset;
        f(&mut self.0.borrow_mut()[start..start + len])
    }
}

/// What compaction moves.
struct Arena {
    memory: Bytes,
    frames: Frames,
    pool: ZsPool,
}

impl Folios for Arena {
    fn slots(&self) -> usize {
        SLOTS
    }

    fn look(&self, at: Pfn) -> Found {
        match (
            self.frames.of(Kind::Backed).block_at(at),
            self.pool.zspage_at(at),
        ) {
            (Some(order), zspage) => {
                assert_eq!(zspage, None, "a zspage in a free block");
                Found::Free(order)
            }
            (None, Some((pages, pinned))) => Found::Folio {
                pages,
                movable: !pinned,
            },
            (None, None) => Found::Other { pages: 1 },
        }
    }

    fn free_blocks(&self, order: Order) -> usize {
        self.frames.free_blocks(Kind::Backed, order)
    }

    fn free_pages(&self) -> usize {
        self.frames.free_pages(Kind::Backed)
    }

    fn pageblock(&self, block: usize) -> PageblockCounts {
        PageblockCounts {
            free: self.frames.of(Kind::Backed).free_in_pageblock(block),
            holes: 0,
        }
    }

    fn isolate(&mut self, at: Pfn) -> Option<Order> {
        self.frames.take_block(Kind::Backed, at)
    }

    fn give(&mut self, at: Pfn, pages: usize) {
        self.frames.free_range(Kind::Backed, at, pages);
    }

    fn migrate(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<(), Refused> {
        let Self { memory, pool, .. } = self;
        let moved = pool.move_zspage(from, to, pages, || {
            memory.with(from, 0, pages * PAGE_SIZE, |bytes| {
                memory.with_mut(to, 0, pages * PAGE_SIZE, |copy| copy.copy_from_slice(bytes));
            });
            memory.with_mut(from, 0, pages * PAGE_SIZE, |bytes| bytes.fill(0xee));
            true
        });
        match moved {
            Ok(()) => Ok(()),
            Err(ZsError::Pinned) => Err(Refused::Busy),
            Err(_) => Err(Refused::Gone),
        }
    }
}

#[derive(Clone, Copy)]
struct Object {
    handle: Handle,
    size: usize,
    seed: u8,
    pins: u32,
    /// Where it was when the first of them came.
    pinned: Option<Location>,
}

struct Input<'a>(core::slice::Iter<'a, u8>);

impl Input<'_> {
    fn byte(&mut self) -> Option<usize> {
        self.0.next().map(|byte| usize::from(*byte))
    }

    fn pair(&mut self) -> Option<usize> {
        Some(self.byte()? << 8 | self.byte()?)
    }
}

struct Sequence {
    arena: Arena,
    objects: Vec<Object>,
    zspages: Option<Compaction>,
    folios: Compactor<Evacuate>,
    seed: u8,
}

/// Runs a sequence, panics on what is wrong; how many operations it had.
pub fn run(bytes: &[u8]) -> u64 {
    let mut input = Input(bytes.iter());
    let flags = input.byte().unwrap_or(0);
    let layout = Layout {
        chain: [1, 4, 8, 16][flags & 3],
        powers: flags & 4 != 0,
        units: flags & 8 != 0,
        guests: flags & 16 != 0,
    };
    let mut frames = Frames::new(SLOTS);
    while let Some((at, order)) = frames.take_free(Kind::Hole, Order::HUGE) {
        frames.free(Kind::Backed, at, order);
    }
    let mut run = Sequence {
        arena: Arena {
            memory: Bytes(RefCell::new(vec![0x5a; SLOTS * PAGE_SIZE])),
            frames,
            pool: ZsPool::with_layout(layout),
        },
        objects: Vec::new(),
        zspages: None,
        folios: Compactor::new(SLOTS),
        seed: 0,
    };
    let mut operations = 0;
    while run.step(&mut input).is_some() {
        operations += 1;
        if operations % 16 == 0 {
            run.check();
        }
    }
    run.check();
    run.end();
    operations
}

impl Sequence {
    /// One operation; `None` at the end of the input.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let Self { arena, objects, .. } = self;
        let what = input.byte()?;
        match what % 16 {
            0..=5 => {
                let size = input.pair()? + 1;
                self.malloc(if what & 128 == 0 {
                    size % PAGE_SIZE + 1
                } else {
                    size
                });
            }
            6..=9 => {
                let nth = input.pair()?;
                self.free(nth);
            }
            10 => {
                let nth = input.pair()?;
                let len = objects.len().max(1);
                if let Some(object) = objects.get_mut(nth % len) {
                    arena.pool.pin(object.handle);
                    if object.pins == 0 {
                        object.pinned = Some(arena.pool.location(object.handle));
                    }
                    object.pins += 1;
                }
            }
            11 => {
                if let Some(object) = objects.iter_mut().find(|object| object.pins != 0) {
                    arena.pool.unpin(object.handle);
                    object.pins -= 1;
                }
            }
            12 => match &self.zspages {
                None => self.zspages = arena.pool.begin_compaction(),
                Some(run) => {
                    let step = arena
                        .pool
                        .compaction_step(run, &arena.memory, &mut arena.frames);
                    if step.is_none() {
                        self.zspages = None;
                    }
                }
            },
            13..=14 => self.carry(input)?,
            _ => {
                if let Some(run) = self.zspages.take() {
                    arena.pool.end_compaction(run);
                }
                self.folios.stop(arena);
            }
        }
        Some(())
    }

    fn carry(&mut self, input: &mut Input<'_>) -> Option<()> {
        let Self { arena, folios, .. } = self;
        let budget = input.byte()?;
        if !folios.is_running() {
            let order = Order::new(u8::try_from(budget % 10).ok()?)?;
            let goal = match budget % 3 {
                0 => Goal::OneBlock,
                1 => Goal::Score(50),
                _ => Goal::Everything,
            };
            folios.begin_unasked(arena, Request { order, goal });
        }
        if let Step::Done(_) = folios.step(arena, 1 + budget * 4) {
            assert_eq!(folios.held_pages(), 0);
        }
        Some(())
    }

    fn malloc(&mut self, size: usize) {
        let Arena {
            memory,
            frames,
            pool,
        } = &mut self.arena;
        match pool.malloc(size, memory, frames) {
            Ok(handle) => {
                self.seed = self.seed.wrapping_add(41);
                let seed = self.seed;
                let place = pool.location(handle);
                assert!(place.capacity >= size);
                memory.with_mut(place.at, place.offset, size, |bytes| {
                    for (byte, n) in bytes.iter_mut().zip(0_u8..=250) {
                        *byte = seed ^ n.wrapping_mul(29);
                    }
                    let last = bytes.len() - 1;
                    bytes[last] = seed;
                });
                self.objects.push(Object {
                    handle,
                    size,
                    seed,
                    pins: 0,
                    pinned: None,
                });
            }
            Err(ZsError::BadSize) => assert!(size > pool.classes().largest()),
            Err(error) => assert_eq!(error, ZsError::NoMemory),
        }
    }

    fn free(&mut self, nth: usize) {
        if self.objects.is_empty() {
            return;
        }
        let nth = nth % self.objects.len();
        let object = self.objects[nth];
        let Arena {
            memory,
            frames,
            pool,
        } = &mut self.arena;
        let freed = pool.free(object.handle, memory, frames);
        if object.pins != 0 {
            assert_eq!(freed, Err(ZsError::Pinned));
        } else {
            assert_eq!(freed, Ok(()));
            assert_eq!(
                pool.free(object.handle, memory, frames),
                Err(ZsError::BadHandle)
            );
            self.objects.swap_remove(nth);
        }
    }

    fn check(&self) {
        let Arena {
            memory,
            frames,
            pool,
        } = &self.arena;
        pool.validate(memory).expect("the pool's invariants");
        frames.validate().expect("the frames' invariants");
        self.folios.validate().expect("the compactor's invariants");
        let held = self.folios.held_pages();
        assert_eq!(frames.used_pages(), pool.pages_used() + held, "pages lost");
        for object in &self.objects {
            let place = pool.location(object.handle);
            assert!(pool.check_owner(object.handle, memory));
            let moved = object.pins != 0 && object.pinned != Some(place);
            assert!(!moved, "a pinned object moved");
            memory.with(place.at, place.offset, object.size, |bytes| {
                let last = bytes.len() - 1;
                assert_eq!(bytes[last], object.seed);
                let mut made = bytes[..last].iter().zip(0_u8..=250);
                assert!(made.all(|(byte, n)| *byte == object.seed ^ n.wrapping_mul(29)));
            });
        }
    }

    /// Frees everything; nothing may be left.
    fn end(mut self) {
        self.folios.stop(&mut self.arena);
        self.arena.pool.abandon_compaction();
        for object in core::mem::take(&mut self.objects) {
            (0..object.pins).for_each(|_| self.arena.pool.unpin(object.handle));
            let Arena {
                memory,
                frames,
                pool,
            } = &mut self.arena;
            assert_eq!(pool.free(object.handle, memory, frames), Ok(()));
        }
        self.check();
        assert_eq!(self.arena.frames.used_pages(), 0);
    }
}
