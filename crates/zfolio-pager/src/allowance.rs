//! How much writes may put on the wire: so many bytes a second, of all traffic together.
//!
//! Reads are never held back, since a fault waits for each; they count, so that writes give way
//! to them. What was not used of a quarter of a second is lost.

use crate::wire::Counted;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How much may be saved up.
const SAVED: Duration = Duration::from_millis(250);

/// What may go yet.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Bytes a second.
    rate: u64,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// Bytes that may go at once; below 0: what went beyond.
    left: i64,
    at: Instant,
    /// Of the connections' counts, what was subtracted already.
    seen: u64,
}

impl Allowance {
    pub(crate) fn new(rate: u64) -> Self {
        let (left, at, seen) = (0, Instant::now(), 0);
        Self {
            rate,
            now: Mutex::new(Now { left, at, seen }),
        }
    }

    /// How long a write is to wait, looked at `at`; `None`: not at all.
    pub(crate) fn wait(&self, counted: &Counted, at: Instant) -> Option<Duration> {
        let mut now = self.now.lock().unwrap_or_else(|held| held.into_inner());
        let all = counted.all.load(Relaxed);
        let went = i64::try_from(all.saturating_sub(now.seen)).unwrap_or(i64::MAX);
        let most = self.bytes_in(SAVED);
        let more = self.bytes_in(at.saturating_duration_since(now.at));
        now.left = now.left.saturating_add(more).min(most).saturating_sub(went);
        (now.seen, now.at) = (all, now.at.max(at));
        if now.left > 0 {
            return None;
        }
        let missing = u128::from(now.left.unsigned_abs()) + 1;
        let us = (missing * 1_000_000).div_ceil(u128::from(self.rate));
        Some(Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX)))
    }

    fn bytes_in(&self, span: Duration) -> i64 {
        let bytes = u128::from(self.rate) * span.as_micros() / 1_000_000;
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_second_so_many_bytes_go_and_reads_count() {
        let (allowance, counted) = (Allowance::new(1_000_000), Counted::default());
        let begin = Instant::now();
        let mut at = begin;
        let mut sent = 0;
        while at < begin + Duration::from_secs(4) {
            match allowance.wait(&counted, at) {
                None => {
                    counted.all.fetch_add(65_000, Relaxed);
                    sent += 65_000;
                }
                Some(wait) => at += wait,
            }
        }
        assert!((3_900_000..4_400_000).contains(&sent), "{sent}");
        // A megabyte read: nothing is written for a second.
        counted.all.fetch_add(1_000_000, Relaxed);
        let wait = allowance.wait(&counted, at).expect("it is used up");
        assert!(wait > Duration::from_millis(700), "{wait:?}");
    }
}
