//! From a process that is watched to one that is managed.
//!
//! A process starts with one sleeping thread and nothing else: most processes
//! end before they are worth managing. The watcher looks at the process's
//! size now and then; when half of `high` is reached it makes the arena, the
//! descriptors and the fault threads, and becomes the control thread.

use crate::budget::fair_share::{Having, Membership, grown};
use crate::control::thread::nap_ns;
use crate::faces::assemble::{Parts, assemble};
use crate::faces::manager::{MAX_FAULT_THREADS, MIN_FAULT_THREADS, Manager, STACK};
use crate::faces::regions::Scope;
use crate::options::{Options, Watermarks};
use crate::segment::run_group::{self, RUN};
use crate::segment::{ProcessSlot, Segment, WATCHDOG_NAME, state};
use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::{Order, PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::arena::{ArenaMap, SharedWords, reserve_private, unmap};
use zfolio_sys::identity;
use zfolio_sys::limits::{largest_resident, reserve_descriptors, room, with_descriptors};
use zfolio_sys::process::know_standard_error;
use zfolio_sys::procfs::{File, Pagemap, PresentRun, Statm};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{self, Clock, now_ns, processors};
use zfolio_sys::uffd::{self, Uffd};

/// Features of the descriptor for the program's ranges.
pub(crate) const PROGRAM_FEATURES: u64 = uffd::FEATURE_MOVE
    | uffd::FEATURE_THREAD_ID
    | uffd::FEATURE_EVENT_FORK
    | uffd::FEATURE_EVENT_REMAP
    | uffd::FEATURE_EVENT_REMOVE
    | uffd::FEATURE_EVENT_UNMAP;
/// Features of the descriptor for the arena: a bug that touches an absent
/// slot crashes instead of hanging.
pub(crate) const SOURCE_FEATURES: u64 = uffd::FEATURE_MOVE | uffd::FEATURE_SIGBUS;

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
    /// Sleeps for so many ns; false when the watcher is to leave.
    pub nap: fn(u64) -> bool,
    /// Name of its group within the run, if it has one.
    pub group: fn() -> Option<&'static str>,
    /// Why this program must not be managed, if there is a reason.
    pub unfit: fn() -> Option<&'static str>,
}

/// Why a process stays unmanaged.
pub(crate) enum Unstarted {
    Failed { what: &'static str, errno: Errno },
    Unfit(&'static str),
}

pub(crate) fn step<T>(what: &'static str, result: Result<T, Errno>) -> Result<T, Unstarted> {
    result.map_err(|errno| Unstarted::Failed { what, errno })
}

/// The watcher's life: in a thread of its own, on a stack of its own.
pub fn watch(host: &'static Host, _index: usize, stack: Range<usize>) -> ! {
    let run = || -> Option<()> {
        thread::own_descriptors().ok()?;
        if !(host.nap)(FIRST_NAP_NS) {
            return None;
        }
        let (segment, statm) = with_descriptors(|| {
            let segment = (host.open_segment)().ok()?;
            Some((segment, File::open(c"/proc/thread-self/statm")))
        })?;
        segment.processes.fetch_add(1, Ordering::Relaxed);
        let file = &segment.config().standard_error;
        let [device, inode] = [0, 1].map(|at: usize| file[at].load(Ordering::Relaxed));
        know_standard_error((device, inode));
        let options = Options::from_config(segment.config()).ok()?;
        let group = (host.group)().and_then(|name| run_group::named(segment, name));
        let membership = Membership::of(group.unwrap_or(RUN));
        loop {
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
            let activate = Watermarks::of(allowed.high).activate;
            if usage >= activate {
                break;
            }
            if !(host.nap)(nap_ns(activate - usage)) {
                return None;
            }
        }
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
                    start(host, segment, options, statm, names, stack.clone())
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

pub(crate) fn say_unmanaged(slot: &ProcessSlot, becomes: u32, why: &Unstarted) {
    let mut line = crate::health::fatal::Line::default();
    let _ = match why {
        Unstarted::Failed { what, errno } => write!(
            line,
            "{what} failed (errno {}); `zfolio doctor` says what is missing",
            errno.0
        ),
        Unstarted::Unfit(why) => line.write_str(why),
    };
    slot.set_message(line.as_str());
    slot.state.store(becomes, Ordering::Release);
}

/// Makes a manager and its fault threads.
fn start(
    host: &'static Host,
    segment: &'static Segment,
    options: Options,
    statm: File,
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
    let room = room(size.size << PAGE_SHIFT, size.data << PAGE_SHIFT) / SHARE;
    let Some(room) = room.checked_sub(heap_bytes + EXTRA) else {
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

    let map = step("reserving the arena", reserve_arena(options.high, room))?;
    let manager = assemble(Parts {
        options,
        membership,
        map,
        program,
        source,
        statm,
        pagemap,
        maps,
        words,
        private: alloc::vec![heap, (host.data)()],
        stack: Some(stack),
        left_alone: host.left_alone,
        segment,
        statistics: index,
        workers: processors().clamp(MIN_FAULT_THREADS, MAX_FAULT_THREADS),
        scope: Scope::Process,
    })?;
    step("registering with userfaultfd", manager.register_own())?;
    step("taking the first frames", manager.first_frames())?;
    manager.describe_process();
    step("starting threads", manager.start_threads())?;
    (host.publish)(manager);
    Ok(manager)
}

/// Address space several times `high`: frames are scarce, places to put them
/// must not be (a huge page needs 2 MiB of holes in one piece). Less where
/// address space is limited: `room` bytes.
pub fn reserve_arena(high: usize, room: usize) -> Result<ArenaMap, Errno> {
    let slots = |times: usize, least: usize| {
        (high * times)
            .clamp(least, 1 << 27)
            .next_multiple_of(Order::HUGE.pages())
    };
    [slots(8, 1 << 18), slots(2, 1 << 14)]
        .into_iter()
        .filter(|slots| slots << PAGE_SHIFT <= room)
        .find_map(|slots| ArenaMap::reserve(slots).ok())
        .ok_or(Errno::NOMEM)
}

/// Whether new memory is made present and locked at once (MCL_FUTURE): all
/// that is reserved here would be.
fn is_memory_locked(pagemap: Pagemap) -> Result<bool, Errno> {
    let page = reserve_private(PAGE_SIZE, c"zfolio probe")?;
    let (count, _) = pagemap.occupied(page.start, page.end, &mut [PresentRun::default()])?;
    Ok(count > 0)
}

impl Manager {
    /// Registers the arena and the airlocks with their descriptors.
    pub(crate) fn register_own(&self) -> Result<(), Errno> {
        self.register_arena()?;
        for range in self.airlocks.ranges() {
            self.fds.program().register(range.start, range.len())?;
        }
        Ok(())
    }

    /// Registers the arena alone.
    pub(crate) fn register_arena(&self) -> Result<(), Errno> {
        let map = self.arena().map().range();
        self.arena().moves().uffd.register(map.start, map.len())
    }

    /// Reclaim must never start without a frame to compress into.
    fn first_frames(&self) -> Result<(), Errno> {
        let mut wanted = self.watermarks().free_target;
        while wanted > 0 {
            let part = wanted.min(64);
            let run = self.arena().populate_run(part).ok_or(Errno::NOMEM)?;
            self.arena().give_frames(run, part);
            wanted -= part;
        }
        Ok(())
    }

    /// Starts the fault threads, and the watchdog. That last: if one of the
    /// others is refused there will be no control thread either, and a program
    /// that runs on unmanaged must not be ended for want of one.
    pub(crate) fn start_threads(&'static self) -> Result<(), Errno> {
        self.start_engines()?;
        // (Regions have no events. The last index is the thread that holds.)
        let last = self.workers.len() - usize::from(!self.scope.is_process());
        for index in (1..=last).chain([0]) {
            self.note_stack(thread::spawn_with(STACK, self, index, Self::thread_entry)?);
        }
        Ok(())
    }

    fn thread_entry(&'static self, index: usize, _stack: Range<usize>) -> ! {
        if index == self.workers.len() {
            thread::set_name("zfolio-hold");
            self.hold_thread()
        }
        self.stats().threads[index].store(thread::id(), Ordering::Relaxed);
        match index {
            0 => {
                thread::set_name(WATCHDOG_NAME);
                self.watchdog()
            }
            worker => {
                thread::set_name("zfolio-fault");
                self.fault_thread(worker)
            }
        }
    }

    /// A thread of ours has this stack.
    pub(crate) fn note_stack(&self, stack: Range<usize>) {
        self.reclaim.lock().vmas.keep_private(stack.clone());
        self.stacks.lock().push(stack);
    }

    /// In the child of a fork: gives back the stacks of the parent's threads, of which it
    /// has no thread. `own`: the calling thread's.
    pub(crate) fn give_up_parents_stacks(&self, own: Range<usize>) {
        let stacks = core::mem::replace(&mut *self.stacks.lock(), alloc::vec![own.clone()]);
        let mut reclaim = self.reclaim.lock();
        for stack in stacks {
            reclaim.vmas.give_up_private(&stack);
            unmap(stack);
        }
        reclaim.vmas.keep_private(own);
    }

    /// Makes new words for the next fork. The old ones may be looked at until that
    /// begins, when [`Self::give_up_old_words`] is called.
    pub(crate) fn renew_fork_words(&self) -> Result<(), Errno> {
        let old = self.words.range();
        self.words.renew()?;
        self.reclaim.lock().vmas.keep_private(self.words.range());
        *self.old_words.lock() = Some(old);
        Ok(())
    }

    /// No thread of this process uses the words of the last fork any more.
    pub(crate) fn give_up_old_words(&self) {
        if let Some(old) = self.old_words.lock().take() {
            self.reclaim.lock().vmas.give_up_private(&old);
            unmap(old);
        }
    }

    /// Puts the process's name into its statistics.
    pub(crate) fn describe_process(&self) {
        describe(self.stats());
        let arena = self.arena().map().range().start as u64;
        self.stats().arena.store(arena, Ordering::Relaxed);
    }
}

/// Puts this process's name into its statistics.
pub fn describe(slot: &ProcessSlot) {
    slot.started_ns
        .store(now_ns(Clock::Monotonic), Ordering::Relaxed);
    let mut name = thread::name();
    if let Ok(file) = File::open(c"/proc/self/comm") {
        name = [0; 16];
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
