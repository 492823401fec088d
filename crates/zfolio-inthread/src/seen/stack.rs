//! The program's stack that a call is made on.
//!
//! A thread's own is not managed mostly: the first thread's, and those mapped as stacks. Where it is,
//! what answering a call there needs is pinned and present before anything else: the kernel is given
//! addresses in it. Calls made elsewhere are answered on stacks of ours (`call_stacks`).

use super::pinning::Keeper;
use super::plain_stack::{added_to, is_plain, note as note_plain};
use crate::call_stacks::ROOM;
use crate::memory::words::Word;
use crate::program_memory;
use crate::raw::{self, PAGE, SHIFT, nr};
use crate::state::State;
use crate::threads::Record;
use core::ops::Range;

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

/// Whether nothing of `window` is managed memory, so that nothing of it is closed. What is found is kept in the record.
pub(crate) fn is_unmanaged(state: &State, record: &Record, window: &Range<usize>) -> bool {
    if state.has_left() || is_plain(record, window) {
        return true;
    }
    let found = look(state, window);
    if let Some((around, added)) = &found {
        note_plain(record, around, *added);
    }
    found.is_some()
}

/// What is around `window`, if that is not managed.
fn look(state: &State, window: &Range<usize>) -> Option<(Range<usize>, usize)> {
    state.locked(|core| {
        let around = core.ranges.unmanaged_around(window)?;
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
    if is_unmanaged(state, record, window) {
        record.pinned.cut(depth);
    }
}
