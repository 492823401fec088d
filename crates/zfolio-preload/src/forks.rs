//! The fork handlers: they run in the program's own thread, on its own stack,
//! and only ask the manager's threads to act.

use crate::outside::RegisterAtfork;
use crate::{
    HOST, WATCHER, fitness, give_up_watchers_stack, manager, references, sealed, start_watcher,
    watcher,
};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_sys::identity::of_process;
use zfolio_sys::lock::{Mutex, reset_in_fork_child};
use zfolio_sys::thread::SignalMask;

/// One fork at a time, and none while a manager is being made.
static FORKING: Mutex<()> = Mutex::new(());
/// Process in which `FORKING` is locked; 0: none.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// Process in which a manager is being made; 0: none. Another one than this:
/// a raw fork copied it half made, and nothing of it can be used.
static STARTING: AtomicU64 = AtomicU64::new(0);
/// Whether `prepare` of the fork under way asked the manager.
static TAKES_PART: AtomicU32 = AtomicU32::new(0);
/// What the thread that forks blocked before.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Registers the handlers.
pub(crate) fn register(with: RegisterAtfork) {
    // SAFETY: functions of a library that is never unloaded.
    let _ = unsafe { with(prepare, parent, child, ptr::null_mut()) };
}

/// Locks `FORKING`, which must not be held by a process that this one is a raw
/// copy of.
fn hold() {
    let holder = HOLDER.load(Ordering::Acquire);
    if holder != 0
        && holder != of_process()
        && HOLDER
            .compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    {
        reset_in_fork_child(&FORKING);
    }
    core::mem::forget(FORKING.lock());
    HOLDER.store(of_process(), Ordering::Release);
}

/// Unlocks it, in the process that locked it or its child by libc's fork.
fn release() {
    HOLDER.store(0, Ordering::Release);
    // SAFETY: locked by `hold` in this thread, or the one it is a copy of.
    unsafe { FORKING.force_unlock() };
}

/// A manager is about to be made: its memory, copied half made, would be
/// neither a manager nor nothing.
pub(crate) fn hold_for_start() {
    hold();
    STARTING.store(of_process(), Ordering::Release);
}

/// It is made, or could not be.
pub(crate) fn release_after_start() {
    STARTING.store(0, Ordering::Release);
    release();
}

extern "C" fn prepare() {
    // A signal handler may fork as well: not in here, where it would wait for itself.
    let before = SignalMask::block_all();
    hold();
    BLOCKED.store(before.bits(), Ordering::Relaxed);
    // A child of a raw fork has the tables of a manager and no threads of it.
    let ours = manager().filter(|manager| manager.is_ours());
    TAKES_PART.store(u32::from(ours.is_some()), Ordering::Release);
    if let Some(manager) = ours {
        manager.before_fork();
    }
}

extern "C" fn parent() {
    if let Some(manager) = taking_part() {
        manager.after_fork_parent();
    }
    release_to_program();
}

/// Ends what `prepare` began, in the parent or in the child.
fn release_to_program() {
    let before = SignalMask::from_bits(BLOCKED.load(Ordering::Relaxed));
    release();
    before.apply();
}

extern "C" fn child() {
    sealed::forget();
    references::forget_moves();
    WATCHER.store(watcher::STAYS, Ordering::Release);
    match taking_part() {
        Some(manager) => manager.after_fork_child(fitness::may_have_threads(&HOST)),
        // The tables of a manager without its threads are of no use: what a
        // raw fork left behind stays unmanaged.
        None if manager().is_some() || STARTING.load(Ordering::Acquire) != 0 => {}
        None => {
            give_up_watchers_stack();
            start_watcher();
        }
    }
    release_to_program();
}

fn taking_part() -> Option<&'static zfolio_runtime::Manager> {
    manager().filter(|_| TAKES_PART.load(Ordering::Acquire) != 0)
}
