//! Everything a managed process has: one `Manager`, never freed.

use crate::address_space::discard::Vanishing;
use crate::address_space::extent::{Extents, Vpn};
use crate::address_space::pins::Pins;
use crate::address_space::place::Place;
use crate::address_space::quiet::Quiet;
use crate::address_space::standby::{Run, Standby};
use crate::budget::fair_share::Membership;
use crate::events::parked::Parked;
use crate::events::ranges::Ranges;
use crate::faces::regions::Scope;
use crate::faults::thread_placement::Faulting;
use crate::fork::children::Child;
use crate::fork_handshake::ForkWords;
use crate::frames::arena::FrameArena;
use crate::frames::huge_reserve::HugeFrames;
use crate::options::{Options, Watermarks};
use crate::pager::Access;
use crate::policy::readahead::{Neighbours, Rush, Streams};
use crate::policy::refault::Clock;
use crate::policy::strides::Strides;
use crate::segment::{Counter, ProcessSlot, Segment};
use crate::swapin::copy_in::COPIED_APART;
use crate::swapout::clock_hand::Reclaim;
use crate::swapout::compress_threads::{BATCH_PAGES, EngineThreads};
use crate::transfer::clean_pages::CleanPages;
use crate::upkeep::recompress::Tier;
use crate::upkeep::zspage_compaction::Compacting;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_compress::adaptive::Density;
use zfolio_mm::{Order, PAGE_SHIFT, PAGE_SIZE, Pfn};
use zfolio_sys::arena::SharedWords;
use zfolio_sys::lock::{Mutex, futex_wait, futex_wake};
use zfolio_sys::moves::Moves;
use zfolio_sys::procfs::{File, Pagemap, Statm};
use zfolio_sys::uffd::Uffd;
use zfolio_zswap::{Slot, WorkContext, Zswap};

/// Faults remembered but not served yet, at most.
pub(crate) const PENDING: usize = 1024;
/// Ranges remembered as left behind, at most.
pub(crate) const BEHIND: usize = 512;
/// Bytes of a manager thread's stack.
pub(crate) const STACK: usize = 256 << 10;
/// Fewest fault threads: one may sleep on the descriptor while faults that
/// somebody else read wait for another.
pub(crate) const MIN_FAULT_THREADS: usize = 2;
/// Most fault threads.
pub(crate) const MAX_FAULT_THREADS: usize = 4;

/// A fault read from the descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) vpn: Vpn,
    pub(crate) access: Access,
    /// The thread that waits for it.
    pub(crate) thread: u32,
    /// CLOCK_MONOTONIC when it was read, ns.
    pub(crate) read_ns: u64,
    /// Times it waited for frames.
    pub(crate) waits: u32,
}

/// The state under the one lock that everything short goes through.
///
/// Its rule: **every event that has left the kernel's queue is applied before
/// anybody else looks at the queue, moves a page, or trusts a word.** So the
/// descriptor is read, events are applied, pages are moved in and out, and
/// words change under this lock only; compression and decompression happen
/// outside it, on pages whose word says `Storing` or `Loading`.
pub(crate) struct Core {
    pub(crate) extents: Extents,
    /// Addresses known to be registered with the program's descriptor.
    pub(crate) registered: Ranges,
    /// Ranges that must stay where they are.
    pub(crate) pins: Pins,
    pub(crate) standby: Standby,
    pub(crate) clean: CleanPages,
    pub(crate) streams: Streams,
    pub(crate) strides: Strides,
    pub(crate) rush: Rush,
    pub(crate) neighbours: Neighbours,
    /// Pages that sequential readers left behind, oldest first.
    pub(crate) behind: VecDeque<Range<Vpn>>,
    /// Faults read and not taken by a thread yet.
    pub(crate) pending: VecDeque<Fault>,
    /// Faults put off because an event was in flight.
    pub(crate) deferred: VecDeque<Fault>,
    /// Events that wait until no operation is under way.
    pub(crate) parked: Parked,
    /// A fork is under way: words must stay what they are.
    pub(crate) fork_freeze: bool,
    /// The memory may be being copied for a child: nothing may use the heap.
    pub(crate) being_copied: bool,
    /// Pages whose word still says where their bytes are, for a child's sake,
    /// though a copy is with the program: the words are dropped at the thaw.
    /// As many fit as the arena has slots. (Pages of zeros need none and may be
    /// more: then some stay as they are, present and never moved again.)
    pub(crate) superseded: Vec<Vpn>,
    pub(crate) vanishing: Vanishing,
    /// Descriptors of children, from FORK events.
    pub(crate) children: Vec<Child>,
    /// A child came without handlers and must be filled.
    pub(crate) raw_fork: bool,
    /// By which pages are spared.
    pub(crate) clock: Clock,
    /// The least ticks after which something may go that the hand has spared.
    pub(crate) spared: Option<u8>,
    /// Who faulted lately.
    pub(crate) faulting: Faulting,
    /// Faults left for which several threads stay on duty.
    pub(crate) crowd: u32,
    /// A thread is waiting on the descriptor.
    pub(crate) reader: bool,
    /// Fault threads asleep on `fault_wake`.
    pub(crate) sleepers: u32,
}

/// The descriptors, in the manager's own table. They change in the child of
/// a fork.
pub(crate) struct Descriptors {
    program: AtomicI32,
    statm: AtomicUsize,
    pagemap: AtomicUsize,
}

impl Descriptors {
    pub(crate) fn new(program: Uffd, statm: File, pagemap: Pagemap) -> Self {
        Self {
            program: AtomicI32::new(program.fd()),
            statm: AtomicUsize::new(statm.fd()),
            pagemap: AtomicUsize::new(pagemap.file().fd()),
        }
    }

    /// For the child of a fork: descriptors of its own.
    pub(crate) fn adopt(&self, program: Uffd, statm: File, pagemap: Pagemap) {
        self.program.store(program.fd(), Ordering::Relaxed);
        self.statm.store(statm.fd(), Ordering::Relaxed);
        self.pagemap.store(pagemap.file().fd(), Ordering::Relaxed);
    }

    pub(crate) fn statm(&self) -> File {
        File::from_fd(self.statm.load(Ordering::Relaxed))
    }

    pub(crate) fn pagemap(&self) -> Pagemap {
        Pagemap::from_file(File::from_fd(self.pagemap.load(Ordering::Relaxed)))
    }

    /// The program's ranges, with events.
    pub(crate) fn program(&self) -> Uffd {
        Uffd::from_fd(self.program.load(Ordering::Relaxed))
    }

    /// What moves pages into those.
    pub(crate) fn moves(&self) -> Moves {
        Moves {
            uffd: self.program(),
            pagemap: self.pagemap(),
        }
    }
}

/// What one manager thread works with, made once.
pub(crate) struct Worker {
    pub(crate) context: WorkContext,
    /// Pages at hand, in address order, and the slot and frame of each.
    pub(crate) pages: Vec<Vpn>,
    pub(crate) slots: Vec<Slot>,
    /// Folios claimed to be stored together.
    pub(crate) folios: Vec<Run>,
    pub(crate) frames: Vec<Pfn>,
    /// Room for pages beside the arena: see [`Self::room`].
    pub(crate) page: Vec<u8>,
    /// The fault at hand has waited long enough: it gets a frame, `high` or not.
    pub(crate) urgent: bool,
    /// How the fault at hand came about.
    pub(crate) access: Access,
}

impl Worker {
    pub(crate) fn new(context: WorkContext) -> Self {
        Self {
            context,
            pages: Vec::with_capacity(Order::HUGE.pages()),
            slots: Vec::with_capacity(2 * Order::HUGE.pages()),
            folios: Vec::with_capacity(BATCH_PAGES),
            frames: Vec::with_capacity(2 * Order::HUGE.pages()),
            page: Vec::with_capacity(COPIED_APART * PAGE_SIZE),
            urgent: false,
            access: Access::default(),
        }
    }

    /// Room for `pages` pages of those for which it was reserved.
    pub(crate) fn room(page: &mut Vec<u8>, pages: usize) -> &mut [u8] {
        let bytes = pages * PAGE_SIZE;
        if page.len() < bytes {
            page.resize(bytes, 0);
        }
        &mut page[..bytes]
    }
}

/// One process's manager.
pub struct Manager {
    pub(crate) options: Options,
    /// Its place among those that share `high`.
    pub(crate) membership: Membership,
    /// Pages this process may have of `high`: all, or its share.
    pub(crate) allowance: AtomicUsize,
    /// Of `max` likewise, and since when it is exceeded (0: it is not), ns.
    pub(crate) max_part: AtomicUsize,
    pub(crate) max_since_ns: AtomicU64,
    pub(crate) zswap: Zswap<FrameArena>,
    /// Threads that compress for reclaim, if there are any.
    pub(crate) engines: Option<EngineThreads>,
    /// Which codec `auto` uses.
    pub(crate) density: Density,
    pub(crate) core: Mutex<Core>,
    pub(crate) reclaim: Mutex<Reclaim>,
    pub(crate) fds: Descriptors,
    /// Where pages pass on their way out; see `moveout`.
    pub(crate) airlocks: Airlocks,
    pub(crate) huge_frames: HugeFrames,
    /// A huge page on its way out found no block of holes.
    pub(crate) block_wanted: AtomicBool,
    /// Whether any of a range must stay where it is.
    pub(crate) left_alone: fn(&Range<usize>) -> bool,
    /// The control thread's; a child's takes its parent's over.
    pub(crate) compacting: Mutex<Compacting>,
    /// As `compacting`.
    pub(crate) tier: Mutex<Tier>,
    /// Worker 0 is the control thread's.
    pub(crate) workers: Vec<Mutex<Worker>>,
    /// Processors that its threads may run on.
    pub(crate) processors: usize,
    /// Operations under way outside the core lock.
    pub(crate) inflight: AtomicU32,
    /// See [`crate::address_space::quiet`].
    pub(crate) quiet: Quiet,
    /// Bumped to wake sleeping fault threads.
    pub(crate) fault_wake: AtomicU32,
    /// Bumped to wake the control thread.
    pub(crate) control_wake: AtomicU32,
    /// Until when it stays awake all the same, monotonic ns.
    pub(crate) warm_until: AtomicU64,
    /// Whether it serves faults meanwhile.
    pub(crate) warm_helps: AtomicBool,
    /// 1 while the control thread sleeps, or is about to.
    pub(crate) control_sleeps: AtomicU32,
    /// Bumped when frames were freed and somebody waits for them.
    pub(crate) frames_wake: AtomicU32,
    pub(crate) frame_waiters: AtomicU32,
    pub(crate) segment: &'static Segment,
    /// Index of this process's slot in the segment.
    pub(crate) statistics: AtomicUsize,
    pub(crate) words: SharedWords,
    /// Ranges left behind that were moved out since the hand last moved.
    pub(crate) behind_steps: AtomicU32,
    /// Counts forks, to tell what is left for one child from the next.
    pub(crate) fork_generation: AtomicU32,
    /// Set once the child of a fork serves itself.
    pub(crate) child_ready: AtomicU32,
    /// The list of mappings, to ask about one mapping.
    pub(crate) maps: AtomicUsize,
    /// Frames of ours to give back to the system for copies that it made.
    pub(crate) owed: AtomicUsize,
    /// Pages beyond `high` granted because nothing more could be moved out.
    pub(crate) room: AtomicUsize,
    /// When a fault was last given memory beyond `high`, ns.
    pub(crate) urgent_ns: AtomicU64,
    /// Errno of the last range that could not be registered; 0: none.
    pub(crate) refused: AtomicI32,
    /// When the fault that each worker serves was read, ns; 0: none.
    pub(crate) serving_since: [AtomicU64; 1 + MAX_FAULT_THREADS],
    /// Bumped by the control thread as it goes on.
    pub(crate) control_turns: AtomicU64,
    /// Times that messages were read.
    pub(crate) reads: AtomicU64,
    /// CPU time of each worker's thread, ns.
    pub(crate) cpu_ns: [AtomicU64; 1 + MAX_FAULT_THREADS],
    pub(crate) pid: AtomicU32,
    /// Which process its threads run in.
    pub(crate) identity: AtomicU64,
    /// Stacks of its threads, and words that a fork before the last one used: the child of
    /// a fork has copies of them that nobody uses.
    pub(crate) stacks: Mutex<Vec<Range<usize>>>,
    pub(crate) old_words: Mutex<Option<Range<usize>>>,
    /// Resident pages at the last sample.
    pub(crate) resident: AtomicUsize,
    /// When a backing that refused is tried again, ns; 0: it does not refuse.
    pub(crate) backing_retry_ns: AtomicU64,
    /// When the arena's huge pages are counted next, ns.
    pub(crate) huge_count_ns: AtomicU64,
    /// When what cannot leave is counted next, ns.
    pub(crate) stays_count_ns: AtomicU64,
    /// Calls of the backing under way, and how many there were.
    pub(crate) io_under_way: AtomicU32,
    pub(crate) io_done: AtomicU64,
    /// Faults that wait at `max`, as they were told to.
    pub(crate) max_waiters: AtomicU32,
    /// Whose memory it moves.
    pub(crate) scope: Scope,
}

/// Two windows registered with the program's descriptor.
///
/// A page leaves the program by a MOVE to the airlock on the descriptor *with*
/// events, and from there to the arena on the one without: the first move
/// fails with EAGAIN while an event is in flight, so a page that did move was
/// where our words say it was. (The arena itself cannot be on that descriptor:
/// releasing a frame would wait for its own event.)
#[derive(Clone, Debug)]
pub(crate) struct Airlocks {
    /// For up to 512 small pages.
    pub(crate) small: usize,
    /// For one huge page; never holds small ones, so that its page table
    /// stays empty and a huge page moves whole.
    pub(crate) huge: usize,
}

impl Airlocks {
    /// What to register.
    pub(crate) fn ranges(&self) -> [Range<usize>; 2] {
        [self.small, self.huge].map(|start| start..start + Order::HUGE.bytes())
    }
}

impl Core {
    /// Faults put off are to be tried again now.
    pub(crate) fn retry_deferred(&mut self) {
        let Self {
            pending, deferred, ..
        } = self;
        pending.append(deferred);
    }

    /// Remembers what a sequential reader has passed.
    pub(crate) fn leave_behind(&mut self, pages: Option<Range<Vpn>>) {
        let Some(pages) = pages else { return };
        if self.behind.len() == BEHIND {
            self.behind.pop_front();
        }
        self.behind.push_back(pages);
    }

    /// Notes that page `vpn` was served by a copy. Does not use the heap.
    pub(crate) fn note_superseded(&mut self, vpn: Vpn) {
        let kept = !matches!(self.extents.place(vpn), Place::Present | Place::Gone);
        if kept && self.superseded.len() < self.superseded.capacity() {
            self.superseded.push(vpn);
        }
    }

    /// Whether `messages` more can be kept.
    pub(crate) fn has_room(&self, messages: usize) -> bool {
        self.pending.len() + messages <= PENDING
            && (!self.being_copied || self.parked.has_room(messages))
    }

    /// Whether something is put off until no event is in flight.
    pub(crate) fn waits_for_quiet(&self) -> bool {
        !self.deferred.is_empty() || (!self.parked.is_empty() && !self.fork_freeze)
    }

    /// Whether new operations may start.
    pub(crate) fn is_open(&self) -> bool {
        !self.fork_freeze && self.parked.is_empty()
    }
}

impl Manager {
    pub(crate) fn arena(&self) -> &FrameArena {
        self.zswap.arena()
    }

    /// Address of an arena slot.
    pub(crate) fn address(&self, at: Pfn) -> usize {
        self.arena().map().address(at)
    }

    /// Starts an operation that changes frames or the pool outside the core
    /// lock. Refused (false) while a fork or a remap waits for quiet.
    pub(crate) fn begin(&self, core: &Core) -> bool {
        let open = core.is_open();
        if open {
            self.inflight.fetch_add(1, Ordering::Acquire);
        }
        open
    }

    /// Ends an operation; the last one lets parked events be applied.
    pub(crate) fn end(&self) {
        if self.inflight.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut core = self.core.lock();
            self.settle(&mut core);
        }
    }

    /// Resident pages as /proc has them: program, pool and frames, and files
    /// up to an eighth of `high` (mapped files are the kernel's to reclaim).
    /// For regions: theirs and the arena's.
    pub(crate) fn usage(&self) -> usize {
        if let Some(regions) = self.regions() {
            return self.region_usage(regions);
        }
        let Ok(statm) = Statm::read(self.fds.statm()) else {
            return self.resident.load(Ordering::Relaxed);
        };
        let private = statm.resident.saturating_sub(statm.shared);
        let usage = private + statm.shared.min(self.options.high / 8);
        self.resident.store(usage, Ordering::Relaxed);
        usage
    }

    /// The control thread has got on.
    pub(crate) fn control_goes_on(&self) {
        self.control_turns.fetch_add(1, Ordering::Relaxed);
    }

    /// When reclaim starts and stops, by what this process may have now.
    pub(crate) fn watermarks(&self) -> Watermarks {
        let high = self.allowance.load(Ordering::Relaxed);
        if self.scope.is_process() {
            Watermarks::of(high)
        } else {
            Watermarks::of_regions(high)
        }
    }

    /// Pages by which every watermark is raised now.
    pub(crate) fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    /// Address space of the process, pages.
    pub(crate) fn address_space(&self) -> usize {
        Statm::read(self.fds.statm()).map_or(0, |statm| statm.size)
    }

    /// Wakes the control thread.
    pub(crate) fn wake_control(&self) {
        self.control_wake.fetch_add(1, Ordering::Release);
        futex_wake(&self.control_wake, 1);
    }

    /// Tells threads that wait for frames that there may be some.
    pub(crate) fn frames_freed(&self) {
        if self.frame_waiters.load(Ordering::Acquire) > 0 {
            self.frames_wake.fetch_add(1, Ordering::Release);
            futex_wake(&self.frames_wake, u32::MAX);
        }
    }

    /// Sleeps until frames were freed, 1 ms at most.
    pub(crate) fn await_frames(&self) {
        let seen = self.frames_wake.load(Ordering::Acquire);
        self.frame_waiters.fetch_add(1, Ordering::AcqRel);
        futex_wait(&self.frames_wake, seen, Some(1_000_000));
        self.frame_waiters.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn count(&self, counter: Counter, amount: usize) {
        self.stats().add(counter, amount as u64);
    }

    /// This process's statistics.
    pub(crate) fn stats(&self) -> &'static ProcessSlot {
        &self.segment.slots[self.statistics.load(Ordering::Relaxed)]
    }

    /// What is shared with the parent and the next child during a fork.
    pub(crate) fn fork_words(&self) -> ForkWords {
        ForkWords::new(self.words.get())
    }
}

/// Address of a page.
pub(crate) const fn address_of(vpn: Vpn) -> usize {
    vpn << PAGE_SHIFT
}

/// Pages that lie wholly in a range of addresses. Never rounds outwards: an
/// event must not touch what it did not name.
pub(crate) const fn pages_within(start: usize, end: usize) -> Range<Vpn> {
    let first = start.div_ceil(PAGE_SIZE);
    let last = end >> PAGE_SHIFT;
    first..if last > first { last } else { first }
}
