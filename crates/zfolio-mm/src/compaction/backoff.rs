//! When not to try: after failures. When to try unasked: by the score.

use super::suitability::thresholds;
use crate::types::Order;

/// At most 2^6 = 64 attempts are skipped.
const MAX_SHIFT: u32 = 6;

/// Milliseconds between two looks at the score.
pub const PROACTIVE_INTERVAL_MS: u64 = 500;

/// Each failure doubles the number of attempts that are skipped afterwards, up to 64
/// (the kernel's deferred compaction).
///
/// # Invariants
/// `considered <= 1 << shift`, `shift <= 6`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Defer {
    considered: u32,
    shift: u32,
    /// Orders from this one on have failed; `None`: none has.
    failed: Option<Order>,
}

impl Defer {
    /// Whether an attempt for `order` is to be skipped. Counts it as one.
    pub fn is_deferred(&mut self, order: Order) -> bool {
        if self.failed.is_none_or(|failed| order < failed) {
            return false;
        }
        self.considered = (self.considered + 1).min(1 << self.shift);
        self.considered < 1 << self.shift
    }

    /// A whole pass over the arena made no block of `order`.
    pub fn failure(&mut self, order: Order) {
        self.considered = 0;
        self.shift = (self.shift + 1).min(MAX_SHIFT);
        self.failed = Some(self.failed.map_or(order, |failed| failed.min(order)));
    }

    /// A block of `order` was made.
    pub fn success(&mut self, order: Order) {
        self.considered = 0;
        self.shift = 0;
        if self.failed.is_some_and(|failed| order >= failed) {
            self.failed = Order::new(order.get() + 1);
        }
    }
}

/// When compaction runs without being asked: by the score, every 500 ms, and 64 times
/// as rarely once a run has made no progress. Has no clock: the caller tells the time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Proactive {
    next_ms: u64,
    /// The score when the run under way began.
    began: Option<usize>,
}

impl Proactive {
    /// The score at which a run is to stop, if one is to begin at `now_ms` (from any
    /// start, never falling) with this `score` and `proactiveness` (0: never).
    pub fn poll(&mut self, now_ms: u64, score: usize, proactiveness: usize) -> Option<usize> {
        let (low, high) = thresholds(proactiveness);
        if proactiveness == 0 || now_ms < self.next_ms {
            return None;
        }
        self.next_ms = now_ms + PROACTIVE_INTERVAL_MS;
        if score <= high {
            return None;
        }
        self.began = Some(score);
        Some(low)
    }

    /// The run that [`Self::poll`] asked for has ended.
    pub fn ended(&mut self, now_ms: u64, score: usize) {
        let progress = self.began.take().is_some_and(|began| score < began);
        let wait = if progress { 1 } else { 1 << MAX_SHIFT };
        self.next_ms = now_ms + PROACTIVE_INTERVAL_MS * wait;
    }
}
