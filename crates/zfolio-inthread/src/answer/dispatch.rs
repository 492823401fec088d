//! Each call to whoever answers it.

use super::{advise, kinds, transfer};
use crate::call_stacks;
use crate::cancel::{self, Call};
use crate::life::reclaimer::{self, Alone};
use crate::life::{descriptors, end, leave, masks, process, sending, signals};
use crate::memory::space;
use crate::program_memory;
use crate::raw::{self, OURS, err, is_error, nr};
use crate::seen::frame::{self, Frame};
use crate::seen::pinning::{END, Keeper};
use crate::seen::{stack, table, vectors};
use crate::state::{self, State};
use crate::threads;
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::io_uring;

const F_DUPFD: usize = 0;
const F_DUPFD_CLOEXEC: usize = 1030;
const CLONE_FILES: usize = 0x400;
const MAP_FIXED: usize = 0x10;
const PR_SET_SECCOMP: usize = 22;
const PR_SET_MM: usize = 35;
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const ARCH_SET_FS: usize = 0x1002;

/// Makes the call of `frame`; returns its result.
pub(crate) fn dispatch(frame: &mut Frame) -> isize {
    let state = state::get();
    let (full, cancellable) = cancel::unmarked(frame.rax);
    let number = full & 0xffff_ffff;
    let args = table::narrowed(number, frame.args());
    let stack = frame.stack;
    // With the program's stack pointer, where this is on a stack of ours.
    let calls_from = if frame.slot == 0 { 0 } else { stack };
    let record = threads::current().filter(|_| !leave::is_aside(state, number));
    let Some(record) = record else {
        frame.rax = full;
        return raw::for_program_at(calls_from, number, args);
    };
    let in_handler = record.is_on_signal_stack(stack);
    if frame.slot == 0 && !in_handler && is_about_stack(number, &args, stack) {
        if number != nr::MADVISE {
            // (It may not be there any more.)
            record.set_own_stack(&(0..0));
        }
        if let Some(slot) = record.call_stacks().take(stack) {
            frame::answer_on(slot, frame);
        }
    }
    frame.rax = full;
    record.calls.note();
    record.pinned.drop_stale(stack, in_handler);
    let depth = record.pinned.depth();
    let keeper = Keeper {
        state,
        record,
        stack,
        in_handler,
    };
    let is_late = if frame.slot == 0 {
        stack::keep(&keeper);
        !record.is_on_own_stack(stack)
    } else {
        !record.call_stacks().is_first(frame.slot)
    };
    if is_late && !in_handler {
        drop_stale_stacks(&keeper, frame.slot);
    }
    if !in_handler {
        state.follow_asked(number);
    }
    // (What a signal's handler interrupts is what it was when it returns.)
    let before = record.cancellation.set_call(Call {
        within: cancellable,
        stack: calls_from,
    });
    let result = route(&keeper, frame, number, args);
    record.cancellation.set_call(before);
    record.pinned.cut(depth);
    result
}

/// Whether a call may take away what lies right below the stack pointer, where answering it would need that.
fn is_about_stack(number: usize, args: &[usize; 6], stack: usize) -> bool {
    let is_one = match number {
        nr::MUNMAP | nr::MADVISE | nr::MPROTECT | nr::PKEY_MPROTECT | nr::MREMAP => true,
        nr::MMAP => args[3] & MAP_FIXED != 0,
        _ => false,
    };
    let below = stack.saturating_sub(2 * call_stacks::ROOM)..stack;
    is_one && args[0] < below.end && below.start < args[0].saturating_add(args[1])
}

/// Frees stacks of ours that calls left which never returned, where this call could not have the first.
#[cold]
fn drop_stale_stacks(keeper: &Keeper<'_>, own: usize) {
    let Keeper { state, record, .. } = *keeper;
    // (Tasks that have a record in common are none of them in such a call, and management has ended; the
    // child of posix_spawn is on its parent's.)
    let is_alone = !state.has_left() && record.spawned.load(Ordering::Relaxed) == 0;
    if is_alone {
        record.call_stacks().drop_stale(keeper.stack, own);
    }
}

fn route(keeper: &Keeper<'_>, frame: &mut Frame, number: usize, args: [usize; 6]) -> isize {
    let (state, record) = (keeper.state, keeper.record);
    let is_alone = reclaimer::is_alone(number, &args);
    let _alone = is_alone.then(|| Alone::begin(state));
    if is_alone || descriptors::may_forbid_opening(number, &args) {
        descriptors::doubt_opening();
    }
    match number {
        nr::MMAP
        | nr::MUNMAP
        | nr::MPROTECT
        | nr::PKEY_MPROTECT
        | nr::BRK
        | nr::MREMAP
        | nr::MADVISE
        | nr::MLOCK
        | nr::MLOCK2
        | nr::MSEAL
        | nr::SHMAT => space::change(state, number, args),
        nr::PROCESS_MADVISE => advise::advise(keeper, args),
        nr::MINCORE => {
            keeper.keep(args[2], args[1].div_ceil(raw::PAGE));
            raw::for_program(number, args)
        }
        nr::RT_SIGACTION => {
            keeper.keep(args[1], 32);
            keeper.keep(args[2], 32);
            signals::action(state, args)
        }
        nr::RT_SIGPROCMASK => {
            keeper.keep(args[1], 8);
            keeper.keep(args[2], 8);
            masks::mask(state, record, args)
        }
        nr::SIGALTSTACK => {
            keeper.keep(args[0], 24);
            keeper.keep(args[1], 24);
            signals::alternate(state, record, args)
        }
        nr::RT_SIGPENDING => {
            keeper.keep(args[0], 8);
            masks::pending(state, record, args)
        }
        nr::RT_SIGTIMEDWAIT => take_signal(keeper, args),
        nr::TKILL | nr::TGKILL => {
            reclaimer::hide_from(state, number, &args);
            sending::to_thread(state, number, args)
                .unwrap_or_else(|| record.cancellation.call(number, args))
        }
        nr::RT_TGSIGQUEUEINFO => {
            keeper.keep(args[3], 128);
            reclaimer::hide_from(state, number, &args);
            sending::to_thread(state, number, args)
                .unwrap_or_else(|| record.cancellation.call(number, args))
        }
        nr::RT_SIGRETURN => {
            // (A frame has all vector registers: of matrices (AMX) as well, more than 8 KiB.)
            keeper.keep(frame.stack, 4 * raw::PAGE);
            frame::return_from_signal(frame)
        }
        nr::FORK | nr::VFORK | nr::CLONE | nr::CLONE3 => process::clone(keeper, frame, number),
        nr::EXECVE | nr::EXECVEAT => end::exec(keeper, number, args),
        nr::EXIT => end::exit_thread(keeper, args),
        nr::EXIT_GROUP => end::exit(state, args),
        nr::READ
        | nr::WRITE
        | nr::PREAD64
        | nr::PWRITE64
        | nr::READV
        | nr::WRITEV
        | nr::PREADV
        | nr::PWRITEV
        | nr::PREADV2
        | nr::PWRITEV2
        | nr::SENDTO
        | nr::RECVFROM
        | nr::SENDMSG
        | nr::GETRANDOM => moving(keeper, number, args),
        nr::SET_ROBUST_LIST | nr::RSEQ => {
            leave_to_kernel(state, args[0], args[1]);
            raw::for_program(number, args)
        }
        nr::SET_TID_ADDRESS => {
            leave_to_kernel(state, args[0], 4);
            raw::for_program(number, args)
        }
        nr::CLOSE | nr::DUP | nr::DUP2 | nr::DUP3 | nr::CLOSE_RANGE => {
            descriptors::change(state, number, args)
        }
        nr::UNSHARE if args[0] & CLONE_FILES != 0 => descriptors::unshare(state, number, args),
        nr::FCNTL if matches!(args[1], F_DUPFD | F_DUPFD_CLOEXEC) => {
            descriptors::change(state, number, args)
        }
        nr::RT_SIGSUSPEND
        | nr::SIGNALFD
        | nr::SIGNALFD4
        | nr::PPOLL
        | nr::PSELECT6
        | nr::EPOLL_PWAIT
        | nr::EPOLL_PWAIT2
        | nr::IO_PGETEVENTS => with_mask(keeper, number, args),
        nr::IO_URING_SETUP | nr::IO_SETUP | nr::VMSPLICE => kept_by_the_kernel(state, number, args),
        _ => by_table_or_leave(keeper, number, args),
    }
}

/// Calls by which the kernel keeps addresses, that are not followed: as where they are not built in, or in a
/// process that is managed no longer.
fn kept_by_the_kernel(state: &State, number: usize, args: [usize; 6]) -> isize {
    if !state.has_left() {
        let asked = state.segment.config().io_uring.load(Ordering::Relaxed);
        if asked != io_uring::UNMANAGED {
            return err::NOSYS;
        }
        leave::leave(
            state,
            "it has the kernel keep addresses (io_uring, io_setup, vmsplice)",
        );
    }
    raw::for_program(number, args)
}

fn by_table_or_leave(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> isize {
    let state = keeper.state;
    match number {
        nr::PRCTL => match args[0] {
            PR_SET_SECCOMP => filters(keeper),
            PR_SET_SYSCALL_USER_DISPATCH => return err::INVAL,
            _ => {}
        },
        nr::SECCOMP if args[0] != 2 && args[0] != 3 => filters(keeper),
        nr::USERFAULTFD => leave::leave(state, "it uses userfaultfd itself"),
        nr::ARCH_PRCTL if args[0] == ARCH_SET_FS => {
            leave::leave(state, "it changes where its thread-local storage is");
        }
        nr::MLOCKALL => leave::leave(state, "it locks its memory (mlockall)"),
        _ => {}
    }
    by_table(keeper, number, args)
}

/// The program is about to filter its calls.
fn filters(keeper: &Keeper<'_>) {
    leave::leave(keeper.state, "it filters its system calls (seccomp)");
    leave::step_aside(keeper.state, keeper.record, keeper.in_handler);
}

fn by_table(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> isize {
    match number {
        nr::IOCTL => keeper.keep_for_device(args[1], args[2]),
        54 => keeper.keep_option(&args),
        nr::GETSOCKOPT => keeper.keep_option_asked(&args),
        463 | 464 => {
            keeper.keep_text(args[1]);
            keeper.keep_text(args[3]);
            keeper.keep_attribute(args[4]);
        }
        nr::BPF => keeper.keep_for_bpf(&args),
        nr::KEYCTL => {
            keeper.keep_guesses(&args);
            keeper.keep(args[2], args[3].min(1 << 20));
        }
        nr::PTRACE => keeper.keep_traced(&args),
        nr::PRCTL => keeper.keep_for_process(&args),
        nr::MQ_NOTIFY => keeper.keep_notification(args[1]),
        nr::FUTEX_REQUEUE => keeper.keep_words(args[0], 2),
        66 => keeper.keep_semaphores(&args),
        69 | 70 => keeper.keep(args[1], args[2].saturating_add(8)),
        nr::PROCESS_VM_READV | nr::PROCESS_VM_WRITEV => {
            keeper.keep_vectors(args[1], args[2]);
            keeper.keep_vectors(args[3], args[4]);
        }
        _ => match table::pointers(number) {
            Some(pointers) => keeper.keep_all(pointers, &args),
            None => keeper.keep_guesses(&args),
        },
    }
    let result = keeper.record.cancellation.call(number, args);
    if number == nr::PRCTL && args[0] == PR_SET_MM && !is_error(result) {
        keeper.state.locked(|core| {
            core.brk = raw::own(nr::BRK, [0; 3]).cast_unsigned();
        });
    }
    if matches!(number, nr::OPEN | 257 | 437) && !is_error(result) {
        descriptors::opened(keeper.state, number, args, result);
    }
    result
}

/// Calls that move bytes, long ones in pieces.
fn moving(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> isize {
    let [fd, buffer, len, offset, ..] = args;
    let is_flat = matches!(number, nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64);
    let has_socket = matches!(number, nr::SENDTO | nr::RECVFROM | nr::SENDMSG);
    let is_own = !has_socket && number != nr::GETRANDOM && keeper.state.own_memory.is_one(fd);
    if is_own {
        let from = match number {
            nr::READ | nr::WRITE | nr::READV | nr::WRITEV => kinds::position(fd),
            _ => offset,
        };
        let len = if is_flat {
            len
        } else {
            vectors::length_of(buffer, len)
        };
        keeper.keep(from, len);
    }
    if let Some(result) = transfer::transfer(keeper, number, args) {
        return result;
    }
    if is_flat {
        // (What does not lie within a program's addresses is refused by the kernel, whole.)
        let is_refused = buffer.checked_add(len).is_none_or(|end| end > END);
        keeper.keep(buffer, if is_refused { 1 } else { len });
        return keeper.record.cancellation.call(number, args);
    }
    by_table(keeper, number, args)
}

/// The kernel will write or read there whenever it likes.
fn leave_to_kernel(state: &State, address: usize, len: usize) {
    if len > 1 << 20 || address >> 47 != 0 {
        return;
    }
    state.locked(|core| {
        if !state.has_left() {
            core.keep(state, &(address..address.saturating_add(len)));
        }
    });
}

/// rt_sigtimedwait: those of ours that are waited for are not with the kernel.
fn take_signal(keeper: &Keeper<'_>, args: [usize; 6]) -> isize {
    if let Some(pointers) = table::pointers(nr::RT_SIGTIMEDWAIT) {
        keeper.keep_all(pointers, &args);
    }
    match program_memory::read::<u64>(args[0]) {
        Some(set) if args[3] == 8 => masks::taking(keeper.state, keeper.record, set, args),
        _ => keeper.record.cancellation.call(nr::RT_SIGTIMEDWAIT, args),
    }
}

/// Calls with a mask of signals: ours are taken out of it.
fn with_mask(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> isize {
    if let Some(pointers) = table::pointers(number) {
        keeper.keep_all(pointers, &args);
    } else {
        keeper.keep_guesses(&args);
    }
    let mut args = args;
    let at = match number {
        nr::RT_SIGSUSPEND => 0,
        nr::SIGNALFD | nr::SIGNALFD4 => 1,
        nr::PPOLL => 3,
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => 4,
        _ => 5,
    };
    let mut nested = [0_u64; 2];
    let mask;
    let mut given = None;
    let mut mask_at = args[at];
    if at == 5 && mask_at != 0 {
        // A structure: the mask's address, and its size.
        let Some(words) = program_memory::read::<[u64; 2]>(mask_at) else {
            return keeper.record.cancellation.call(number, args);
        };
        nested = words;
        mask_at = usize::try_from(words[0]).unwrap_or(0);
        keeper.keep(mask_at, 8);
    }
    if mask_at != 0 {
        let Some(wanted) = program_memory::read::<u64>(mask_at) else {
            return keeper.record.cancellation.call(number, args);
        };
        mask = wanted & !OURS;
        given = Some(wanted);
        if at == 5 {
            nested[0] = (&raw const mask) as u64;
            args[5] = nested.as_ptr() as usize;
        } else {
            args[at] = (&raw const mask) as usize;
        }
    }
    let call = || keeper.record.cancellation.call(number, args);
    let (state, record) = (keeper.state, keeper.record);
    match (number, given) {
        (nr::SIGNALFD | nr::SIGNALFD4, _) | (_, None) => call(),
        (_, Some(set)) => masks::during(state, record, set, call),
    }
}
