//! The smallest step at which a figure is within a limit, where figures scatter.
//!
//! It assumes that the figure sinks, or stays, as steps grow. So all samples say something of
//! all steps: the curve through them is their isotonic regression, with medians (pool
//! adjacent violators; Barlow, Bartholomew, Bremner and Brunk, 1972). Where it crosses the limit
//! halving goes on, and once there is nothing to halve both sides of the crossing get more
//! samples, which may move it. A value that was within the limit by chance is found out so.

use crate::output::ministat::Summary;

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
    /// Samples that make a step certain if they agree, and of all steps at most.
    enough: usize,
    most: usize,
    limit: f64,
    /// Those tried, by step.
    pub(super) probes: Vec<Probe<S>>,
}

impl<S: Judged> Search<S> {
    /// Among `steps` steps, of which one is certain after `enough` samples that agree.
    pub(super) fn new(steps: u32, enough: usize, limit: f64) -> Self {
        let enough = enough.max(1);
        Self {
            steps,
            enough,
            most: Self::most(steps, enough),
            limit,
            probes: Vec::new(),
        }
    }

    /// Samples that are taken at most.
    pub(super) fn most(steps: u32, enough: usize) -> usize {
        enough * (2 + steps.ilog2() as usize)
    }

    /// The step of the next sample; `None` when all is known.
    pub(super) fn next(&self) -> Option<u32> {
        let taken: usize = self.probes.iter().map(|probe| probe.samples.len()).sum();
        if taken >= self.most {
            return None;
        }
        let (below, fits) = self.crossing();
        if below + 1 < fits {
            return Some(u32::midpoint(below, fits));
        }
        let sides = [(below, false), (fits, true)];
        let open = sides.into_iter().filter(|(step, fits)| {
            (1..=self.steps).contains(step) && !self.is_certain(*step, *fits)
        });
        open.map(|(step, _)| step)
            .min_by_key(|step| self.at(*step).map_or(0, |probe| probe.samples.len()))
    }

    /// Takes a sample of the step that [`Self::next`] named.
    pub(super) fn add(&mut self, sample: S) {
        let Some(step) = self.next() else { return };
        let at = self.probes.partition_point(|probe| probe.step < step);
        if self.probes.get(at).is_none_or(|probe| probe.step != step) {
            let samples = Vec::new();
            self.probes.insert(at, Probe { step, samples });
        }
        self.probes[at].samples.push(sample);
    }

    /// The smallest step that fits, of those tried, and its figure by the curve; `None`
    /// if none does.
    pub(super) fn smallest(&self) -> Option<(&Probe<S>, f64)> {
        let (_, fits) = self.crossing();
        let curve = self.curve();
        let at = self.probes.iter().position(|probe| probe.step == fits)?;
        Some((&self.probes[at], curve[at]))
    }

    /// The greatest step, if not even that fits.
    pub(super) fn greatest(&self) -> Option<&Probe<S>> {
        let last = self.probes.last()?;
        let (below, _) = self.crossing();
        (below == self.steps).then_some(last)
    }

    fn at(&self, step: u32) -> Option<&Probe<S>> {
        self.probes.iter().find(|probe| probe.step == step)
    }

    /// The greatest step tried that is too small, or 0, and the smallest that fits, or one
    /// beyond the last.
    fn crossing(&self) -> (u32, u32) {
        let curve = self.curve();
        let fits = curve.partition_point(|figure| *figure > self.limit);
        let step = |at: usize| self.probes.get(at).map(|probe| probe.step);
        let below = fits.checked_sub(1).and_then(step);
        (below.unwrap_or(0), step(fits).unwrap_or(self.steps + 1))
    }

    /// The figure of each probe, such that none is above the one before.
    fn curve(&self) -> Vec<f64> {
        // Neighbours of which the later is greater are taken for one.
        let mut pools: Vec<(Vec<f64>, usize)> = Vec::new();
        for probe in &self.probes {
            let mut figures: Vec<f64> = probe.samples.iter().map(Judged::figure).collect();
            let mut probes = 1;
            while let Some((before, of)) =
                pools.pop_if(|(before, _)| median(before) < median(&figures))
            {
                figures.extend(before);
                probes += of;
            }
            pools.push((figures, probes));
        }
        let each = |(figures, probes): &(Vec<f64>, usize)| vec![median(figures); *probes];
        pools.iter().flat_map(each).collect()
    }

    /// Whether enough samples of a step say the same of it.
    fn is_certain(&self, step: u32, fits: bool) -> bool {
        self.at(step).is_some_and(|probe| {
            let mut samples = probe.samples.iter();
            probe.samples.len() >= self.enough
                && samples.all(|sample| (sample.figure() <= self.limit) == fits)
        })
    }
}

fn median(figures: &[f64]) -> f64 {
    Summary::of(figures).map_or(f64::INFINITY, |all| all.median)
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

    fn found(search: &Search<f64>) -> Option<u32> {
        search.smallest().map(|(probe, _)| probe.step)
    }

    #[test]
    fn samples_are_spared_where_they_agree() {
        let mut search = Search::new(8, 3, 1.0);
        // 4, 2 and 3 once each; then two more of 3 and 4.
        let samples = run(&mut search, |step| if step >= 4 { 0.5 } else { 2.0 });
        assert_eq!((samples, found(&search)), (7, Some(4)));
    }

    #[test]
    fn one_outlier_decides_nothing() {
        let mut search = Search::new(1, 3, 1.0);
        let mut figures = [f64::INFINITY, 0.9, 1.0, 0.8, 0.95, 0.9].into_iter();
        run(&mut search, |_| figures.next().expect("six at most"));
        assert_eq!((found(&search), search.greatest()), (Some(1), None));
    }

    #[test]
    fn what_fitted_by_chance_is_found_out() {
        let mut search = Search::new(8, 3, 1.0);
        let mut first = true;
        run(&mut search, |step| match step {
            4 if core::mem::take(&mut first) => 0.9,
            ..6 => 1.5,
            _ => 0.9,
        });
        assert_eq!(found(&search), Some(6));
    }

    /// How far from the true step the search ends on average, where figures scatter by
    /// up to a tenth either way.
    #[test]
    fn where_figures_scatter_it_ends_near_the_true_step() {
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        let mut off = 0;
        for turn in 0..300_u32 {
            let from = 8 + turn % 20;
            let mut search = Search::new(32, 3, 1.05);
            // A fiftieth slower with each step less: 1.04 two below `from`, the last that fits.
            run(&mut search, |step| {
                let times = 1.0 + f64::from(from.saturating_sub(step)) * 0.02;
                times * (0.9 + 0.2 * random())
            });
            off += found(&search).unwrap_or(33).abs_diff(from - 2);
        }
        assert!(off < 300 * 2, "{} steps on average", f64::from(off) / 300.0);
    }

    proptest! {
        #[test]
        fn the_smallest_that_fits_is_found(
            steps in 1_u32..100, from in 1_u32..110, enough in 1_usize..6,
        ) {
            let mut search = Search::new(steps, enough, 1.05);
            run(&mut search, |step| if step >= from { 1.05 } else { 1.06 });
            if from <= steps {
                prop_assert_eq!(found(&search), Some(from));
                prop_assert_eq!(search.greatest(), None);
            } else {
                prop_assert_eq!(found(&search), None);
                prop_assert_eq!(search.greatest().map(|probe| probe.step), Some(steps));
            }
        }

        #[test]
        fn the_curve_never_rises(figures in prop::collection::vec(0.5_f64..2.0, 1..60)) {
            let mut search = Search::new(64, 8, 1.0);
            for figure in figures {
                search.add(figure);
                let curve = search.curve();
                prop_assert_eq!(curve.len(), search.probes.len());
                prop_assert!(curve.is_sorted_by(|one, other| one >= other), "{:?}", curve);
            }
        }
    }
}
