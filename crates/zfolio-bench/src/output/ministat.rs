//! Mean, spread, and whether two sets of samples differ: the figures and the
//! form of ministat(1), at 95 % confidence.
//!
//! Student's t with a pooled standard deviation: the means of samples `x` and
//! `y` differ if they are further apart than
//! `t(n + m - 2) * s * sqrt(1/n + 1/m)`, with
//! `s^2 = ((n - 1) s_x^2 + (m - 1) s_y^2) / (n + m - 2)`.

use std::fmt::Write as _;

/// What ministat prints of a set of samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) median: f64,
    pub(crate) avg: f64,
    /// Of a sample: divided by n - 1. 0 for fewer than two.
    pub(crate) stddev: f64,
}

impl Summary {
    /// `None` without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let avg = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|sample| (sample - avg).powi(2)).sum();
        let stddev = (squares / (n - 1).max(1) as f64).sqrt();
        Some(Self {
            n,
            min,
            max,
            median,
            avg,
            stddev,
        })
    }
}

/// How far the mean of some samples is from that of a reference.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Difference {
    /// Mean less the reference's mean.
    pub(crate) by: f64,
    /// Half the width of the 95 % interval around `by`.
    pub(crate) error: f64,
    /// The same two in % of the reference's mean.
    pub(crate) percent: f64,
    pub(crate) percent_error: f64,
    /// The pooled standard deviation.
    pub(crate) pooled: f64,
}

impl Difference {
    /// `None` for fewer than three samples together.
    pub(crate) fn between(reference: &Summary, other: &Summary) -> Option<Self> {
        let freedom = (reference.n + other.n).checked_sub(2).filter(|f| *f > 0)?;
        let squares = |s: &Summary| (s.n - 1) as f64 * s.stddev.powi(2);
        let pooled = ((squares(reference) + squares(other)) / freedom as f64).sqrt();
        let spread = pooled * (1.0 / reference.n as f64 + 1.0 / other.n as f64).sqrt();
        let by = other.avg - reference.avg;
        let error = student_t(freedom) * spread;
        Some(Self {
            by,
            error,
            percent: by * 100.0 / reference.avg,
            percent_error: error * 100.0 / reference.avg,
            pooled,
        })
    }

    /// Whether it is more than chance.
    pub(crate) fn is_proven(&self) -> bool {
        self.by.abs() > self.error
    }
}

/// What a table has behind a figure that is not proven to differ from the reference's. (Figures
/// that are equal, or too few, have none: nothing differs, or nothing is known.)
pub(crate) const NOISE: &str = " ~";

/// The mark of a figure, [`NOISE`] or none.
pub(crate) fn mark(reference: Option<&Summary>, other: Option<&Summary>) -> &'static str {
    let difference = reference.zip(other);
    let difference =
        difference.and_then(|(reference, other)| Difference::between(reference, other));
    match difference {
        Some(difference) if difference.by != 0.0 && !difference.is_proven() => NOISE,
        _ => "",
    }
}

/// What the mark means in a table whose reference is the column `base`.
pub(crate) fn explained(base: &str) -> String {
    format!(
        "~ : no difference from {base} proven at 95 % confidence (Student's t of the rounds); one \
         round alone marks nothing.\n"
    )
}

/// The 97.5 % point of Student's t, for a two-sided 95 % interval.
///
/// Up to 30 degrees of freedom from the usual table; above, the Cornish-Fisher
/// expansion about the normal's point (Abramowitz and Stegun 26.7.5), which has
/// all printed digits there.
fn student_t(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const Z: f64 = 1.959_963_985;
    match freedom.checked_sub(1).and_then(|row| TABLE.get(row)) {
        Some(t) => *t,
        None => {
            let nu = freedom as f64;
            let first = (Z.powi(3) + Z) / 4.0;
            let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
            Z + first / nu + second / nu.powi(2)
        }
    }
}

/// Marks of the sets, in ministat's order.
const MARKS: [char; 6] = ['x', '+', '*', '%', '#', '@'];

/// The text of ministat for named sets, the first of which is the reference.
pub(crate) fn text(sets: &[(&str, Summary)]) -> String {
    let mut text = String::new();
    for ((name, _), mark) in sets.iter().zip(MARKS) {
        let _ = writeln!(text, "{mark} {name}");
    }
    let _ = writeln!(
        text,
        "    {:>6} {:>13} {:>13} {:>13} {:>13} {:>13}",
        "N", "Min", "Max", "Median", "Avg", "Stddev"
    );
    for (at, ((_, set), mark)) in sets.iter().zip(MARKS).enumerate() {
        let _ = writeln!(
            text,
            "{mark}   {:>6} {:>13} {:>13} {:>13} {:>13.4} {:>13.4}",
            set.n, set.min, set.max, set.median, set.avg, set.stddev
        );
        if at > 0 {
            text.push_str(&difference(&sets[0].1, set));
        }
    }
    text
}

/// The lines on the difference of one set from the reference.
pub(crate) fn difference(reference: &Summary, set: &Summary) -> String {
    match Difference::between(reference, set).filter(Difference::is_proven) {
        None => "No difference proven at 95.0% confidence\n".to_owned(),
        Some(d) => format!(
            "Difference at 95.0% confidence\n\t{:.4} +/- {:.4}\n\t{:.4}% +/- {:.4}%\n\t(Student's t, pooled s = {:.4})\n",
            d.by, d.error, d.percent, d.percent_error, d.pooled
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} is not {b}");
    }

    /// The two sets of the manual page of ministat.
    #[test]
    fn iguana_and_chameleon() {
        let iguana =
            Summary::of(&[50.0, 200.0, 150.0, 400.0, 750.0, 400.0, 150.0]).expect("samples");
        let chameleon = Summary::of(&[150.0, 400.0, 720.0, 500.0, 930.0]).expect("samples");
        assert_eq!((iguana.n, iguana.min, iguana.max), (7, 50.0, 750.0));
        assert_eq!((iguana.median, iguana.avg), (200.0, 300.0));
        close(iguana.stddev, 238.04761, 1e-5);
        assert_eq!((chameleon.median, chameleon.avg), (500.0, 540.0));
        close(chameleon.stddev, 299.08193, 1e-5);
        assert_eq!(
            difference(&iguana, &chameleon),
            "No difference proven at 95.0% confidence\n"
        );
    }

    /// Two sets of five, ten apart: t(8) = 2.306, s = sqrt(2.5), so the error
    /// is 2.306 * sqrt(2.5) * sqrt(2/5) = 2.306.
    #[test]
    fn a_difference_worked_out_by_hand() {
        let low = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("samples");
        let high = Summary::of(&[11.0, 12.0, 13.0, 14.0, 15.0]).expect("samples");
        let found = Difference::between(&low, &high).expect("enough");
        close(found.by, 10.0, 1e-12);
        close(found.error, 2.306, 1e-9);
        close(found.pooled, 2.5_f64.sqrt(), 1e-12);
        close(found.percent, 1000.0 / 3.0, 1e-9);
        assert!(found.is_proven());
        let text = difference(&low, &high);
        assert!(text.contains("\t10.0000 +/- 2.3060\n"), "{text}");
        assert!(text.contains("(Student's t, pooled s = 1.5811)"), "{text}");
    }

    #[test]
    fn published_points_of_t() {
        for (freedom, t) in [(1, 12.706), (10, 2.228), (30, 2.042)] {
            close(student_t(freedom), t, 0.0);
        }
        for (freedom, t) in [
            (31, 2.0395),
            (40, 2.0211),
            (60, 2.0003),
            (120, 1.9799),
            (278, 1.9685),
        ] {
            close(student_t(freedom), t, 1e-4);
        }
        close(student_t(1_000_000), 1.95996, 1e-5);
    }

    #[test]
    fn what_is_within_the_spread_is_marked() {
        let of = |samples: &[f64]| Summary::of(samples);
        let base = of(&[10.0, 11.0, 12.0]);
        let marked = |other: &[f64]| mark(base.as_ref(), of(other).as_ref());
        assert_eq!(marked(&[10.5, 11.5, 12.5]), NOISE);
        assert_eq!(marked(&[20.0, 21.0, 22.0]), "");
        assert_eq!(marked(&[10.0, 11.0, 12.0]), "", "no difference");
        let one = of(&[10.0]);
        assert_eq!(mark(one.as_ref(), of(&[10.1]).as_ref()), "");
        assert_eq!(mark(None, base.as_ref()), "");
    }

    #[test]
    fn few_samples() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[3.0]).expect("a sample");
        assert_eq!((one.stddev, one.median), (0.0, 3.0));
        assert_eq!(Difference::between(&one, &one), None);
        let two = Summary::of(&[1.0, 4.0]).expect("samples");
        assert_eq!(two.median, 2.5);
    }
}
