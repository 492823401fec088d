//! The fork handlers: they run in the program's own thread, on its own stack,
//! and only ask the manager's threads to act.

use crate::{manager, start_watcher};
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::lock::Mutex;

/// One fork at a time.
static FORKING: Mutex<()> = Mutex::new(());
/// Whether `prepare` of the fork under way asked the manager.
static TAKES_PART: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    /// What pthread_atfork calls.
    fn __register_atfork(
        prepare: extern "C" fn(),
        parent: extern "C" fn(),
        child: extern "C" fn(),
        dso: *mut c_void,
    ) -> c_int;
}

/// Registers the handlers.
pub(crate) fn register() {
    // SAFETY: functions of a library that is never unloaded.
    let _ = unsafe { __register_atfork(prepare, parent, child, ptr::null_mut()) };
}

extern "C" fn prepare() {
    core::mem::forget(FORKING.lock());
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
    // SAFETY: locked by `prepare` in this thread.
    unsafe { FORKING.force_unlock() };
}

extern "C" fn child() {
    let taken = match taking_part() {
        Some(manager) => manager.after_fork_child(),
        // The tables of a manager without its threads are of no use: what a
        // raw fork left behind stays unmanaged.
        None if manager().is_some() => Ok(()),
        None => {
            start_watcher();
            Ok(())
        }
    };
    if taken.is_err() {
        zfolio_sys::process::say(
            "zfolio: the child of a fork ended: no thread could be started to serve its moved-out memory\n",
        );
        zfolio_sys::process::exit_now(zfolio::fatal::EXIT_FAILED);
    }
    // SAFETY: locked by `prepare` in the thread this child is a copy of.
    unsafe { FORKING.force_unlock() };
}

fn taking_part() -> Option<&'static zfolio::Manager> {
    manager().filter(|_| TAKES_PART.load(Ordering::Acquire) != 0)
}
