//! Ranges that must stay where they are while somebody holds them: for system
//! calls and foreign code, which cannot have a fault served.

use crate::error::PinError;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_mm::PAGE_SIZE;

/// Pinned ranges of addresses; one may be pinned several times.
#[derive(Default)]
pub(crate) struct Pins {
    held: Vec<Range<usize>>,
    /// Bytes of all, overlaps counted each time.
    bytes: usize,
}

impl Pins {
    /// Adds one, of memory whose `high` is so many pages.
    ///
    /// # Errors
    /// With it, pins would be more than half of that.
    pub(crate) fn hold(&mut self, range: Range<usize>, high: usize) -> Result<(), PinError> {
        if self.bytes + range.len() > high * PAGE_SIZE / 2 {
            return Err(PinError::TooMuch);
        }
        self.bytes += range.len();
        self.held.push(range);
        Ok(())
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_pinned_twice_is_free_after_the_second_time() {
        let mut pins = Pins::default();
        pins.hold(10..20, 1).unwrap();
        pins.hold(10..20, 1).unwrap();
        pins.hold(40..50, 1).unwrap();
        assert_eq!(pins.hold(50..2090, 1), Err(PinError::TooMuch));
        assert!(pins.overlaps(&(19..25)) && !pins.overlaps(&(20..40)));
        assert!(pins.remove(&(10..20)));
        assert!(pins.overlaps(&(0..11)));
        assert_eq!(pins.bytes, 20);
        assert!(pins.remove(&(10..20)));
        assert!(!pins.overlaps(&(0..30)));
        assert!(!pins.remove(&(10..20)));
    }
}
