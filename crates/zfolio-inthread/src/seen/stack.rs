//! The program's stack that a call is made on.
//!
//! A thread's own is not managed mostly: the first thread's, and those mapped as stacks. Where it is,
//! what answering a call there needs is pinned and present before anything else: the kernel is given
//! addresses in it. Calls made elsewhere are answered on stacks of ours (`call_stacks`); all that matters
//! then is whether the program's is managed, since its signals are handled elsewhere if so.

use super::pinning::Keeper;
use super::plain_stack::{added_to, is_plain, note as note_plain};
use crate::call_stacks::ROOM;
use crate::memory::words::Word;
use crate::program_memory;
use crate::raw::{self, PAGE, SHIFT, nr};
use crate::state::State;
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Bytes that answering a call takes on the program's stack, at most: what is done under a
/// lock has another.
const DEPTH: usize = ROOM;

/// Keeps what answering needs of the stack, if it is managed memory.
#[inline]
pub(crate) fn keep(keeper: &Keeper<'_>) {
    let window = keeper.stack.saturating_sub(DEPTH)..keeper.stack;
    if !is_plain(keeper.record, &window) {
        keep_managed(keeper, &window);
    }
}

/// The call is answered on a stack of ours: of the program's nothing is needed. But where signals are
/// handled depends on whether it is managed.
#[inline]
pub(crate) fn note(keeper: &Keeper<'_>) {
    let window = keeper.stack.saturating_sub(DEPTH)..keeper.stack;
    let (state, record) = (keeper.state, keeper.record);
    let is_known = state.moving_stacks.load(Ordering::Relaxed)
        || state.has_left()
        || is_plain(record, &window);
    if !is_known {
        note_managed(keeper, &window);
    }
}

#[cold]
fn note_managed(keeper: &Keeper<'_>, window: &Range<usize>) {
    if let Some((around, added)) = look(keeper.state, window) {
        note_plain(keeper.record, &around, added);
    }
}

/// What is around `window`, if that is not managed; it is noted if it is.
fn look(state: &State, window: &Range<usize>) -> Option<(Range<usize>, usize)> {
    state.locked(|core| {
        let Some(around) = core.ranges.unmanaged_around(window) else {
            core.note_managed_stack(state);
            return None;
        };
        Some((around.clone(), added_to(around.start, around.end)))
    })
}

#[cold]
fn keep_managed(keeper: &Keeper<'_>, window: &Range<usize>) {
    let (state, record) = (keeper.state, keeper.record);
    if state.has_left() {
        return;
    }
    let depth = record.pinned.depth();
    if !keeper.publish(window) {
        return;
    }
    // Without a lock, which would need the stack: whoever closes pages is at it, and ends.
    while state.batches.is_under_way() {
        raw::own(nr::SCHED_YIELD, [0; 3]);
    }
    let end = window.end.div_ceil(PAGE);
    let mut page = window.start >> SHIFT;
    while let Some(closed) = state.words.next_unready(page, end) {
        // (What is on its way out may be there still, and will not be.)
        while matches!(state.words.get(closed), Word::Transit(_)) {
            raw::own(nr::SCHED_YIELD, [0; 3]);
        }
        // A fault like the program's own: as if it wrote there, since the kernel will.
        program_memory::touch_to_write(closed << SHIFT);
        page = closed + 1;
    }
    if let Some((around, added)) = look(state, window) {
        record.pinned.cut(depth);
        note_plain(record, &around, added);
    }
}
