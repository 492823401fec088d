//! Forks and new tasks.
//!
//! A fork is made with every lock of ours held and nothing in transit, so that the child finds
//! all of our structures whole. A task that shares the memory gets a record before it exists
//! (what it does first is [`begin`]'s).

use super::begin::{self, CLEARED};
use super::reclaimer::{self, Alone, make_room_for_task};
use super::{descriptors, hold, leave, signals, ticks};
use crate::memory::core::MemoryCore;
use crate::memory::way::Kind;
use crate::program_memory;
use crate::raw::{self, Blocked, OURS, PAGE, SHIFT, err, is_error, nr};
use crate::seen::frame::{self, Frame};
use crate::seen::pinning::Keeper;
use crate::seen::{arm, own_stack, rewrite};
use crate::state::State;
use crate::threads::{self, Record, on_service_stack};
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::heap;
use zfolio_sys::lock::Mutex;

const CLONE_VM: usize = 0x100;
const CLONE_FILES: usize = 0x400;
const CLONE_VFORK: usize = 0x4000;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SETTLS: usize = 0x8_0000;
const CLONE_SIGHAND: usize = 0x800;
const CLONE_CLEAR_SIGHAND: usize = 1 << 32;
/// Most bytes of a `struct clone_args` that is understood.
const CLONE_ARGS: usize = 88;
/// Bytes behind the thread pointer that libc and the kernel (rseq) have for a thread.
const THREAD: usize = PAGE;

/// fork, vfork, clone, clone3.
pub(crate) fn clone(keeper: &Keeper<'_>, frame: &mut Frame, number: usize) -> isize {
    let args = frame.args();
    match number {
        // For vfork as well: the memory is the child's own, and the parent does not wait; both
        // are what fork may do for vfork. (It would wait with our locks.)
        nr::FORK => fork(keeper.state, nr::FORK, [0; 6], 0),
        nr::VFORK => fork(keeper.state, nr::FORK, [0; 6], CLONE_VM),
        nr::CLONE => {
            let [flags, stack, parent, child, tls, _] = args;
            // (The kernel takes no more of them.)
            let flags = flags & 0xffff_ffff;
            keeper.keep(parent, 4);
            keeper.keep(child, 4);
            if flags & CLONE_VM == 0 || stack == 0 {
                let own = flags & !with_memory(flags);
                let args = [own, 0, parent, child, tls, 0];
                return fork_to(keeper.state, frame, nr::CLONE, args, flags, stack);
            }
            let call =
                |at: usize| begin::clone_with(nr::CLONE, &[flags, at, parent, child, tls, 0]);
            let task = Task {
                flags,
                stack: lowest_of(stack)..stack,
                tls,
                child_id: child,
            };
            new_task(keeper, frame, &task, &call)
        }
        _ => clone3(keeper, frame, args),
    }
}

/// Those of `flags` that a child with memory of its own cannot have: handlers are shared with the
/// memory or not at all.
const fn with_memory(flags: usize) -> usize {
    match flags & CLONE_VM {
        0 => CLONE_VFORK,
        _ => CLONE_VM | CLONE_VFORK | CLONE_SIGHAND,
    }
}

fn clone3(keeper: &Keeper<'_>, frame: &mut Frame, args: [usize; 6]) -> isize {
    let [at, len, ..] = args;
    if !(64..=PAGE).contains(&len) {
        return if len < 64 { err::INVAL } else { err::TOO_BIG };
    }
    keeper.keep(at, len);
    let mut given = [0_u64; CLONE_ARGS / 8];
    let mut bytes = [0_u8; CLONE_ARGS];
    // What a later kernel has behind it must be zeros.
    for beyond in CLONE_ARGS..len {
        match program_memory::read::<u8>(at.wrapping_add(beyond)) {
            Some(0) => {}
            Some(_) => return err::TOO_BIG,
            None => return err::FAULT,
        }
    }
    let len = len.min(CLONE_ARGS);
    if !program_memory::read_bytes(at, &mut bytes[..len]) {
        return err::FAULT;
    }
    for (word, chunk) in given.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
    }
    let word = |index: usize| usize::try_from(given[index]).unwrap_or(0);
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, ...
    keeper.keep(word(1), 4);
    keeper.keep(word(2), 4);
    keeper.keep(word(3), 4);
    if len > 64 {
        keeper.keep(word(8), word(9).min(32) * 4);
    }
    let flags = word(0);
    if flags & (CLONE_CLEAR_SIGHAND | CLONE_SIGHAND) == CLONE_CLEAR_SIGHAND {
        // (The kernel would clear ours; the task does it itself.)
        given[0] &= !(CLONE_CLEAR_SIGHAND as u64);
    }
    let word = |index: usize| usize::try_from(given[index]).unwrap_or(0);
    if (word(5) == 0) != (word(6) == 0) {
        return err::INVAL;
    }
    let Some(top) = word(5).checked_add(word(6)) else {
        return err::INVAL;
    };
    if flags & CLONE_VM == 0 || top == 0 {
        given[0] &= !(with_memory(flags) as u64);
        (given[5], given[6]) = (0, 0);
        let args = [given.as_ptr() as usize, len, 0, 0, 0, 0];
        return fork_to(keeper.state, frame, nr::CLONE3, args, flags, top);
    }
    let call = |at: usize| {
        let mut given = given;
        // (A stack that ends at `at`: the kernel looks no further.)
        given[5] = (at & !(PAGE - 1)) as u64;
        given[6] = (at % PAGE) as u64;
        if given[6] == 0 {
            (given[5], given[6]) = (given[5] - PAGE as u64, PAGE as u64);
        }
        begin::clone_with(nr::CLONE3, &[given.as_ptr() as usize, len, 0, 0, 0, 0])
    };
    let task = Task {
        flags,
        stack: word(5)..top,
        tls: word(7),
        child_id: word(2),
    };
    new_task(keeper, frame, &task, &call)
}

/// A task that is to share the memory.
struct Task {
    flags: usize,
    /// Its stack.
    stack: Range<usize>,
    /// Its thread-local storage, and where its id is told: the kernel keeps the addresses.
    tls: usize,
    child_id: usize,
}

/// A task that shares the memory, on a stack of its own: a thread, or the child of
/// posix_spawn. `call` makes it, with a stack pointer that is a frame.
fn new_task(
    keeper: &Keeper<'_>,
    frame: &Frame,
    task: &Task,
    call: &dyn Fn(usize) -> isize,
) -> isize {
    let (state, parent) = (keeper.state, keeper.record);
    let (flags, top) = (task.flags, task.stack.end);
    if flags & CLONE_VFORK != 0 {
        return vfork_on_stack(state, parent, frame, task, call);
    }
    if flags & CLONE_THREAD == 0 || flags & CLONE_SETTLS == 0 {
        leave::leave(
            state,
            "it starts tasks that share its memory and have no thread-local storage of their own",
        );
    }
    // One thread ends here, for good: whoever closes or opens pages after this knows.
    state.locked(|core| {
        rewrite::before_second_thread(state);
        state.several.store(true, Ordering::SeqCst);
        keep_for_thread(state, core, task);
    });
    let record = state.threads.take();
    if record.is_none() {
        // Its calls go on unseen, so nothing may be closed any more.
        leave::leave(state, "it has more threads than can be followed");
    }
    // Until it has a record of its own the thread must not be interrupted: it has its
    // parent's mask in `begin::thread`. It begins on its service stack.
    raw::stop_stepping();
    let mask = raw::set_mask(!0);
    let inherits = usize::try_from(mask | parent.blocked()).unwrap_or(0);
    if let Some(record) = record {
        record.set_own_stack(&task.stack);
    }
    let begins_at = record.map_or(top, |record| record.service_top);
    // SAFETY: the service stack of a thread that is not there yet; or the stack that the
    // program named for it.
    let at = unsafe { frame::copy_to(begins_at, frame, inherits, top) };
    let result = make_room_for_task(state, || call(at));
    if is_error(result)
        && let Some(record) = record
    {
        record.release();
    }
    raw::set_mask(mask);
    result
}

/// Where the mapping starts in which a stack ends at `top`: clone does not say how large it is. Where it is
/// not found calls are answered on stacks of ours.
fn lowest_of(top: usize) -> usize {
    own_stack::mapping(top).map_or(top, |mapping| mapping.start)
}

/// Keeps what the kernel and the handlers' entry touch of a thread whenever they like: it lies
/// in memory that is managed where the program brought the stack along.
fn keep_for_thread(state: &State, core: &mut MemoryCore, task: &Task) {
    if state.has_left() {
        return;
    }
    let (record, tls) = (threads::place_of_record(task.tls), task.tls);
    for (address, len) in [(record, 8), (tls, THREAD), (task.child_id, 4)] {
        if address < 1 << 47 {
            core.keep(state, &(address..address + len));
        }
    }
}

/// The child of posix_spawn: its parent waits, and it lives on its parent's record. It may set
/// signals, which are its own: the parent's other threads go on meanwhile, by the parent's.
fn vfork_on_stack(
    state: &State,
    record: &Record,
    frame: &Frame,
    task: &Task,
    call: &dyn Fn(usize) -> isize,
) -> isize {
    // (A fault on the stack that the program named is served: ours are not blocked.)
    raw::stop_stepping();
    let mask = raw::set_mask(!OURS);
    let signals = {
        let _blocked = Blocked::new();
        Mutex::new(*state.signals_here().lock())
    };
    let cleared = if task.flags & CLONE_CLEAR_SIGHAND != 0 {
        CLEARED
    } else {
        0
    };
    let inherits = usize::try_from(mask).unwrap_or(0) | cleared;
    // SAFETY: the stack that the program named for it.
    let at = unsafe { frame::copy_to(task.stack.end, frame, inherits, task.stack.end) };
    let blocked = record.blocked();
    let signal_stack = record.signal_stack();
    let spawned = (&raw const signals) as usize;
    let taken = record.call_stacks().taken();
    let before = record.spawned.swap(spawned, Ordering::Relaxed);
    let result = make_room_for_task(state, || call(at));
    record.spawned.store(before, Ordering::Relaxed);
    record.call_stacks().free_others(taken);
    record.set_blocked(blocked);
    record.set_signal_stack(signal_stack);
    raw::set_mask(mask);
    result
}

/// A child with memory of its own that goes on at `stack`, where it is not 0.
fn fork_to(
    state: &State,
    frame: &mut Frame,
    number: usize,
    args: [usize; 6],
    flags: usize,
    stack: usize,
) -> isize {
    if flags & CLONE_SETTLS != 0 {
        leave::leave(
            state,
            "it starts processes that have thread-local storage of their own",
        );
    }
    let result = fork(state, number, args, flags);
    if result == 0 && stack != 0 {
        frame.stack = stack;
    }
    if result == 0 && flags & CLONE_CLEAR_SIGHAND != 0 {
        signals::clear_handlers(state);
    }
    result
}

/// A child with memory of its own. `flags` are those that were asked for: its descriptors may
/// be the parent's as well, and where it asked for the parent's memory it has a copy of all of it.
fn fork(state: &State, number: usize, args: [usize; 6], flags: usize) -> isize {
    let _alone = Alone::begin(state);
    if !state.has_left() && !descriptors::can_child_open(state, flags & CLONE_FILES != 0) {
        leave::leave(
            state,
            "the child of a fork could not open what its memory is brought back with",
        );
    }
    // (What the child is to have, without a lock: there may be much of it.)
    state.recall_away(0..usize::MAX >> SHIFT);
    let blocked = Blocked::new();
    let (result, leaves) = on_service_stack(&blocked, || fork_locked(state, number, args, flags));
    drop(blocked);
    if let Some(why) = leaves {
        leave::leave(state, why);
    }
    result
}

/// Makes the fork with every lock of ours held: the child has them, and every structure whole.
/// Its result; and in the child why management has to end, if it has.
fn fork_locked(
    state: &State,
    number: usize,
    args: [usize; 6],
    flags: usize,
) -> (isize, Option<&'static str>) {
    let mut core = state.exclusive();
    if !state.has_left() && !core.recall(state) {
        return (err::NOMEM, None);
    }
    let _signals = state.signals.lock();
    let sent = state.sent.lock();
    let is_vfork = flags & CLONE_VM != 0 && !state.has_left();
    if is_vfork {
        core.copy_all_at_fork(true);
    }
    // (Threads use the heap apart from these locks too, for what is theirs alone.)
    let result = heap::whole_in_child(|| raw::for_program(number, args));
    if is_vfork {
        core.copy_all_at_fork(false);
    }
    if result != 0 {
        core.figures.events.forks += u64::from(!is_error(result));
        core.share_with_child(false);
        return (result, None);
    }
    // The child: one thread, every lock of ours held by it or free, every structure whole.
    rewrite::reset_in_child(state);
    sent.clear();
    if let Some(record) = threads::current() {
        state.threads.forget_others(record);
        record.signals.forget();
    }
    state.batches.reset();
    state.remote.reset_in_child();
    state
        .pid
        .store(zfolio_sys::thread::pid(), Ordering::Relaxed);
    state.several.store(false, Ordering::SeqCst);
    hold::reset_in_child(&mut core);
    reclaimer::reset_in_child(state);
    state.accompanied.store(0, Ordering::SeqCst);
    core.forget_who_waits();
    let mut renewed = true;
    if !state.has_left() {
        renewed = core.way.renew(flags & CLONE_FILES != 0).is_ok()
            && state.stages.renew_in_child(&core).is_ok();
        state.note_descriptors(&core.way);
        core.renew_in_child(state);
        core.disown_in_child(state);
        if !is_vfork {
            core.forget_what_is_dropped(state);
        }
        if renewed && core.way.kind == Kind::InThread {
            core.register_again(state);
        }
        if !is_vfork {
            core.clear_what_is_wiped(state);
        }
    }
    if !leave::is_all_given_back(state) && arm::arm(state) != 0 {
        return (0, Some("the calls of a child of a fork cannot be seen"));
    }
    if renewed {
        if let Some(record) = threads::current().filter(|_| !state.has_left()) {
            ticks::begin(record);
        }
        return (0, None);
    }
    if core.way.kind == Kind::InThread {
        core.fail(format_args!(
            "the child of a fork could not open what its memory is brought back with"
        ));
    }
    // (The one thread brings its pages back with what the way needs no descriptor for.)
    let why = "the child of a fork could not open what its memory is brought back with";
    (0, Some(why))
}

impl MemoryCore {
    /// In the child of a fork: registrations are the parent's.
    fn register_again(&mut self, state: &State) {
        let mut at = 0;
        while let Some(range) = self.ranges.managed_from(at) {
            at = range.end;
            let registered = self
                .ranges
                .at(range.start)
                .is_some_and(|(_, kind)| kind.registered);
            if !registered || self.way.watch(&range).is_ok() {
                continue;
            }
            let pages = range.start >> SHIFT..range.end >> SHIFT;
            if state.words.next_closed(pages.start, pages.end).is_some() {
                self.fail(format_args!(
                    "the memory at {:#x} could not be registered in the child of a fork",
                    range.start
                ));
            }
            self.ranges.set_registered(range.start, false);
        }
    }
}
