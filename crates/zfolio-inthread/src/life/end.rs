//! Exec, and the end of threads and of the process.
//!
//! The kernel reads memory then that no call's arguments name: the strings of exec, and the
//! locks that a thread which ends holds. All of it is brought before.

use super::reclaimer::Alone;
use super::{installed, own_thread, signals, ticks};
use crate::program_memory;
use crate::raw::{self, Blocked, PAGE, nr};
use crate::seen::arm;
use crate::seen::pinning::Keeper;
use crate::state::State;
use crate::threads::{self, Record};
use core::sync::atomic::Ordering;

/// Most strings looked at for exec.
const STRINGS: usize = 1 << 20;

/// execve and execveat: all that the kernel reads is brought, and nothing is closed meanwhile.
pub(crate) fn exec(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> isize {
    let state = keeper.state;
    let first = usize::from(number == nr::EXECVEAT);
    let _alone = Alone::begin(state);
    keeper.keep_everything();
    let touch = |address: usize| {
        let mut at = address;
        let mut bytes = [0_u8; 64];
        loop {
            let len = (PAGE - at % PAGE).min(bytes.len());
            if !program_memory::read_bytes(at, &mut bytes[..len]) || bytes[..len].contains(&0) {
                return;
            }
            at += len;
        }
    };
    touch(args[first]);
    for list in [args[first + 1], args[first + 2]] {
        for index in 0..STRINGS {
            match program_memory::read::<u64>(list + index * 8) {
                Some(0) | None => break,
                Some(string) => touch(usize::try_from(string).unwrap_or(0)),
            }
        }
    }
    say_ended(state);
    // (None is pending in the new program: what has come is handled by now.)
    let ticked = keeper.record.ticks.timer.load(Ordering::Relaxed) != 0;
    ticks::end(state, keeper.record);
    // What is blocked and ignored of ours is so in the new program.
    let mask = raw::block(keeper.record.blocked());
    let ignored = if state.is_several() {
        // (The others may fault until they are gone.)
        [false; 3]
    } else {
        signals::ignore_in_kernel(state)
    };
    // (What it becomes counts itself.)
    let counted = state.is_own_process();
    if counted {
        state.segment.processes.fetch_sub(1, Ordering::Relaxed);
    }
    let result = raw::for_program(number, args);
    if counted {
        state.segment.processes.fetch_add(1, Ordering::Relaxed);
    }
    if ignored.contains(&true) {
        let _blocked = Blocked::new();
        installed::install(state);
    }
    raw::set_mask(mask);
    if ticked {
        state.at_rest(|| ticks::begin_here(state, keeper.record));
    }
    result
}

/// The last figures, and what could not leave, unless this is a task that shares another process's memory.
fn say_ended(state: &State) {
    if !state.is_own_process() {
        return;
    }
    state.at_rest(|| state.memory.count_what_stays());
    state.locked(|core| {
        if !state.has_left() {
            core.end(state);
        }
    });
}

/// exit of a thread: the kernel walks the list of robust locks it holds.
pub(crate) fn exit_thread(keeper: &Keeper<'_>, args: [usize; 6]) -> isize {
    let (state, record) = (keeper.state, keeper.record);
    if zfolio_sys::thread::id() != record.used.load(Ordering::Relaxed) {
        // The child of a vfork, on its parent's record.
        return raw::for_program(nr::EXIT, args);
    }
    keep_robust_of(state, record);
    own_thread::note_status(args[0]);
    if state.threads.all().nth(1).is_none() {
        // (The process ends with its last thread, and none is to come. Should two end at once a thread of
        // ours sees that there are none.)
        core::mem::forget(Alone::begin(state));
    }
    // From here on a handler would have no record; and the record's stacks are another
    // thread's once it is released, this code's among them perhaps.
    raw::stop_stepping();
    raw::set_mask(!0);
    ticks::end(state, record);
    arm::disarm();
    threads::forget_current();
    record.release_and_exit(args[0])
}

/// Keeps the robust locks that a thread holds in memory: the kernel walks them as it ends.
fn keep_robust_of(state: &State, record: &Record) {
    let Some(thread) = record.thread().filter(|_| !state.has_left()) else {
        return;
    };
    let (mut head, mut len) = (0_usize, 0_usize);
    let into = [(&raw mut head) as usize, (&raw mut len) as usize];
    let asked = raw::own(nr::GET_ROBUST_LIST, [thread as usize, into[0], into[1]]);
    if asked == 0 && head != 0 {
        keep_robust(state, head);
    }
}

/// Keeps every lock of a list of robust ones in memory.
fn keep_robust(state: &State, head: usize) {
    // struct robust_list_head: the first, the offset of the lock's word, one being taken.
    let Some([mut at, offset, pending]) = program_memory::read::<[u64; 3]>(head) else {
        return;
    };
    let keep = |entry: u64| {
        let entry = usize::try_from(entry & !1).unwrap_or(0);
        let word = entry.wrapping_add(usize::try_from(offset).unwrap_or(0));
        state.locked(|core| {
            core.keep(state, &(entry..entry.saturating_add(8)));
            core.keep(state, &(word..word.saturating_add(4)));
        });
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
        match program_memory::read::<u64>(usize::try_from(at & !1).unwrap_or(0)) {
            Some(next) => at = next,
            None => return,
        }
    }
}

/// exit_group.
pub(crate) fn exit(state: &State, args: [usize; 6]) -> isize {
    if state.is_own_process() {
        for record in state.threads.all() {
            keep_robust_of(state, record);
        }
    }
    say_ended(state);
    raw::for_program(nr::EXIT_GROUP, args)
}
