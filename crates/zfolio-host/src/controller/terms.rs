//! What goes into the controller and comes out of it.

use std::time::Duration;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Asked {
    /// Time that may be lost, a part of the time run: 0.05 for 5 %.
    pub slowdown: f64,
    /// Least `high`, bytes.
    pub low: u64,
    /// Most `high`, bytes.
    pub high: u64,
}

/// What is known of the tree at one instant. Times and numbers of pages only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Since the run began.
    pub at: Duration,
    /// Time that threads of the program ran on a processor, ours left out.
    pub run: Duration,
    /// Time that they stood still because of us.
    pub stall: Duration,
    /// Of that, for moving pages out.
    pub moving_out: Duration,
    /// Of `stall`, for what goes on being lost however much memory there is: calls that are seen.
    pub calls: Duration,
    /// Memory it would have without us, bytes.
    pub needed: u64,
    /// Memory it has, pools included, bytes.
    pub resident: u64,
    /// Memory of the program that is out, bytes.
    pub out: u64,
    /// Pages that came back so far.
    pub pages_in: u64,
    /// Pages that were moved out so far.
    pub pages_out: u64,
}

/// What the controller does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// The program has not run for long enough.
    #[default]
    Young,
    /// It grows.
    Growing,
    /// `high` goes down.
    Probing,
    /// It stays.
    Holding,
    /// It goes up.
    BackingOff,
    /// It did not pay.
    Resting,
}

impl Phase {
    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Young => "young",
            Self::Growing => "growing",
            Self::Probing => "probing",
            Self::Holding => "holding",
            Self::BackingOff => "backing-off",
            Self::Resting => "resting",
        }
    }
}

/// What was seen at a level of memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// What was had, a part of what was needed.
    pub part: f64,
    /// Time lost for what came back, a part of the time run.
    pub rate: f64,
}

/// What was expected of steps down, and what came of them. Rates are parts of the time run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Forecasts {
    /// Steps down that were judged.
    pub count: u64,
    /// Rates that were expected, added up.
    pub expected: f64,
    /// Rates that were seen, added up.
    pub seen: f64,
    /// By how much they differed, added up.
    pub error: f64,
    /// What was lost with how much memory, as it was seen last, from much memory to little.
    pub curve: Vec<Level>,
}

impl Forecasts {
    /// The mean of one of the sums; 0 where nothing was judged.
    #[must_use]
    pub fn mean(&self, sum: f64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a number of steps")]
        let count = self.count.max(1) as f64;
        sum / count
    }
}

/// Time lost, parts of the time run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lost {
    /// All of it.
    pub all: f64,
    /// What is lost however much memory there is: by calls.
    pub by_calls: f64,
}

/// What was bought, and for what.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bought {
    /// Time lost.
    pub lost: Lost,
    /// Time run, seconds.
    pub run: f64,
    /// What the program needed, the mean over the time since the run began, bytes.
    pub needed: u64,
    /// What it had, likewise.
    pub resident: u64,
    /// What it needed since memory was first taken; 0: none was.
    pub needed_since: u64,
    /// What it had since then.
    pub resident_since: u64,
    /// The least `high` was, bytes.
    pub least_high: u64,
    /// Steps down and up.
    pub steps: [u64; 2],
    /// How often it did not pay.
    pub rests: u64,
    /// Changes of the weights by which processes share `high` ([`division`](super::division)).
    pub weighed: u64,
    /// What it does now.
    pub phase: Phase,
    /// How good its forecasts were.
    pub forecasts: Forecasts,
}
