//! Which codec `auto` uses: a fast one while much of what is stored comes back, else a dense one.

use crate::policy::watermarks::Watermarks;
use crate::segment::{Counter, ProcessSlot};
use core::sync::atomic::Ordering;
use zfolio_compress::adaptive::{Density, Form};

/// Pages that came or left between two judgements.
const WINDOW: u64 = 4096;
/// Of so many pages stored, one that comes back is many.
const MANY: u64 = 4;

/// What came from the pool and went there, judged window by window.
#[derive(Clone, Copy, Default, Debug)]
pub struct Turnover {
    came: u64,
    went: u64,
    returns: bool,
}

impl Turnover {
    /// As last judged.
    #[must_use]
    pub const fn returns(&self) -> bool {
        self.returns
    }

    /// Takes the totals so far, in pages; returns whether in the last whole window
    /// many came back.
    pub fn judge(&mut self, came: u64, went: u64) -> bool {
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

    /// The form that new units have at least: where `high` follows the program little comes back by
    /// that, and where there is a second tier they would be made so dense later, as far as there is
    /// time; so while little comes back they are at once.
    #[must_use]
    pub const fn least_form(&self, follows: bool, has_tier: bool) -> Form {
        if follows || has_tier && !self.returns {
            Form::Densest
        } else {
            Form::Fast
        }
    }

    /// Room or time: decided by how much of `high` a pool of `pool` pages has taken.
    /// Where much of it comes back, room has to be scarcer before it is bought with
    /// time. `least`: the form that new units have at least, before the pool is large.
    pub(crate) fn choose_density(
        &mut self,
        stats: &ProcessSlot,
        least: Form,
        watermarks: &Watermarks,
        pool: usize,
        density: &Density,
    ) {
        let count = |counter| stats.counter(counter).load(Ordering::Relaxed);
        let stood_by = count(Counter::StandbyRefault);
        let came = count(Counter::PagesIn).saturating_sub(stood_by);
        let went = count(Counter::PagesOut).saturating_sub(stood_by);
        let limits = [
            watermarks.dense(self.judge(came, went)),
            watermarks.densest(),
        ];
        let by_size = form(density.get(), pool, limits);
        density.set(by_size.or_denser(least));
    }
}

/// What follows `now` with a pool of `pool` pages: each form but the first has a size of the
/// pool from which it is chosen, and one below which it is left.
fn form(now: Form, pool: usize, [dense, densest]: [[usize; 2]; 2]) -> Form {
    let is_over = |[on, off]: [usize; 2], was: bool| pool > on || was && pool >= off;
    if is_over(densest, now == Form::Densest) {
        Form::Densest
    } else if is_over(dense, now != Form::Fast) {
        Form::Dense
    } else {
        Form::Fast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_stays_until_the_pool_is_small_again() {
        let limits = [[55, 45], [60, 40]];
        let mut now = Form::Fast;
        for (pool, then) in [
            (55, Form::Fast),
            (56, Form::Dense),
            (46, Form::Dense),
            (60, Form::Dense),
            (61, Form::Densest),
            (40, Form::Densest),
            (39, Form::Fast),
            (54, Form::Fast),
            (80, Form::Densest),
        ] {
            now = form(now, pool, limits);
            assert_eq!(now, then, "{pool}");
        }
        assert_eq!(form(Form::Densest, 30, [[35, 25], [60, 40]]), Form::Dense);
    }

    #[test]
    fn the_form_that_needs_less_room_is_the_denser() {
        let all = [Form::Fast, Form::Dense, Form::Densest];
        for (at, one) in all.into_iter().enumerate() {
            for (other_at, other) in all.into_iter().enumerate() {
                assert_eq!(one.or_denser(other), all[at.max(other_at)]);
            }
        }
    }

    #[test]
    fn with_a_second_tier_what_stays_is_made_dense_at_once() {
        let mut turnover = Turnover::default();
        let form = |turnover: Turnover| [false, true].map(|tier| turnover.least_form(false, tier));
        assert_eq!(form(turnover), [Form::Fast, Form::Densest]);
        assert!(turnover.judge(20_000, 50_000));
        assert_eq!(form(turnover), [Form::Fast; 2], "much comes back");
        assert_eq!(turnover.least_form(true, false), Form::Densest);
    }

    #[test]
    fn growth_alone_does_not_return_and_a_working_set_does() {
        let mut turnover = Turnover::default();
        assert!(!turnover.judge(100, 50_000));
        assert!(!turnover.judge(600, 52_000), "too little to judge by");
        assert!(turnover.judge(20_000, 70_000));
        assert!(!turnover.judge(20_001, 90_000));
    }
}
