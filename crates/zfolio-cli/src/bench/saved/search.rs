//! The smallest step at which a median is within a limit, by halving.
//!
//! It assumes that what fits at a step fits at greater ones. A step is decided
//! once its median is certain, which may take fewer samples than it may have; the
//! smallest that fits gets them all.

use crate::bench::ministat::Summary;

/// What a step is judged by.
pub(super) trait Judged {
    /// The figure that may not be above the limit; infinite if it was not to be
    /// waited for.
    fn figure(&self) -> f64;
}

/// A step that was tried.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Probe<S> {
    pub(super) step: u32,
    pub(super) samples: Vec<S>,
}

/// A search among the steps from 1 on.
#[derive(Debug)]
pub(super) struct Search<S> {
    /// The last step.
    steps: u32,
    /// Samples of a step, and what their median may be.
    most: usize,
    limit: f64,
    /// Too small, or 0.
    below: u32,
    /// The smallest found to fit, its samples last in `probes`; or one beyond the
    /// last step.
    fits: u32,
    /// Those tried, the one that fits best or is being tried last.
    pub(super) probes: Vec<Probe<S>>,
}

impl<S: Judged> Search<S> {
    /// Among `steps` steps, with `samples` for each at most.
    pub(super) fn new(steps: u32, samples: usize, limit: f64) -> Self {
        Self {
            steps,
            most: samples.max(1),
            limit,
            below: 0,
            fits: steps + 1,
            probes: Vec::new(),
        }
    }

    /// The step of the next sample; `None` when all is known.
    pub(super) fn next(&self) -> Option<u32> {
        if self.below + 1 < self.fits {
            return Some(u32::midpoint(self.below, self.fits));
        }
        let smallest = self.smallest()?;
        (smallest.samples.len() < self.most).then_some(smallest.step)
    }

    /// Takes a sample of the step that [`Self::next`] named.
    pub(super) fn add(&mut self, sample: S) {
        let Some(step) = self.next() else { return };
        let at = self.probes.iter().position(|probe| probe.step == step);
        let at = at.unwrap_or_else(|| {
            self.probes.push(Probe {
                step,
                samples: Vec::new(),
            });
            self.probes.len() - 1
        });
        self.probes[at].samples.push(sample);
        if self.below < step && step < self.fits {
            match self.judged(&self.probes[at].samples) {
                None => {}
                Some(true) => self.fits = step,
                Some(false) => self.below = step,
            }
        }
    }

    /// The smallest step that fits, of those tried; `None` if none does, or as
    /// long as none was found.
    pub(super) fn smallest(&self) -> Option<&Probe<S>> {
        self.probes.iter().find(|probe| probe.step == self.fits)
    }

    /// The greatest step, if not even that fits.
    pub(super) fn greatest(&self) -> Option<&Probe<S>> {
        let last = self.probes.iter().find(|probe| probe.step == self.steps);
        last.filter(|_| self.fits > self.steps)
    }

    /// Whether the median fits, once that is certain.
    fn judged(&self, samples: &[S]) -> Option<bool> {
        let fit = samples.iter().filter(|s| s.figure() <= self.limit).count();
        if fit * 2 > self.most {
            return Some(true);
        }
        if (samples.len() - fit) * 2 > self.most {
            return Some(false);
        }
        let figures: Vec<f64> = samples.iter().map(Judged::figure).collect();
        let all = Summary::of(&figures).filter(|all| all.n >= self.most);
        all.map(|all| all.median <= self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Judged for f64 {
        fn figure(&self) -> f64 {
            *self
        }
    }

    fn run(search: &mut Search<f64>, mut figure: impl FnMut(u32) -> f64) -> usize {
        let mut samples = 0;
        while let Some(step) = search.next() {
            search.add(figure(step));
            samples += 1;
            assert!(samples < 10_000, "it does not end: {search:?}");
        }
        samples
    }

    #[test]
    fn samples_are_spared_where_the_median_is_certain() {
        let mut search = Search::new(8, 5, 1.0);
        // 4 fits with three of three, 2 and 3 do not; then two more for 4.
        let samples = run(&mut search, |step| if step >= 4 { 0.5 } else { 2.0 });
        assert_eq!(samples, 3 + 3 + 3 + 2);
        let found = search.smallest().expect("4 fits");
        assert_eq!((found.step, found.samples.len()), (4, 5));
    }

    #[test]
    fn one_outlier_of_three_decides_nothing() {
        let mut search = Search::new(1, 3, 1.0);
        for figure in [f64::INFINITY, 0.9, 1.0] {
            assert_eq!(search.next(), Some(1));
            search.add(figure);
        }
        assert_eq!(search.next(), None);
        assert_eq!(search.smallest().map(|probe| probe.step), Some(1));
        assert_eq!(search.greatest(), None);
    }

    #[test]
    fn of_two_samples_it_is_the_mean() {
        for (figures, fits) in [([0.5, 1.4], true), ([1.8, 0.5], false)] {
            let mut search = Search::new(1, 2, 1.0);
            for figure in figures {
                search.add(figure);
            }
            assert_eq!(search.next(), None);
            assert_eq!(search.smallest().is_some(), fits, "{figures:?}");
            assert_eq!(search.greatest().is_some(), !fits, "{figures:?}");
        }
    }

    proptest! {
        #[test]
        fn the_smallest_that_fits_is_found(
            steps in 1_u32..100, from in 1_u32..110, most in 1_usize..6,
        ) {
            let mut search = Search::new(steps, most, 1.05);
            run(&mut search, |step| if step >= from { 1.05 } else { 1.06 });
            if from <= steps {
                let found = search.smallest().expect("it fits");
                prop_assert_eq!((found.step, found.samples.len()), (from, most));
                prop_assert_eq!(search.greatest(), None);
            } else {
                prop_assert_eq!(search.smallest(), None);
                prop_assert_eq!(search.greatest().map(|probe| probe.step), Some(steps));
            }
        }
    }
}
