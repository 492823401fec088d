//! Forks, new threads, exec, ends, and descriptors of ours that the program meets.

use super::leave;
use crate::memory::way::Kind;
use crate::raw::{self, Blocked, PAGE, SHIFT, err, is_error, nr};
use crate::seen::entry::{self, Frame};
use crate::seen::pinning::Keeper;
use crate::seen::{arm, rewrite};
use crate::state::{self, State};
use crate::threads;
use core::sync::atomic::Ordering;

const CLONE_VM: usize = 0x100;
const CLONE_FILES: usize = 0x400;
const CLONE_VFORK: usize = 0x4000;
const CLONE_THREAD: usize = 0x1_0000;
const CLONE_SETTLS: usize = 0x8_0000;
/// Most bytes of a `struct clone_args` that is understood.
const CLONE_ARGS: usize = 88;
/// Most strings looked at for exec.
const STRINGS: usize = 1 << 20;

/// fork, vfork, clone, clone3.
pub(crate) fn clone(keeper: &Keeper<'_>, frame: &mut Frame, number: usize) -> isize {
    let args = frame.args();
    match number {
        nr::FORK => fork(keeper.state, nr::FORK, [0; 6]),
        // The memory is the child's own, and the parent does not wait: both are what fork may
        // do for vfork. (It would wait with our locks.)
        nr::VFORK => fork(keeper.state, nr::FORK, [0; 6]),
        nr::CLONE => {
            let [flags, stack, parent, child, tls, _] = args;
            keeper.keep(parent, 4);
            keeper.keep(child, 4);
            if flags & CLONE_VM == 0 || stack == 0 {
                let flags = flags & !(CLONE_VM | CLONE_VFORK);
                return fork(
                    keeper.state,
                    nr::CLONE,
                    [flags, stack, parent, child, tls, 0],
                );
            }
            let with = |top: usize| [flags, top, parent, child, tls, 0];
            new_task(keeper, frame, flags, stack, nr::CLONE, &with)
        }
        _ => clone3(keeper, frame, args),
    }
}

fn clone3(keeper: &Keeper<'_>, frame: &mut Frame, args: [usize; 6]) -> isize {
    let [at, len, ..] = args;
    if !(64..=CLONE_ARGS).contains(&len) {
        return if len < 64 { err::INVAL } else { -7 };
    }
    keeper.keep(at, len);
    let mut given = [0_u64; CLONE_ARGS / 8];
    let mut bytes = [0_u8; CLONE_ARGS];
    if !raw::read_bytes(at, &mut bytes[..len]) {
        return err::FAULT;
    }
    for (word, chunk) in given.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8]));
    }
    let original = given;
    let word = |index: usize| usize::try_from(original[index]).unwrap_or(0);
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, ...
    keeper.keep(word(1), 4);
    keeper.keep(word(2), 4);
    keeper.keep(word(3), 4);
    if len > 64 {
        keeper.keep(word(8), word(9).min(32) * 4);
    }
    let flags = word(0);
    if flags & CLONE_VM == 0 || word(5) == 0 {
        given[0] &= !((CLONE_VM | CLONE_VFORK) as u64);
        return fork(
            keeper.state,
            nr::CLONE3,
            [given.as_ptr() as usize, len, 0, 0, 0, 0],
        );
    }
    let top = word(5) + word(6);
    given[6] = (word(6) - entry::ABOVE) as u64;
    let copy = given.as_ptr() as usize;
    let with = |_: usize| [copy, len, 0, 0, 0, 0];
    new_task(keeper, frame, flags, top, nr::CLONE3, &with)
}

/// A task that shares the memory, on a stack of its own: a thread, or the child of
/// posix_spawn.
fn new_task(
    keeper: &Keeper<'_>,
    frame: &Frame,
    flags: usize,
    top: usize,
    number: usize,
    with: &dyn Fn(usize) -> [usize; 6],
) -> isize {
    let state = keeper.state;
    if flags & CLONE_VFORK != 0 {
        // The parent waits: the task lives on its record. It may set signals, which are its own.
        let mask = raw::set_mask(!raw::OURS);
        let signals = *state.signals.lock();
        let at = entry::prepare_stack(frame, top, usize::try_from(mask).unwrap_or(0));
        let masked = keeper.record.masked.load(Ordering::Relaxed);
        let stacks =
            [0, 1].map(|at: usize| keeper.record.program_stack[at].load(Ordering::Relaxed));
        let result = entry::clone_with(number, &with(at));
        *state.signals.lock() = signals;
        keeper.record.masked.store(masked, Ordering::Relaxed);
        for (word, was) in keeper.record.program_stack.iter().zip(stacks) {
            word.store(was, Ordering::Relaxed);
        }
        raw::set_mask(mask);
        return result;
    }
    if flags & CLONE_THREAD == 0 || flags & CLONE_SETTLS == 0 {
        leave::leave(
            state,
            "it starts tasks that share its memory and have no thread-local storage of their own",
        );
    }
    {
        // One thread ends here, for good: whoever closes or opens pages after this knows.
        let _blocked = Blocked::new();
        let _core = state.core.lock();
        state.several.store(true, Ordering::SeqCst);
    }
    // Until it has a record the thread must not be interrupted: it has its parent's mask back
    // in `begin_thread`.
    let mask = raw::set_mask(!raw::OURS);
    let at = entry::prepare_stack(frame, top, usize::try_from(mask).unwrap_or(0));
    let result = entry::clone_with(number, &with(at));
    raw::set_mask(mask);
    result
}

/// The first thing a new task does. All signals are blocked.
pub(crate) fn begin_thread(frame: &mut Frame) {
    let state = state::get();
    let mask = core::mem::replace(&mut frame.rax, 0);
    if threads::current().is_none() {
        match state.threads.claim() {
            Some(record) => record.use_own_signal_stack(),
            // Its calls go on unseen, so nothing may be closed any more.
            None => leave::leave(state, "it has more threads than can be followed"),
        }
    }
    if threads::current().is_some() && arm::arm(state) != 0 {
        leave::leave(state, "a new thread's system calls cannot be seen");
    }
    raw::set_mask(mask as u64);
}

/// A child with memory of its own. Its descriptors may be the parent's as well.
fn fork(state: &State, number: usize, args: [usize; 6]) -> isize {
    let flags = match number {
        nr::FORK => 0,
        nr::CLONE => args[0],
        // (A copy of the arguments, in a frame of ours.)
        _ => raw::read::<u64>(args[0]).map_or(0, |flags| usize::try_from(flags).unwrap_or(0)),
    };
    let blocked = Blocked::new();
    let mut core = state.core.lock();
    let signals = state.signals.lock();
    let result = raw::for_program(number, args);
    if result != 0 {
        core.figures.forks += u64::from(!is_error(result));
        return result;
    }
    // The child: one thread, every lock of ours held by it or free, every structure whole.
    rewrite::reset_in_child();
    if let Some(record) = threads::current() {
        state.threads.forget_others(record);
    }
    state.batches.reset();
    state
        .pid
        .store(zfolio_sys::thread::pid(), Ordering::Relaxed);
    state.several.store(false, Ordering::SeqCst);
    let mut renewed = true;
    if !state.has_left() {
        renewed = core.way.renew(flags & CLONE_FILES != 0).is_ok();
        state.note_descriptors(&core.way);
        if renewed && core.way.kind == Kind::InThread {
            core.register_again(state);
        }
        core.renew_in_child(state);
    }
    if !renewed {
        core.fail(format_args!(
            "the child of a fork could not open what its memory is brought back with"
        ));
    }
    let armed = arm::arm(state);
    drop(signals);
    drop(core);
    if armed != 0 {
        leave::leave(state, "the calls of a child of a fork cannot be seen");
    }
    drop(blocked);
    0
}

impl crate::memory::core::Core {
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

/// execve and execveat: all that the kernel reads is brought, and nothing is closed meanwhile.
pub(crate) fn exec(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> isize {
    let state = keeper.state;
    let first = usize::from(number == nr::EXECVEAT);
    keeper.keep_everything();
    let touch = |address: usize| {
        let mut at = address;
        let mut bytes = [0_u8; 64];
        loop {
            let len = (PAGE - at % PAGE).min(bytes.len());
            if !raw::read_bytes(at, &mut bytes[..len]) || bytes[..len].contains(&0) {
                return;
            }
            at += len;
        }
    };
    touch(args[first]);
    for list in [args[first + 1], args[first + 2]] {
        for index in 0..STRINGS {
            match raw::read::<u64>(list + index * 8) {
                Some(0) | None => break,
                Some(string) => touch(usize::try_from(string).unwrap_or(0)),
            }
        }
    }
    say_ended(state);
    raw::for_program(number, args)
}

/// The last figures, unless this is a task that shares another process's memory.
fn say_ended(state: &State) {
    if zfolio_sys::thread::pid() != state.pid.load(Ordering::Relaxed) {
        return;
    }
    let _blocked = Blocked::new();
    let mut core = state.core.lock();
    if !state.has_left() {
        core.end(state);
    }
}

/// exit of a thread: the kernel walks the list of robust locks it holds.
pub(crate) fn exit_thread(keeper: &Keeper<'_>, args: [usize; 6]) -> isize {
    let (state, record, in_handler) = (keeper.state, keeper.record, keeper.in_handler);
    if zfolio_sys::thread::id() != record.used.load(Ordering::Relaxed) {
        // The child of a vfork, on its parent's record.
        return raw::for_program(nr::EXIT, args);
    }
    let head = record.robust.load(Ordering::Relaxed);
    if head != 0 && !state.has_left() {
        keep_robust(state, head);
    }
    // From here on a handler would have no record; and the record's stacks are another
    // thread's once it is released. (Where this very code runs on one of them it stays taken.)
    raw::set_mask(!raw::OURS);
    arm::disarm();
    threads::forget_current();
    record.pinned.clear();
    if !in_handler {
        record.release();
    }
    raw::for_program(nr::EXIT, args)
}

/// Keeps every lock of a list of robust ones in memory.
fn keep_robust(state: &State, head: usize) {
    // struct robust_list_head: the first, the offset of the lock's word, one being taken.
    let Some([mut at, offset, pending]) = raw::read::<[u64; 3]>(head) else {
        return;
    };
    let keep = |entry: u64| {
        let entry = usize::try_from(entry & !1).unwrap_or(0);
        let word = entry.wrapping_add(usize::try_from(offset).unwrap_or(0));
        let _blocked = Blocked::new();
        let mut core = state.core.lock();
        core.keep(state, &(entry..entry.saturating_add(8)));
        core.keep(state, &(word..word.saturating_add(4)));
    };
    if pending != 0 {
        keep(pending);
    }
    // (The kernel looks at as many.)
    for _ in 0..2048 {
        if usize::try_from(at & !1) == Ok(head) {
            return;
        }
        keep(at);
        match raw::read::<u64>(usize::try_from(at & !1).unwrap_or(0)) {
            Some(next) => at = next,
            None => return,
        }
    }
}

/// exit_group.
pub(crate) fn exit(state: &State, args: [usize; 6]) -> isize {
    say_ended(state);
    raw::for_program(nr::EXIT_GROUP, args)
}

/// Calls that close or take a descriptor's number. Ours are not there for the program.
pub(crate) fn descriptors(state: &State, number: usize, args: [usize; 6]) -> isize {
    let [first, last, flags, ..] = args;
    let (first, last) = (first & 0xffff_ffff, last & 0xffff_ffff);
    match number {
        nr::CLOSE if state.is_our_descriptor(first) => err::BADF,
        nr::DUP2 | nr::DUP3 if state.is_our_descriptor(last) => {
            let _blocked = Blocked::new();
            let mut core = state.core.lock();
            core.way.move_descriptor(last);
            state.note_descriptors(&core.way);
            if state.is_our_descriptor(last) {
                return err::BUSY;
            }
            raw::for_program(number, args)
        }
        nr::CLOSE_RANGE => {
            let mut ours = state.descriptors();
            ours.sort_unstable();
            let mut from = first;
            for fd in ours.into_iter().filter(|fd| (first..=last).contains(fd)) {
                if fd > from {
                    let result = raw::for_program(number, [from, fd - 1, flags, 0, 0, 0]);
                    if is_error(result) {
                        return result;
                    }
                }
                from = fd + 1;
            }
            if from > last {
                return 0;
            }
            raw::for_program(number, [from, last, flags, 0, 0, 0])
        }
        _ => raw::for_program(number, args),
    }
}

/// A file has been opened. Devices may keep pages of the program for themselves, which only
/// userfaultfd refuses to move.
pub(crate) fn opened(state: &State, number: usize, args: [usize; 6]) {
    let path = if number == nr::OPEN { args[0] } else { args[1] };
    let mut name = [0_u8; 24];
    let mut len = 0;
    while len < name.len() && raw::read_bytes(path + len, &mut name[len..=len]) && name[len] != 0 {
        len += 1;
        if len == 5 && !name.starts_with(b"/dev/") {
            return;
        }
    }
    let Some(device) = name[..len].strip_prefix(b"/dev/") else {
        return;
    };
    const PINNING: [&[u8]; 8] = [
        b"nvidia",
        b"kfd",
        b"dri/",
        b"infiniband",
        b"vfio",
        b"kvm",
        b"accel",
        b"iax",
    ];
    let pins = PINNING.iter().any(|prefix| device.starts_with(prefix));
    let can_see = || {
        let _blocked = Blocked::new();
        state.core.lock().way.kind == Kind::InThread
    };
    if pins && !can_see() {
        leave::leave(state, "it opened a device that keeps pages of the program");
    }
}
