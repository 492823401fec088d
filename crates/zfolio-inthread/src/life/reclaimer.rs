//! The thread of ours that reclaims beside the program's: how it begins and ends. What it does:
//! `memory::reclaimer`; when it is wanted: `memory::pressure`.
//!
//! It is there while memory runs short, and ends by itself when nobody has called it for a while. The
//! program may find it in /proc/self/task. What depends on the threads that there are, or holds for one
//! thread and those that it makes, happens without it:
//!
//! | what | why |
//! |---|---|
//! | fork | programs count their threads and warn |
//! | unshare, setns | refused, or not the whole process's, where there are threads |
//! | users, groups, capabilities, keyrings; prctl, seccomp, landlock, scheduling | of one thread: it would keep what the program gave up |
//! | close_range with a table of its own | it would keep the descriptors open |
//! | exec; a signal to its number | it is none of the program's |
//! | the last exit | the process would wait for it |
//! | a task that is one too many for a limit | it is the program's to make |
//!
//! For these an [`Alone`] is had: it ends the thread, waits until the kernel has it no more, and none begins as long
//! as there is one.
//!
//! Invariants: the lock is taken before all others of ours, with all signals blocked. Who has it may wait for the
//! thread, which never takes it. A thread is made under it alone, when the one before has left its stack.

use super::own_thread::{CLONE_FLAGS, Place, STATUS};
use crate::raw::{self, Blocked, err, nr};
use crate::state::{self, State};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_sys::lock::{Mutex, RawMutex, pause, reset_in_fork_child};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns, set_name};

/// CLONE_PARENT_SETTID and CLONE_CHILD_CLEARTID: the kernel keeps [`THREAD`].
const KEEPS_ID: usize = 0x10_0000 | 0x20_0000;
/// Between two looks whether it has ended, ns.
const LOOK_NS: u64 = 20_000;
/// So long after it has left nothing is to be done any more for a thread that ends, ns.
const GONE_NS: u64 = 1_000_000_000;
/// So many looks: its batch under way, at the slowest, takes a fraction of the minute that they take. (Not a
/// time: the process may be stopped meanwhile.)
const MOST_LOOKS: u32 = 1 << 20;
/// After somebody wanted there to be none, ns.
const AFTERWARDS_NS: u64 = 5_000_000;
/// After one could not be made, ns.
const RETRY_NS: u64 = 1_000_000_000;

/// The id of the thread; 0: none has the stack. The kernel clears it as the thread ends.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// When it left the company of the program's, CLOCK_MONOTONIC, ns.
static LEFT: AtomicU64 = AtomicU64::new(0);
static SEAT: Mutex<Seat> = Mutex::const_new(RawMutex::INIT, Seat::new());

struct Seat {
    place: Place,
    /// Who wants there to be none.
    alone: usize,
    /// Id of the last one, until it is known to be gone.
    last: u32,
    /// When the next may be made, ns.
    not_before: u64,
}

impl Seat {
    const fn new() -> Self {
        Self {
            place: Place { top: 0, pointer: 0 },
            alone: 0,
            last: 0,
            not_before: 0,
        }
    }
}

/// Has addresses ready for the thread.
pub(crate) fn reserve() -> Result<(), Errno> {
    SEAT.lock().place = Place::reserve(c"zfolio reclaim")?;
    Ok(())
}

/// In the child of a fork: there is none, and who wanted that is the parent's.
pub(crate) fn reset_in_child(state: &State) {
    reset_in_fork_child(&SEAT);
    THREAD.store(0, Ordering::Relaxed);
    state.pressure.end();
    let mut seat = SEAT.lock();
    (seat.alone, seat.last, seat.not_before) = (0, 0, 0);
}

/// Begins the thread, where it may be. In a handler of ours: all signals are blocked. No lock is held.
#[cold]
pub(super) fn begin(state: &State) {
    // (Where it may not be now it is wanted again before long.)
    state.pressure.take_wish();
    if !state.is_own_process() || state.filtered.load(Ordering::Relaxed) != 0 {
        return;
    }
    let Some(mut seat) = SEAT.try_lock() else {
        return;
    };
    let now = now_ns(Clock::Monotonic);
    if seat.alone > 0 || now < seat.not_before || !seat.is_free(state) {
        return;
    }
    // One thread ends here, for as long as it is there: whoever closes or opens pages knows.
    let may = state.locked(|core| {
        let may = !core.closes_nothing() && !state.has_left() && state.pressure.is_permitted();
        if may {
            state.accompanied.fetch_add(1, Ordering::SeqCst);
            state.pressure.begin();
        }
        may
    });
    if !may {
        return;
    }
    // (It has the mask of who makes it.)
    let blocked = Blocked::new();
    // SAFETY: nobody else has the place: the last one has left its stack.
    let made = unsafe { make(seat.place) };
    drop(blocked);
    match u32::try_from(made) {
        Ok(thread) => seat.last = thread,
        Err(_) => {
            seat.not_before = now + RETRY_NS;
            state.locked(|_| leave_company(state));
        }
    }
}

/// The core lock is held.
fn leave_company(state: &State) {
    LEFT.store(now_ns(Clock::Monotonic), Ordering::Relaxed);
    state.pressure.end();
    state.accompanied.fetch_sub(1, Ordering::SeqCst);
}

/// Makes it: its id, or an error.
///
/// # Safety
/// Nobody is on the stack.
unsafe fn make(place: Place) -> isize {
    let id = THREAD.as_ptr();
    let made: isize;
    // SAFETY: the parent's side returns like any system call. The other side starts on a stack that is its own,
    // and never returns into this function.
    unsafe {
        core::ptr::with_exposed_provenance_mut::<usize>(place.pointer).write(place.pointer);
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "cld",
            "call {life}",
            "mov eax, {exit}",
            "mov edi, dword ptr [rip + {status}]",
            "syscall",
            "ud2",
            "2:",
            life = sym life,
            status = sym STATUS,
            exit = const nr::EXIT,
            inlateout("rax") nr::CLONE.cast_signed() => made,
            in("rdi") CLONE_FLAGS | KEEPS_ID,
            in("rsi") place.top,
            in("rdx") id,
            in("r10") id,
            in("r8") place.pointer,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    made
}

/// The thread's life.
unsafe extern "C" fn life() {
    set_name("zfolio-reclaim");
    let state = state::get();
    let pressure = &state.pressure;
    loop {
        pressure.take_calls();
        let helpless = !state.reclaim_ahead();
        // (Without a thread of the program's the process ends with this one.)
        let is_over = state.has_left() || state.threads.all().next().is_none();
        if is_over || pressure.is_to_end() {
            break;
        }
        if helpless {
            pressure.rest();
        }
        if !pressure.await_call() {
            break;
        }
    }
    state.locked(|_| leave_company(state));
}

/// As long as it is had there is no thread of ours that reclaims.
pub(crate) struct Alone {
    /// Not the child of posix_spawn, whose calls are its own matter.
    counts: bool,
}

impl Alone {
    /// Ends the thread, and has none begin. No lock of ours is held.
    pub(crate) fn begin(state: &State) -> Self {
        // (Under a filter of the program's there is no such thread, and no call of ours is made any more.)
        let is_filtered = state.filtered.load(Ordering::Relaxed) != 0;
        let counts = state.pressure.may_be() && !is_filtered && state.is_own_process();
        if counts {
            state.at_rest(|| {
                let mut seat = SEAT.lock();
                seat.alone += 1;
                seat.clear(state);
            });
        }
        Self { counts }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // (It may have been had for the filter itself.)
        if self.counts && state::get().filtered.load(Ordering::Relaxed) == 0 {
            let _blocked = Blocked::new();
            let mut seat = SEAT.lock();
            // (In the child of a fork none is counted.)
            seat.alone = seat.alone.saturating_sub(1);
            // (Who forks may count its threads afterwards.)
            seat.not_before = now_ns(Clock::Monotonic) + AFTERWARDS_NS;
        }
    }
}

impl Seat {
    /// Whether the last one is gone, as far as the kernel too: it clears [`THREAD`] first, and then takes it from
    /// the threads of the process. (Its number may be another's by and by, so it is asked for only for a while.)
    fn is_free(&mut self, state: &State) -> bool {
        if THREAD.load(Ordering::Acquire) != 0 {
            return false;
        }
        let left = now_ns(Clock::Monotonic).saturating_sub(LEFT.load(Ordering::Relaxed));
        let process = state.pid.load(Ordering::Relaxed) as usize;
        let ids = [process, self.last as usize, 0];
        if self.last != 0 && left < GONE_NS && raw::own(nr::TGKILL, ids) == 0 {
            return false;
        }
        self.last = 0;
        true
    }

    /// Ends the thread, if there is one, and waits until it is gone.
    fn clear(&mut self, state: &State) {
        let mut looks = 0;
        while !self.is_free(state) {
            state.pressure.have_it_end();
            pause(LOOK_NS);
            looks += 1;
            if looks > MOST_LOOKS {
                state.core.lock().fail(format_args!(
                    "the thread that reclaims (--background-reclaim) does not end"
                ));
            }
        }
    }
}

/// Makes a task by `call`; once more without the thread where it was one too many (RLIMIT_NPROC, pids.max).
pub(super) fn make_room_for_task(state: &State, call: impl Fn() -> isize) -> isize {
    let result = call();
    if result != err::AGAIN || !state.pressure.is_there() {
        return result;
    }
    let _alone = Alone::begin(state);
    call()
}

/// Whether a call is one for which there must be none, of those that are not forks, ends or signals.
pub(crate) fn is_alone(number: usize, args: &[usize; 6]) -> bool {
    const CLOSE_RANGE_UNSHARE: usize = 2;
    const PR_SET_NAME: usize = 15;
    const PR_GET_NAME: usize = 16;
    match number {
        nr::CLOSE_RANGE => args[2] & CLOSE_RANGE_UNSHARE != 0,
        nr::PRCTL => !matches!(args[0], PR_SET_NAME | PR_GET_NAME),
        nr::UNSHARE
        | nr::SETNS
        | nr::SETUID
        | nr::SETGID
        | nr::SETREUID
        | nr::SETREGID
        | nr::SETGROUPS
        | nr::SETRESUID
        | nr::SETRESGID
        | nr::SETFSUID
        | nr::SETFSGID
        | nr::CAPSET
        | nr::KEYCTL
        | nr::SECCOMP
        | nr::LANDLOCK_RESTRICT_SELF
        | nr::LSM_SET_SELF_ATTR
        | nr::SETPRIORITY
        | nr::IOPRIO_SET
        | nr::SCHED_SETPARAM
        | nr::SCHED_SETSCHEDULER
        | nr::SCHED_SETAFFINITY
        | nr::SCHED_SETATTR => true,
        _ => false,
    }
}

/// Before a signal is sent to a thread (tkill, tgkill, rt_tgsigqueueinfo): if it is this one, it ends, and the
/// kernel says that there is none of that number.
pub(crate) fn hide_from(state: &State, number: usize, args: &[usize; 6]) {
    let thread = THREAD.load(Ordering::Relaxed) as usize;
    let to = if number == nr::TKILL {
        args[0]
    } else {
        args[1]
    };
    if thread != 0 && to == thread {
        drop(Alone::begin(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::table::{CALLS, PLAIN};

    #[test]
    fn calls_that_are_made_alone_come_by_us() {
        let alone = (0..CALLS).filter(|number| is_alone(*number, &[0, 0, 2, 0, 0, 0]));
        assert!(alone.clone().count() > 20);
        for number in alone {
            assert_eq!(PLAIN[number], 0, "{number} goes straight to the kernel");
        }
    }
}
