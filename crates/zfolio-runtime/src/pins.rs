//! Ranges that must stay where they are while somebody holds them: for system
//! calls and foreign code, which cannot have a fault served.

use alloc::vec::Vec;
use core::ops::Range;

/// Pinned ranges of addresses; one may be pinned several times.
#[derive(Default)]
pub(crate) struct Pins {
    held: Vec<Range<usize>>,
    /// Bytes of all, overlaps counted each time.
    bytes: usize,
}

impl Pins {
    /// Adds one.
    pub(crate) fn add(&mut self, range: Range<usize>) {
        self.bytes += range.len();
        self.held.push(range);
    }

    /// Removes one that was added; false if there is none like it.
    pub(crate) fn remove(&mut self, range: &Range<usize>) -> bool {
        let found = self.held.iter().position(|held| held == range);
        if let Some(index) = found {
            self.held.swap_remove(index);
            self.bytes -= range.len();
        }
        found.is_some()
    }

    /// Whether any address of `range` is pinned.
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        self.held
            .iter()
            .any(|held| held.start < range.end && range.start < held.end)
    }

    /// Bytes pinned.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_pinned_twice_is_free_after_the_second_time() {
        let mut pins = Pins::default();
        pins.add(10..20);
        pins.add(10..20);
        pins.add(40..50);
        assert!(pins.overlaps(&(19..25)) && !pins.overlaps(&(20..40)));
        assert!(pins.remove(&(10..20)));
        assert!(pins.overlaps(&(0..11)));
        assert_eq!(pins.bytes(), 20);
        assert!(pins.remove(&(10..20)));
        assert!(!pins.overlaps(&(0..30)));
        assert!(!pins.remove(&(10..20)));
    }
}
