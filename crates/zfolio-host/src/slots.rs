//! The slots of a segment as `zfolio run` goes through them again and again.
//!
//! A slot becomes another process's once its owner is over, so what is remembered of one
//! is remembered with its turn.

use zfolio_runtime::segment::{Segment, Used};

/// Every slot somebody counts in, in the order of claiming; the shared one last.
pub fn used(segment: &Segment) -> Vec<Used<'_>> {
    let mut used: Vec<Used<'_>> = segment.used().collect();
    used.sort_by_key(|used| used.turn.wrapping_sub(1));
    used
}

/// What is remembered of places, each with the turn it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByTurn<T>(Vec<(u64, T)>);

impl<T> Default for ByTurn<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default + Clone> ByTurn<T> {
    /// What is remembered of the place at `index`, if it is of this turn; else nothing yet.
    pub fn of(&mut self, index: usize, turn: u64) -> &mut T {
        if self.0.len() <= index {
            self.0.resize(index + 1, (0, T::default()));
        }
        let (known, what) = &mut self.0[index];
        if *known != turn {
            (*known, *what) = (turn, T::default());
        }
        what
    }

    /// The same, to look at.
    pub fn get(&self, index: usize, turn: u64) -> Option<&T> {
        let (known, what) = self.0.get(index)?;
        (*known == turn).then_some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_of_one_turn() {
        let mut known = ByTurn::<u32>::default();
        *known.of(3, 7) = 5;
        assert_eq!(known.get(3, 7), Some(&5));
        assert_eq!((known.get(3, 8), known.get(9, 7)), (None, None));
        assert_eq!(*known.of(3, 8), 0);
        assert_eq!(known.get(3, 7), None);
    }

    #[test]
    fn they_come_in_the_order_of_claiming() {
        let segment = crate::example::example();
        segment.retire(0);
        let _ = segment.claim(102);
        let pids = |segment: &Segment| -> Vec<u32> {
            let pid = |used: &Used<'_>| {
                used.slot
                    .process
                    .pid
                    .load(std::sync::atomic::Ordering::Relaxed)
            };
            used(segment).iter().map(pid).collect()
        };
        assert_eq!(pids(&segment), [101, 102]);
        // None can be made: the shared one.
        let who = zfolio_runtime::segment::Who {
            word: 9,
            namespace: 0,
            pid: 103,
        };
        assert_eq!(
            segment.claim_for(who, |_| false),
            zfolio_runtime::segment::SHARED
        );
        assert_eq!(pids(&segment), [101, 102, 103]);
    }
}
