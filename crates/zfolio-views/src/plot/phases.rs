//! What a run did, sample by sample: a strip of colours along the time.

use super::svg::Stretch;
use crate::sample::Sample;

/// A part of a second of waiting at `high` that is told as waiting, ns.
const SOME_WAITING: f64 = 1e7;

/// What a run did between two samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No process is managed: none has grown to half of `high`, or all have ended.
    Small,
    /// Managed, and nothing moves.
    Still,
    /// Pages go out or come back.
    Moving,
    /// The program waits at `high` for more than a hundredth of the time.
    Waiting,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Small, Self::Still, Self::Moving, Self::Waiting];

    const fn shown(self) -> (&'static str, &'static str) {
        match self {
            Self::Small => ("not managed", "#dddddd"),
            Self::Still => ("nothing moves", "#9ad0b0"),
            Self::Moving => ("moving", "#f0c05a"),
            Self::Waiting => ("waiting at high", "#d0605a"),
        }
    }

    fn between(one: &Sample, next: &Sample) -> Self {
        let more = next.counts.since(&one.counts);
        let seconds = (next.time_s - one.time_s).max(1e-9);
        #[allow(clippy::cast_precision_loss, reason = "a threshold")]
        let waited = more.high_stall_ns as f64 / seconds;
        if waited > SOME_WAITING {
            Self::Waiting
        } else if more.pages_out + more.pages_in > 0 {
            Self::Moving
        } else if next.processes > 0 {
            Self::Still
        } else {
            Self::Small
        }
    }
}

/// What the colours mean: name and colour.
pub(super) fn legend() -> [(&'static str, &'static str); 4] {
    Phase::ALL.map(Phase::shown)
}

/// The strip: times are the samples' divided by `unit` (s).
pub(super) fn strip(samples: &[Sample], unit: f64) -> Vec<Stretch> {
    let mut strip: Vec<Stretch> = Vec::new();
    for two in samples.windows(2) {
        let (_, colour) = Phase::between(&two[0], &two[1]).shown();
        let (from, to) = (two[0].time_s / unit, two[1].time_s / unit);
        match strip.last_mut() {
            Some(last) if last.colour == colour => last.to = to,
            _ => strip.push(Stretch { from, to, colour }),
        }
    }
    strip
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Counts, Memory};

    #[test]
    fn a_run_is_small_then_moves_then_waits_then_rests() {
        let at = |time_s, processes, pages_out, high_stall_ns| Sample {
            time_s,
            high_bytes: 1,
            processes,
            memory: Memory::default(),
            counts: Counts {
                pages_out,
                high_stall_ns,
                ..Counts::default()
            },
        };
        let samples = [
            at(0.0, 0, 0, 0),
            at(1.0, 0, 0, 0),
            at(2.0, 0, 0, 0),
            at(3.0, 1, 7, 1_000_000),
            at(5.0, 1, 9, 101_000_000),
            at(6.0, 1, 9, 101_000_000),
        ];
        let found: Vec<_> = strip(&samples, 1.0)
            .into_iter()
            .map(|of| (of.from, of.to, of.colour))
            .collect();
        let colour = |at: usize| legend()[at].1;
        let expected = [
            (0.0, 2.0, colour(0)),
            (2.0, 3.0, colour(2)),
            (3.0, 5.0, colour(3)),
            (5.0, 6.0, colour(1)),
        ];
        assert_eq!(found, expected);
    }
}
