//! The stack that a call is answered on.
//!
//! Most are not managed: the first thread's, and those mapped as stacks. Code that runs
//! elsewhere (coroutines, threads of other runtimes) may have the next page of its stack out.
//! There what answering needs is pinned and present before anything else: the kernel is given
//! addresses in it.

use super::pinning::Keeper;
use super::plain_stack::{added_to, is_plain, note};
use crate::memory::words::Word;
use crate::raw::{self, PAGE, SHIFT, nr};
use core::ops::Range;

/// Bytes that answering a call takes on the program's stack, at most: what is done under a
/// lock has another.
const DEPTH: usize = 16 << 10;

/// Keeps what answering needs of the stack, if it is managed memory.
#[inline]
pub(crate) fn keep(keeper: &Keeper<'_>) {
    let window = keeper.stack.saturating_sub(DEPTH)..keeper.stack;
    if !is_plain(keeper.record, &window) {
        keep_managed(keeper, &window);
    }
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
        raw::touch_to_write(closed << SHIFT);
        page = closed + 1;
    }
    let plain = state.locked(|core| {
        let Some(around) = core.ranges.unmanaged_around(window) else {
            core.note_managed_stack(state);
            return None;
        };
        Some((around.clone(), added_to(around.start, around.end)))
    });
    if let Some((around, added)) = plain {
        record.pinned.cut(depth);
        note(record, &around, added);
    }
}
