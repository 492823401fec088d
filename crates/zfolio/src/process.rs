//! What there is once per process: the lock, the statistics, what a fork does.

use crate::error::Error;
use crate::registry::Groups;
use crate::{chaining, table};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use zfolio_runtime::protect::forget_in_fork_child;
use zfolio_runtime::segment::{ENV_CONTROL, Segment};
use zfolio_sys::lock::{Mutex, MutexGuard, RawFutexMutex, RawMutex, reset_in_fork_child};
use zfolio_sys::region::{Mark, SignalsBlocked, identity_of};
use zfolio_sys::syscall::Errno;

/// Name of what `zfolio run` loads.
const PRELOAD: &str = "libzfolio_preload.so";

/// The lock over everything that comes and goes: groups, the table, handlers.
/// Taken before any lock of a manager's, never in a signal handler.
static GROUPS: Mutex<Groups> = Mutex::from_raw(<RawFutexMutex as RawMutex>::INIT, Groups::new());
static PROCESS: OnceLock<Process> = OnceLock::new();
/// Counts forks by libc, in the children.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// What a face's own heap needs done over a fork by libc.
static HEAP: OnceLock<[fn(); 2]> = OnceLock::new();

/// For libraries over this one that have a heap of their own: `hold` is called
/// before each fork by libc, `release` after it, in parent and child.
#[doc(hidden)]
pub fn hold_over_forks(hold: fn(), release: fn()) {
    let _ = HEAP.set([hold, release]);
}

fn heap_over_fork(which: usize) {
    if let Some(does) = HEAP.get() {
        does[which]();
    }
}

/// The environment's word on regions, and what it may be: to do without
/// userfaultfd though it can be had.
const ENV_REGIONS: &str = "ZFOLIO_REGIONS";
const PROTECT: &str = "protect";

struct Process {
    mark: Mark,
    segment: &'static Segment,
    managed: bool,
    protecting: bool,
}

/// The process's lock, with signals blocked as long as it is held: a handler
/// of the program's that touches a region waits for locks below this one.
pub(crate) struct Locked {
    groups: MutexGuard<'static, Groups>,
    _blocked: SignalsBlocked,
}

impl core::ops::Deref for Locked {
    type Target = Groups;
    fn deref(&self) -> &Groups {
        &self.groups
    }
}

impl core::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }
}

/// Takes the lock.
pub(crate) fn lock() -> Result<Locked, Error> {
    let process = process()?;
    if !process.mark.is_set() {
        return Err(Error::Forked);
    }
    let blocked = SignalsBlocked::new();
    Ok(Locked {
        groups: GROUPS.lock(),
        _blocked: blocked,
    })
}

/// Takes the lock if it is free. For threads of ours.
pub(crate) fn try_lock() -> Option<Locked> {
    let blocked = SignalsBlocked::new();
    Some(Locked {
        groups: GROUPS.try_lock()?,
        _blocked: blocked,
    })
}

/// Which process, of those that forks by libc made, this is.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Whether this is the memory that regions were made in, and no copy of it.
/// For the signal handler.
pub(crate) fn is_original() -> bool {
    PROCESS.get().is_none_or(|process| process.mark.is_set())
}

/// Whether `zfolio run` manages this process.
pub(crate) fn is_managed() -> Result<bool, Error> {
    process().map(|process| process.managed)
}

/// Whether regions are to be protected where they would be served in the thread
/// that touches.
pub(crate) fn is_protecting() -> bool {
    process().is_ok_and(|process| process.protecting)
}

/// Where managers keep their statistics.
pub(crate) fn segment() -> Result<&'static Segment, Error> {
    process().map(|process| process.segment)
}

fn process() -> Result<&'static Process, Error> {
    if let Some(process) = PROCESS.get() {
        return Ok(process);
    }
    let refused = |what| move |errno: Errno| Error::refused(what, errno);
    let made = Process {
        mark: Mark::set().map_err(refused("mapping a page"))?,
        segment: map_segment().map_err(refused("mapping memory"))?,
        managed: is_preloaded(),
        protecting: std::env::var_os(ENV_REGIONS).is_some_and(|word| word == PROTECT),
    };
    Ok(PROCESS.get_or_init(|| {
        if let Ok(stderr) = identity_of(2) {
            zfolio_sys::process::know_standard_error(stderr);
        }
        // SAFETY: the three functions live as long as the process (a library
        // that has them must not be unloaded: it has threads).
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
        made
    }))
}

fn map_segment() -> Result<&'static Segment, Errno> {
    let at = zfolio_sys::arena::reserve_private(Segment::BYTES, c"zfolio statistics")?;
    // SAFETY: zeros, never unmapped; a Segment is made of atomic words, valid
    // for any bytes.
    Ok(unsafe { &*(at.start as *const Segment) })
}

fn is_preloaded() -> bool {
    std::env::var_os(ENV_CONTROL).is_some()
        && std::fs::read("/proc/self/maps").is_ok_and(|maps| {
            maps.windows(PRELOAD.len())
                .any(|part| part == PRELOAD.as_bytes())
        })
}

/// Before a fork by libc: the lock is held over it, so that the child finds
/// what it guards in one piece.
extern "C" fn prepare() {
    core::mem::forget(GROUPS.lock());
    heap_over_fork(0);
}

extern "C" fn parent() {
    heap_over_fork(1);
    // SAFETY: taken in `prepare`, by this thread.
    unsafe { GROUPS.force_unlock() };
}

/// In the child: regions are the parent's, and so are groups. New ones can be
/// made.
extern "C" fn child() {
    heap_over_fork(1);
    reset_in_fork_child(&GROUPS);
    table::leave_to_parent();
    // (Not dropped: threads that others had with these do not exist.)
    core::mem::forget(core::mem::replace(&mut *GROUPS.lock(), Groups::new()));
    GENERATION.fetch_add(1, Ordering::AcqRel);
    if let Some(process) = PROCESS.get() {
        process.mark.set_again();
    }
    chaining::forget_threads();
    forget_in_fork_child();
}
