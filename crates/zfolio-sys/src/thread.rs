//! Threads of the manager inside somebody else's program.
//!
//! Made with the bare clone call: libc does not know them, so they must not
//! use libc. Each has its own stack (with a guard page below it) and a thread
//! control block that holds just what compiled C code expects at `%fs:0` and
//! `%fs:0x28`; all signals are blocked; and it drops the program's descriptor
//! table for one of its own, so that a program that closes every descriptor
//! cannot close ours, and we keep none of its pipes open. A tracer that follows
//! threads as they are made (strace -f, proot, gdb that started the program) does
//! not get these: what it reads of memory that is out, they bring.

use crate::arena::{map_private, name_mapping};
use crate::lock::Mutex;
use crate::own_threads;
use crate::procfs::File;
use crate::syscall::{Errno, nr, syscall};
use core::arch::asm;

mod clock;
mod names;
mod scheduling;

pub(crate) use clock::now_ns_of_system;
pub use clock::{Clock, now_ns, read_clocks_by_calls};
pub use names::{has_ended, id, name, parent_pid, pid, set_name};
pub use scheduling::{Affinity, ask_for_low_latency, processor, processors, sleep_exactly};

const PAGE: usize = 4096;
const CLONE_FLAGS: usize = 0x100 // VM
    | 0x400 // FILES: left again by `own_descriptors`
    | 0x800 // SIGHAND
    | 0x1_0000 // THREAD
    | 0x4_0000 // SYSVSEM
    | 0x8_0000 // SETTLS
    | 0x80_0000; // UNTRACED: a tracer of the thread that makes it does not get it
const SIG_SETMASK: usize = 2;
const CLOSE_RANGE_UNSHARE: usize = 2;
/// Bytes kept at the top of the stack mapping for the control block.
const CONTROL_BLOCK: usize = 256;

/// Signals that somebody has sent to one thread and no other, and which it blocks.
#[derive(Debug)]
pub struct OwnSignals(Option<File>);

impl OwnSignals {
    /// Of the calling thread. (Where /proc cannot be read none are found.)
    #[must_use]
    pub fn open() -> Self {
        Self(File::open(c"/proc/thread-self/status").ok())
    }

    /// One of them. (By a pread, which the manager makes anyway: see
    /// [`LastThread`](crate::own_threads::LastThread).)
    #[must_use]
    pub fn pending(&self) -> Option<u32> {
        let mut status = [0; 4096];
        let read = self.0?.read_at(&mut status, 0).ok()?;
        let mut lines = status[..read].split(|byte| *byte == b'\n');
        let own = lines.find_map(|line| line.strip_prefix(b"SigPnd:\t"))?;
        let own = u64::from_str_radix(core::str::from_utf8(own).ok()?, 16).ok()?;
        (own != 0).then(|| own.trailing_zeros() + 1)
    }
}

/// The signals that a thread blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct SignalMask(u64);

impl SignalMask {
    /// Blocks all signals in the calling thread; what it blocked before.
    pub fn block_all() -> Self {
        Self(u64::MAX).exchange()
    }

    /// Makes it the calling thread's.
    pub fn apply(self) {
        let _ = self.exchange();
    }

    fn exchange(self) -> Self {
        let mut before = 0_u64;
        let (new, old) = ((&raw const self.0) as usize, (&raw mut before) as usize);
        // SAFETY: both masks are eight bytes.
        let _ = unsafe { syscall(nr::RT_SIGPROCMASK, [SIG_SETMASK, new, old, 8, 0, 0]) };
        Self(before)
    }

    /// As the kernel has it: bit n - 1 for signal n.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// See [`Self::bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A stack for a manager thread.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    base: usize,
    len: usize,
}

impl Stack {
    /// Maps a stack of `len` bytes (a multiple of the page size) and a guard.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(len: usize) -> Result<Self, Errno> {
        let base = map_private(len + PAGE)?;
        name_mapping(base, len + PAGE, c"zfolio stack");
        // SAFETY: our own fresh mapping; the lowest page becomes the guard.
        unsafe { syscall(nr::MPROTECT, [base, PAGE, 0, 0, 0, 0]) }?;
        Ok(Self {
            base: base + PAGE,
            len,
        })
    }

    /// The addresses of the stack, guard included.
    #[must_use]
    pub const fn range(&self) -> core::ops::Range<usize> {
        self.base - PAGE..self.base + self.len
    }
}

/// A stack for calls that must not depend on what is left of the caller's own,
/// as in a signal handler. One call at a time.
pub struct CallStack(Mutex<Stack>);

impl CallStack {
    /// Maps one of `len` bytes (a multiple of the page size).
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map(len: usize) -> Result<Self, Errno> {
        Stack::map(len).map(|stack| Self(Mutex::new(stack)))
    }

    /// Calls `f` on it. A panic in `f` ends the process.
    pub fn call<F: FnOnce() -> R, R>(&self, f: F) -> R {
        call_on(&self.0.lock(), f)
    }
}

/// Calls `f` on `stack`, which the caller has to itself.
fn call_on<F: FnOnce() -> R, R>(stack: &Stack, f: F) -> R {
    extern "C" fn enter<F: FnOnce() -> R, R>(frame: *mut Frame<F, R>) {
        // SAFETY: the frame below, which lives until the call has returned.
        let frame = unsafe { &mut *frame };
        frame.result = frame.f.take().map(|f| f());
    }
    struct Frame<F, R> {
        f: Option<F>,
        result: Option<R>,
    }
    let mut frame = Frame {
        f: Some(f),
        result: None,
    };
    let top = stack.base + stack.len - CONTROL_BLOCK;
    // SAFETY: r12 is kept by the callee, so the old stack pointer comes back;
    // everything else a call may change is named; `top` is aligned to 16.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {enter}",
            "mov rsp, r12",
            top = in(reg) top,
            enter = in(reg) enter::<F, R> as extern "C" fn(*mut Frame<F, R>),
            in("rdi") &raw mut frame,
            out("r12") _,
            clobber_abi("C"),
        );
    }
    match frame.result {
        Some(result) => result,
        None => unreachable!("the call has returned"),
    }
}

/// Starts a thread that runs `entry(arg)` on `stack` and then ends.
///
/// # Errors
/// What clone returned.
///
/// # Safety
/// Nobody else uses `stack` until the thread has ended; `entry` must not use
/// libc facilities that need thread-local storage, and must not unwind.
pub unsafe fn spawn(stack: &Stack, entry: extern "C" fn(usize), arg: usize) -> Result<u32, Errno> {
    #[cfg(debug_assertions)]
    crate::syscall::planned_failure(nr::CLONE, &[0; 6])?;
    let top = stack.base + stack.len - CONTROL_BLOCK;
    // SAFETY: inside our own stack mapping, which nobody else uses yet.
    unsafe {
        let block = top as *mut usize;
        block.write(top); // %fs:0, the block's own address
        block.add(5).write(0x5a66_6f6c_696f_00ff); // %fs:0x28, stack protector
        let frame = (top - 16) as *mut usize;
        frame.write(entry as usize);
        frame.add(1).write(arg);
    }
    // The new thread inherits the mask; the caller's is put back below.
    let signals = SignalMask::block_all();
    let tid: isize;
    // SAFETY: the parent's side returns like any system call. The child's
    // side starts on the fresh stack, pops what was put there, and never
    // returns into this function.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "pop rax",
            "pop rdi",
            "call rax",
            "mov eax, 60",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            inlateout("rax") nr::CLONE.cast_signed() => tid,
            in("rdi") CLONE_FLAGS,
            in("rsi") top - 16,
            in("rdx") 0,
            in("r10") 0,
            in("r8") top,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    signals.apply();
    if tid < 0 {
        return Err(Errno(i32::try_from(-tid).unwrap_or(0)));
    }
    own_threads::made(pid());
    Ok(u32::try_from(tid).unwrap_or(0))
}

/// What a manager thread runs: for ever, with the value and number it was
/// given and the addresses of its own stack.
pub type Life<T> = fn(&'static T, usize, core::ops::Range<usize>) -> !;

struct Start<T: 'static> {
    value: &'static T,
    index: usize,
    stack: Stack,
    life: Life<T>,
}

/// Starts a thread that runs `life(value, index, stack)` on a new stack of
/// `stack_len` bytes; returns the addresses of the stack.
///
/// `life` must not use libc facilities that need thread-local storage.
///
/// # Errors
/// What mapping the stack or clone returned.
pub fn spawn_with<T: Sync>(
    stack_len: usize,
    value: &'static T,
    index: usize,
    life: Life<T>,
) -> Result<core::ops::Range<usize>, Errno> {
    extern "C" fn enter<T: 'static>(arg: usize) {
        // SAFETY: `arg` is the address of the Start below, written before the
        // thread was made and not touched by anybody else.
        let start = unsafe { &*(arg as *const Start<T>) };
        (start.life)(start.value, start.index, start.stack.range())
    }
    let stack = Stack::map(stack_len)?;
    // The lowest bytes of the stack hold what the thread starts with.
    let start = stack.base as *mut Start<T>;
    // SAFETY: our own fresh mapping, aligned to a page; the thread's stack
    // grows down towards it from far above.
    unsafe {
        start.write(Start {
            value,
            index,
            stack,
            life,
        });
        spawn(&stack, enter::<T>, start as usize)?;
    }
    Ok(stack.range())
}

/// Gives the calling thread an empty descriptor table of its own, and has it
/// stand in the root directory: the program may want to unmount the one it
/// started in.
///
/// The kernel copies nothing that lies in the closed range, so no file of the
/// program is referenced even for a moment.
///
/// # Errors
/// `NOSYS`-like errors before Linux 5.9.
pub fn own_descriptors() -> Result<(), Errno> {
    // SAFETY: affects only this thread's table, which is being replaced.
    unsafe {
        syscall(
            nr::CLOSE_RANGE,
            [0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0, 0, 0],
        )
    }?;
    // SAFETY: a NUL-terminated path; threads of ours share no directory with the
    // program's.
    let _ = unsafe { syscall(nr::CHDIR, [c"/".as_ptr() as usize, 0, 0, 0, 0, 0]) };
    crate::limits::forget_reserve();
    Ok(())
}

/// Ends the calling thread, one of ours, and nothing else.
pub fn exit_thread() -> ! {
    own_threads::ends(pid());
    loop {
        // SAFETY: does not return; the stack stays mapped.
        let _ = unsafe { syscall(nr::EXIT, [0; 6]) };
    }
}

/// Lets another thread run.
pub fn yield_now() {
    // SAFETY: no arguments.
    let _ = unsafe { syscall(nr::SCHED_YIELD, [0; 6]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_to_this_thread_alone_is_seen_while_it_is_blocked() {
        const TGKILL: usize = 234;
        const RT_SIGTIMEDWAIT: usize = 128;
        const SIGUSR1: usize = 10;
        let mask = SignalMask::block_all();
        assert_eq!(OwnSignals::open().pending(), None);
        let me = id() as usize;
        // SAFETY: a signal that is blocked here.
        unsafe { syscall(TGKILL, [pid() as usize, me, SIGUSR1, 0, 0, 0]) }.expect("sent");
        assert_eq!(OwnSignals::open().pending(), Some(10));
        let (set, now) = (1_u64 << (SIGUSR1 - 1), [0_u64; 2]);
        let args = [
            (&raw const set) as usize,
            0,
            (&raw const now) as usize,
            8,
            0,
            0,
        ];
        // SAFETY: takes the signal; all of it outlives the call.
        assert_eq!(unsafe { syscall(RT_SIGTIMEDWAIT, args) }, Ok(SIGUSR1));
        assert_eq!(OwnSignals::open().pending(), None);
        mask.apply();
    }

    #[test]
    fn a_call_on_another_stack_returns_what_it_found() {
        let stack = CallStack::map(64 << 10).expect("a mapping");
        let range = stack.0.lock().range();
        let here = 0_u8;
        let add = 40;
        let (sum, there) = stack.call(|| {
            let local = 2;
            (
                add + core::hint::black_box(local),
                (&raw const local) as usize,
            )
        });
        assert_eq!(sum, 42);
        assert!(range.contains(&there));
        assert!(!range.contains(&((&raw const here) as usize)));
    }
}
