//! Raw system calls: no libc, no errno in thread-local storage.

use core::arch::asm;

/// An error number as the kernel returned it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Operation not permitted.
    pub const PERM: Self = Self(1);
    /// No such file, mapping or range.
    pub const NOENT: Self = Self(2);
    /// The target process is gone.
    pub const SRCH: Self = Self(3);
    /// Interrupted.
    pub const INTR: Self = Self(4);
    /// The device failed.
    pub const IO: Self = Self(5);
    /// Try again.
    pub const AGAIN: Self = Self(11);
    /// Out of memory.
    pub const NOMEM: Self = Self(12);
    /// `EACCES`.
    pub const ACCES: Self = Self(13);
    /// Busy.
    pub const BUSY: Self = Self(16);
    /// Exists already.
    pub const EXIST: Self = Self(17);
    /// Is a directory.
    pub const ISDIR: Self = Self(21);
    /// Invalid argument.
    pub const INVAL: Self = Self(22);
    /// Too many users.
    pub const USERS: Self = Self(87);
    /// No descriptor is free.
    pub const MFILE: Self = Self(24);
    /// No such request on this descriptor.
    pub const NOTTY: Self = Self(25);
    /// A file would be too large.
    pub const FBIG: Self = Self(27);
    /// No space is left.
    pub const NOSPC: Self = Self(28);
    /// Nobody at the other end.
    pub const PIPE: Self = Self(32);
    /// Not supported.
    pub const OPNOTSUPP: Self = Self(95);
    /// Timed out.
    pub const TIMEDOUT: Self = Self(110);
}

/// Who answers the calls by which pages are moved and looked at: [`Linux`], or in a test what
/// stands in for it. What makes such calls is generic over this, so it costs nothing.
pub trait Kernel: Copy + Eq + core::fmt::Debug + 'static {
    /// Makes system call `number` with `args`.
    ///
    /// # Errors
    /// What the kernel returned, when it was an error number.
    ///
    /// # Safety
    /// Whatever the call itself demands of its arguments.
    unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno>;
}

/// The kernel that this process runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linux;

impl Kernel for Linux {
    #[inline]
    unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
        // SAFETY: by contract.
        unsafe { syscall(number, args) }
    }
}

/// The numbers of the calls used, x86-64.
#[allow(missing_docs)]
pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const POLL: usize = 7;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const PWRITE64: usize = 18;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    pub const MINCORE: usize = 27;
    pub const MADVISE: usize = 28;
    pub const PROCESS_MADVISE: usize = 440;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const CLONE: usize = 56;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const PTRACE: usize = 101;
    pub const KILL: usize = 62;
    pub const CHDIR: usize = 80;
    pub const UNLINK: usize = 87;
    pub const GETRUSAGE: usize = 98;
    pub const GETPPID: usize = 110;
    pub const SETSOCKOPT: usize = 54;
    pub const FCNTL: usize = 72;
    pub const MSEAL: usize = 462;
    pub const VMSPLICE: usize = 278;
    pub const PWRITEV2: usize = 328;
    pub const SETPRIORITY: usize = 141;
    pub const MLOCK: usize = 149;
    pub const MUNLOCK: usize = 150;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const GETCPU: usize = 309;
    pub const CLOCK_GETTIME: usize = 228;
    pub const TGKILL: usize = 234;
    pub const EXIT_GROUP: usize = 231;
    pub const NEWFSTATAT: usize = 262;
    pub const PPOLL: usize = 271;
    pub const UNSHARE: usize = 272;
    pub const FALLOCATE: usize = 285;
    pub const PRLIMIT64: usize = 302;
    pub const SETNS: usize = 308;
    pub const SCHED_SETATTR: usize = 314;
    pub const GETRANDOM: usize = 318;
    pub const USERFAULTFD: usize = 323;
    pub const PIDFD_OPEN: usize = 434;
    pub const CLOSE_RANGE: usize = 436;
    pub const PIDFD_GETFD: usize = 438;
}

/// Makes system call `number` with `args`; returns what the kernel did. Never made to fail
/// for a test, as [`syscall`] may be.
///
/// # Safety
/// Whatever the call itself demands of its arguments.
#[inline(always)]
pub unsafe fn bare(number: usize, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel clobbers only rax, rcx and r11; the caller vouches
    // for what the call does with its arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes system call `number` with `args`.
///
/// # Errors
/// What the kernel returned, when it was an error number.
///
/// # Safety
/// Whatever the call itself demands of its arguments.
#[inline]
pub unsafe fn syscall(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    #[cfg(debug_assertions)]
    planned_failure(number, &args)?;
    // SAFETY: by contract.
    let ret = unsafe { bare(number, args) };
    if (-4095..0).contains(&ret) {
        #[allow(clippy::cast_possible_truncation)]
        return Err(Errno(-ret as i32));
    }
    Ok(ret.cast_unsigned())
}

/// Says what a call is to fail with, if it is.
#[cfg(debug_assertions)]
pub(crate) type Fails = fn(number: usize, args: &[usize; 6]) -> Option<Errno>;

/// Address of the [`Fails`] that says so, once there is a plan; 0: every call is made.
#[cfg(debug_assertions)]
static FAILS: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// Has every call ask first whether it is to fail.
#[cfg(debug_assertions)]
pub(crate) fn ask_whether_it_fails(fails: Fails) {
    FAILS.store(fails as usize, core::sync::atomic::Ordering::Release);
}

/// Whether a call is made; an error, if it is to fail.
///
/// # Errors
/// What it is to fail with.
#[cfg(debug_assertions)]
pub(crate) fn planned_failure(number: usize, args: &[usize; 6]) -> Result<(), Errno> {
    let at = FAILS.load(core::sync::atomic::Ordering::Acquire);
    if at == 0 {
        return Ok(());
    }
    // SAFETY: only `ask_whether_it_fails` stores anything, and that is such a function.
    let fails = unsafe { core::mem::transmute::<usize, Fails>(at) };
    fails(number, args).map_or(Ok(()), Err)
}
