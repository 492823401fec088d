//! One record for each thread: the stacks its handlers run on, what it has pinned, and which of the
//! three signals that are ours it believes blocked.
//!
//! A thread that makes another takes the record for it; the thread gives it back when it ends. It
//! finds its record by one word of thread-local storage, in the static part that the loader
//! made room for: no call, nothing resolved lazily.
//!
//! The service stack is for handlers of ours, for what is done under a lock, and for a
//! thread's beginning. All signals are blocked there, so that only one of them is on it.

use crate::call_stacks::{self, CallStacks};
use crate::cancel::Cancellation;
use crate::pins::Pinned;
use crate::raw::{self, PAGE};
use crate::signal::of_thread::OfThread;
use crate::signal::pieces::Pieces;
use crate::store_wait::StoreWait;
use core::arch::{asm, global_asm};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use zfolio_sys::arena::reserve_private;
use zfolio_sys::syscall::Errno;

/// Most threads at a time.
pub(crate) const MOST: usize = 2048;
/// Bytes of the service stack.
const SERVICE: usize = 96 << 10;
/// Bytes of the signal stack of a thread that has none of its own.
const SIGNAL: usize = 96 << 10;
/// From a record to the stacks that calls are answered on, bytes.
const CALLS_AT: usize = HEAD + SERVICE + SIGNAL;
/// From a record to the slot of the first of them, bytes: the entry looks for it.
pub(crate) const FIRST_SLOT: usize = CALLS_AT + call_stacks::FIRST_SLOT;
/// Bytes from one record to the next.
const STRIDE: usize = CALLS_AT + call_stacks::COUNT * call_stacks::SIZE;
const HEAD: usize = 2 * PAGE;
/// Of so many faults of a thread one is timed: asking for the time is a system call.
pub(crate) const TIMED: u32 = 8;
/// In [`Record::used`]: taken for a thread that has not begun.
const RESERVED: u32 = u32::MAX;

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
    pub(crate) signals: OfThread,
    pub(crate) stacks: Stacks,
    /// Address of a `Mutex<Signals>`: what the child of posix_spawn that lives on this record
    /// does with signals; 0: there is none.
    pub(crate) spawned: AtomicUsize,
    pub(crate) cancellation: Cancellation,
    pub(crate) pieces: Pieces,
    pub(crate) calls: Calls,
    pub(crate) ticks: Ticks,
    pub(crate) faults: Faults,
}

/// How many system calls a thread has made, and of how many `memory::follow` was told. Only the thread itself
/// writes here. (A hint: one that a handler interrupts between two instructions may not count.)
#[derive(Default)]
pub(crate) struct Calls {
    made: AtomicU32,
    told: AtomicU32,
}

impl Calls {
    /// It makes one.
    pub(crate) fn note(&self) {
        let made = self.made.load(Ordering::Relaxed).wrapping_add(1);
        self.made.store(made, Ordering::Relaxed);
    }

    /// How many since the last time.
    pub(crate) fn take(&self) -> u32 {
        let made = self.made.load(Ordering::Relaxed);
        made.wrapping_sub(self.told.swap(made, Ordering::Relaxed))
    }
}

/// The timer of a thread's processor time: `life::ticks`.
#[derive(Default)]
pub(crate) struct Ticks {
    /// Its id and 1; 0: there is none.
    pub(crate) timer: AtomicU32,
    /// 1: it comes often.
    pub(crate) often: AtomicU32,
}

impl Ticks {
    /// There is none, or it is another process's.
    pub(crate) fn forget(&self) {
        self.timer.store(0, Ordering::Relaxed);
        self.often.store(0, Ordering::Relaxed);
    }
}

/// What is kept of its faults.
#[repr(C)]
pub(crate) struct Faults {
    /// So far.
    count: AtomicU32,
    /// Where a row of them would go on, and how long its last window was. Pages.
    pub(crate) row: [AtomicUsize; 2],
    /// The last that was none of ours to serve, and how often it came.
    pub(crate) last: [AtomicUsize; 2],
    /// How often what is managed had changed when the thread was last told of one on what is not.
    pub(crate) changes_seen: AtomicUsize,
    store_wait: StoreWait,
}

/// Stacks of the program's that a thread has.
#[repr(C)]
pub(crate) struct Stacks {
    /// The signal stack that handlers run on, the program's or ours: from, to. The entry reads it.
    signals: [AtomicUsize; 2],
    /// One of the program's that is too small, instead of which the kernel has ours: where, bytes; 0: none.
    pub(crate) small: [AtomicUsize; 2],
    /// One known not to be managed memory: see [`crate::seen::stack`].
    pub(crate) plain: [AtomicUsize; 3],
    /// The one it was made with, where calls are answered on it: from, to. The entry reads it.
    pub(crate) own: [AtomicUsize; 2],
}

/// From a record to [`Stacks::signals`], bytes.
pub(crate) const SIGNAL_STACK: usize =
    core::mem::offset_of!(Record, stacks) + core::mem::offset_of!(Stacks, signals);
/// From a record to [`Stacks::own`], bytes.
pub(crate) const OWN_STACK: usize =
    core::mem::offset_of!(Record, stacks) + core::mem::offset_of!(Stacks, own);

const _: () = assert!(size_of::<Record>() <= HEAD);

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

    /// What they have pinned.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = &'static Pinned> {
        self.all().map(|record| &record.pinned)
    }

    /// Takes one for a thread that is to begin; `None` when all are taken.
    pub(crate) fn take(&self) -> Option<&'static Record> {
        for index in 0..MOST {
            let record = self.at(index);
            if record.used.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let free =
                record
                    .used
                    .compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_err() {
                continue;
            }
            self.high.fetch_max(index + 1, Ordering::SeqCst);
            record.reset();
            let top = self.base + index * STRIDE + HEAD + SERVICE;
            // SAFETY: nobody else has the record from here on.
            unsafe { (&raw const record.service_top).cast_mut().write(top) };
            return Some(record);
        }
        None
    }

    /// The record whose service stack `address` lies on.
    pub(crate) fn by_stack(&self, address: usize) -> Option<&'static Record> {
        let offset = address.checked_sub(self.base)?;
        (offset < MOST * STRIDE).then(|| self.at(offset / STRIDE))
    }

    /// In the child of a fork: the other threads are the parent's.
    pub(crate) fn forget_others(&self, mine: &Record) {
        for record in self.all() {
            if !core::ptr::eq(record, mine) {
                record.used.store(0, Ordering::Relaxed);
            }
        }
        mine.calls.take();
        mine.ticks.forget();
        mine.used
            .store(zfolio_sys::thread::id().max(1), Ordering::Relaxed);
    }
}

impl Record {
    /// It is this thread's.
    pub(crate) fn begin(&'static self) {
        let id = zfolio_sys::thread::id().max(1);
        self.used.store(id, Ordering::Release);
        set_current(core::ptr::from_ref(self));
        self.use_own_signal_stack();
    }

    /// What it waits for from a store.
    pub(crate) const fn store_wait(&self) -> &StoreWait {
        &self.faults.store_wait
    }

    /// Id of the thread, once it has begun.
    pub(crate) fn thread(&self) -> Option<u32> {
        let id = self.used.load(Ordering::Relaxed);
        (id != 0 && id != RESERVED).then_some(id)
    }

    fn reset(&self) {
        self.pinned.clear();
        self.signals.reset();
        self.cancellation.reset();
        self.pieces.reset();
        self.calls.take();
        self.ticks.forget();
        self.spawned.store(0, Ordering::Relaxed);
        self.faults.store_wait.end();
        self.call_stacks().reset();
        for word in self
            .stacks
            .signals
            .iter()
            .chain(&self.stacks.small)
            .chain(&self.stacks.plain)
            .chain(&self.stacks.own)
            .chain(&self.faults.row)
            .chain(&self.faults.last)
            .chain([&self.faults.changes_seen])
        {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a fault of this thread; whether it is one to be timed.
    pub(crate) fn counts_another_fault(&self) -> bool {
        let before = self.faults.count.load(Ordering::Relaxed);
        self.faults
            .count
            .store(before.wrapping_add(1), Ordering::Relaxed);
        before.is_multiple_of(TIMED)
    }

    /// The stacks that calls are answered on.
    pub(crate) fn call_stacks(&self) -> CallStacks {
        // SAFETY: they lie behind the record's other stacks, in memory that is never unmapped.
        unsafe { CallStacks::at(core::ptr::from_ref(self) as usize + CALLS_AT) }
    }

    /// The stack that the thread was made with. Calls that are made on it are answered there, but for
    /// what is near its lower end.
    pub(crate) fn set_own_stack(&self, stack: &Range<usize>) {
        let from = stack.start.saturating_add(call_stacks::ROOM);
        self.stacks.own[0].store(from, Ordering::Relaxed);
        self.stacks.own[1].store(stack.end, Ordering::Relaxed);
    }

    /// Whether a call made at `stack` is answered there.
    pub(crate) fn is_on_own_stack(&self, stack: usize) -> bool {
        let [from, to] = [0, 1].map(|at: usize| self.stacks.own[at].load(Ordering::Relaxed));
        (from..=to).contains(&stack)
    }

    /// Gives it back: the thread ends.
    pub(crate) fn release(&self) {
        self.pinned.clear();
        self.used.store(0, Ordering::Release);
    }

    /// Gives it back and ends the thread, which may be on a stack of it.
    pub(crate) fn release_and_exit(&self, status: usize) -> ! {
        self.pinned.clear();
        // SAFETY: the store is the last that this thread does, but for the call, which needs no stack.
        unsafe {
            asm!(
                "mov dword ptr [rcx], 0",
                "syscall",
                "ud2",
                in("rcx") self.used.as_ptr(),
                in("rax") raw::nr::EXIT,
                in("rdi") status,
                options(noreturn, nostack),
            )
        }
    }

    /// The signal stack of ours: start, bytes.
    pub(crate) fn own_signal_stack(&self) -> (usize, usize) {
        (self.service_top, SIGNAL)
    }

    /// The one that handlers run on: from, to.
    pub(crate) fn signal_stack(&self) -> [usize; 2] {
        [0, 1].map(|at: usize| self.stacks.signals[at].load(Ordering::Relaxed))
    }

    /// Notes which one the kernel has.
    pub(crate) fn set_signal_stack(&self, [from, to]: [usize; 2]) {
        self.stacks.signals[0].store(from, Ordering::Relaxed);
        self.stacks.signals[1].store(to, Ordering::Relaxed);
    }

    /// Whether that is the program's own.
    pub(crate) fn has_signal_stack(&self) -> bool {
        self.signal_stack()[0] != self.service_top
    }

    /// Whether the program has set a signal stack, be it one that is too small to be used.
    pub(crate) fn has_set_signal_stack(&self) -> bool {
        self.has_signal_stack() || self.stacks.small[1].load(Ordering::Relaxed) != 0
    }

    /// Whether `address` lies on the stack that signals are handled on now.
    pub(crate) fn is_on_signal_stack(&self, address: usize) -> bool {
        let [from, to] = self.signal_stack();
        (from..to).contains(&address)
    }

    /// Has the kernel use our signal stack.
    pub(crate) fn use_own_signal_stack(&self) {
        let (start, len) = self.own_signal_stack();
        self.set_signal_stack([start, start + len]);
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

// rdi: what it is given, rsi: the function, rdx: where the stack ends.
global_asm!(
    ".hidden zfolio_call_on_stack",
    ".globl zfolio_call_on_stack",
    ".type zfolio_call_on_stack, @function",
    ".p2align 4",
    "zfolio_call_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdx",
    "and rsp, -16",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    fn zfolio_call_on_stack(data: *mut u8, function: unsafe extern "C" fn(*mut u8), top: usize);
}

/// Runs `f` on this thread's service stack, where the program's may be small, or closed in
/// part. All signals are blocked.
pub(crate) fn on_service_stack<R>(blocked: &raw::Blocked, f: impl FnOnce() -> R) -> R {
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(task: *mut u8) {
        // SAFETY: the task below.
        let (function, result) = unsafe { &mut *task.cast::<(Option<F>, Option<R>)>() };
        *result = function.take().map(|function| function());
    }
    fn of<F: FnOnce() -> R, R>(_: &Option<F>) -> unsafe extern "C" fn(*mut u8) {
        run::<F, R>
    }
    let Some(record) = current() else { return f() };
    let here = core::ptr::from_ref(&blocked) as usize;
    if record.service_top.wrapping_sub(here) <= SERVICE {
        // A handler of ours.
        return f();
    }
    let mut task = (Some(f), None);
    let function = of::<_, R>(&task.0);
    let data = (&raw mut task).cast();
    // SAFETY: the stack is this thread's, and nothing else is on it: handlers that use it are
    // blocked. The task outlives the call.
    unsafe { zfolio_call_on_stack(data, function, record.service_top) };
    match task.1 {
        Some(result) => result,
        None => unreachable!("it has run"),
    }
}

/// Where a thread with its thread pointer at `tls` has the address of its record.
pub(crate) fn place_of_record(tls: usize) -> usize {
    let offset: usize;
    // SAFETY: reads a constant of the loader's.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + zfolio_record@GOTTPOFF]",
            at = out(reg) offset,
            options(nostack, readonly, preserves_flags),
        );
    }
    tls.wrapping_add(offset)
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
