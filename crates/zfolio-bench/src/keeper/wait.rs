//! Waiting for the system.

use std::time::{Duration, Instant};

/// Asks `done` every few milliseconds until it says so; false when it did not
/// in time.
pub(crate) fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        if done() {
            return true;
        }
        if begin.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
