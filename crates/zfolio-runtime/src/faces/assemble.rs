//! Putting a manager together: the same engine whatever its scope is.

use crate::address_space::clean_queue::CleanPages;
use crate::address_space::core::Core;
use crate::address_space::mappings::Vmas;
use crate::address_space::{RangeRules, Space};
use crate::budget::Memory;
use crate::budget::fair_share::Membership;
use crate::control::Manager;
use crate::descriptors::Descriptors;
use crate::error::{Unstarted, step};
use crate::fork::Forks;
use crate::frames::Physical;
use crate::frames::arena::FrameArena;
use crate::health::Health;
use crate::kernel::{File, Pagemap, Uffd};
use crate::options::Options;
use crate::scope::Scope;
use crate::segment::Segment;
use crate::swapout::Swap;
use crate::swapout::compress_threads::{EngineThreads, Submitting};
use crate::transfer::Transfer;
use crate::transfer::airlocks::Airlocks;
use crate::transfer::worker::Worker;
use crate::upkeep::Upkeep;
use crate::upkeep::tier::Tier;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_compress::adaptive::{Adaptive, Density};
use zfolio_compress::{Codec, Compressor};
use zfolio_mm::{Order, Pfn};
use zfolio_sys::arena::{ArenaMap, SharedWords};
use zfolio_sys::lock::Mutex;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::processors;
use zfolio_zswap::{Limits, WorkContext, Zswap};

/// What a manager is made of, besides what it makes itself.
pub(crate) struct Parts {
    pub(crate) options: Options,
    /// Whose limits it shares.
    pub(crate) membership: Membership,
    pub(crate) map: ArenaMap,
    pub(crate) opened: OpenedFiles,
    pub(crate) words: SharedWords,
    /// Addresses that are ours, besides what is made here.
    pub(crate) private: Vec<Range<usize>>,
    /// The stack of the thread that becomes its control thread, if it is known.
    pub(crate) stack: Option<Range<usize>>,
    pub(crate) rules: RangeRules,
    pub(crate) segment: &'static Segment,
    /// Index of the slot in it.
    pub(crate) statistics: usize,
    /// Workers besides the control thread's.
    pub(crate) workers: usize,
    pub(crate) scope: Scope,
}

/// Descriptors that it works with.
pub(crate) struct OpenedFiles {
    /// For what is managed.
    pub(crate) program: Uffd,
    /// For the arena.
    pub(crate) source: Uffd,
    pub(crate) statm: File,
    pub(crate) pagemap: Pagemap,
    pub(crate) maps: File,
}

/// Makes the manager: nothing registered, no thread.
pub(crate) fn assemble(parts: Parts) -> Result<&'static Manager, Unstarted> {
    let Parts { options, map, .. } = parts;
    let locks = step(
        "reserving the airlocks",
        ArenaMap::reserve(3 * Order::HUGE.pages()),
    )?;
    let airlocks = Airlocks {
        small: locks.address(Pfn(0)),
        huge: locks.address(Pfn(0).offset(Order::HUGE.pages())),
    };
    let nursery = locks.address(Pfn(0).offset(2 * Order::HUGE.pages()));
    let arena = FrameArena::new(map, parts.opened.source, parts.opened.pagemap);
    let density = Density::default();
    let dictionaries = Adaptive::dictionaries();
    let codec = || -> Box<dyn Compressor> {
        match options.codec {
            Codec::Auto => Box::new(Adaptive::with_dictionaries(
                density.clone(),
                dictionaries.clone(),
            )),
            fixed => fixed.compressor(),
        }
    };
    let engines = match options.engines {
        0 => None,
        count => {
            let made = EngineThreads::new(codec(), count, options.engine_attributes, processors());
            Some(made.map_err(|_| Unstarted::Failed {
                what: "making the engines' queues",
                errno: Errno::NOMEM,
            })?)
        }
    };
    let compressor = match &engines {
        None => codec(),
        Some(engines) => Box::new(Submitting {
            engines: engines.compressor(),
            inline: codec(),
        }),
    };
    let zswap = Zswap::with_compressor(arena, compressor, Limits::default());
    // (Without memory for it there is none.)
    let tier = options.tier.then(|| zswap.tier_context().ok().flatten());
    let tier = Tier::new(tier.flatten());
    let count = 1 + parts.workers;
    let mut workers = Vec::with_capacity(count);
    for _ in 0..count {
        workers.push(Mutex::new(Worker::new(context_of(&zswap)?)));
    }
    let mut private = parts.private;
    private.extend(parts.stack.clone());
    private.extend([map.range(), locks.range(), parts.words.range()]);
    // Only a fork needs to say what was copied meanwhile.
    let superseded = if parts.scope.has_events() {
        map.slots()
    } else {
        0
    };
    let clean = CleanPages::of(if parts.scope.protects() {
        parts.options.high
    } else {
        0
    });
    let fds = Descriptors::new(
        parts.opened.program,
        parts.opened.statm,
        parts.opened.pagemap,
        parts.opened.maps,
    );
    let physical = Physical::new(fds, zswap, density, nursery);
    let health = Health::new(physical, parts.segment, parts.statistics);
    let memory = Memory::new(health, options, parts.scope, parts.membership);
    let core = Core::new(clean, superseded);
    let space = Space::new(memory, core, parts.words, parts.rules);
    let transfer = Transfer::new(space, airlocks, workers);
    let swap = Swap::new(transfer, engines, Vmas::new(parts.opened.maps, private));
    let upkeep = Upkeep::new(swap, tier, map.slots());
    let forks = Forks::new(upkeep, parts.stack);
    let manager: &'static Manager = Box::leak(Box::new(Manager::new(forks)));
    manager.open_backing();
    manager.limit_pool();
    if manager.zswap.is_backed() {
        for worker in &manager.workers {
            worker.lock().context = context_of(&manager.zswap)?;
        }
    }
    Ok(manager)
}

fn context_of(zswap: &Zswap<FrameArena>) -> Result<WorkContext, Unstarted> {
    zswap.context().map_err(|_| Unstarted::Failed {
        what: "making a codec context",
        errno: Errno::NOMEM,
    })
}

impl Manager {
    /// Reclaim must never start without a frame to compress into.
    pub(crate) fn first_frames(&self) -> Result<(), Errno> {
        let mut wanted = self.watermarks().free_target;
        while wanted > 0 {
            let part = wanted.min(64);
            let run = self.arena().populate_run(part).ok_or(Errno::NOMEM)?;
            self.arena().give_frames(run, part);
            wanted -= part;
        }
        Ok(())
    }
}
