//! Faults at equal distances: a column of a matrix, records of which one field is
//! read, a walk from the end to the beginning.
//!
//! Faults that are near each other are taken for one reader's. Three equal distances
//! between four of them are a stride; it brings two pages, and twice as many each time
//! that the fault comes which it foretold. So where that was chance, two pages came
//! for nothing. (Readers that go forward page by page are [`Streams`].)
//!
//! [`Streams`]: crate::policy::readahead::Streams

use crate::page::Vpn;
use crate::policy::watermarks::LEAST_WINDOW;

/// Readers remembered.
const READERS: usize = 16;
/// The longest stride, pages; faults further apart are of different readers.
const LONGEST: usize = 64;
/// Pages brought at once for strides longer than a page: each is moved in by itself.
const MOST: usize = 16;
/// Equal distances in a row that are believed.
const EQUAL: u32 = 3;
/// Pages of a stride that may have been there already without ending it.
const GAPS: usize = 4;

#[derive(Clone, Copy, Default)]
struct Reader {
    /// Its last fault.
    last: Vpn,
    /// Pages from one fault to the next; 0: there was only one.
    step: isize,
    /// Equal distances so far.
    equal: u32,
    /// Pages brought for `last`.
    window: usize,
    /// Number of that fault; 0: there is no such reader.
    stamp: u64,
}

/// What to bring for a fault: pages at `fault + n * step`, for n below `pages`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stride {
    /// Pages from one to the next; never 0.
    pub step: isize,
    /// How many, the faulting one among them.
    pub pages: usize,
}

/// Strided readers among recent faults.
#[derive(Default)]
pub struct Strides {
    readers: [Reader; READERS],
    clock: u64,
}

impl Strides {
    /// Notes a load for a fault at `vpn`, and says what it continues.
    pub fn note(&mut self, vpn: Vpn) -> Option<Stride> {
        self.clock += 1;
        let stamp = self.clock;
        let nearest = self
            .readers
            .iter_mut()
            .filter(|reader| reader.stamp > 0 && reader.distance(vpn) <= LONGEST)
            .min_by_key(|reader| reader.distance(vpn));
        match nearest {
            Some(reader) => {
                reader.stamp = stamp;
                reader.follow(vpn)
            }
            None => {
                let oldest = self.readers.iter_mut().min_by_key(|reader| reader.stamp)?;
                *oldest = Reader {
                    last: vpn,
                    stamp,
                    ..Reader::default()
                };
                None
            }
        }
    }
}

impl Reader {
    const fn is_believed(&self) -> bool {
        self.equal >= EQUAL
    }

    /// The fault that is foretold.
    fn next(&self) -> Vpn {
        let brought = self.window.max(1).cast_signed();
        self.last.wrapping_add_signed(self.step * brought)
    }

    /// How far `vpn` is from where this reader should be, pages.
    fn distance(&self, vpn: Vpn) -> usize {
        let from = if self.is_believed() {
            self.next()
        } else {
            self.last
        };
        from.abs_diff(vpn).min(self.last.abs_diff(vpn))
    }

    fn follow(&mut self, vpn: Vpn) -> Option<Stride> {
        if vpn == self.last {
            // The same fault again: there were no frames.
            return self.is_believed().then(|| self.stride());
        }
        let distance = vpn.wrapping_sub(self.last).cast_signed();
        let steps = steps(distance, self.step);
        // (Over pages that were there already it takes several steps at once.)
        match steps.filter(|steps| *steps <= self.window + GAPS) {
            Some(steps) if self.is_believed() => {
                // Before its end, where that is beyond what one fault may bring.
                if steps >= self.window {
                    self.window = (self.window * 2).min(self.most());
                }
            }
            Some(steps) => {
                self.equal += u32::from(steps == 1);
                self.window = if self.is_believed() { 2 } else { 0 };
            }
            None => {
                (self.step, self.equal, self.window) = (distance, 1, 0);
            }
        }
        self.last = vpn;
        self.is_believed().then(|| self.stride())
    }

    fn stride(&self) -> Stride {
        Stride {
            step: self.step,
            pages: self.window,
        }
    }

    const fn most(&self) -> usize {
        if self.step.unsigned_abs() == 1 {
            LEAST_WINDOW
        } else {
            MOST
        }
    }
}

/// How many steps forward `distance` is, if it is a number of them.
fn steps(distance: isize, step: isize) -> Option<usize> {
    let steps = distance.checked_div(step)?;
    (steps > 0 && steps * step == distance).then_some(steps.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `pages` in order, each of them stored; returns the faults that takes.
    fn faults(strides: &mut Strides, pages: impl Iterator<Item = Vpn>) -> usize {
        let mut present = alloc::collections::BTreeSet::new();
        let mut faults = 0;
        for vpn in pages {
            if !present.insert(vpn) {
                continue;
            }
            faults += 1;
            if let Some(Stride { step, pages }) = strides.note(vpn) {
                let ahead = (0..pages.cast_signed()).map(|n| vpn.wrapping_add_signed(n * step));
                present.extend(ahead);
            }
        }
        faults
    }

    #[test]
    fn a_stride_of_any_length_and_direction_is_followed() {
        for step in [-64_isize, -7, -1, 2, 3, 16, 64] {
            let walk = (0..1000).map(|n| 1_000_000_usize.wrapping_add_signed(n * step));
            let took = faults(&mut Strides::default(), walk);
            let most = if step == -1 { 25 } else { 75 };
            assert!(took < most, "{took} faults of 1000 by {step}");
        }
    }

    #[test]
    fn several_are_told_apart_and_pages_that_were_there_do_not_end_them() {
        let mut strides = Strides::default();
        // (Every fifth page of each walk is present.)
        let walk = (0..1000_usize)
            .filter(|n| n % 5 != 3)
            .flat_map(|n| [1_000_000 + n * 8, 9_000_000 - n * 3, 5_000_000 + n * 48]);
        let took = faults(&mut strides, walk);
        assert!(took < 400, "{took} faults of 2400");
    }

    #[test]
    fn what_is_scattered_brings_nothing() {
        let mut strides = Strides::default();
        let mut state = 1_u64;
        let mut brought = 0;
        for _ in 0..100_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let vpn = usize::try_from(state >> 33).expect("31 bits") % 50_000;
            brought += strides.note(vpn).map_or(0, |stride| stride.pages);
        }
        assert!(brought < 200, "{brought} pages for 100,000 faults");
    }

    #[test]
    fn a_fault_that_is_tried_again_says_the_same() {
        let mut strides = Strides::default();
        let mut last = None;
        for vpn in (1000..1100).step_by(10) {
            last = strides.note(vpn);
            assert_eq!(strides.note(vpn), last);
        }
        assert!(last.is_some_and(|stride| stride.step == 10));
    }
}
