//! From a process that is watched to one that is managed.
//!
//! A process starts with one sleeping thread and nothing else: most processes
//! end before they are worth managing. The watcher looks at the process's
//! size now and then; when half of `high` is reached it makes the arena, the
//! descriptors and the fault threads, and becomes the control thread.

use crate::address_space::RangeRules;
use crate::budget::fair_share::{Having, Membership, grown};
use crate::budget::pressure::nap_ns;
use crate::control::Manager;
use crate::descriptors::{PROGRAM_FEATURES, SOURCE_FEATURES};
use crate::error::{Unstarted, step};
use crate::faces::assemble::{OpenedFiles, Parts, assemble};
use crate::frames::reserve_arena;
use crate::health::fatal::say_unmanaged;
use crate::kernel::{File, Pagemap, Uffd};
use crate::options::Options;
use crate::policy::watermarks::Watermarks;
use crate::scope::Scope;
use crate::segment::run_group::{self, RUN};
use crate::segment::{MAX_FAULT_THREADS, MIN_FAULT_THREADS, Segment, describe, state};
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::arena::{SharedWords, reserve_private};
use zfolio_sys::identity;
use zfolio_sys::limits::{headroom, largest_resident, reserve_descriptors, with_descriptors};
use zfolio_sys::own_threads::LastThread;
use zfolio_sys::process::{exit_now, know_standard_error};
use zfolio_sys::procfs::{PresentRun, Statm};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{self, processors};

/// Sleep before the first look, ns: most processes of a script are over then.
const FIRST_NAP_NS: u64 = 3_000_000;
/// What is reserved is at most this part of what the program's limits leave.
const SHARE: usize = 4;
/// Bytes of address space for airlocks, stacks and alignment.
const EXTRA: usize = 32 << 20;

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
    /// Whether any of a range must stay where it is.
    pub left_alone: fn(&Range<usize>) -> bool,
    /// Whether any of a range is sealed: the kernel refuses to unmap it.
    pub is_sealed: fn(&Range<usize>) -> bool,
    /// Sleeps for so many ns; false when the watcher is to leave.
    pub nap: fn(u64) -> bool,
    /// Name of its group within the run, if it has one.
    pub group: fn() -> Option<&'static str>,
    /// Why this program must not be managed, if there is a reason.
    pub unfit: fn() -> Option<&'static str>,
}

/// The watcher's life: in a thread of its own, on a stack of its own.
pub fn watch(host: &'static Host, _index: usize, stack: Range<usize>) -> ! {
    let run = || -> Option<()> {
        thread::own_descriptors().ok()?;
        if !(host.nap)(FIRST_NAP_NS) {
            return None;
        }
        let (segment, statm, mut last_thread) = with_descriptors(|| {
            let segment = (host.open_segment)().ok()?;
            let statm = File::open(c"/proc/thread-self/statm");
            Some((segment, statm, LastThread::open()))
        })?;
        segment.processes.fetch_add(1, Ordering::Relaxed);
        let file = &segment.config().runner.standard_error;
        let [device, inode] = [0, 1].map(|at: usize| file[at].load(Ordering::Relaxed));
        know_standard_error((device, inode));
        let options = Options::from_config(segment.config()).ok()?;
        let group = (host.group)().and_then(|name| run_group::named(segment, name));
        let membership = Membership::of(group.unwrap_or(RUN));
        let allowed = loop {
            if let Some(status) = last_thread.look(thread::pid()) {
                exit_now(status);
            }
            // Without /proc nothing can be managed, which is told once it matters.
            let size = statm.and_then(Statm::read);
            let usage = size.map_or_else(
                |_| largest_resident(),
                |size| size.resident.saturating_sub(size.shared),
            );
            let has = Having {
                owner: identity::of_process(),
                resident: usage,
                needs: grown(usage),
                ..Having::default()
            };
            let allowed = membership.update(segment, has, options.high);
            let activate = Watermarks::of(allowed.assured).activate;
            if usage >= activate {
                break allowed.high;
            }
            if !(host.nap)(nap_ns(activate - usage, false)) {
                return None;
            }
        };
        last_thread.close();
        let index = segment.claim(thread::pid());
        describe(&segment.slots[index]);
        let started = (host.unfit)()
            .map_or(Ok(()), |why| Err(Unstarted::Unfit(why)))
            .and_then(|()| step("opening /proc/thread-self/statm", statm))
            .and_then(|statm| {
                step("reading /proc/thread-self/statm", Statm::read(statm)).map(|_| statm)
            })
            .and_then(|statm| {
                (host.hold_forks)();
                let started = with_descriptors(|| {
                    let names = (index, membership);
                    start(
                        host,
                        segment,
                        options,
                        (statm, allowed),
                        names,
                        stack.clone(),
                    )
                });
                (host.release_forks)();
                started
            });
        match started {
            Ok(manager) => {
                segment.slots[index]
                    .state
                    .store(state::MANAGING, Ordering::Release);
                manager.control_thread()
            }
            Err(why) => say_unmanaged(&segment.slots[index], state::UNMANAGED, &why),
        }
        None
    };
    let _ = run();
    thread::exit_thread()
}

/// Has it told that this process, which has no watcher, runs unmanaged.
/// In a thread of the program.
pub fn never_managed(host: &Host, why: Never) {
    if let Ok(segment) = (host.open_segment)() {
        segment.processes.fetch_add(1, Ordering::Relaxed);
        let why = match why {
            Never::NoThread(errno) => Unstarted::Failed {
                what: "starting a thread",
                errno,
            },
            Never::Unfit(why) => Unstarted::Unfit(why),
            Never::Refused(what, errno) => Unstarted::Failed { what, errno },
        };
        let index = segment.claim(thread::pid());
        describe(&segment.slots[index]);
        say_unmanaged(&segment.slots[index], state::UNWATCHED, &why);
    }
}

/// Why a process has no watcher.
#[derive(Clone, Copy, Debug)]
pub enum Never {
    /// It could not be started.
    NoThread(Errno),
    /// Its memory cannot be managed here: what was refused.
    Refused(&'static str, Errno),
    /// It must not be.
    Unfit(&'static str),
}

/// Makes a manager and its fault threads.
fn start(
    host: &'static Host,
    segment: &'static Segment,
    options: Options,
    (statm, allowed): (File, usize),
    (index, membership): (usize, Membership),
    stack: Range<usize>,
) -> Result<&'static Manager, Unstarted> {
    let high_bytes = options.high << PAGE_SHIFT;
    reserve_descriptors();
    let pagemap = step("opening /proc/thread-self/pagemap", Pagemap::open())?;
    if step("mapping a page", is_memory_locked(pagemap))? {
        return Err(Unstarted::Unfit(
            "it locks its memory (mlockall), which would lock the manager's as well",
        ));
    }
    let heap_bytes = (256 << 20) + high_bytes / 2;
    let size = step("reading /proc/thread-self/statm", Statm::read(statm))?;
    let headroom = headroom(size.size << PAGE_SHIFT, size.data << PAGE_SHIFT) / SHARE;
    let Some(headroom) = headroom.checked_sub(heap_bytes + EXTRA) else {
        return Err(Unstarted::Unfit(
            "its limits (RLIMIT_AS, RLIMIT_DATA) leave no addresses for the manager",
        ));
    };
    let heap = step(
        "reserving memory for the manager",
        (host.reserve_heap)(heap_bytes),
    )?;
    let program = step("userfaultfd", Uffd::open(PROGRAM_FEATURES))?;
    let source = step("userfaultfd", Uffd::open(SOURCE_FEATURES))?;
    let maps = step(
        "opening /proc/thread-self/maps",
        File::open(c"/proc/thread-self/maps"),
    )?;
    let words = step("mapping shared memory", SharedWords::map())?;

    let map = step(
        "reserving the arena",
        reserve_arena(arena_for(&options, allowed), headroom),
    )?;
    let follows = options.follows;
    let manager = assemble(Parts {
        options,
        membership,
        map,
        opened: OpenedFiles {
            program,
            source,
            statm,
            pagemap,
            maps,
        },
        words,
        private: alloc::vec![heap, (host.data)()],
        stack: Some(stack),
        rules: RangeRules {
            left_alone: host.left_alone,
            is_sealed: host.is_sealed,
        },
        segment,
        statistics: index,
        workers: processors().clamp(MIN_FAULT_THREADS, MAX_FAULT_THREADS),
        scope: Scope::Process,
    })?;
    if follows {
        // (What is kept at hand is a part of that, not of what the run began with.)
        manager.set_allowance(allowed);
    }
    step("registering with userfaultfd", manager.register_own())?;
    step("taking the first frames", manager.first_frames())?;
    manager.describe_process();
    step("starting threads", manager.start_threads())?;
    (host.publish)(manager);
    Ok(manager)
}

/// The `high` that the arena is made for, pages, where so many are allowed now. Where `high`
/// follows the program that it began with says nothing of the program, and an arena for all of
/// it would take tables as large as a small program.
const fn arena_for(options: &Options, allowed: usize) -> usize {
    if options.follows && 2 * allowed < options.high {
        2 * allowed
    } else {
        options.high
    }
}

/// Whether new memory is made present and locked at once (MCL_FUTURE): all
/// that is reserved here would be.
fn is_memory_locked(pagemap: Pagemap) -> Result<bool, Errno> {
    let page = reserve_private(PAGE_SIZE, c"zfolio probe")?;
    let (count, _) = pagemap.occupied(page.start, page.end, &mut [PresentRun::default()])?;
    Ok(count > 0)
}
