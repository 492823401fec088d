//! Each call to whoever answers it.

use super::advise;
use crate::cancel;
use crate::life::{descriptors, end, leave, masks, process, signals};
use crate::memory::space;
use crate::raw::{self, OURS, err, is_error, nr};
use crate::seen::frame::{self, Frame};
use crate::seen::pinning::Keeper;
use crate::seen::{stack, table, vectors};
use crate::state::{self, State};
use crate::threads;
use core::sync::atomic::Ordering;

/// Most bytes that one call moves at a time: what is moved is kept.
const PIECE: usize = 256 << 10;
/// Character devices of which bytes are read one after another, by major number: memory (zeros,
/// random bytes) and terminals. What others give and take may be records (FUSE).
const STREAMS: [u64; 11] = [1, 4, 5, 136, 137, 138, 139, 140, 141, 142, 143];
/// Most bytes that the kernel moves in a call.
const MOST: usize = 0x7fff_f000;
/// End of the addresses that a program has.
const END: usize = 1 << 47;
const S_IFCHR: u64 = 0x2000;
const S_IFBLK: u64 = 0x6000;
const S_IFREG: u64 = 0x8000;
const S_IFSOCK: u64 = 0xc000;
const F_DUPFD: usize = 0;
const F_DUPFD_CLOEXEC: usize = 1030;
const CLONE_FILES: usize = 0x400;
const SOL_SOCKET: usize = 1;
const SO_TYPE: usize = 3;
const SOCK_STREAM: u32 = 1;
const PR_SET_SECCOMP: usize = 22;
const PR_SET_MM: usize = 35;
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const ARCH_SET_FS: usize = 0x1002;

/// Makes the call of `frame`; returns its result.
pub(crate) fn dispatch(frame: &mut Frame) -> isize {
    let state = state::get();
    let (number, cancellable) = cancel::unmarked(frame.rax);
    frame.rax = number;
    let number = number & 0xffff_ffff;
    let args = table::narrowed(number, frame.args());
    if leave::is_aside(state, number) {
        return raw::for_program(number, args);
    }
    let Some(record) = threads::current() else {
        return raw::for_program(number, args);
    };
    let stack = frame.stack;
    let in_handler = record.is_on_signal_stack(stack);
    record.pinned.drop_stale(stack, in_handler);
    let depth = record.pinned.depth();
    let keeper = Keeper {
        state,
        record,
        stack,
        in_handler,
    };
    stack::keep(&keeper);
    if !in_handler {
        state.follow_high(number);
    }
    // (What a signal's handler interrupts is what it was when it returns.)
    let before = record.cancellation.set_within(cancellable);
    let result = route(&keeper, frame, number, args);
    record.cancellation.set_within(before);
    record.pinned.cut(depth);
    result
}

fn route(keeper: &Keeper<'_>, frame: &mut Frame, number: usize, args: [usize; 6]) -> isize {
    let (state, record) = (keeper.state, keeper.record);
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
            signals::alternate(state, record, args, keeper.stack)
        }
        nr::RT_SIGPENDING => {
            keeper.keep(args[0], 8);
            masks::pending(state, record, args)
        }
        nr::RT_SIGTIMEDWAIT => take_signal(keeper, args),
        nr::RT_SIGRETURN => {
            keeper.keep(frame.stack, raw::PAGE);
            frame::return_from_signal(frame)
        }
        nr::FORK | nr::VFORK | nr::CLONE | nr::CLONE3 => process::clone(keeper, frame, number),
        nr::EXECVE | nr::EXECVEAT => end::exec(keeper, number, args),
        nr::EXIT => end::exit_thread(keeper, args),
        nr::EXIT_GROUP => end::exit(state, args),
        nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64 => transfer(keeper, number, args),
        nr::SET_ROBUST_LIST => {
            record.robust.store(args[0], Ordering::Relaxed);
            leave_to_kernel(state, args[0], args[1]);
            raw::for_program(number, args)
        }
        nr::RSEQ => {
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
        // The kernel would keep addresses that are not followed: as where it is not built in.
        nr::IO_URING_SETUP | nr::IO_SETUP | nr::VMSPLICE => err::NOSYS,
        _ => by_table_or_leave(keeper, number, args),
    }
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
        321 => keeper.keep_words_behind(args[1], args[2]),
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
        19 | 20 | 295 | 296 | 327 | 328 if keeper.state.own_memory.is_one(args[0]) => {
            keeper.keep_vectors(args[1], args[2]);
            let from = if number < 100 {
                position(args[0])
            } else {
                args[3]
            };
            keeper.keep(from, vectors::length_of(args[1], args[2]));
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

/// read and write, in pieces: a long one would keep all its pages as long as it lasts. One of
/// a file does not wait for others: its pieces are as large as memory allows. What is one
/// record is one call.
fn transfer(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> isize {
    let [fd, buffer, len, offset, ..] = args;
    if keeper.state.own_memory.is_one(fd) {
        let positioned = matches!(number, nr::PREAD64 | nr::PWRITE64);
        let from = if positioned { offset } else { position(fd) };
        keeper.keep(from, len);
    }
    // (What does not lie within a program's addresses is refused by the kernel, whole.)
    let is_refused = buffer.checked_add(len).is_none_or(|end| end > END);
    if len <= PIECE || is_refused {
        keeper.keep(buffer, len.min(PIECE));
        return keeper.record.cancellation.call(number, args);
    }
    let len = len.min(MOST);
    // A read of anything but a file or a device may end at any length; a write goes on as long
    // as it would.
    let (kind, major) = kind_of(fd);
    let is_file = matches!(kind, S_IFREG | S_IFBLK);
    let goes_on = matches!(number, nr::WRITE | nr::PWRITE64) || is_file || kind == S_IFCHR;
    let largest = match kind {
        S_IFREG | S_IFBLK => {
            let share = (keeper.state.options.high << raw::SHIFT) / 16;
            PIECE.max(share & !(raw::PAGE - 1))
        }
        S_IFSOCK if !is_stream(fd) => len,
        S_IFCHR if !STREAMS.contains(&major) => len,
        _ => PIECE,
    };
    let depth = keeper.record.pinned.depth();
    let mut done = 0;
    loop {
        let piece = (len - done).min(largest);
        if done > 0 && is_at_limit(number, fd, offset.wrapping_add(done), kind) {
            // (As one write it would have ended here, without a signal.)
            return done.cast_signed();
        }
        keeper.keep(buffer + done, piece);
        let part = [fd, buffer + done, piece, offset.wrapping_add(done), 0, 0];
        let result = keeper.record.cancellation.call(number, part);
        keeper.record.pinned.cut(depth);
        if is_error(result) {
            return if done > 0 { done.cast_signed() } else { result };
        }
        done += result.cast_unsigned();
        if result.cast_unsigned() < piece || done == len || !goes_on {
            return done.cast_signed();
        }
    }
}

/// Whether a file may not grow beyond what has been written of it: the next write would be refused, and
/// the process told so by a signal. `at`: where pwrite64 would go on.
fn is_at_limit(number: usize, fd: usize, at: usize, kind: u64) -> bool {
    const FSIZE: usize = 1;
    let mut limit = [u64::MAX; 2];
    let into = limit.as_mut_ptr() as usize;
    if kind != S_IFREG || raw::own(nr::GETRLIMIT, [FSIZE, into, 0]) != 0 || limit[0] == u64::MAX {
        return false;
    }
    match number {
        nr::PWRITE64 => at as u64 >= limit[0],
        nr::WRITE => position(fd) as u64 >= limit[0],
        _ => false,
    }
}

/// The kind of file that a descriptor is of, as the mode says it (0 for none), and of a device
/// its major number.
fn kind_of(fd: usize) -> (u64, u64) {
    let mut about = [0_u64; 18];
    let at = about.as_mut_ptr() as usize;
    if raw::own(nr::FSTAT, [fd, at, 0]) != 0 {
        return (0, 0);
    }
    let device = about[5];
    (
        about[3] & 0xf000,
        device >> 8 & 0xfff | device >> 32 & !0xfff,
    )
}

/// Where a descriptor would read on.
fn position(fd: usize) -> usize {
    const CURRENT: usize = 1;
    raw::own(nr::LSEEK, [fd, 0, CURRENT]).cast_unsigned()
}

/// Whether a socket has no records.
fn is_stream(fd: usize) -> bool {
    let (mut kind, mut len) = (0_u32, 4_u32);
    let into = [(&raw mut kind) as usize, (&raw mut len) as usize];
    // SAFETY: two words of this frame.
    let asked = unsafe {
        raw::call(
            nr::GETSOCKOPT,
            [fd, SOL_SOCKET, SO_TYPE, into[0], into[1], 0],
        )
    };
    asked == 0 && kind == SOCK_STREAM
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
    match raw::read::<u64>(args[0]) {
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
        let Some(words) = raw::read::<[u64; 2]>(mask_at) else {
            return keeper.record.cancellation.call(number, args);
        };
        nested = words;
        mask_at = usize::try_from(words[0]).unwrap_or(0);
        keeper.keep(mask_at, 8);
    }
    if mask_at != 0 {
        let Some(wanted) = raw::read::<u64>(mask_at) else {
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
