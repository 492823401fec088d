//! Stages: what a thread works with while pages are in transit.
//!
//! There are a few for each processor, made as they are first used. A thread has one for as long
//! as it serves a fault; which, is said by the words of the pages it has in transit.

use super::waits::{Bell, STAGES};
use crate::memory::core::MemoryCore;
use crate::memory::outgoing;
use crate::memory::way::{STAGE, Way};
use crate::raw::{self, PAGE, nr};
use crate::threads::{self, Record};
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_runtime::protect::pool_arena::PoolArena;
use zfolio_sys::arena::reserve_private;
use zfolio_sys::lock::{Mutex, MutexGuard, reset_in_fork_child};
use zfolio_sys::syscall::Errno;
use zfolio_zswap::{WorkContext, Zswap};

/// Stages for each processor.
const EACH: usize = 2;

/// What a thread works with. All of it is its own while it has it.
pub(crate) struct Stage {
    /// Where pages are made, and where they are moved to.
    incoming: usize,
    outgoing: usize,
    pub(super) context: WorkContext,
    pub(super) zswap: &'static Zswap<PoolArena>,
}

impl Stage {
    /// With this number. `None` where there is no memory, or no pool yet.
    fn new(core: &MemoryCore, number: usize) -> Option<Self> {
        let zswap = core.pool.as_ref()?.zswap;
        let context = zswap.context().ok()?;
        let places = reserve_private(2 * STAGE * PAGE, c"zfolio stage").ok()?;
        let stage = Self {
            incoming: places.start,
            outgoing: places.start + STAGE * PAGE,
            context,
            zswap,
        };
        stage.way(core).prepare_outgoing().ok()?;
        outgoing::note(number + 1, stage.outgoing);
        Some(stage)
    }

    /// The process's way, with this stage's places. For one transit: descriptors may be
    /// others afterwards.
    pub(super) fn way(&self, core: &MemoryCore) -> Way {
        core.way.with_places(self.incoming, self.outgoing)
    }
}

struct Place {
    /// Held by the thread that has the stage; `None`: not made yet.
    stage: Mutex<Option<Stage>>,
    /// Rings when what is in transit by it has come to its end.
    bell: Bell,
    /// Id of the thread that has pages in transit by it; 0: none, or not known.
    thread: AtomicU32,
}

/// All stages.
pub(crate) struct Stages {
    places: [Place; STAGES],
    /// Those of them that are used.
    count: usize,
}

/// A stage in the hands of a thread.
pub(crate) struct Taken<'a> {
    pub(super) number: usize,
    stage: MutexGuard<'a, Option<Stage>>,
}

impl Taken<'_> {
    /// The stage, made if it is not there. The core lock is held.
    pub(super) fn made(&mut self, core: &MemoryCore) -> Option<&mut Stage> {
        if self.stage.is_none() {
            *self.stage = Stage::new(core, self.number);
        }
        self.stage.as_mut()
    }

    pub(super) fn get(&mut self) -> Option<&mut Stage> {
        self.stage.as_mut()
    }

    /// What words of pages in transit by it say.
    pub(super) fn mark(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(u32::MAX)
    }
}

impl Stages {
    /// For a process that may run on so many processors.
    pub(crate) fn for_processors(processors: usize) -> Self {
        Self {
            places: [const {
                Place {
                    stage: Mutex::new(None),
                    bell: Bell::new(),
                    thread: AtomicU32::new(0),
                }
            }; STAGES],
            count: processors.saturating_mul(EACH).clamp(EACH, STAGES),
        }
    }

    /// Takes one that nobody has, or waits for one. All signals are blocked; neither the core
    /// lock nor a stage is held.
    pub(in crate::memory) fn take(&self) -> Taken<'_> {
        let free = self.places[..self.count]
            .iter()
            .enumerate()
            .find_map(|(number, place)| {
                let stage = place.stage.try_lock()?;
                Some(Taken { number, stage })
            });
        free.unwrap_or_else(|| {
            let number =
                threads::current().and_then(Record::thread).unwrap_or(0) as usize % self.count;
            Taken {
                number,
                stage: self.places[number].stage.lock(),
            }
        })
    }

    /// The bell of a stage, by the word of a page in transit.
    pub(super) fn bell(&self, number: usize) -> &Bell {
        &self.places[number].bell
    }

    /// Notes who has pages in transit by a stage, or that nobody has any more.
    pub(super) fn note_thread(&self, number: usize, record: Option<&Record>) {
        let thread = record.and_then(Record::thread).unwrap_or(0);
        self.places[number].thread.store(thread, Ordering::Relaxed);
    }

    /// A thread of this process, `pid`, that has pages in transit and is not there any more:
    /// they would never come. (None ends so by itself.)
    #[cold]
    pub(super) fn lost(&self, pid: u32) -> Option<u32> {
        let places = self.places[..self.count].iter();
        places.into_iter().find_map(|place| {
            let thread = place.thread.load(Ordering::Relaxed);
            let ids = [pid as usize, thread as usize, 0];
            let is_lost = thread != 0
                && raw::own(nr::TGKILL, ids) == NO_SUCH_THREAD
                && place.thread.load(Ordering::Relaxed) == thread;
            is_lost.then_some(thread)
        })
    }

    /// In the child of a fork, which was made while nothing was in transit: a stage that a
    /// thread of the parent's had is free, and each has the child's way.
    ///
    /// # Errors
    /// A stage's place could not be made ready.
    pub(crate) fn renew_in_child(&self, core: &MemoryCore) -> Result<(), Errno> {
        for place in &self.places[..self.count] {
            reset_in_fork_child(&place.stage);
            place.thread.store(0, Ordering::Relaxed);
            if let Some(stage) = &*place.stage.lock() {
                stage.way(core).prepare_outgoing()?;
            }
        }
        Ok(())
    }
}

const NO_SUCH_THREAD: isize = -3;
