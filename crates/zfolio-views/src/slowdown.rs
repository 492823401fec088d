//! What `--slowdown` has come to by now.

use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::size::{human, percent};
use zfolio_runtime::segment::Segment;

/// The part of `slowdown` of `--stats` that shows while a run lasts, by the same names.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub(crate) struct Slowdown {
    /// Time lost, as estimated, of the time run.
    estimated_percent: f64,
    /// What the run needed since memory was first taken, the mean over time; 0: none was.
    needed_since_bytes: u64,
    /// What it had, likewise.
    resident_since_bytes: u64,
    #[serde(skip)]
    asked: f64,
}

impl Slowdown {
    /// Copies it; `None` where it was not asked for.
    pub(crate) fn read(segment: &Segment) -> Option<Self> {
        let asked = segment.config().limits.slowdown.load(Relaxed);
        let of = &segment.slowdown;
        #[allow(clippy::cast_precision_loss, reason = "shown with two figures")]
        let millionths = of.estimated.load(Relaxed) as f64;
        (asked != 0).then(|| Self {
            estimated_percent: millionths / 1e4,
            needed_since_bytes: of.needed_bytes.load(Relaxed),
            resident_since_bytes: of.resident_bytes.load(Relaxed),
            asked: f64::from(asked) / 1e6,
        })
    }

    /// A line on it.
    pub(crate) fn line(&self) -> String {
        let had = match self.needed_since_bytes {
            0 => "nothing taken yet".to_owned(),
            needed => format!(
                "lives in {} instead of {}",
                human(self.resident_since_bytes),
                human(needed)
            ),
        };
        let lost = percent(self.estimated_percent / 100.0);
        format!("slowdown: {had}, at {lost} (asked {})", percent(self.asked))
    }
}
