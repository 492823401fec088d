//! The beginning: in the constructor of the preloaded library, while the program has one
//! thread and none of its code has run.

use crate::answer::entry;
use crate::life::{handlers, hold, installed, leave, reclaimer, signals, ticks};
use crate::memory::core::MemoryCore;
use crate::memory::following::Following;
use crate::memory::layer::{Descriptors, MemoryState};
use crate::memory::pressure::Pressure;
use crate::memory::remote::Remote;
use crate::memory::texts::Texts;
use crate::memory::transit::stage::Stages;
use crate::memory::transit::waits::Bells;
use crate::memory::way::{Kind, Way};
use crate::memory::words::Words;
use crate::memory::words::most::most_leaves;
use crate::pins::Batches;
use crate::process::{Entries, ProcessState};
use crate::raw::{self, nr};
use crate::seen::{arm, own_stack, rewrite};
use crate::signal::actions::Signals;
use crate::signal::sent::Sent;
use crate::state::{self, OwnMemory, State};
use crate::threads::Threads;
use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use zfolio_runtime::fair_share::Membership;
use zfolio_runtime::options::{BackgroundReclaim, Options};
use zfolio_runtime::segment::{Segment, run_group};
use zfolio_sys::apart::keep_apart;
use zfolio_sys::lock::Mutex;
use zfolio_sys::process::know_standard_error;
use zfolio_sys::procfs::File;
use zfolio_sys::syscall::Errno;

/// What the preloaded library lends.
pub struct Parts {
    /// The control segment.
    pub segment: &'static Segment,
    /// Addresses of the library's own text.
    pub text: Range<usize>,
    /// Makes the heap usable: bytes to reserve.
    pub reserve_heap: fn(usize) -> Result<Range<usize>, Errno>,
    /// Name of the group within the run.
    pub group: Option<&'static str>,
}

/// Why nothing is managed: what was tried, and the error.
pub type Refused = (&'static str, Errno);

/// Puts the process under interception; its memory is managed from here on.
///
/// # Errors
/// What cannot be had here. Nothing has changed then, but for addresses reserved.
pub fn start(parts: &Parts) -> Result<(), Refused> {
    let segment = parts.segment;
    let config = segment.config();
    if threads_now() != 1 {
        return Err(("finding the process with one thread", Errno::BUSY));
    }
    let options = Options::from_config(config).map_err(|what| (what, Errno::INVAL))?;
    let failed = |what| move |errno| (what, errno);
    rewrite::reserve(entry::address()).map_err(failed("reserving memory"))?;
    let heap = (64 << 20) + (options.high << raw::SHIFT) / 2;
    (parts.reserve_heap)(heap).map_err(failed("reserving memory"))?;
    let way = Way::find(config.faults.load(Ordering::Relaxed))?;
    hold::reserve().map_err(failed("reserving memory"))?;
    let processors = zfolio_sys::thread::processors();
    let asked = BackgroundReclaim::of_number(config.background_reclaim.load(Ordering::Relaxed));
    // (It makes room beside the program's threads: not where there is one processor for both, nor as a rule where it
    // would interrupt them for each page that it protects.)
    let pays = way.kind == Kind::InThread || asked == BackgroundReclaim::Eager;
    let background = match options.backing.is_none() && processors > 1 && pays {
        true => asked,
        false => BackgroundReclaim::Off,
    };
    reclaimer::reserve().map_err(failed("reserving memory"))?;
    let words =
        Words::reserve(way.kind.apart(), most_leaves()).map_err(failed("reserving memory"))?;
    let threads = Threads::reserve().map_err(failed("reserving memory"))?;
    let is_store = options.backing.is_some_and(|backing| backing.has_store());
    let remote = Remote::reserve(is_store).map_err(failed("reserving memory"))?;
    let texts = Texts::now();
    if let Some(program) = texts.lowest() {
        rewrite::reserve_near(program);
    }
    // (What follows need not lie near the program's text.)
    keep_apart(parts.text.start);
    let group = parts.group.and_then(|name| run_group::named(segment, name));
    let membership = Membership::of(group.unwrap_or(run_group::RUN));
    let file = &config.runner.standard_error;
    let [device, inode] = [0, 1].map(|at: usize| file[at].load(Ordering::Relaxed));
    know_standard_error((device, inode));
    let brk = raw::own(nr::BRK, [0; 3]).cast_unsigned();
    let mut core = MemoryCore::new(way, &options, brk);
    // (Of a group with a `high` of its own before anything of it is managed.)
    core.high = membership.most_of(segment, options.high);
    let following = Following::new(&membership, segment);
    let process = ProcessState {
        threads,
        batches: Batches::new(),
        segment,
        options,
        pid: AtomicU32::new(zfolio_sys::thread::pid()),
        several: AtomicBool::new(false),
        accompanied: AtomicU32::new(0),
        left: AtomicBool::new(false),
        filtered: AtomicU32::new(0),
        signals_by_entry: AtomicBool::new(false),
        entries: Entries {
            call: entry::address(),
            signal: handlers::entry(),
            restorer: handlers::restorer(),
            entered_restorer: handlers::entered_restorer(),
            handle_by_entry: |by_entry| signals::handle_by_entry(state::get(), by_entry),
            leave: |why| leave::leave(state::get(), why),
            hold: hold::entry(),
        },
        text: parts.text.clone(),
    };
    let memory = MemoryState {
        process,
        words,
        core: Mutex::new(core),
        membership,
        following,
        remote,
        bells: Bells::new(),
        stages: Stages::for_processors(processors),
        pressure: Pressure::new(background),
        texts: Mutex::new(texts),
        beside: AtomicBool::new(false),
        descriptors: Descriptors::new(),
    };
    let state: &'static State = Box::leak(Box::new(State {
        memory,
        signals: Mutex::new(Signals::now()),
        sent: Mutex::new(Sent::new()),
        some_sent: AtomicBool::new(false),
        own_memory: OwnMemory::new(),
        tables_apart: AtomicU32::new(0),
    }));
    state.note_descriptors(&state.core.lock().way);
    state.follow_limits();
    state::publish(state);
    let record = state
        .threads
        .take()
        .ok_or(("a place for a thread", Errno::NOMEM))?;
    if let Some(stack) = own_stack::of_first_thread((&raw const record) as usize) {
        record.set_own_stack(&stack);
    }
    record.begin();
    installed::install(state);
    record.set_blocked(raw::unblock_ours());
    // (A call made by the kernel's shared object, in a handler of ours, would end the process.)
    zfolio_sys::thread::read_clocks_by_calls();
    match arm::arm(state) {
        0 => {
            segment.processes.fetch_add(1, Ordering::Relaxed);
            state.locked(|core| {
                core.manage_static(state);
                ticks::begin(record);
            });
            Ok(())
        }
        error => {
            installed::give_back(state);
            raw::block(record.blocked());
            state::unpublish();
            let error = i32::try_from(-error).unwrap_or(0);
            Err(("Syscall User Dispatch", Errno(error)))
        }
    }
}

/// Tries a way, by its number in the control segment, on a page of this process's own.
///
/// # Errors
/// What cannot be had here.
pub fn try_way(number: u32) -> Result<(), Refused> {
    let armed = arm::probe();
    if armed != 0 {
        let errno = Errno(i32::try_from(-armed).unwrap_or(0));
        return Err(("Syscall User Dispatch", errno));
    }
    Way::find(number).map(|mut way| way.close_descriptors())
}

/// Whether the program's calls are seen in this process.
#[must_use]
pub fn is_on() -> bool {
    state::is_there()
}

/// Makes a call for a function of ours that stands in for libc's: seen, where calls are.
///
/// # Errors
/// What the kernel returned, when it was an error number.
///
/// # Safety
/// Whatever the call itself demands of its arguments.
pub unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    if !is_on() {
        // SAFETY: by contract.
        return unsafe { zfolio_sys::syscall::syscall(number, args) };
    }
    // SAFETY: by contract.
    let result = unsafe { entry::call_here(number, &args) };
    if raw::is_error(result) {
        return Err(Errno(i32::try_from(-result).unwrap_or(0)));
    }
    Ok(result.cast_unsigned())
}

/// Keeps what the kernel reads and writes whenever it likes in memory, from here on.
pub fn keep(range: &Range<usize>) {
    if is_on() {
        let state = state::get();
        state.locked(|core| {
            if !state.has_left() {
                core.keep(state, range);
            }
        });
    }
}

/// How many threads there are now.
fn threads_now() -> usize {
    let mut text = [0_u8; 512];
    let Ok(file) = File::open(c"/proc/self/stat") else {
        return 0;
    };
    let len = file.read_at(&mut text, 0).unwrap_or(0);
    file.close();
    // After the name, which ends with the last ')': the eighteenth field.
    let text = &text[..len];
    let end = text.iter().rposition(|byte| *byte == b')').unwrap_or(0);
    let mut fields = text[end..].split(|byte| *byte == b' ');
    let field = fields.nth(18).unwrap_or(&[]);
    field.iter().fold(0, |number, digit| {
        number * 10 + usize::from(digit.wrapping_sub(b'0'))
    })
}
