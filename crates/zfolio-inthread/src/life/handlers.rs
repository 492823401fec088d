//! The handlers of the three signals that are ours.
//!
//! They come on the thread's signal stack, which may be a small one of the program's. So they
//! change to a stack of ours at once; a handler of the program's, where the fault is none of
//! ours, is then entered as if by the kernel.

use super::signals::{self, Action, DEFAULT, IGNORE, NODEFER, RESETHAND, RESTORER, SIGINFO};
use crate::memory::bring::{Brought, bring};
use crate::raw::{self, OURS};
use crate::seen::entry::entry_address;
use crate::seen::rewrite;
use crate::state::{self, State};
use crate::threads::{self, Record};
use core::arch::global_asm;
use core::sync::atomic::Ordering;

const SIGSYS: usize = 31;
/// `si_code` of a system call that dispatch stopped.
const SYS_USER_DISPATCH: i32 = 2;
/// Where a frame has what is used of it, in words: `uc_mcontext` begins at the fifth, and
/// holds r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
mod at {
    const REGISTERS: usize = 5;
    pub(super) const RAX: usize = REGISTERS + 13;
    pub(super) const RCX: usize = REGISTERS + 14;
    pub(super) const RSP: usize = REGISTERS + 15;
    pub(super) const RIP: usize = REGISTERS + 16;
    /// After rip: flags, segments, error, trap, old mask, cr2, the vector state's address
    /// and eight reserved words; then the mask.
    pub(super) const MASK: usize = REGISTERS + 32;
}
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
    "mov rbp, rsp",
    "mov rax, qword ptr [rip + zfolio_record@GOTTPOFF]",
    "mov rax, qword ptr fs:[rax]",
    "test rax, rax",
    "jz 2f",
    "mov rsp, qword ptr [rax]",
    "2:",
    "and rsp, -16",
    "cld",
    "call {signal}",
    "mov rsp, rbp",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbp",
    "test rax, rax",
    "jnz 3f",
    "ret",
    "3:",
    "jmp rax",
    ".hidden zfolio_restorer",
    ".globl zfolio_restorer",
    ".type zfolio_restorer, @function",
    ".p2align 4",
    "nop",
    "zfolio_restorer:",
    "mov rax, 15",
    "syscall",
    signal = sym signal,
);

unsafe extern "C" {
    fn zfolio_signal_entry();
    fn zfolio_restorer();
}

pub(crate) fn restorer() -> u64 {
    zfolio_restorer as *const () as u64
}

/// Installs them.
pub(crate) fn install() {
    // All others are blocked while one of ours runs; the three are not, so that one that
    // should not happen ends the process rather than be lost.
    let action = Action {
        handler: zfolio_signal_entry as *const () as u64,
        flags: SIGINFO | RESTORER | signals::ONSTACK,
        restorer: restorer(),
        mask: !OURS,
    };
    for signal in [7, 11, SIGSYS] {
        signals::install(signal, &action);
    }
}

/// Gives them back to whom they were.
pub(crate) fn give_back(state: &State) {
    let actions = state.signals.lock().actions;
    for signal in [7, 11, SIGSYS] {
        signals::install(signal, &actions[signal]);
    }
}

/// What the program's frame is about.
struct Frame<'a> {
    info: &'a [i32; 32],
    context: &'a mut [u64; 64],
}

impl Frame<'_> {
    fn code(&self) -> i32 {
        self.info[2]
    }

    fn address(&self) -> usize {
        let low = self.info[4].cast_unsigned() as usize;
        let high = self.info[5].cast_unsigned() as usize;
        high << 32 | low
    }

    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    fn register(&self, at: usize) -> usize {
        self.context[at] as usize
    }
}

/// Serves one of the signals. Returns 0, or the handler of the program's to be entered.
unsafe extern "C" fn signal(signal: i32, info: *const [i32; 32], context: *mut [u64; 64]) -> usize {
    let state = state::get();
    let record = threads::current();
    // SAFETY: what the kernel gave the handler: 128 bytes of siginfo, and a context of
    // more than 512 bytes, on this thread's signal stack.
    let mut frame = unsafe {
        Frame {
            info: &*info,
            context: &mut *context,
        }
    };
    let signal = signal.cast_unsigned() as usize;
    if signal == SIGSYS && frame.code() == SYS_USER_DISPATCH {
        redirect(state, &mut frame);
        return 0;
    }
    if signal != SIGSYS && frame.code() > 0 && serve(state, record, &mut frame) {
        return 0;
    }
    pass_on(state, record, signal, &mut frame)
}

/// A call that dispatch stopped goes on at our entry.
fn redirect(state: &State, frame: &mut Frame<'_>) {
    let back = frame.register(at::RIP);
    let number = frame.register(at::RAX);
    rewrite::consider(state, back, number);
    frame.context[at::RCX] = back as u64;
    frame.context[at::RIP] = entry_address() as u64;
}

fn serve(state: &State, record: Option<&'static Record>, frame: &mut Frame<'_>) -> bool {
    let address = frame.address();
    if !state.has_left() {
        let (brought, pages) = {
            let mut core = state.core.lock();
            let brought = bring(state, &mut core, record, address);
            (brought, core.ranges.at(frame.register(at::RSP)).is_some())
        };
        if pages && !state.moving_stacks.load(Ordering::Relaxed) {
            signals::handle_elsewhere(state);
        }
        match brought {
            Brought::Open => return true,
            Brought::WasOpen if is_to_be_tried_again(record, address) => return true,
            _ => {}
        }
    }
    if let Some(after) = raw::fixup(frame.register(at::RIP)) {
        frame.context[at::RIP] = after as u64;
        return true;
    }
    false
}

fn is_to_be_tried_again(record: Option<&Record>, address: usize) -> bool {
    let Some(record) = record else { return false };
    let [last, count] = &record.last_fault;
    if last.swap(address, Ordering::Relaxed) != address {
        count.store(0, Ordering::Relaxed);
    }
    count.fetch_add(1, Ordering::Relaxed) < TRIES
}

/// A signal that is the program's: as the kernel would deliver it.
fn pass_on(
    state: &State,
    record: Option<&'static Record>,
    signal: usize,
    frame: &mut Frame<'_>,
) -> usize {
    let action = {
        let mut signals = state.signals.lock();
        let action = signals.actions[signal];
        if action.flags & RESETHAND != 0 && action.handler > IGNORE {
            signals.actions[signal].handler = DEFAULT;
        }
        action
    };
    let bit = 1_u64 << (signal - 1);
    let forced = frame.code() > 0;
    let masked = record.map_or(0, |record| record.masked.load(Ordering::Relaxed)) as u64;
    let is_masked = masked & bit != 0;
    if action.handler == IGNORE && !forced {
        return 0;
    }
    if action.handler <= IGNORE || (is_masked && forced) {
        // It ends the process, as it would have; sent again where nothing repeats it.
        let default = Action {
            handler: DEFAULT,
            flags: RESTORER,
            restorer: restorer(),
            mask: 0,
        };
        signals::install(signal, &default);
        if !forced {
            let (pid, thread) = (
                raw::own(raw::nr::GETPID, [0; 3]),
                raw::own(raw::nr::GETTID, [0; 3]),
            );
            let ids = [pid.cast_unsigned(), thread.cast_unsigned(), signal];
            raw::own(raw::nr::TGKILL, ids);
        }
        return 0;
    }
    let mut mask = frame.context[at::MASK] | action.mask;
    if action.flags & NODEFER == 0 {
        mask |= bit;
    }
    raw::set_mask(mask & !OURS);
    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    return action.handler as usize;
}
