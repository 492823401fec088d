//! What happened to the program's address space, whoever tells of it.
//!
//! The kernel's descriptor tells (`address_space/told.rs` makes events of its messages). Whoever sees
//! the system calls themselves can make the same events of them.

/// A change of the program's address space. Addresses are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// mremap moved a range.
    Remap {
        /// Old start.
        from: usize,
        /// New start.
        to: usize,
        /// Bytes.
        len: usize,
    },
    /// A range is about to be discarded.
    Remove {
        /// First byte.
        start: usize,
        /// One past the last.
        end: usize,
    },
    /// A range was unmapped.
    Unmap {
        /// First byte.
        start: usize,
        /// One past the last.
        end: usize,
    },
    /// The program forked. Changes nothing: it marks a place in the order of the others.
    Fork {
        /// Which fork, a number that no other mark in the same list has.
        mark: i32,
    },
}

/// An event as numbers: its kind, and what goes with it.
pub(crate) type EventWords = [usize; 4];

const NOTHING: usize = 0;
const REMOVE: usize = 1;
const UNMAP: usize = 2;
const REMAP: usize = 3;

impl Event {
    /// As numbers, for a child of a fork. A fork is of no use there: it becomes nothing.
    pub(crate) const fn to_words(self) -> EventWords {
        match self {
            Self::Remove { start, end } => [REMOVE, start, end, 0],
            Self::Unmap { start, end } => [UNMAP, start, end, 0],
            Self::Remap { from, to, len } => [REMAP, from, to, len],
            Self::Fork { .. } => [NOTHING; 4],
        }
    }

    /// The event that [`Self::to_words`] made numbers of; `None` for nothing, and for a kind
    /// that there is not.
    pub(crate) const fn from_words([kind, first, second, third]: EventWords) -> Option<Self> {
        match kind {
            REMOVE => Some(Self::Remove {
                start: first,
                end: second,
            }),
            UNMAP => Some(Self::Unmap {
                start: first,
                end: second,
            }),
            REMAP => Some(Self::Remap {
                from: first,
                to: second,
                len: third,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_the_event_again(a: usize, b: usize, c: usize) {
            let events = [
                Event::Remove { start: a, end: b },
                Event::Unmap { start: a, end: b },
                Event::Remap { from: a, to: b, len: c },
            ];
            for event in events {
                prop_assert_eq!(Event::from_words(event.to_words()), Some(event));
            }
        }

        #[test]
        fn what_is_no_event_is_none(kind in 4_usize.., a: usize, mark: i32) {
            prop_assert_eq!(Event::from_words([kind, a, a, a]), None);
            prop_assert_eq!(Event::from_words(Event::Fork { mark }.to_words()), None);
        }
    }
}
