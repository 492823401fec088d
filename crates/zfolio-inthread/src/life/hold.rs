//! A thread of ours that holds the process for who looks into it (`zfolio inspect`).
//!
//! No thread of ours stays that could be asked, and the program's may sleep in one call for
//! ever. So the inspector, whom the kernel lets trace the process, sends one of the program's threads
//! to [`zfolio_hold_entry`](entry) for one system call, a clone, and puts back all its registers: the
//! call that it was in goes on as after any stop by a tracer. What is made there brings everything
//! back, sees that nothing leaves as long as a lease of `zfolio run` holds the process
//! ([`inspection`](zfolio_runtime::segment::inspection)), and ends.
//!
//! The thread that is sent uses no stack and changes no memory but a word of ours. It may be
//! anywhere, with locks of ours as well: the new thread waits for them as any other does.
//!
//! Invariant: at most one such thread at a time. It has `BUSY` from before it uses the stack until
//! after.

use super::own_thread::{CLONE_FLAGS, Place, STATUS};
use crate::memory::core::MemoryCore;
use crate::raw::{SHIFT, nr};
use crate::state::{self, State};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use zfolio_runtime::segment::inspection::{Watched, held};
use zfolio_runtime::segment::{Counter, ProcessSlot};
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns, set_name};

/// For so long it waits for a lease, ns: the inspector has one before it sends anybody.
const PATIENCE_NS: u64 = 2_000_000_000;
/// For so long it closes pages at the end at most, ns.
const CLOSES_NS: u64 = 60_000_000_000;
/// Between two looks at the leases, ns.
const LOOK_NS: u64 = 20_000_000;

/// 1 while there is such a thread.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// Where its stack ends.
static TOP: AtomicUsize = AtomicUsize::new(0);
/// Its thread pointer.
static POINTER: AtomicUsize = AtomicUsize::new(0);

global_asm!(
    ".hidden zfolio_hold_entry",
    ".globl zfolio_hold_entry",
    ".type zfolio_hold_entry, @function",
    ".p2align 4",
    // `ENTRY_MARK` of `zfolio_runtime::segment::inspection`.
    ".ascii \"zfolio held here\"",
    "zfolio_hold_entry:",
    "mov r8, qword ptr [rip + {pointer}]",
    "mov qword ptr [r8], r8",
    "mov edi, {flags}",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "mov eax, {clone}",
    "syscall",
    // The thread that was sent is stopped by its tracer here, and goes on where it was.
    "test rax, rax",
    "jnz 9f",
    "mov eax, 1",
    "xchg dword ptr [rip + {busy}], eax",
    "test eax, eax",
    "jnz 8f",
    "mov rsp, qword ptr [rip + {top}]",
    "xor ebp, ebp",
    "cld",
    "call {life}",
    "mov dword ptr [rip + {busy}], 0",
    "8:",
    "mov eax, {exit}",
    "mov edi, dword ptr [rip + {status}]",
    "syscall",
    "9:",
    "ud2",
    pointer = sym POINTER,
    busy = sym BUSY,
    top = sym TOP,
    life = sym life,
    status = sym STATUS,
    flags = const CLONE_FLAGS,
    clone = const nr::CLONE,
    exit = const nr::EXIT,
);

unsafe extern "C" {
    fn zfolio_hold_entry();
}

/// Where a thread of the program's is sent.
pub(crate) fn entry() -> usize {
    zfolio_hold_entry as *const () as usize
}

/// Has addresses ready for the thread.
pub(crate) fn reserve() -> Result<(), Errno> {
    let place = Place::reserve(c"zfolio inspect")?;
    TOP.store(place.top, Ordering::Relaxed);
    POINTER.store(place.pointer, Ordering::Relaxed);
    Ok(())
}

/// In the child of a fork, which is not held: the thread is the parent's.
pub(crate) fn reset_in_child(core: &mut MemoryCore) {
    core.inspected = false;
    BUSY.store(0, Ordering::Relaxed);
}

/// The thread's life. All signals are blocked: the tracer saw to that.
unsafe extern "C" fn life() {
    set_name("zfolio-inspect");
    if !state::is_there() {
        return;
    }
    let state = state::get();
    // (The program's one thread may be about to fill a page in place: it has the lock.)
    let slot = state.locked(|core| {
        state.accompanied.fetch_add(1, Ordering::SeqCst);
        core.pool.as_ref().map(|pool| pool.stats)
    });
    if let Some(slot) = slot {
        hold(state, slot);
    }
    state.locked(|_| state.accompanied.fetch_sub(1, Ordering::SeqCst));
}

/// Holds the process, whose slot it is, as long as a lease does.
fn hold(state: &State, slot: &ProcessSlot) {
    let leases = &state.segment.config().leases;
    let turn = state.segment.turn_of(slot);
    let mut watched = Watched::default();
    let begun = now_ns(Clock::Monotonic);
    let (mut at, mut begins, mut is_held) = (0, true, false);
    loop {
        let now = now_ns(Clock::Monotonic);
        let asked = watched.is_held(leases, turn, now);
        let waits = begins && now - begun < PATIENCE_NS;
        if state.has_left() || !asked && !waits {
            break;
        }
        // (No thread of the program's is left: the process ends with this one.)
        if state.threads.all().next().is_none() {
            break;
        }
        if is_held || !asked {
            pause(LOOK_NS);
            continue;
        }
        if begins {
            begins = false;
            state.recall_away(0..usize::MAX >> SHIFT);
            state.locked(|core| core.inspected = true);
            slot.held.store(held::COMING, Ordering::Release);
        }
        let more = state.locked(|core| core.bring_some(state, &mut at));
        if more {
            continue;
        }
        // From the beginning once more, and nothing begins between that and the end of it.
        at = 0;
        is_held = state.locked(|core| {
            let all = !core.bring_some(state, &mut at) && core.stop_watching(state);
            core.publish(state);
            all
        });
        if is_held {
            slot.add(Counter::InspectHolds, 1);
            slot.held.store(held::HELD, Ordering::Release);
        }
    }
    state.locked(|core| core.inspected = false);
    slot.held.store(held::NO, Ordering::Release);
    // What is more than the process may have leaves again: by this thread, since the program's may
    // sleep; where another inspector comes meanwhile, or it takes too long, by the program's calls.
    let begun = now_ns(Clock::Monotonic);
    while !state.has_left() && !state.locked(|core| core.shrink(state)) {
        let now = now_ns(Clock::Monotonic);
        if watched.is_held(leases, turn, now) || now - begun > CLOSES_NS {
            state.fall_behind();
            return;
        }
    }
}
