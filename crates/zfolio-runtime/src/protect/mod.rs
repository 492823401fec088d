//! Regions without userfaultfd: groups of pages that are open or closed.
//!
//! A region is PROT_NONE where a group is closed (`zfolio_sys::closable`). Its pages are
//! taken aside to be read and filled. Touching a closed group is a SIGSEGV in the
//! thread that touches, which serves it, as `faults/by_sigbus.rs` does with SIGBUS.
//!
//! # A group
//!
//! Of 16 KiB; more where `high` is so large that the kernel's limit of mappings
//! would be in the way.
//!
//! | state | the program's | bytes |
//! |---|---|---|
//! | Closed | closed | words: in the pool, or zeros and nowhere |
//! | Loading | closed | being brought into pages aside, by one thread |
//! | Open | open | in the memory: the program's |
//! | Standby | closed | in the memory, nobody's |
//! | Storing | closed | in pages aside; one thread compresses them |
//!
//! | from | to | when |
//! |---|---|---|
//! | Closed | Open | touched, and nothing of it is in the pool |
//! | Closed | Loading | touched: claimed by the thread that touched |
//! | Loading | Open | every page is there, whole |
//! | Loading | Closed | the kernel would not have it (mappings): tried again |
//! | Open | Standby | its turn in the ring, and no heat left; or advised cold |
//! | Standby | Open | touched: the guess was wrong, and cheap; it gains heat |
//! | Standby | Storing | the coldest, and memory is short |
//! | Storing | Closed | all of it is in the pool, then the kernel let go of the memory |
//! | Storing | Open | touched meanwhile, or somebody holds a page (a device): what was stored is dropped |
//! | Storing | Standby | the pool refused |
//! | Open, Standby | Closed | discarded whole |
//!
//! Closed is not kept: a group that the table does not have is closed. A thread
//! that meets Loading or Storing waits (`Protected::wait`): whoever set that state
//! has a worker, and ends it without waiting for anybody.
//!
//! # Why no byte is lost or wrong
//!
//! - Bytes are read for the pool only once mprotect has returned, after which no
//!   thread can write them, nor does a system call begin to; bytes are opened only once
//!   all are there.
//! - What began before (O_DIRECT, io_uring, a device) goes on by the pages that it holds.
//!   The kernel lets go of a page only if nobody holds it, and nobody has written to it
//!   since it was copied for the pool; if it does not, the group is opened, with its bytes.
//! - A page that does not load ends the process with a line. So does a group
//!   that the kernel will not open, though every other was closed for it.
//!
//! # Locks
//!
//! A worker's, then `core`, then the pool's, then the arena's. Under `core` are the
//! table, words and mprotect; nothing is compressed, loaded, or given back to the
//! system under it but what is discarded.

mod calls;
mod close;
mod groups;
mod open;
pub mod pool_arena;

use crate::address_space::extent::Extents;
use crate::address_space::pins::Pins;
use crate::error::{Unavailable, Unstarted, step};
use crate::frames::reserve_arena;
use crate::options::{IN_THREAD, MaxOptions, Options, STACK};
use crate::policy::watermarks::Watermarks;
use crate::segment::{Counter, ProcessSlot, Segment, describe, state};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use groups::Table;
use pool_arena::PoolArena;
use zfolio_compress::adaptive::{Adaptive, Density};
use zfolio_compress::{Codec, Compressor};
use zfolio_mm::{Order, PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::closable::Closable;
use zfolio_sys::lock::{Mutex, futex_wait, futex_wake, pause};
use zfolio_sys::region::{keep_from_children, map_region};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{CallStack, pid, processors};
use zfolio_zswap::{WorkContext, Zswap};

/// Runs of open groups of all engines in this process: each takes two mappings.
static RUNS: AtomicUsize = AtomicUsize::new(0);
/// Part of the mappings a process may have that regions take.
const SHARE: usize = 4;
/// That limit where it cannot be read: the kernel's default.
const MAPPINGS: usize = 65_530;
/// Smallest group, pages: with 16 random reads take three to four times as long.
const FEWEST_PAGES: usize = 4;
/// Largest group, pages.
const MOST_PAGES: usize = Order::HUGE.pages();

/// An engine for regions that needs no userfaultfd.
pub struct Protected {
    /// The target, pages.
    high: AtomicUsize,
    options: Options,
    zswap: Zswap<PoolArena>,
    /// Which codec `auto` uses.
    density: Density,
    core: Mutex<GroupCore>,
    /// The control thread's, then those of threads that touch.
    workers: Vec<Mutex<GroupWorker>>,
    /// A stack for each of the latter.
    stacks: Vec<CallStack>,
    stats: &'static ProcessSlot,
    before_moving: fn(),
    /// Runs of open groups there may be, of all engines.
    most_runs: usize,
    /// Pages by which every watermark is raised now.
    overdraft: AtomicUsize,
    /// Changes when a group has been loaded or stored.
    turns: AtomicU32,
    waiting: AtomicU32,
    control_wake: AtomicU32,
    control_sleeps: AtomicU32,
}

/// What the core lock guards.
struct GroupCore {
    table: Table,
    /// What is in the pool, page by page.
    extents: Extents,
    /// By the first address.
    regions: BTreeMap<usize, Arc<Closable>>,
    pins: Pins,
}

/// What one thread works with.
pub(crate) struct GroupWorker {
    context: WorkContext,
    /// What is being stored, as it was when it was taken aside: a group's bytes.
    copy: Vec<u8>,
}

/// A group of a region, and where it is.
pub(crate) struct LocatedGroup {
    group: usize,
    memory: Arc<Closable>,
    /// What of it lies in the region.
    range: Range<usize>,
}

impl LocatedGroup {
    fn pages(&self) -> usize {
        self.range.len() / PAGE_SIZE
    }
}

impl GroupCore {
    /// The group that `address` is in, if a region has it.
    fn place(&self, address: usize) -> Option<LocatedGroup> {
        let (_, memory) = self.regions.range(..=address).next_back()?;
        let view = memory.view();
        if !view.contains(&address) {
            return None;
        }
        let group = self.table.group_of(address);
        let whole = self.table.addresses(group);
        Some(LocatedGroup {
            group,
            memory: Arc::clone(memory),
            range: whole.start.max(view.start)..whole.end.min(view.end),
        })
    }

    fn place_of(&self, group: usize) -> Option<LocatedGroup> {
        self.place(self.table.addresses(group).start)
    }
}

/// What regions may take of the mappings that the process may have, as runs.
fn most_runs() -> usize {
    let mappings = zfolio_sys::limits::most_mappings().unwrap_or(MAPPINGS);
    mappings / SHARE / 2
}

/// Pages in a group, so that what `high` pages leave for the program may be
/// scattered over twice as many: two in a run, then. (Where they lie farther apart
/// they are closed before memory is short.)
fn group_pages(high: usize, most_runs: usize) -> usize {
    let open = high - high / 8;
    let mut pages = FEWEST_PAGES;
    while pages < MOST_PAGES && open / pages > 2 * most_runs {
        pages *= 2;
    }
    pages
}

/// Whether this engine can do what is asked for: it has no engines, no second tier, no backing,
/// no `max`, and its groups have a size of their own.
fn can_do(options: &Options) -> Result<(), Errno> {
    let usual = Options {
        codec: options.codec,
        pool: options.pool,
        at_max: MaxOptions {
            on_max: options.at_max.on_max,
            ..MaxOptions::NONE
        },
        ..Options::for_regions(options.high << PAGE_SHIFT, options.codec)
    };
    if *options == usual {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

/// Whether the system does for memory what such regions need of it.
///
/// # Errors
/// What it refused.
pub fn probe() -> Result<(), Unavailable> {
    Ok(step("taking memory aside", try_memory())?)
}

/// Between tries of that, ns.
const PROBE_NS: u64 = 100_000;
/// Tries of that: a page stays for a moment when another processor has made it.
const PROBES: u32 = 100;

fn try_memory() -> Result<(), Errno> {
    // (The page of addresses stays: nobody here may unmap.)
    let view = map_region(PAGE_SIZE)?;
    let memory = Closable::over(&view)?;
    let mut copy = [0; PAGE_SIZE];
    for _ in 0..PROBES {
        let mut aside = memory.take(&view)?;
        aside.unlock()?;
        aside.bytes_mut(&view)[0] = 1;
        aside.put_back_closed().map_err(|(_, errno)| errno)?;
        let mut aside = memory.take(&view)?;
        aside.unlock()?;
        if aside.hold_still(&mut copy) && copy[0] == 1 && aside.let_go().is_ok() {
            return Ok(());
        }
        pause(PROBE_NS);
    }
    Err(Errno::OPNOTSUPP)
}

/// In the child of a fork: what the parent has open is not open here.
pub fn forget_in_fork_child() {
    RUNS.store(0, Ordering::Relaxed);
}

impl Protected {
    /// Makes an engine; `before_moving` is called now and then, in the thread that
    /// reclaims, before it closes anything. Its one thread is the caller's to
    /// start.
    ///
    /// # Errors
    /// What the system refused.
    pub fn start(
        segment: &'static Segment,
        options: Options,
        before_moving: fn(),
    ) -> Result<&'static Self, Unavailable> {
        step("what was asked for, without userfaultfd,", can_do(&options))?;
        probe()?;
        let map = step(
            "reserving the arena",
            reserve_arena(options.high, usize::MAX),
        )?;
        step("advice on the arena", keep_from_children(&map.range()))?;
        let density = Density::default();
        let compressor: Box<dyn Compressor> = match options.codec {
            Codec::Auto => Box::new(Adaptive::new(density.clone())),
            fixed => fixed.compressor(),
        };
        let zswap = Zswap::with_compressor(
            PoolArena::new(map),
            compressor,
            options.pool.limits(options.high),
        );
        let serving = (2 * processors()).clamp(IN_THREAD.start, IN_THREAD.end);
        let most_runs = most_runs();
        let group_pages = group_pages(options.high, most_runs);
        let mut workers = Vec::with_capacity(1 + serving);
        for _ in 0..=serving {
            let context = zswap.context().map_err(|_| Unstarted::Failed {
                what: "making a codec context",
                errno: Errno::NOMEM,
            })?;
            let copy = vec![0; group_pages * PAGE_SIZE];
            workers.push(Mutex::new(GroupWorker { context, copy }));
        }
        let mut stacks = Vec::with_capacity(serving);
        for _ in 0..serving {
            stacks.push(step("mapping a stack", CallStack::map(STACK))?);
        }
        let stats = &segment.slots[segment.claim(pid())];
        let engine: &'static Self = Box::leak(Box::new(Self {
            high: AtomicUsize::new(options.high),
            options,
            zswap,
            density,
            core: Mutex::new(GroupCore {
                table: Table::new(group_pages),
                extents: Extents::default(),
                regions: BTreeMap::new(),
                pins: Pins::default(),
            }),
            workers,
            stacks,
            stats,
            before_moving,
            most_runs,
            overdraft: AtomicUsize::new(0),
            turns: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            control_wake: AtomicU32::new(0),
            control_sleeps: AtomicU32::new(0),
        }));
        describe(stats);
        stats.state.store(state::MANAGING, Ordering::Release);
        Ok(engine)
    }

    fn watermarks(&self) -> Watermarks {
        Watermarks::of_regions(self.high.load(Ordering::Relaxed))
    }

    fn overdraft(&self) -> usize {
        self.overdraft.load(Ordering::Relaxed)
    }

    /// Pages of groups that are not closed, and of the pool's arena.
    fn usage(&self, core: &GroupCore) -> usize {
        core.table.pages() + self.zswap.arena().backed_pages()
    }

    fn count(&self, which: Counter, amount: usize) {
        self.stats.add(which, amount as u64);
    }

    /// Rings for the control thread if it sleeps and there is work for it.
    fn ring_at(&self, core: &GroupCore) {
        if self.control_sleeps.load(Ordering::Relaxed) != 0 && self.is_pressed(core) {
            self.control_wake.fetch_add(1, Ordering::SeqCst);
            futex_wake(&self.control_wake, 1);
        }
    }

    /// Opens a group to the program. The caller tells the table.
    fn open(&self, core: &mut GroupCore, place: &LocatedGroup) -> Result<(), Errno> {
        place.memory.open(&place.range)?;
        core.table.count_run(place.group, true, &RUNS);
        Ok(())
    }

    /// Closes a group that is open.
    fn close(&self, core: &mut GroupCore, place: &LocatedGroup) -> Result<(), Errno> {
        place.memory.close(&place.range)?;
        core.table.count_run(place.group, false, &RUNS);
        Ok(())
    }

    /// Says that a group has been loaded or stored. The core lock is held.
    fn done(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            futex_wake(&self.turns, u32::MAX >> 1);
        }
    }

    /// Waits until [`Self::done`] is said after `turn` was read, under the core
    /// lock, which is not held here.
    fn wait(&self, turn: u32) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        futex_wait(&self.turns, turn, None);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// The core lock, once no group of `range` is being loaded or stored.
    fn quiet(&self, range: &Range<usize>) -> zfolio_sys::lock::MutexGuard<'_, GroupCore> {
        loop {
            let mut core = self.core.lock();
            if !core.table.want_busy(range) {
                return core;
            }
            let turn = self.turns.load(Ordering::SeqCst);
            drop(core);
            self.wait(turn);
        }
    }

    fn fail(&self, why: core::fmt::Arguments<'_>) -> ! {
        crate::health::fatal::fail(self.stats, self.zswap.stats(), pid(), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_grow_before_mappings_run_out() {
        let runs = 65_530 / SHARE / 2;
        assert_eq!(group_pages(1024, runs), 4);
        assert_eq!(group_pages(1 << 16, runs), 4, "256 MiB");
        assert_eq!(group_pages(1 << 18, runs), 16, "1 GiB");
        assert_eq!(group_pages(1 << 20, runs), 64, "4 GiB");
        assert_eq!(group_pages(1 << 40, runs), MOST_PAGES);
    }
}
