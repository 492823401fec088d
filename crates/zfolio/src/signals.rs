//! The handler of missing pages, among other people's handlers.
//!
//! SIGBUS is a missing page of a region, or SIGSEGV where regions are protected;
//! SIGSEGV also says what has happened to the child of a fork that touches its
//! parent's region. What is not ours goes to the handler that was there before.
//!
//! A program may install its own handler later, over ours. Before anything is
//! moved out, and at every region that is made, the thread that reclaims looks
//! whether ours is there, and puts it back in front; the program's is then the
//! one that is called for what is not ours. If that one calls ours, as those do
//! that remember what they found, the second time is recognised by its thread,
//! and goes on to the handler of before.

use crate::chaining;
use crate::process;
use crate::table::{self, Owner};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use libc::{SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, sigaction, siginfo_t, ucontext_t};
use zfolio_runtime::fatal::{EXIT_FAILED, Line};
use zfolio_runtime::pager::Access;
use zfolio_runtime::scope::Serving;
use zfolio_sys::process::{exit_now, say};
use zfolio_sys::thread::pid;

/// What SIGSEGV says of memory that is mapped, and closed.
const SEGV_ACCERR: c_int = 2;

/// Signals that are ours, and what others want of them.
static SIGNALS: [Signal; 2] = [Signal::new(SIGBUS), Signal::new(SIGSEGV)];

/// A signal and its other handlers.
struct Signal {
    number: c_int,
    /// What was there before ours.
    before: Action,
    /// What was installed after ours, if anything was.
    after: Action,
}

/// A signal's disposition, readable from a handler. Written under the process's
/// lock, or by the one thread that reclaims; `handler` last.
struct Action {
    /// As in `sa_sigaction`; [`NONE`] for nothing noted.
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

const NONE: usize = usize::MAX;

impl Action {
    const fn none() -> Self {
        Self {
            handler: AtomicUsize::new(NONE),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn note(&self, action: &sigaction) {
        // SAFETY: a sigset_t begins with the 64 signals there are.
        let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
        self.mask.store(mask, Ordering::Relaxed);
        self.flags.store(action.sa_flags, Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }
}

impl Signal {
    const fn new(number: c_int) -> Self {
        Self {
            number,
            before: Action::none(),
            after: Action::none(),
        }
    }

    /// Puts our handler in front, if it is not there.
    fn install(&self) {
        // SAFETY: zeros are a valid sigaction, which the kernel fills.
        let mut now: sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: asks only.
        let asked = unsafe { libc::sigaction(self.number, ptr::null(), &raw mut now) };
        if asked != 0 || now.sa_sigaction == handle as *const () as usize {
            return;
        }
        if self.before.handler.load(Ordering::Acquire) == NONE {
            self.before.note(&now);
        } else {
            self.after.note(&now);
        }
        // SAFETY: as above.
        let mut ours: sigaction = unsafe { core::mem::zeroed() };
        ours.sa_sigaction = handle as *const () as usize;
        // On the signal stack where the thread has one (it may be short of its
        // own); with all signals blocked, so that no other handler runs while a
        // lock is held.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: writes a mask; then installs a function that lives as long as
        // the process.
        unsafe {
            libc::sigfillset(&raw mut ours.sa_mask);
            libc::sigaction(self.number, &raw const ours, ptr::null_mut());
        }
    }
}

/// Installs the handlers. The process's lock is held.
pub(crate) fn install() {
    SIGNALS.iter().for_each(Signal::install);
}

/// Puts them back in front. In the thread that reclaims; if the lock is taken,
/// somebody is installing them.
pub(crate) fn keep_installed() {
    if let Some(_locked) = process::try_lock() {
        install();
    }
}

/// Serves a missing page of a region: for programs whose handler of SIGBUS, or of
/// SIGSEGV ([`Serving::Protected`]), must come first. True if the access can be repeated; false if the signal is
/// about something else.
///
/// `address` is `si_addr`. For signal handlers only, with all signals blocked
/// (`sa_mask`).
#[must_use]
pub fn handle_fault(address: usize) -> bool {
    serve(address, Access::default(), |_| true)
}

fn serve(address: usize, access: Access, is_meant: impl Fn(Serving) -> bool) -> bool {
    if process::is_original() {
        match table::serve(address, access, is_meant) {
            Owner::Served => return true,
            Owner::Nobody => return false,
            Owner::Parent => {}
        }
    } else if !table::contains(address) {
        return false;
    }
    end_child(address)
}

fn end_child(address: usize) -> ! {
    use core::fmt::Write;
    let mut line = Line::default();
    let _ = writeln!(
        line,
        "zfolio: process {} ended: it touched {address:#x}, in a region of the process it was \
         forked from; regions stay with their process",
        pid()
    );
    say(line.as_str());
    exit_now(EXIT_FAILED)
}

extern "C" fn handle(number: c_int, info: *mut siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's, or that of a handler that calls on.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // SAFETY: this thread's errno, put back below.
    let errno = unsafe { *libc::__errno_location() };
    // (A positive code: the kernel's, and so about an address.)
    let ours = code > 0 && is_about_memory(number, code, address, access_of(context));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    if !ours {
        chain(number, info, context);
    }
}

/// Whether the access was a write, by the processor's word for it.
fn access_of(context: *mut libc::c_void) -> Access {
    /// Of the error code of a page fault.
    const WRITE: i64 = 2;
    // SAFETY: the kernel's context of an interrupted thread, or what a handler that
    // calls on was given.
    let context = unsafe { context.cast::<ucontext_t>().as_ref() };
    let code = context.map(|context| context.uc_mcontext.gregs[libc::REG_ERR as usize]);
    match code {
        Some(code) if code & WRITE == 0 => Access::Read,
        _ => Access::Write,
    }
}

/// Whether a fault was a region's, and is served.
fn is_about_memory(number: c_int, code: c_int, address: usize, access: Access) -> bool {
    if number == SIGBUS {
        // (Where regions are protected: the system has no memory, or lost some.)
        return serve(address, access, |serving| serving != Serving::Protected);
    }
    // A region is not mapped in a child; in its own process one that is not
    // protected never gets this.
    if table::contains(address) && !(process::is_original() && table::is_own(address)) {
        end_child(address);
    }
    code == SEGV_ACCERR && serve(address, access, |serving| serving == Serving::Protected)
}

/// Does what would have been done without us.
fn chain(number: c_int, info: *mut siginfo_t, context: *mut libc::c_void) {
    let Some(signal) = SIGNALS.iter().find(|signal| signal.number == number) else {
        return;
    };
    let entered = chaining::enter();
    let later = signal.after.handler.load(Ordering::Acquire) != NONE;
    if later && entered.is_some() {
        call(&signal.after, number, info, context);
    } else {
        call(&signal.before, number, info, context);
    }
    drop(entered);
}

fn call(action: &Action, number: c_int, info: *mut siginfo_t, context: *mut libc::c_void) {
    let handler = action.handler.load(Ordering::Acquire);
    let flags = action.flags.load(Ordering::Relaxed);
    // SAFETY: `info` is the kernel's.
    let sent = unsafe { (*info).si_code } <= 0;
    if handler == SIG_IGN && sent {
        return;
    }
    if handler == SIG_DFL || handler == SIG_IGN || handler == NONE {
        // The access is repeated, or the signal sent again, with nobody there.
        // SAFETY: installs the default.
        unsafe {
            let mut default: sigaction = core::mem::zeroed();
            default.sa_sigaction = SIG_DFL;
            libc::sigaction(number, &raw const default, ptr::null_mut());
            if sent {
                libc::raise(number);
            }
        }
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        action.handler.store(SIG_DFL, Ordering::Release);
    }
    with_mask(action, flags, number, context, || {
        if flags & libc::SA_SIGINFO != 0 {
            // SAFETY: installed by the program as such a function.
            let function: extern "C" fn(c_int, *mut siginfo_t, *mut libc::c_void) =
                unsafe { core::mem::transmute(handler) };
            function(number, info, context);
        } else {
            // SAFETY: as above.
            let function: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            function(number);
        }
    });
}

/// Calls `f` with the signals blocked that would be if the kernel had called
/// it; afterwards all are blocked again.
fn with_mask(
    action: &Action,
    flags: c_int,
    number: c_int,
    context: *mut libc::c_void,
    f: impl FnOnce(),
) {
    let mut mask = action.mask.load(Ordering::Relaxed);
    if !context.is_null() {
        // SAFETY: the kernel's context; its mask begins with the 64 signals.
        mask |= unsafe {
            (&raw const (*context.cast::<ucontext_t>()).uc_sigmask)
                .cast::<u64>()
                .read()
        };
    }
    if flags & libc::SA_NODEFER == 0 {
        mask |= 1 << (number - 1);
    }
    let before = zfolio_sys::region::set_signal_mask(mask);
    f();
    zfolio_sys::region::set_signal_mask(before);
}
