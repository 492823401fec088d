//! Giving up: every page is brought back, and the process goes on unmanaged. It is told.

use crate::memory::bring::bring_all;
use crate::memory::core::Core;
use crate::state::State;
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::describe;
use zfolio_runtime::segment::state as slot_state;
use zfolio_sys::thread::pid;

/// Ends management for `why`. Calls are seen still, and do as they are told.
pub(crate) fn leave(state: &State, why: &str) {
    state.locked(|core| leave_locked(state, core, why));
}

fn leave_locked(state: &State, core: &mut Core, why: &str) {
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
                state.words.next_closed(pages.start, pages.end).is_some()
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
            core.way.unwatch(&range);
        }
    }
    core.way.close_descriptors();
    state.note_descriptors(&core.way);
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
