//! From a process that is watched to one that is managed.
//!
//! A process starts with one sleeping thread and nothing else: most processes
//! end before they are worth managing. The watcher looks at the process's
//! size now and then; when half of `high` is reached it makes the arena, the
//! descriptors and the fault threads, and becomes the control thread.

use crate::control::{Segment, state};
use crate::control_thread::nap_ns;
use crate::events::Parked;
use crate::extent::Extents;
use crate::frames::FrameArena;
use crate::hugeframe::HugeFrames;
use crate::manager::{
    Airlocks, BEHIND, Core, Descriptors, MAX_FAULT_THREADS, MIN_FAULT_THREADS, Manager, PENDING,
    STACK, Worker,
};
use crate::options::{Options, Watermarks};
use crate::ranges::Ranges;
use crate::readahead::Streams;
use crate::reclaim::Reclaim;
use crate::standby::Standby;
use crate::vmas::Vmas;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_compress::Codec;
use zfolio_compress::adaptive::{Adaptive, Density};
use zfolio_mm::{Order, PAGE_SHIFT};
use zfolio_sys::arena::{ArenaMap, SharedWords};
use zfolio_sys::lock::{Mutex, pause};
use zfolio_sys::procfs::{File, Pagemap, Statm};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{self, Clock, now_ns, processors};
use zfolio_sys::uffd::{self, Uffd};
use zfolio_zswap::{Limits, Zswap};

/// Features of the descriptor for the program's ranges.
pub(crate) const PROGRAM_FEATURES: u64 = uffd::FEATURE_MOVE
    | uffd::FEATURE_EVENT_FORK
    | uffd::FEATURE_EVENT_REMAP
    | uffd::FEATURE_EVENT_REMOVE
    | uffd::FEATURE_EVENT_UNMAP;
/// Features of the descriptor for the arena: a bug that touches an absent
/// slot crashes instead of hanging.
pub(crate) const SOURCE_FEATURES: u64 = uffd::FEATURE_MOVE | uffd::FEATURE_SIGBUS;

/// Sleep before the first look, ns: most processes of a script are over then.
const FIRST_NAP_NS: u64 = 3_000_000;

/// What the face (the preload library) lends to the runtime.
pub struct Host {
    /// Maps the control segment.
    pub open_segment: fn() -> Result<&'static Segment, Errno>,
    /// Keeps forks by libc waiting: their child could make nothing of a
    /// manager half made.
    pub hold_forks: fn(),
    /// Lets them go on.
    pub release_forks: fn(),
    /// Makes the manager's heap usable, first of all; again after a start that
    /// failed. Bytes to reserve; returns where.
    pub reserve_heap: fn(usize) -> Result<Range<usize>, Errno>,
    /// Called with the manager once it is complete, before it manages.
    pub publish: fn(&'static Manager),
    /// The face's own data, never to be moved out.
    pub data: fn() -> Range<usize>,
}

/// Why a process stays unmanaged.
struct Unstarted {
    what: &'static str,
    errno: Errno,
}

fn step<T>(what: &'static str, result: Result<T, Errno>) -> Result<T, Unstarted> {
    result.map_err(|errno| Unstarted { what, errno })
}

/// The watcher's life: in a thread of its own, on a stack of its own.
pub fn watch(host: &'static Host, _index: usize, stack: Range<usize>) -> ! {
    let run = || -> Option<()> {
        thread::own_descriptors().ok()?;
        pause(FIRST_NAP_NS);
        let segment = (host.open_segment)().ok()?;
        segment.processes.fetch_add(1, Ordering::Relaxed);
        let statm = File::open(c"/proc/self/statm").ok()?;
        let options = Options::from_config(&segment.config).ok()?;
        let watermarks = Watermarks::of(options.high);
        loop {
            let size = Statm::read(statm).ok()?;
            let usage = size.resident.saturating_sub(size.shared);
            if usage >= watermarks.activate {
                break;
            }
            pause(nap_ns(watermarks.activate - usage));
        }
        let index = segment.claim(thread::pid());
        (host.hold_forks)();
        let started = start(host, segment, options, statm, index, stack.clone());
        (host.release_forks)();
        match started {
            Ok(manager) => {
                segment.slots[index]
                    .state
                    .store(state::MANAGING, Ordering::Release);
                manager.control_thread()
            }
            Err(why) => say_unmanaged(segment, index, &why),
        }
        None
    };
    let _ = run();
    thread::exit_thread()
}

fn say_unmanaged(segment: &Segment, index: usize, why: &Unstarted) {
    let mut line = crate::fatal::Line::default();
    let _ = write!(
        line,
        "runs unmanaged: {} failed (errno {}); `zfolio doctor` says what is missing",
        why.what, why.errno.0
    );
    segment.slots[index].set_message(line.as_str());
    segment.slots[index]
        .state
        .store(state::UNMANAGED, Ordering::Release);
}

/// Makes a manager and its fault threads.
fn start(
    host: &'static Host,
    segment: &'static Segment,
    options: Options,
    statm: File,
    index: usize,
    stack: Range<usize>,
) -> Result<&'static Manager, Unstarted> {
    let high_bytes = options.high << PAGE_SHIFT;
    let heap = step(
        "reserving memory for the manager",
        (host.reserve_heap)((256 << 20) + high_bytes / 2),
    )?;
    let program = step("userfaultfd", Uffd::open(PROGRAM_FEATURES))?;
    let source = step("userfaultfd", Uffd::open(SOURCE_FEATURES))?;
    let maps = step("opening /proc/self/maps", File::open(c"/proc/self/maps"))?;
    let pagemap = step("opening /proc/self/pagemap", Pagemap::open())?;
    let words = step("mapping shared memory", SharedWords::map())?;

    let map = step("reserving the arena", reserve_arena(options.high))?;
    let locks = step(
        "reserving the airlocks",
        ArenaMap::reserve(3 * Order::HUGE.pages()),
    )?;
    let airlocks = Airlocks {
        small: locks.address(zfolio_mm::Pfn(0)),
        huge: locks.address(zfolio_mm::Pfn(0).offset(Order::HUGE.pages())),
    };
    let nursery = locks.address(zfolio_mm::Pfn(0).offset(2 * Order::HUGE.pages()));
    let arena = FrameArena::new(map, source, pagemap);
    let density = Density::default();
    let compressor = match options.codec {
        Codec::Auto => Box::new(Adaptive::new(density.clone())),
        fixed => fixed.compressor(),
    };
    let zswap = Zswap::with_compressor(arena, compressor, Limits::default());
    let count = 1 + processors().clamp(MIN_FAULT_THREADS, MAX_FAULT_THREADS);
    let mut workers = Vec::with_capacity(count);
    for _ in 0..count {
        let context = zswap.context().map_err(|_| Unstarted {
            what: "making a codec context",
            errno: Errno::NOMEM,
        })?;
        workers.push(Mutex::new(Worker::new(context)));
    }
    let private = alloc::vec![
        heap,
        map.range(),
        locks.range(),
        words.range(),
        stack,
        (host.data)()
    ];
    let manager: &'static Manager = Box::leak(Box::new(Manager {
        options,
        watermarks: Watermarks::of(options.high),
        zswap,
        density,
        core: Mutex::new(Core {
            extents: Extents::default(),
            registered: Ranges::default(),
            standby: Standby::default(),
            streams: Streams::default(),
            behind: VecDeque::with_capacity(BEHIND),
            pending: VecDeque::with_capacity(PENDING),
            deferred: VecDeque::with_capacity(PENDING),
            parked: Parked::new(),
            fork_freeze: false,
            being_copied: false,
            superseded: Vec::with_capacity(map.slots()),
            children: Vec::with_capacity(64),
            raw_fork: false,
            crowd: 0,
            reader: false,
            sleepers: 0,
        }),
        reclaim: Mutex::new(Reclaim::new(Vmas::new(maps, private))),
        fds: Descriptors::new(program, statm, pagemap),
        airlocks,
        huge_frames: HugeFrames::new(nursery),
        workers,
        inflight: AtomicU32::new(0),
        fault_wake: AtomicU32::new(0),
        control_wake: AtomicU32::new(0),
        frames_wake: AtomicU32::new(0),
        frame_waiters: AtomicU32::new(0),
        segment,
        statistics: AtomicUsize::new(index),
        words,
        behind_steps: AtomicU32::new(0),
        fork_generation: AtomicU32::new(0),
        child_ready: AtomicU32::new(0),
        maps: AtomicUsize::new(maps.fd()),
        room: AtomicUsize::new(0),
        urgent_ns: AtomicU64::new(0),
        serving_since: Default::default(),
        reads: AtomicU64::new(0),
        cpu_ns: Default::default(),
        pid: AtomicU32::new(thread::pid()),
        resident: AtomicUsize::new(0),
    }));
    step("registering with userfaultfd", manager.register_own())?;
    step("taking the first frames", manager.first_frames())?;
    manager.describe_process();
    step("starting threads", manager.start_threads())?;
    (host.publish)(manager);
    Ok(manager)
}

/// Address space several times `high`: frames are scarce, places to put them
/// must not be (a huge page needs 2 MiB of holes in one piece). Less where
/// address space is limited.
fn reserve_arena(high: usize) -> Result<ArenaMap, Errno> {
    let slots = |times: usize, least: usize| {
        (high * times)
            .clamp(least, 1 << 27)
            .next_multiple_of(Order::HUGE.pages())
    };
    ArenaMap::reserve(slots(8, 1 << 18)).or_else(|_| ArenaMap::reserve(slots(2, 1 << 14)))
}

impl Manager {
    /// Registers the arena and the airlocks with their descriptors.
    pub(crate) fn register_own(&self) -> Result<(), Errno> {
        let map = self.arena().map().range();
        self.arena().moves().uffd.register(map.start, map.len())?;
        for range in self.airlocks.ranges() {
            self.fds.program().register(range.start, range.len())?;
        }
        Ok(())
    }

    /// Reclaim must never start without a frame to compress into.
    fn first_frames(&self) -> Result<(), Errno> {
        let mut wanted = self.watermarks.free_target;
        while wanted > 0 {
            let part = wanted.min(64);
            let run = self.arena().populate_run(part).ok_or(Errno::NOMEM)?;
            self.arena().give_frames(run, part);
            wanted -= part;
        }
        Ok(())
    }

    /// Starts the fault threads, and the watchdog.
    pub(crate) fn start_threads(&'static self) -> Result<(), Errno> {
        for index in 0..self.workers.len() {
            let stack = thread::spawn_with(STACK, self, index, Self::thread_entry)?;
            self.reclaim.lock().vmas.keep_private(stack);
        }
        Ok(())
    }

    fn thread_entry(&'static self, index: usize, _stack: Range<usize>) -> ! {
        match index {
            0 => self.watchdog(),
            worker => self.fault_thread(worker),
        }
    }

    pub(crate) fn renew_fork_words(&self) -> Result<(), Errno> {
        self.words.renew()?;
        self.reclaim.lock().vmas.keep_private(self.words.range());
        Ok(())
    }

    /// Puts the process's name into its statistics.
    pub(crate) fn describe_process(&self) {
        let slot = self.stats();
        slot.started_ns
            .store(now_ns(Clock::Monotonic), Ordering::Relaxed);
        let mut name = [0; 16];
        if let Ok(file) = File::open(c"/proc/self/comm") {
            let len = file.read_at(&mut name, 0).unwrap_or(0);
            file.close();
            if len > 0 && name[len - 1] == b'\n' {
                name[len - 1] = 0;
            }
        }
        let (low, high) = name.split_at(8);
        for (word, half) in slot.comm.iter().zip([low, high]) {
            let raw = half.try_into().map_or(0, u64::from_le_bytes);
            word.store(raw, Ordering::Relaxed);
        }
    }
}
