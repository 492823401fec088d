//! The second half of an mremap that comes late.
//!
//! An mremap sends REMAP, sleeps until that is read, and then sends UNMAP for
//! its source. The source is free meanwhile: another thread may have moved a
//! mapping there, and the REMAP of that may have been read first. Then the
//! unmap is about what was there before, and must not touch what is there now.
//!
//! Told by counting: an unmap of exactly the source of a remap is its second
//! half. That may be wrong for `MREMAP_DONTUNMAP`, which has none (and whose
//! source the program unmaps by itself), and does no harm then: only an unmap
//! is ignored whose range was moved to after the remap, and to a source that
//! is still mapped nothing moves without an unmap before.

use alloc::vec::Vec;
use core::ops::Range;
use zfolio_sys::uffd::Message;

/// Sources remembered at most: an mremap each, in different threads.
const MOST: usize = 64;

/// The source of a remap whose unmap may be still to come.
struct Source {
    range: Range<usize>,
    /// Something was moved there since.
    reused: bool,
}

/// Sources of remaps since no event was in flight, oldest first.
pub(crate) struct Departed(Vec<Source>);

impl Departed {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(MOST))
    }

    /// Whether `message` is about what was there before and says nothing new.
    /// Every message must pass here, in the order they are read.
    pub(crate) fn is_late(&mut self, message: &Message) -> bool {
        match *message {
            Message::Remap { from, to, len } => {
                for source in self.overlapping(to..to + len) {
                    source.reused = true;
                }
                if self.0.len() == MOST {
                    self.0.remove(0);
                }
                self.0.push(Source {
                    range: from..from + len,
                    reused: false,
                });
                false
            }
            Message::Unmap { start, end } => {
                let second = self.0.iter().position(|s| s.range == (start..end));
                if let Some(index) = second {
                    return self.0.remove(index).reused;
                }
                // The source of a `MREMAP_DONTUNMAP`, with more.
                self.0.retain(|s| !overlap(&s.range, &(start..end)));
                false
            }
            _ => false,
        }
    }

    fn overlapping(&mut self, range: Range<usize>) -> impl Iterator<Item = &mut Source> {
        self.0.iter_mut().filter(move |s| overlap(&s.range, &range))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// No event is in flight: what was to come has come.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: usize = 0x1000;
    const LEN: usize = 0x2000;

    fn unmap(start: usize, len: usize) -> Message {
        let end = start + len;
        Message::Unmap { start, end }
    }

    fn remap(from: usize, to: usize) -> Message {
        let len = LEN;
        Message::Remap { from, to, len }
    }

    /// Which of `messages` are late.
    fn late(messages: &[Message]) -> Vec<usize> {
        let mut departed = Departed::new();
        (0..messages.len())
            .filter(|index| departed.is_late(&messages[*index]))
            .collect()
    }

    #[test]
    fn an_unmap_is_late_where_something_moved_meanwhile() {
        let reused = [
            unmap(A, LEN), // a plain one
            remap(A, 0x9000),
            remap(0x5000, A),
            unmap(A, LEN), // of the first
            unmap(A, LEN), // of what moved there
        ];
        assert_eq!(late(&reused), [3]);
        let partly = [remap(A, 0x9000), remap(0x5000, A + 0x1000), unmap(A, LEN)];
        assert_eq!(late(&partly), [2]);
    }

    #[test]
    fn an_unmap_in_time_counts() {
        assert_eq!(late(&[remap(A, 0x9000), unmap(A, LEN)]), []);
        let moved_later = [
            remap(A, 0x9000),
            unmap(A, LEN),
            remap(0x5000, A),
            unmap(A, LEN),
        ];
        assert_eq!(late(&moved_later), []);
    }

    #[test]
    fn a_source_left_mapped_is_unmapped_by_the_program() {
        let exactly = [remap(A, 0x9000), unmap(A, LEN), remap(0x5000, A)];
        assert_eq!(late(&exactly), []);
        let with_more = [
            remap(A, 0x9000),
            unmap(0, A + LEN),
            remap(0x5000, A),
            unmap(A, LEN),
        ];
        assert_eq!(late(&with_more), []);
    }

    #[test]
    fn with_nothing_in_flight_there_is_nothing_to_come() {
        let mut departed = Departed::new();
        departed.is_late(&remap(A, 0x9000));
        departed.forget();
        departed.is_late(&remap(0x5000, A));
        assert!(!departed.is_late(&unmap(A, LEN)));
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut departed = Departed::new();
        for n in 0..=MOST {
            departed.is_late(&remap(0x10_0000 + n * 0x4000, 0x9000));
        }
        assert_eq!(departed.0.len(), MOST);
        assert_eq!(departed.0[0].range.start, 0x10_4000);
    }
}
