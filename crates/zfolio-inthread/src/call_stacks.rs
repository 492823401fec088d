//! Stacks of ours that calls are answered on where the program's may be too small.
//!
//! A call that the kernel answers writes nothing to the program's stack. Ours is answered by code,
//! which needs some KiB. On the stack that a thread was made with there is room below. Elsewhere
//! (goroutines, coroutines, stacks that an allocator gave) what lies a few bytes below may be somebody
//! else's. So a thread has [`COUNT`] stacks of ours beside its record, and a call that is made anywhere
//! but well within the thread's own stack, or on its signal stack, is answered on the first of them that is free: a
//! handler that interrupts it and makes calls itself has the next one.
//!
//! The entry (`answer::entry`) takes a stack before anything is written, and gives it back when the
//! program goes on. At the top of each lies its [`Slot`].
//!
//! # Invariants
//! - `taken` is 1 from before the stack pointer is on the stack until after it has left it. Only whoever
//!   made it 1 writes `stack`.
//! - `stack` is the program's stack pointer, or [`NONE`] where it has not been written yet.
//! - Where all are taken a call is answered on the program's stack.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Of a thread. The entry looks at as many.
pub(crate) const COUNT: usize = 3;
/// Bytes of one.
pub(crate) const SIZE: usize = 32 << 10;
/// From where the stacks begin to the slot of the first, bytes. The next one's is [`SIZE`] further.
pub(crate) const FIRST_SLOT: usize = SIZE - size_of::<Slot>();
/// From a slot to whether it is taken, bytes.
pub(crate) const TAKEN: usize = core::mem::offset_of!(Slot, taken);
/// In a slot whose stack nobody is on: no stack pointer.
pub(crate) const NONE: usize = usize::MAX;
/// Fewer bytes than any frame of a signal has, what a handler may not write included: 128 of these, 440 of the
/// signal and the registers, 512 of those of vectors at least.
const FRAME: usize = 1024;
/// Bytes of a thread's own stack that a call may need: with less below it, it has one of ours.
pub(crate) const ROOM: usize = 16 << 10;

/// The top of a stack of ours.
#[repr(C, align(16))]
pub(crate) struct Slot {
    stack: AtomicUsize,
    taken: AtomicU32,
}

/// Which stacks are taken.
#[derive(Clone, Copy)]
pub(crate) struct Taken([bool; COUNT]);

/// The stacks of a thread.
pub(crate) struct CallStacks {
    /// Where they begin.
    start: usize,
}

impl Slot {
    fn free(&self) {
        self.stack.store(NONE, Ordering::Relaxed);
        self.taken.store(0, Ordering::Release);
    }
}

impl CallStacks {
    /// Those that begin at `start`.
    ///
    /// # Safety
    /// [`COUNT`] times [`SIZE`] bytes there are nothing else, for ever.
    pub(crate) const unsafe fn at(start: usize) -> Self {
        Self { start }
    }

    fn slot(&self, index: usize) -> &Slot {
        let at = self.start + FIRST_SLOT + index * SIZE;
        // SAFETY: within the stacks, as whoever made this says; all of a slot is atomic.
        unsafe { &*(at as *const Slot) }
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        (0..COUNT).map(|index| self.slot(index))
    }

    /// All are free: the thread begins.
    pub(crate) fn reset(&self) {
        self.slots().for_each(Slot::free);
    }

    /// Takes one for a call that was made with the stack pointer at `stack`; its slot.
    pub(crate) fn take(&self, stack: usize) -> Option<usize> {
        let mut slots = self.slots();
        let slot = slots.find(|slot| slot.taken.swap(1, Ordering::Acquire) == 0)?;
        slot.stack.store(stack, Ordering::Relaxed);
        Some(core::ptr::from_ref(slot) as usize)
    }

    /// Whether `slot` is that of the first stack.
    pub(crate) const fn is_first(&self, slot: usize) -> bool {
        slot == self.start + FIRST_SLOT
    }

    /// Which are taken now.
    pub(crate) fn taken(&self) -> Taken {
        let is_taken = |index| self.slot(index).taken.load(Ordering::Relaxed) != 0;
        Taken(core::array::from_fn(is_taken))
    }

    /// Frees those that were not taken `before`: who took them has gone.
    pub(crate) fn free_others(&self, before: Taken) {
        for (slot, was) in self.slots().zip(before.0) {
            if !was {
                slot.free();
            }
        }
    }

    /// Frees what calls left that never returned: a handler left them by a long jump. `stack`: of the
    /// call that begins, on the stack of ours at `own` (0: on none), and of no handler on a signal
    /// stack.
    ///
    /// A call that has not returned is interrupted by a handler of a signal, whose frame is larger than
    /// [`FRAME`]: so one that was made within as many bytes is gone. Of others nothing is known, for
    /// handlers may go on to other stacks and come back: theirs stay taken.
    pub(crate) fn drop_stale(&self, stack: usize, own: usize) {
        for slot in self.slots() {
            let is_own = core::ptr::from_ref(slot) as usize == own;
            let is_stale = slot.taken.load(Ordering::Relaxed) != 0
                && slot.stack.load(Ordering::Relaxed).abs_diff(stack) < FRAME;
            if is_stale && !is_own {
                slot.free();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> CallStacks {
        let layout = core::alloc::Layout::from_size_align(COUNT * SIZE, 4096).expect("a layout");
        // SAFETY: of a size, and never freed: the stacks have it.
        let stacks = unsafe { CallStacks::at(alloc::alloc::alloc_zeroed(layout) as usize) };
        stacks.reset();
        stacks
    }

    fn take(stacks: &CallStacks, index: usize, stack: usize) -> usize {
        let slot = stacks.slot(index);
        slot.taken.store(1, Ordering::Relaxed);
        slot.stack.store(stack, Ordering::Relaxed);
        core::ptr::from_ref(slot) as usize
    }

    #[test]
    fn what_a_call_from_the_same_place_finds_is_gone() {
        let stacks = stacks();
        let first = take(&stacks, 0, 0x5000);
        assert!(stacks.is_first(first));
        // A call in a handler, below the signal's frame.
        let own = take(&stacks, 1, 0x5000 - FRAME);
        assert!(!stacks.is_first(own));
        stacks.drop_stale(0x5000 - FRAME, own);
        assert_eq!(stacks.taken().0, [true, true, false]);
        // The program again.
        stacks.slot(1).free();
        let own = take(&stacks, 1, 0x4f80);
        stacks.drop_stale(0x4f80, own);
        assert_eq!(stacks.taken().0, [false, true, false]);
    }

    #[test]
    fn one_that_is_being_taken_is_not_stale() {
        let stacks = stacks();
        stacks.slot(0).taken.store(1, Ordering::Relaxed);
        let own = take(&stacks, 1, 0x4000);
        stacks.drop_stale(0x4000, own);
        assert_eq!(stacks.taken().0, [true, true, false]);
    }

    #[test]
    fn what_a_child_took_is_freed() {
        let stacks = stacks();
        take(&stacks, 0, 0x4000);
        let before = stacks.taken();
        take(&stacks, 1, 0x9000);
        stacks.free_others(before);
        assert_eq!(stacks.taken().0, [true, false, false]);
    }
}
