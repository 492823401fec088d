//! One record a thread: the stacks its handlers run on, what it has pinned, its own view of
//! the three signals that are ours.
//!
//! A record is claimed by the thread itself, in its beginning, and given back in its end. The
//! thread finds it by one word of thread-local storage, in the static part that the loader
//! made room for: no call, nothing resolved lazily.

use crate::pins::Pinned;
use crate::raw::{self, PAGE};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use zfolio_sys::arena::reserve_private;
use zfolio_sys::syscall::Errno;

/// Most threads at a time.
pub(crate) const MOST: usize = 2048;
/// Bytes of the stack that faults are served on.
const SERVICE: usize = 96 << 10;
/// Bytes of the signal stack of a thread that has none of its own.
const SIGNAL: usize = 96 << 10;
/// Bytes from one record to the next.
const STRIDE: usize = HEAD + SERVICE + SIGNAL;
const HEAD: usize = 2 * PAGE;

global_asm!(
    ".section .tbss.zfolio_record,\"awT\",@nobits",
    ".hidden zfolio_record",
    ".globl zfolio_record",
    ".p2align 3",
    ".type zfolio_record, @object",
    ".size zfolio_record, 8",
    "zfolio_record:",
    ".zero 8",
    ".text",
);

/// A thread's record. The first word is where the service stack begins: the handlers' entry
/// reads it.
#[repr(C)]
pub(crate) struct Record {
    pub(crate) service_top: usize,
    /// Id of the thread that has it; 0: nobody's.
    pub(crate) used: AtomicU32,
    pub(crate) pinned: Pinned,
    /// Which of the three signals that are ours the program believes blocked.
    pub(crate) masked: AtomicUsize,
    /// The program's signal stack: start, bytes (0: it has none).
    pub(crate) program_stack: [AtomicUsize; 2],
    /// Stack known not to be managed memory: start, end.
    pub(crate) plain_stack: [AtomicUsize; 2],
    /// Head of the list of robust locks.
    pub(crate) robust: AtomicUsize,
    /// Where a row of faults would go on, and how long its last window was. Pages.
    pub(crate) row: [AtomicUsize; 2],
    /// The last fault that was none of ours to serve, and how often it came.
    pub(crate) last_fault: [AtomicUsize; 2],
}

/// All records, whose memory is there when it is used.
pub(crate) struct Threads {
    base: usize,
    /// Records after which all are free.
    high: AtomicUsize,
}

impl Threads {
    pub(crate) fn reserve() -> Result<Self, Errno> {
        let range = reserve_private(MOST * STRIDE, c"zfolio threads")?;
        Ok(Self {
            base: range.start,
            high: AtomicUsize::new(0),
        })
    }

    fn at(&self, index: usize) -> &'static Record {
        // SAFETY: within the reservation, which is never unmapped; zeros are a record, and
        // all that changes in it is atomic, but for the first word, which its owner sets.
        unsafe { &*((self.base + index * STRIDE) as *const Record) }
    }

    /// Those that have been used.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Record> {
        let count = self.high.load(Ordering::SeqCst);
        (0..count)
            .map(|index| self.at(index))
            .filter(|record| record.used.load(Ordering::Relaxed) != 0)
    }

    /// Claims one for this thread; `None` when all are taken.
    pub(crate) fn claim(&self) -> Option<&'static Record> {
        let id = zfolio_sys::thread::id().max(1);
        for index in 0..MOST {
            let record = self.at(index);
            if record.used.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let free = record
                .used
                .compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_err() {
                continue;
            }
            self.high.fetch_max(index + 1, Ordering::SeqCst);
            record.reset();
            let top = self.base + index * STRIDE + HEAD + SERVICE;
            // SAFETY: the record is this thread's alone from here on.
            unsafe { (&raw const record.service_top).cast_mut().write(top) };
            set_current(core::ptr::from_ref(record));
            return Some(record);
        }
        None
    }

    /// In the child of a fork: the other threads are the parent's.
    pub(crate) fn forget_others(&self, mine: &Record) {
        for record in self.all() {
            if !core::ptr::eq(record, mine) {
                record.used.store(0, Ordering::Relaxed);
            }
        }
        mine.used
            .store(zfolio_sys::thread::id().max(1), Ordering::Relaxed);
    }
}

impl Record {
    fn reset(&self) {
        self.pinned.clear();
        self.masked.store(0, Ordering::Relaxed);
        self.robust.store(0, Ordering::Relaxed);
        for word in self
            .program_stack
            .iter()
            .chain(&self.plain_stack)
            .chain(&self.row)
            .chain(&self.last_fault)
        {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Gives it back: the thread ends.
    pub(crate) fn release(&self) {
        self.pinned.clear();
        self.used.store(0, Ordering::Release);
    }

    /// The signal stack of ours: start, bytes.
    pub(crate) fn signal_stack(&self) -> (usize, usize) {
        (self.service_top, SIGNAL)
    }

    /// Whether `address` lies on the stack that signals are handled on now.
    pub(crate) fn is_on_signal_stack(&self, address: usize) -> bool {
        let (start, len) = match self.program_stack[1].load(Ordering::Relaxed) {
            0 => self.signal_stack(),
            len => (self.program_stack[0].load(Ordering::Relaxed), len),
        };
        address.wrapping_sub(start) < len
    }

    /// Has the kernel use our signal stack.
    pub(crate) fn use_own_signal_stack(&self) {
        let (start, len) = self.signal_stack();
        let stack = [start as u64, 0, len as u64];
        // SAFETY: one stack_t of this frame, naming memory that is never unmapped.
        unsafe {
            raw::call(
                raw::nr::SIGALTSTACK,
                [stack.as_ptr() as usize, 0, 0, 0, 0, 0],
            )
        };
    }
}

/// The record of this thread, if it has one.
#[inline(always)]
pub(crate) fn current() -> Option<&'static Record> {
    let record: *const Record;
    // SAFETY: reads a word of this thread's static thread-local storage, which is null or a
    // record.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + zfolio_record@GOTTPOFF]",
            "mov {at}, qword ptr fs:[{at}]",
            at = out(reg) record,
            options(nostack, readonly, preserves_flags),
        );
        record.as_ref()
    }
}

/// The thread ends: it has no record any more.
pub(crate) fn forget_current() {
    set_current(core::ptr::null());
}

fn set_current(record: *const Record) {
    // SAFETY: writes that word.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + zfolio_record@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {record}",
            at = out(reg) _,
            record = in(reg) record,
            options(nostack),
        );
    }
}
