//! A thread of another process that this thread traces, for a moment.
//!
//! The kernel lets the same user trace what it may dump, and CAP_SYS_PTRACE everything: who may do
//! this may read and write that process anyway. All calls are of the thread that seized it. If that
//! thread ends the kernel lets the tracee go as it is.

use crate::lock::pause;
use crate::syscall::{Errno, nr, syscall};
use crate::thread::{Clock, now_ns};

const SEIZE: usize = 0x4206;
const INTERRUPT: usize = 0x4207;
const GETSIGMASK: usize = 0x420a;
const SETSIGMASK: usize = 0x420b;
const GET_RSEQ: usize = 0x420f;
const PEEK: usize = 2;
const CONT: usize = 7;
const GETREGS: usize = 12;
const SETREGS: usize = 13;
const DETACH: usize = 17;
const SYSCALL: usize = 24;
/// A stop at a system call is told apart from a signal.
const SYSGOOD: usize = 1;
const EVENT_STOP: u32 = 128;
const SIGTRAP: u32 = 5;
const NOHANG: usize = 1;
const WALL: usize = 0x4000_0000;
/// Between two looks whether it has stopped, ns.
const LOOK_NS: u64 = 100_000;

/// Registers, in the order of the kernel's `user_regs_struct`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Registers([u64; 27]);

impl Registers {
    const RAX: usize = 10;
    const ORIGINAL: usize = 15;
    const PROGRAM_COUNTER: usize = 16;
    const FLAGS: usize = 18;
    /// Trap and direction.
    const ODD_FLAGS: u64 = 0x500;

    /// What the last system call has returned.
    #[must_use]
    pub const fn result(&self) -> i64 {
        self.0[Self::RAX].cast_signed()
    }

    /// Whether the thread is in a system call.
    #[must_use]
    pub const fn is_in_call(&self) -> bool {
        self.0[Self::ORIGINAL].cast_signed() >= 0
    }

    /// These, going on at `address`, in no system call.
    #[must_use]
    pub const fn at(&self, address: u64) -> Self {
        let mut other = *self;
        other.0[Self::PROGRAM_COUNTER] = address;
        other.0[Self::ORIGINAL] = u64::MAX;
        other.0[Self::FLAGS] &= !Self::ODD_FLAGS;
        other
    }
}

/// Why it has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It was asked to, or its process is stopped.
    Asked,
    /// It enters or leaves a system call.
    Call,
    /// It is to get this signal.
    Signal(u32),
}

/// A thread that is traced. Dropped, it is let go, with what it has then.
#[derive(Debug)]
pub struct Tracee {
    thread: usize,
    /// It is stopped, by what is known.
    stopped: bool,
}

fn ptrace(request: usize, thread: usize, address: usize, data: usize) -> Result<usize, Errno> {
    // SAFETY: requests of this file: what they write is a value of the caller's frame, of the
    // size that the request has.
    unsafe { syscall(nr::PTRACE, [request, thread, address, data, 0, 0]) }
}

impl Tracee {
    /// Begins to trace a thread.
    ///
    /// # Errors
    /// `PERM`: we may not, or somebody does already; `SRCH`: there is none.
    pub fn seize(thread: u32) -> Result<Self, Errno> {
        let thread = thread as usize;
        ptrace(SEIZE, thread, 0, SYSGOOD)?;
        Ok(Self {
            thread,
            stopped: false,
        })
    }

    /// Asks it to stop.
    ///
    /// # Errors
    /// It is gone.
    pub fn interrupt(&self) -> Result<(), Errno> {
        ptrace(INTERRUPT, self.thread, 0, 0).map(drop)
    }

    /// Has it stopped, whatever it does.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn stop(&mut self, within: u64) -> Result<(), Errno> {
        if self.stopped {
            return Ok(());
        }
        self.interrupt()?;
        self.wait(within).map(drop)
    }

    /// Waits until it stops, but no longer than `within` ns.
    ///
    /// # Errors
    /// `TIMEDOUT`; `SRCH`: it has ended.
    pub fn wait(&mut self, within: u64) -> Result<Stop, Errno> {
        let until = now_ns(Clock::Monotonic) + within;
        loop {
            let mut status = 0_u32;
            let args = [
                self.thread,
                (&raw mut status) as usize,
                NOHANG | WALL,
                0,
                0,
                0,
            ];
            // SAFETY: writes to `status` alone.
            match unsafe { syscall(nr::WAIT4, args) } {
                Ok(0) | Err(Errno::INTR) if now_ns(Clock::Monotonic) > until => {
                    return Err(Errno::TIMEDOUT);
                }
                Ok(0) | Err(Errno::INTR) => pause(LOOK_NS),
                Ok(_) if status & 0xff == 0x7f => {
                    self.stopped = true;
                    let signal = status >> 8 & 0xff;
                    return Ok(match (status >> 16, signal) {
                        (EVENT_STOP, _) => Stop::Asked,
                        (_, signal) if signal == SIGTRAP | 0x80 => Stop::Call,
                        (_, signal) => Stop::Signal(signal),
                    });
                }
                Ok(_) | Err(_) => return Err(Errno::SRCH),
            }
        }
    }

    /// Lets it go on, with a signal unless that is 0.
    ///
    /// # Errors
    /// It is gone.
    pub fn go_on(&mut self, signal: u32) -> Result<(), Errno> {
        self.stopped = false;
        ptrace(CONT, self.thread, 0, signal as usize).map(drop)
    }

    /// Lets it go on until it enters or leaves a system call.
    ///
    /// # Errors
    /// It is gone.
    pub fn go_to_call(&mut self) -> Result<(), Errno> {
        self.stopped = false;
        ptrace(SYSCALL, self.thread, 0, 0).map(drop)
    }

    /// Its registers, while it is stopped.
    ///
    /// # Errors
    /// It is not, or is gone.
    pub fn registers(&self) -> Result<Registers, Errno> {
        let mut registers = Registers([0; 27]);
        ptrace(GETREGS, self.thread, 0, (&raw mut registers) as usize)?;
        Ok(registers)
    }

    /// Sets them.
    ///
    /// # Errors
    /// As [`Self::registers`].
    pub fn set_registers(&self, registers: &Registers) -> Result<(), Errno> {
        let at = core::ptr::from_ref(registers) as usize;
        ptrace(SETREGS, self.thread, 0, at).map(drop)
    }

    /// The signals that it blocks, bit n - 1 for signal n.
    ///
    /// # Errors
    /// As [`Self::registers`].
    pub fn mask(&self) -> Result<u64, Errno> {
        let mut mask = 0_u64;
        ptrace(GETSIGMASK, self.thread, 8, (&raw mut mask) as usize)?;
        Ok(mask)
    }

    /// Sets them.
    ///
    /// # Errors
    /// As [`Self::registers`].
    pub fn set_mask(&self, mask: u64) -> Result<(), Errno> {
        ptrace(SETSIGMASK, self.thread, 8, (&raw const mask) as usize).map(drop)
    }

    /// Whether it may be in a sequence that the kernel is to restart if it is moved to another
    /// processor (rseq): it must not be sent elsewhere from there.
    #[must_use]
    pub fn is_in_sequence(&self) -> bool {
        // Address, size, signature, flags.
        let mut about = [0_u64; 3];
        let into = (&raw mut about) as usize;
        // (Before Linux 5.13 it cannot be told, and few have any.)
        if ptrace(GET_RSEQ, self.thread, size_of_val(&about), into).is_err() || about[0] == 0 {
            return false;
        }
        let Ok(area) = usize::try_from(about[0]) else {
            return true;
        };
        let mut sequence = 0_u64;
        let into = (&raw mut sequence) as usize;
        // The second word of it.
        ptrace(PEEK, self.thread, area + 8, into).is_ok() && sequence != 0
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // (One that goes on cannot be let go of: it is stopped for it.)
        if !self.stopped && self.interrupt().is_ok() {
            let mut signal = 0;
            if let Ok(Stop::Signal(of)) = self.wait(1_000_000_000) {
                signal = of;
            }
            let _ = ptrace(DETACH, self.thread, 0, signal as usize);
            return;
        }
        let _ = ptrace(DETACH, self.thread, 0, 0);
    }
}
