//! Bare system calls, and the only instructions here that touch memory of the program.

use core::arch::{asm, global_asm};
pub(crate) use zfolio_sys::syscall::bare as call;

pub(crate) const PAGE: usize = zfolio_mm::PAGE_SIZE;
pub(crate) const SHIFT: u32 = zfolio_mm::PAGE_SHIFT;

/// Error numbers as system calls return them, negative.
pub(crate) mod err {
    pub(crate) const PERM: isize = -1;
    pub(crate) const NO_THREAD: isize = -3;
    pub(crate) const INTR: isize = -4;
    pub(crate) const TOO_BIG: isize = -7;
    pub(crate) const BADF: isize = -9;
    pub(crate) const AGAIN: isize = -11;
    pub(crate) const NOMEM: isize = -12;
    pub(crate) const BUSY: isize = -16;
    pub(crate) const FAULT: isize = -14;
    pub(crate) const INVAL: isize = -22;
    pub(crate) const NOSYS: isize = -38;
    pub(crate) const CONNABORTED: isize = -103;
    pub(crate) const CONNRESET: isize = -104;
    pub(crate) const TIMEDOUT: isize = -110;
}

/// Numbers of the calls that are looked at by name.
#[rustfmt::skip]
pub(crate) mod nr {
    pub(crate) const READ: usize = 0;
    pub(crate) const WRITE: usize = 1;
    pub(crate) const OPEN: usize = 2;
    pub(crate) const CLOSE: usize = 3;
    pub(crate) const FSTAT: usize = 5;
    pub(crate) const POLL: usize = 7;
    pub(crate) const LSEEK: usize = 8;
    pub(crate) const MMAP: usize = 9;
    pub(crate) const MPROTECT: usize = 10;
    pub(crate) const MUNMAP: usize = 11;
    pub(crate) const BRK: usize = 12;
    pub(crate) const RT_SIGACTION: usize = 13;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const RT_SIGRETURN: usize = 15;
    pub(crate) const IOCTL: usize = 16;
    pub(crate) const PREAD64: usize = 17;
    pub(crate) const PWRITE64: usize = 18;
    pub(crate) const READV: usize = 19;
    pub(crate) const WRITEV: usize = 20;
    pub(crate) const SELECT: usize = 23;
    pub(crate) const SCHED_YIELD: usize = 24;
    pub(crate) const MREMAP: usize = 25;
    pub(crate) const MINCORE: usize = 27;
    pub(crate) const MADVISE: usize = 28;
    pub(crate) const SHMAT: usize = 30;
    pub(crate) const SHMCTL: usize = 31;
    pub(crate) const DUP: usize = 32;
    pub(crate) const DUP2: usize = 33;
    pub(crate) const PAUSE: usize = 34;
    pub(crate) const NANOSLEEP: usize = 35;
    pub(crate) const GETPID: usize = 39;
    pub(crate) const ACCEPT: usize = 43;
    pub(crate) const SENDTO: usize = 44;
    pub(crate) const RECVFROM: usize = 45;
    pub(crate) const SENDMSG: usize = 46;
    pub(crate) const GETSOCKOPT: usize = 55;
    pub(crate) const CLONE: usize = 56;
    pub(crate) const FORK: usize = 57;
    pub(crate) const VFORK: usize = 58;
    pub(crate) const EXECVE: usize = 59;
    pub(crate) const EXIT: usize = 60;
    pub(crate) const WAIT4: usize = 61;
    pub(crate) const FCNTL: usize = 72;
    pub(crate) const READLINK: usize = 89;
    pub(crate) const GETRLIMIT: usize = 97;
    pub(crate) const SYSINFO: usize = 99;
    pub(crate) const PTRACE: usize = 101;
    pub(crate) const GETUID: usize = 102;
    pub(crate) const SETUID: usize = 105;
    pub(crate) const SETGID: usize = 106;
    pub(crate) const SETREUID: usize = 113;
    pub(crate) const SETREGID: usize = 114;
    pub(crate) const SETGROUPS: usize = 116;
    pub(crate) const SETRESUID: usize = 117;
    pub(crate) const SETRESGID: usize = 119;
    pub(crate) const SETFSUID: usize = 122;
    pub(crate) const SETFSGID: usize = 123;
    pub(crate) const CAPGET: usize = 125;
    pub(crate) const CAPSET: usize = 126;
    pub(crate) const RT_SIGPENDING: usize = 127;
    pub(crate) const RT_SIGTIMEDWAIT: usize = 128;
    pub(crate) const RT_SIGSUSPEND: usize = 130;
    pub(crate) const SIGALTSTACK: usize = 131;
    pub(crate) const SETPRIORITY: usize = 141;
    pub(crate) const SCHED_SETPARAM: usize = 142;
    pub(crate) const SCHED_SETSCHEDULER: usize = 144;
    pub(crate) const MLOCK: usize = 149;
    pub(crate) const MLOCKALL: usize = 151;
    pub(crate) const PIVOT_ROOT: usize = 155;
    pub(crate) const PRCTL: usize = 157;
    pub(crate) const ARCH_PRCTL: usize = 158;
    pub(crate) const SETRLIMIT: usize = 160;
    pub(crate) const CHROOT: usize = 161;
    pub(crate) const MOUNT: usize = 165;
    pub(crate) const UMOUNT2: usize = 166;
    pub(crate) const GETTID: usize = 186;
    pub(crate) const TKILL: usize = 200;
    pub(crate) const SCHED_SETAFFINITY: usize = 203;
    pub(crate) const IO_SETUP: usize = 206;
    pub(crate) const SET_TID_ADDRESS: usize = 218;
    pub(crate) const TIMER_CREATE: usize = 222;
    pub(crate) const TIMER_SETTIME: usize = 223;
    pub(crate) const TIMER_DELETE: usize = 226;
    pub(crate) const CLOCK_NANOSLEEP: usize = 230;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const EPOLL_WAIT: usize = 232;
    pub(crate) const TGKILL: usize = 234;
    pub(crate) const MQ_NOTIFY: usize = 244;
    pub(crate) const WAITID: usize = 247;
    pub(crate) const KEYCTL: usize = 250;
    pub(crate) const IOPRIO_SET: usize = 251;
    pub(crate) const PSELECT6: usize = 270;
    pub(crate) const PPOLL: usize = 271;
    pub(crate) const UNSHARE: usize = 272;
    pub(crate) const SET_ROBUST_LIST: usize = 273;
    pub(crate) const GET_ROBUST_LIST: usize = 274;
    pub(crate) const VMSPLICE: usize = 278;
    pub(crate) const EPOLL_PWAIT: usize = 281;
    pub(crate) const SIGNALFD: usize = 282;
    pub(crate) const ACCEPT4: usize = 288;
    pub(crate) const SIGNALFD4: usize = 289;
    pub(crate) const DUP3: usize = 292;
    pub(crate) const PREADV: usize = 295;
    pub(crate) const PWRITEV: usize = 296;
    pub(crate) const RT_TGSIGQUEUEINFO: usize = 297;
    pub(crate) const PRLIMIT64: usize = 302;
    pub(crate) const SETNS: usize = 308;
    pub(crate) const PROCESS_VM_READV: usize = 310;
    pub(crate) const PROCESS_VM_WRITEV: usize = 311;
    pub(crate) const SCHED_SETATTR: usize = 314;
    pub(crate) const SECCOMP: usize = 317;
    pub(crate) const GETRANDOM: usize = 318;
    pub(crate) const BPF: usize = 321;
    pub(crate) const EXECVEAT: usize = 322;
    pub(crate) const USERFAULTFD: usize = 323;
    pub(crate) const MLOCK2: usize = 325;
    pub(crate) const PREADV2: usize = 327;
    pub(crate) const PWRITEV2: usize = 328;
    pub(crate) const PKEY_MPROTECT: usize = 329;
    pub(crate) const IO_PGETEVENTS: usize = 333;
    pub(crate) const RSEQ: usize = 334;
    pub(crate) const IO_URING_SETUP: usize = 425;
    pub(crate) const MOVE_MOUNT: usize = 429;
    pub(crate) const PIDFD_OPEN: usize = 434;
    pub(crate) const CLONE3: usize = 435;
    pub(crate) const CLOSE_RANGE: usize = 436;
    pub(crate) const PROCESS_MADVISE: usize = 440;
    pub(crate) const EPOLL_PWAIT2: usize = 441;
    pub(crate) const MOUNT_SETATTR: usize = 442;
    pub(crate) const LANDLOCK_RESTRICT_SELF: usize = 446;
    pub(crate) const FUTEX_REQUEUE: usize = 456;
    pub(crate) const LSM_SET_SELF_ATTR: usize = 460;
    pub(crate) const MSEAL: usize = 462;
}

/// Instructions that load the registers of a call with the six arguments at rsi.
macro_rules! six_arguments {
    () => {
        "mov rdi, [rsi]
         mov rdx, [rsi + 16]
         mov r10, [rsi + 24]
         mov r8, [rsi + 32]
         mov r9, [rsi + 40]
         mov rsi, [rsi + 8]"
    };
}
pub(crate) use six_arguments;

// A call of the program's. rdi: the number, rsi: six arguments, rdx: the stack pointer to call with, or
// 0. The kernel puts the address of
// `zfolio_program_called` into rcx as the call begins; until then it is 0.
global_asm!(
    ".hidden zfolio_program_call",
    ".globl zfolio_program_call",
    ".hidden zfolio_program_called",
    ".globl zfolio_program_called",
    ".type zfolio_program_call, @function",
    ".p2align 4",
    "zfolio_program_call:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "mov rbx, rsp",
    ".cfi_def_cfa_register rbx",
    "test rdx, rdx",
    "cmovnz rsp, rdx",
    "mov rax, rdi",
    six_arguments!(),
    "xor ecx, ecx",
    "syscall",
    "zfolio_program_called:",
    "mov rsp, rbx",
    ".cfi_def_cfa_register rsp",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    fn zfolio_program_call(number: usize, args: *const [usize; 6], stack: usize) -> isize;
    static zfolio_program_called: u8;
}

/// A call on behalf of the program, with arguments of the program's.
pub(crate) fn for_program(number: usize, args: [usize; 6]) -> isize {
    for_program_at(0, number, args)
}

/// The same with the stack pointer `stack`, where it is not 0: where handlers of signals that come
/// meanwhile run.
pub(crate) fn for_program_at(stack: usize, number: usize, args: [usize; 6]) -> isize {
    // SAFETY: the program made this call; what it does is what it would have done. Nothing of the caller's
    // lies below `stack`.
    unsafe { zfolio_program_call(number, &raw const args, stack) }
}

/// Bytes of the instruction that makes a call.
const SYSCALL: usize = 2;

/// Whether a thread at `pc`, with that in rcx, has begun the call that `after` follows, and makes it
/// again next: a signal's handler came while it waited.
pub(crate) const fn is_made_again(pc: usize, rcx: usize, after: usize) -> bool {
    pc == after - SYSCALL && rcx == after
}

/// Behind the call of [`for_program`].
pub(crate) fn after_call() -> usize {
    &raw const zfolio_program_called as usize
}

/// A call of our own on memory that is ours, or the program's and under the core lock.
pub(crate) fn own(number: usize, args: [usize; 3]) -> isize {
    // SAFETY: callers pass addresses that they hold, as each of them says.
    unsafe { call(number, [args[0], args[1], args[2], 0, 0, 0]) }
}

/// Whether all of `range` is mapped.
pub(crate) fn is_mapped(range: &core::ops::Range<usize>) -> bool {
    const LOOKED_AT: usize = 1024;
    let mut present = [0_u8; LOOKED_AT];
    let into = present.as_mut_ptr() as usize;
    let mut parts = range.clone().step_by(LOOKED_AT * PAGE);
    parts.all(|at| {
        let len = (range.end - at).min(LOOKED_AT * PAGE);
        own(nr::MINCORE, [at, len, into]) == 0
    })
}

/// Bytes that this thread may lock in memory.
pub(crate) fn most_locked() -> usize {
    const MEMLOCK: usize = 8;
    const VERSION_3: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 1 << 14;
    let (mut limit, mut sets) = ([0_u64; 2], [0_u32; 6]);
    let head = [VERSION_3, 0];
    let sets_at = sets.as_mut_ptr() as usize;
    let may = own(nr::CAPGET, [head.as_ptr() as usize, sets_at, 0]) == 0 && sets[0] & IPC_LOCK != 0;
    let limit_at = limit.as_mut_ptr() as usize;
    if may || own(nr::GETRLIMIT, [MEMLOCK, limit_at, 0]) != 0 {
        return usize::MAX;
    }
    usize::try_from(limit[0]).unwrap_or(usize::MAX)
}

pub(crate) const fn is_error(result: isize) -> bool {
    result < 0 && result > -4096
}

/// The three signals that are ours: SIGBUS, SIGSEGV, SIGSYS.
pub(crate) const OURS: u64 = 1 << (7 - 1) | 1 << (11 - 1) | 1 << (31 - 1);

/// Sets the mask of signals of this thread; returns the one before.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut old = 0_u64;
    let (new, old_at) = ((&raw const mask) as usize, (&raw mut old) as usize);
    // SAFETY: both masks are eight bytes of this frame.
    unsafe { call(nr::RT_SIGPROCMASK, [2, new, old_at, 8, 0, 0]) };
    old
}

/// Adds to the mask of signals of this thread; returns the one before.
pub(crate) fn block(signals: u64) -> u64 {
    let mut old = 0_u64;
    let (new, old_at) = ((&raw const signals) as usize, (&raw mut old) as usize);
    // SAFETY: both masks are eight bytes of this frame.
    unsafe { call(nr::RT_SIGPROCMASK, [0, new, old_at, 8, 0, 0]) };
    old
}

/// Has none of ours blocked; which of them were.
pub(crate) fn unblock_ours() -> u64 {
    let blocked = block(0);
    if blocked & OURS != 0 {
        set_mask(blocked & !OURS);
    }
    blocked & OURS
}

/// Every signal blocked, until it is dropped. Code that runs so meets no fault: one would end
/// the process.
pub(crate) struct Blocked {
    mask: u64,
    stepping: bool,
}

impl Blocked {
    pub(crate) fn new() -> Self {
        let stepping = stop_stepping();
        let mask = set_mask(!0);
        Self { mask, stepping }
    }

    /// The mask before.
    pub(crate) const fn mask(&self) -> u64 {
        self.mask
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        set_mask(self.mask);
        if self.stepping {
            step_again();
        }
    }
}

/// The trap flag: a SIGTRAP after each instruction, which ends the process where it is blocked.
const TRAP: usize = 0x100;

/// Clears the flag, which a program may have set that looks at its own steps; whether it was.
pub(crate) fn stop_stepping() -> bool {
    let flags: usize;
    // SAFETY: reads the flags, by way of the stack.
    unsafe { asm!("pushfq", "pop {flags}", flags = out(reg) flags, options(preserves_flags)) };
    if flags & TRAP == 0 {
        return false;
    }
    // SAFETY: changes that flag alone, and those of arithmetic.
    unsafe { asm!("pushfq", "and qword ptr [rsp], {all}", "popfq", all = const !0x100_i32) };
    true
}

/// Sets it.
fn step_again() {
    // SAFETY: changes that flag alone, and those of arithmetic.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
}
