//! The entry of signals: of the three that are ours, and of all that the program handles once memory is short.
//!
//! They come on the thread's signal stack, which may be a small one of the program's. So the entry
//! changes to a stack of ours at once; a handler of the program's, where the signal is none of
//! ours, is then entered as if by the kernel.

use super::leave;
use super::masks::returning;
use super::passing::{Frame, SI_KERNEL, pass_on_as_told, posted};
use super::placing;
use super::reclaimer;
use super::signals::SI_TKILL;
use super::ticks;
use super::unanswered;
use crate::cancel;
use crate::memory::bring::{Access, Brought};
use crate::memory::core::MemoryCore;
use crate::memory::following::SIGNAL_NS;
use crate::memory::transit::swap_in::bring_beside;
use crate::memory::way::Kind;
use crate::program_memory;
use crate::raw::{self, OURS, SHIFT, nr};
use crate::seen::arm;
use crate::seen::rewrite;
use crate::signal::actions::is_ours;
use crate::signal::context::{ALIGNMENT_CHECKED, Context, SAVED, at};
use crate::signal::pieces;
use crate::signal::posted::CARRIER;
use crate::state::{self, State};
use crate::threads::{self, Record};
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering;
use zfolio_sys::thread::{Clock, now_ns};

const SIGBUS: usize = 7;
const SIGSEGV: usize = 11;
const SIGSYS: usize = 31;
/// `si_code` of an access that is not aligned.
const BUS_ADRALN: i32 = 1;
/// `si_arch` of a call by the 64-bit gate.
const ARCH_X86_64: u32 = 0xc000_003e;
/// `si_code` of a system call that dispatch stopped.
const SYS_USER_DISPATCH: i32 = 2;
/// Times that a fault on one address of open memory is tried again before it is the
/// program's: another thread may be opening and closing it.
const TRIES: usize = 10_000;

global_asm!(
    ".hidden zfolio_signal_entry",
    ".globl zfolio_signal_entry",
    ".type zfolio_signal_entry, @function",
    ".p2align 4",
    "zfolio_signal_entry:",
    "push rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "pushfq",
    "mov rbp, rsp",
    "mov rax, qword ptr [rip + zfolio_record@GOTTPOFF]",
    "mov rax, qword ptr fs:[rax]",
    "test rax, rax",
    "jz 2f",
    "mov rsp, qword ptr [rax]",
    "2:",
    "and rsp, -16",
    "cld",
    // (Where the program has alignment checked only its own code is to have that.)
    "test byte ptr [rbp + 2], {checks}",
    "jz 7f",
    "push 2",
    "popfq",
    "7:",
    "call {signal}",
    "mov r8, rdx",
    "mov rsp, rbp",
    "test byte ptr [rsp + 2], {checks}",
    "jz 8f",
    "push [rsp]",
    "popfq",
    "8:",
    "add rsp, 8",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbp",
    "test rax, rax",
    "jnz 3f",
    // (No handler of the program's has run.)
    "add rsp, 8",
    "jmp zfolio_own_return",
    // The program's handler, on the stack that the kernel chose or where its frame was moved to: its mask is set
    // last, when nothing is on the service stack any more.
    "3:",
    "test r8, r8",
    "jz 9f",
    "mov rsp, r8",
    "lea rdx, [r8 + {context}]",
    "lea rsi, [r8 + {info}]",
    "9:",
    "push rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "lea rsi, [rdx + 8 * {entered}]",
    "mov edi, 2",
    "xor edx, edx",
    "mov r10d, 8",
    "mov eax, {procmask}",
    "syscall",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rax",
    "jmp rax",
    signal = sym signal,
    checks = const ALIGNMENT_CHECKED >> 16,
    entered = const at::ENTERED,
    context = const placing::CONTEXT,
    info = const placing::INFO,
    procmask = const nr::RT_SIGPROCMASK,
);

// Where handlers return to: the frame is at the stack pointer. Unwinders go through it by
// what is said here: the caller's registers are in the frame, each at its place behind rsp.
// (DW_CFA_def_cfa_expression and DW_CFA_expression, of DW_OP_breg7 with an offset.)
global_asm!(
    ".macro zfolio_saved_at number, offset",
    ".if \\offset < 64",
    ".cfi_escape 0x10, \\number, 2, 0x77, \\offset",
    ".else",
    ".cfi_escape 0x10, \\number, 3, 0x77, (\\offset & 0x7f) | 0x80, \\offset >> 7",
    ".endif",
    ".endm",
    ".hidden zfolio_restorer",
    ".globl zfolio_restorer",
    ".type zfolio_restorer, @function",
    ".hidden zfolio_own_return",
    ".globl zfolio_own_return",
    ".hidden zfolio_entered_restorer",
    ".globl zfolio_entered_restorer",
    ".type zfolio_entered_restorer, @function",
    ".p2align 4",
    ".cfi_startproc simple",
    ".cfi_signal_frame",
    ".cfi_escape 0x0f, 4, 0x77, 0xa0, 1, 0x06",
    "zfolio_saved_at 8, 40",
    "zfolio_saved_at 9, 48",
    "zfolio_saved_at 10, 56",
    "zfolio_saved_at 11, 64",
    "zfolio_saved_at 12, 72",
    "zfolio_saved_at 13, 80",
    "zfolio_saved_at 14, 88",
    "zfolio_saved_at 15, 96",
    "zfolio_saved_at 5, 104",
    "zfolio_saved_at 4, 112",
    "zfolio_saved_at 6, 120",
    "zfolio_saved_at 3, 128",
    "zfolio_saved_at 1, 136",
    "zfolio_saved_at 0, 144",
    "zfolio_saved_at 2, 152",
    "zfolio_saved_at 7, 160",
    "zfolio_saved_at 16, 168",
    "nop",
    "zfolio_restorer:",
    "test dword ptr [rsp + 8 * {saved}], {ours}",
    "mov esi, 0",
    "jnz 5f",
    // (It may return to a call that was not answered.)
    "mov rax, qword ptr [rsp + 8 * {rip}]",
    "cmp rax, qword ptr [rsp + 8 * {rcx}]",
    "je 5f",
    // (A call in pieces may be what it returns to.)
    "mov rax, qword ptr [rip + zfolio_record@GOTTPOFF]",
    "mov rax, qword ptr fs:[rax]",
    "test rax, rax",
    "jz 4f",
    "cmp dword ptr [rax + {stage}], 0",
    "jne 5f",
    "4:",
    "mov eax, 15",
    "syscall",
    "zfolio_own_return:",
    "test dword ptr [rsp + 8 * {saved}], {ours}",
    "mov esi, 2",
    "jz 4b",
    "jmp 5f",
    "nop",
    "zfolio_entered_restorer:",
    "mov esi, 1",
    "5:",
    "mov rdi, rsp",
    "mov rbx, rsp",
    "and rsp, -16",
    "push 2",
    "popfq",
    "call {returning}",
    "mov rsp, rbx",
    "mov eax, 15",
    "syscall",
    ".cfi_endproc",
    saved = const SAVED,
    rip = const at::RIP,
    rcx = const at::RCX,
    ours = const OURS,
    stage = const offset_of!(Record, pieces) + pieces::STAGE,
    returning = sym returning,
);

unsafe extern "C" {
    fn zfolio_signal_entry();
    fn zfolio_restorer();
    fn zfolio_entered_restorer();
}

pub(crate) fn entry() -> u64 {
    zfolio_signal_entry as *const () as u64
}

pub(crate) fn restorer() -> u64 {
    zfolio_restorer as *const () as u64
}

pub(crate) fn entered_restorer() -> u64 {
    zfolio_entered_restorer as *const () as u64
}

/// What the entry goes on with: in rax and rdx.
#[repr(C)]
struct Entered {
    /// The handler of the program's to be entered; 0: none.
    handler: usize,
    /// Where its frame was moved to; 0: it was not.
    frame: usize,
}

/// Serves one of the signals.
unsafe extern "C" fn signal(signal: i32, info: *mut [i32; 32], context: *mut Context) -> Entered {
    let state = state::get();
    let record = threads::current();
    // SAFETY: what the kernel gave the handler: 128 bytes of siginfo, and a context of
    // more than 512 bytes, on this thread's signal stack.
    let (info, context) = unsafe { (&mut *info, &mut *context) };
    let mut frame = Frame { info, context };
    let signal = signal.cast_unsigned() as usize;
    let handler = if !is_ours(signal) && signal != cancel::SIGNAL {
        pass_on_as_told(state, record, signal, &mut frame)
    } else if signal == SIGSYS && frame.code() == SYS_USER_DISPATCH {
        redirect(state, &mut frame);
        0
    } else {
        unanswered::answer(state, record, frame.context);
        serve_or_pass_on(state, record, signal, &mut frame)
    };
    let handler = match record {
        Some(record) if is_ours(signal) => posted(state, record, signal, &mut frame, handler),
        _ => handler,
    };
    let frame = match handler {
        0 => 0,
        _ => {
            let flags = state.signals_here().lock().actions[signal].flags;
            placing::place(state, record, frame.context, flags)
        }
    };
    Entered { handler, frame }
}

/// Serves a signal that is not one of dispatch's. Returns 0, or the handler of the program's to be entered.
fn serve_or_pass_on(
    state: &State,
    record: Option<&'static Record>,
    signal: usize,
    frame: &mut Frame<'_>,
) -> usize {
    if frame.code() == CARRIER && is_ours(signal) {
        return 0;
    }
    if signal == SIGSYS && ticks::is_one(state, frame.code(), frame.value()) {
        if let Some(record) = record {
            ticks::come(state, record, frame.context);
        }
        return 0;
    }
    if signal == cancel::SIGNAL {
        // (As libc's handler has it: from elsewhere it cancels nobody.)
        if frame.code() == SI_TKILL
            && frame.sender() == raw::own(nr::GETPID, [0; 3])
            && let Some(record) = record
            && let Some((pc, result)) = record.cancellation.interrupted(frame.register(at::RIP))
        {
            frame.context[at::RIP] = pc as u64;
            frame.context[at::RAX] = result;
        }
        return pass_on_as_told(state, record, signal, frame);
    }
    if signal == SIGBUS && frame.code() == BUS_ADRALN && is_in_entry(state, frame) {
        // (The entry of a call, which has not come to that yet.)
        frame.context[at::FLAGS] &= !ALIGNMENT_CHECKED;
        return 0;
    }
    // (Where the kernel says nothing it is no page's fault: of an address that nobody can have, or for want of room for
    // a frame.)
    let is_of_page = signal != SIGSYS && frame.code() > 0 && frame.code() != SI_KERNEL;
    if is_of_page && serve(state, record, signal, frame) {
        return 0;
    }
    pass_on_as_told(state, record, signal, frame)
}

fn is_in_entry(state: &State, frame: &Frame<'_>) -> bool {
    usize::try_from(frame.context[at::RIP]).is_ok_and(|pc| state.text.contains(&pc))
}

/// A call that dispatch stopped goes on at our entry.
fn redirect(state: &State, frame: &mut Frame<'_>) {
    let back = frame.register(at::RIP);
    if frame.gate() != ARCH_X86_64 {
        // By the 32-bit gate (int $0x80, of two bytes): made again, unseen from here on.
        leave::leave(state, "it makes system calls of 32-bit programs");
        arm::disarm();
        frame.context[at::RIP] = (back - 2) as u64;
        return;
    }
    let goes_on = rewrite::consider(state, back, frame.register(at::RAX));
    unanswered::answer_at(state, frame.context, back, goes_on);
}

fn serve(
    state: &State,
    record: Option<&'static Record>,
    signal: usize,
    frame: &mut Frame<'_>,
) -> bool {
    let address = frame.address();
    let mut brought = Brought::NotOurs;
    if !state.has_left() {
        let is_timed = record.is_some_and(Record::counts_another_fault);
        let came = is_timed.then(|| now_ns(Clock::Monotonic));
        let work = state.begin_work();
        let (mut is_refused, writes) = (false, frame.access() == Access::Write);
        let mut is_other = |core: &MemoryCore| {
            // (What is read-only is the program's own doing.)
            is_refused = signal == SIGSEGV && writes && core.ranges.is_read_only(address);
            is_refused || is_protection(state, core, signal, address)
        };
        brought = if state.is_beside() {
            bring_beside(state, record, address, frame.access(), &mut is_other)
        } else {
            let mut core = state.exclusive();
            let is_managed = |core: &MemoryCore| {
                core.ranges
                    .at(address)
                    .is_some_and(|(_, kind)| kind.managed)
            };
            if state.has_max() && is_managed(&core) && core.waits_at_max(state) {
                // The access is repeated, and faults again; between the two signals come.
                drop(core);
                state.nap_at_max();
                return true;
            }
            if state.is_stalled() && is_managed(&core) {
                if state.nap_for_writes(core) {
                    return true;
                }
                core = state.exclusive();
            }
            if is_other(&core) {
                Brought::WasOpen
            } else {
                let mask = frame.context[SAVED];
                let access = frame.access();
                match state.bring_or_fetch(core, record, address, access, mask) {
                    Some(brought) => brought,
                    None => return true,
                }
            }
        };
        if is_refused {
            brought = Brought::NotOurs;
        }
        if let (Brought::Open(kind), Some(came)) = (brought, came) {
            state.core.lock().note_served(kind, came);
        }
        if state.pressure.is_wanted() {
            reclaimer::begin(state);
        }
        state.end_work(work, SIGNAL_NS);
    }
    let again = match brought {
        Brought::Open(_) => {
            if let Some(record) = record {
                record.faults.last[1].store(0, Ordering::Relaxed);
            }
            return true;
        }
        Brought::WasOpen => true,
        Brought::NotOurs => may_have_been_ours(state, record),
    };
    if again && is_to_be_tried_again(record, address) {
        return true;
    }
    if let Some(after) = program_memory::fixup(frame.register(at::RIP)) {
        frame.context[at::RIP] = after as u64;
        return true;
    }
    false
}

/// Whether an open page is closed by what the program made of it: where what is absent is a
/// SIGBUS. (Or by us, a moment ago: then it comes once more.)
fn is_protection(state: &State, core: &MemoryCore, signal: usize, address: usize) -> bool {
    signal == SIGSEGV
        && core.way.kind == Kind::InThread
        && !state.words.get(address >> SHIFT).is_closed()
        && core
            .ranges
            .at(address)
            .is_some_and(|(_, kind)| kind.managed)
}

/// Whether a fault on what is not managed may be about what was managed when it was raised: what
/// is managed has changed since this thread was last told of such a fault. If nothing has, the
/// fault was raised with all as it is now, and is the program's.
fn may_have_been_ours(state: &State, record: Option<&Record>) -> bool {
    let Some(record) = record else { return false };
    // (Under the lock: who is changing it has not opened the pages yet.)
    let changes = state.core.lock().ranges.changes();
    record.faults.changes_seen.swap(changes, Ordering::Relaxed) != changes
}

fn is_to_be_tried_again(record: Option<&Record>, address: usize) -> bool {
    let Some(record) = record else { return false };
    let [last, count] = &record.faults.last;
    if last.swap(address, Ordering::Relaxed) != address {
        count.store(0, Ordering::Relaxed);
    }
    count.fetch_add(1, Ordering::Relaxed) < TRIES
}
