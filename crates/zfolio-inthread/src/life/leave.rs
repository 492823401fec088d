//! The end of management: every page is brought back, and the process goes on unmanaged. The report
//! says why.

use super::installed;
use super::signals;
use super::ticks;
use crate::memory::bring::bring_all;
use crate::memory::core::MemoryCore;
use crate::raw::{self, nr};
use crate::seen::arm;
use crate::state::State;
use crate::threads::Record;
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::describe;
use zfolio_runtime::segment::state as slot_state;
use zfolio_sys::thread::pid;

/// Ends management for `why`. Calls are seen still, and do as they are told.
pub(crate) fn leave(state: &State, why: &str) {
    state.recall_away(0..usize::MAX >> crate::raw::SHIFT);
    state.locked(|core| leave_locked(state, core, why));
}

fn leave_locked(state: &State, core: &mut MemoryCore, why: &str) {
    if state.has_left() {
        return;
    }
    core.leaving = true;
    loop {
        let next = core
            .ranges
            .all_managed()
            .map(|(range, _)| range)
            .find(|range| {
                let pages = range.start >> crate::raw::SHIFT..range.end >> crate::raw::SHIFT;
                state.words.next_unready(pages.start, pages.end).is_some()
            });
        let Some(range) = next else { break };
        bring_all(state, core, &range);
        let pages = range.start >> crate::raw::SHIFT..range.end >> crate::raw::SHIFT;
        if !state.words.set_run(pages, false) {
            core.fail(format_args!("there is no room for another page's word"));
        }
    }
    core.publish(state);
    // (Before registrations end, and absent pages are the kernel's again.)
    state.left.store(true, Ordering::Release);
    // One by one, since another process may have the descriptor open: the child of posix_spawn
    // closes its own alone.
    for (range, kind) in core.ranges.iter() {
        if kind.registered {
            let _ = core.way.unwatch(&range);
        }
    }
    // (Faults raised before are not the program's.)
    core.ranges.note_change();
    core.way.close_descriptors();
    state.note_descriptors(&core.way);
    ticks::end_all(state);
    signals::handle_by_entry(state, false);
    let slot = match &core.pool {
        Some(pool) => pool.stats,
        None => {
            let slot = &state.segment.slots[state.segment.claim(pid())];
            describe(slot);
            slot
        }
    };
    slot.set_message(why);
    slot.state.store(slot_state::UNMANAGED, Ordering::Release);
}

/// In `filtered` of the state: calls are made as they come, but for those about signals.
const CALLS: u32 = 1;
/// Those as well: nothing of ours stands between the program and the kernel.
const ALL: u32 = 2;

/// The program is about to filter its calls. A filter may end it for a call that it does not
/// make itself: from here on no call of ours is made beside its own, and with one thread signals
/// and calls are the kernel's again. (Threads and children are made as before.)
pub(crate) fn step_aside(state: &State, record: &Record, in_handler: bool) {
    if !state.is_own_process() {
        // The child of posix_spawn, whose filter is not its parent's.
        return;
    }
    // (Where the child of a posix_spawn ended management they are there still. One that has come by
    // now is handled as this ends.)
    state.locked(|_| ticks::end_all(state));
    // (Likewise.)
    signals::handle_by_entry(state, false);
    if state.is_several() {
        state.filtered.store(CALLS, Ordering::Relaxed);
        return;
    }
    {
        let _blocked = raw::Blocked::new();
        installed::give_back(state);
    }
    raw::block(record.blocked());
    record.set_blocked(0);
    if !record.has_signal_stack() && !in_handler {
        signals::give_back_stack(record);
    }
    arm::disarm();
    state.filtered.store(ALL, Ordering::Relaxed);
}

/// Whether a call is made as it comes.
pub(crate) fn is_aside(state: &State, number: usize) -> bool {
    match state.filtered.load(Ordering::Relaxed) {
        0 => false,
        CALLS => !is_of_tasks(number) && !is_of_signals(number),
        _ => !is_of_tasks(number),
    }
}

/// Whether nothing of ours stands between the program and the kernel any more.
pub(crate) fn is_all_given_back(state: &State) -> bool {
    state.filtered.load(Ordering::Relaxed) == ALL
}

const fn is_of_tasks(number: usize) -> bool {
    matches!(number, nr::FORK | nr::VFORK | nr::CLONE | nr::CLONE3)
}

const fn is_of_signals(number: usize) -> bool {
    matches!(
        number,
        nr::RT_SIGACTION
            | nr::RT_SIGPROCMASK
            | nr::RT_SIGPENDING
            | nr::RT_SIGTIMEDWAIT
            | nr::RT_SIGSUSPEND
            | nr::RT_SIGRETURN
            | nr::SIGALTSTACK
            | nr::SIGNALFD
            | nr::SIGNALFD4
            | nr::PPOLL
            | nr::PSELECT6
            | nr::EPOLL_PWAIT
            | nr::EPOLL_PWAIT2
            | nr::IO_PGETEVENTS
            | nr::EXECVE
            | nr::EXECVEAT
            | nr::EXIT
    )
}
