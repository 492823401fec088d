//! Slots come and go with their processes.
//!
//! Whoever claims a slot owns it ([`Owner`]) until it is over; then `zfolio run`, and nobody
//! else, adds up what it counted and makes the slot nobody's, all of it 0 again. Only where
//! none is free, or there is no memory for another, a process counts in the slot that is
//! *shared* by all such.
//!
//! [`Owner`]: super::Owner

use super::layout::{SHARED, Segment};
use super::owner::Who;
use super::process_slot::{ProcessSlot, state};
use core::mem::offset_of;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::arena::populate;

/// A slot somebody counts in.
#[derive(Clone, Copy)]
pub struct Used<'a> {
    /// Which.
    pub index: usize,
    /// Which claim of the segment it is by; 0: the shared one.
    pub turn: u64,
    /// What it counts.
    pub slot: &'a ProcessSlot,
}

impl Segment {
    /// Bytes a new segment needs memory for: all before the slots and the first, and the
    /// shared one.
    pub const FIRST_BYTES: [Range<usize>; 2] = {
        let (slots, one) = (offset_of!(Self, slots), size_of::<ProcessSlot>());
        let shared = slots + SHARED * one;
        [0..slots + one, shared..shared + one]
    };

    /// Claims a slot for the calling process, `pid`, and makes its memory; where there is none,
    /// or no memory for another, the shared one. Returns its index.
    #[must_use]
    pub fn claim(&self, pid: u32) -> usize {
        let who = Who {
            pid,
            ..Who::is_calling()
        };
        self.claim_for(who, is_there)
    }

    /// The same for any process. `is_there` makes the memory of a slot, and says whether it
    /// could.
    #[must_use]
    pub fn claim_for(&self, who: Who, mut is_there: impl FnMut(&ProcessSlot) -> bool) -> usize {
        let index = self.own(who, &mut is_there).unwrap_or_else(|| {
            self.crowded.fetch_add(1, Ordering::Relaxed);
            SHARED
        });
        let slot = &self.slots[index];
        slot.process.pid.store(who.pid, Ordering::Relaxed);
        slot.state.store(state::WATCHING, Ordering::Release);
        index
    }

    /// A turn that no other place has.
    pub fn next_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Becomes the owner of a slot: one that was another's, or a new one.
    fn own(&self, who: Who, is_there: &mut impl FnMut(&ProcessSlot) -> bool) -> Option<usize> {
        // (Each turn but the last, somebody else has got one.)
        for _ in 0..2 * SHARED {
            let known = self.claimed.load(Ordering::Acquire);
            let count = (known as usize).min(SHARED);
            let mut places = self.owners[..count].iter();
            let free =
                places.position(|owner| owner.is_free() && owner.take(0, who, self.next_turn()));
            if free.is_some() {
                return free;
            }
            let next = self.slots[..SHARED].get(count)?;
            if count > 0 && !is_there(next) {
                return None;
            }
            // Told only now that it can be looked at. Who loses has made it for the other.
            let told = self.claimed.compare_exchange(
                known,
                known.saturating_add(1),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if told.is_ok() && self.owners[count].take(0, who, self.next_turn()) {
                return Some(count);
            }
        }
        None
    }

    /// Every slot that somebody counts in, by index.
    pub fn used(&self) -> impl Iterator<Item = Used<'_>> {
        let count = (self.claimed.load(Ordering::Acquire) as usize).min(SHARED);
        let own = (0..count).filter_map(|index| {
            Some(Used {
                index,
                turn: self.owners[index].owned()?.turn,
                slot: &self.slots[index],
            })
        });
        let shared = (self.crowded.load(Ordering::Acquire) > 0).then_some(Used {
            index: SHARED,
            turn: 0,
            slot: &self.slots[SHARED],
        });
        own.chain(shared)
    }

    /// The turn by which its process has this slot; 0: it is nobody's, or shared.
    #[must_use]
    pub fn turn_of(&self, slot: &ProcessSlot) -> u64 {
        let mut own = self.slots[..SHARED].iter().zip(&self.owners);
        let found = own.find(|(one, _)| ptr::eq(*one, slot));
        found.map_or(0, |(_, owner)| owner.turn.load(Ordering::Acquire))
    }

    /// Slots that can be claimed, given the memory.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        let free = self.owners[..SHARED].iter().filter(|owner| owner.is_free());
        free.count()
    }

    /// Makes a slot nobody's. For `zfolio run` alone, which knows that its owner is over, and
    /// has added up what it counted.
    pub fn retire(&self, index: usize) {
        if index < SHARED {
            self.slots[index].clear();
            self.owners[index].free();
        }
    }

    /// What must hold whenever nobody is in the midst of a step. For tests.
    ///
    /// # Errors
    /// What does not.
    pub fn validate(&self) -> Result<(), &'static str> {
        let claimed = self.claimed.load(Ordering::Acquire) as usize;
        if claimed > SHARED {
            return Err("more slots are claimed than there are");
        }
        if !self.owners[SHARED].is_free() {
            return Err("the shared slot is somebody's");
        }
        let last = self.turns.load(Ordering::Acquire);
        for (index, owner) in self.owners[..SHARED].iter().enumerate() {
            let turn = owner.turn.load(Ordering::Relaxed);
            let Some(owned) = owner.owned() else {
                if owner.is_free() && turn != 0 {
                    return Err("a turn is left in a place of nobody's");
                }
                if owner.is_free() && index < claimed && !self.slots[index].is_clear() {
                    return Err("a figure is left in a slot of nobody's");
                }
                continue;
            };
            if index >= claimed {
                return Err("a slot is owned that was never claimed");
            }
            if !(1..=last).contains(&owned.turn) {
                return Err("a turn that never was");
            }
            let mut before = self.owners[..index].iter();
            if before.any(|other| other.turn.load(Ordering::Relaxed) == turn) {
                return Err("two places of one turn");
            }
        }
        Ok(())
    }
}

/// Makes the memory of `slot`, and says whether it could.
fn is_there(slot: &ProcessSlot) -> bool {
    let start = ptr::from_ref(slot) as usize;
    let first = start & !(PAGE_SIZE - 1);
    let end = (start + size_of::<ProcessSlot>()).next_multiple_of(PAGE_SIZE);
    populate(first, end - first).is_ok()
}
