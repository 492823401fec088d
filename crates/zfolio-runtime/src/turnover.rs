//! Whether what is stored comes back: then time is worth more than room.

use crate::control::{Counter, ProcessSlot};
use crate::options::Watermarks;
use core::sync::atomic::Ordering;
use zfolio_compress::adaptive::Density;

/// Pages that came or left between two judgements.
const WINDOW: u64 = 4096;
/// Of so many pages stored, one that comes back is many.
const MANY: u64 = 4;

/// What came from the pool and went there, judged window by window.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Turnover {
    came: u64,
    went: u64,
    returns: bool,
}

impl Turnover {
    /// As last judged.
    pub(crate) const fn returns(&self) -> bool {
        self.returns
    }

    /// Takes the totals so far, in pages; returns whether in the last whole window
    /// many came back.
    pub(crate) fn judge(&mut self, came: u64, went: u64) -> bool {
        let back = came.saturating_sub(self.came);
        let out = went.saturating_sub(self.went);
        if back + out >= WINDOW {
            *self = Self {
                came,
                went,
                returns: back * MANY > out,
            };
        }
        self.returns
    }

    /// Room or time: decided by how much of `high` a pool of `pool` pages has taken.
    /// Where much of it comes back, room has to be scarcer before it is bought with
    /// time.
    pub(crate) fn choose_density(
        &mut self,
        stats: &ProcessSlot,
        watermarks: &Watermarks,
        pool: usize,
        density: &Density,
    ) {
        let count = |counter| stats.counter(counter).load(Ordering::Relaxed);
        let stood_by = count(Counter::StandbyRefault);
        let came = count(Counter::PagesIn).saturating_sub(stood_by);
        let went = count(Counter::PagesOut).saturating_sub(stood_by);
        let [on, off] = watermarks.dense(self.judge(came, went));
        if pool > on {
            density.set(true);
        } else if pool < off {
            density.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_alone_does_not_return_and_a_working_set_does() {
        let mut turnover = Turnover::default();
        assert!(!turnover.judge(100, 50_000));
        assert!(!turnover.judge(600, 52_000), "too little to judge by");
        assert!(turnover.judge(20_000, 70_000));
        assert!(!turnover.judge(20_001, 90_000));
    }
}
