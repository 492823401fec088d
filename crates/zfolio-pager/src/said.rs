//! Lines on standard error, which may be a pipe that nobody reads: a thread of their own writes
//! them, and who says something never waits for it. What does not fit its queue is lost.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait to be written, at most.
const QUEUE: usize = 32;
/// How long the end of the process waits for them.
const LAST: Duration = Duration::from_millis(500);

static LINES: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Says a line.
pub(crate) fn say(line: &str) {
    let queue = LINES.get_or_init(|| {
        let (sender, lines) = sync_channel::<String>(QUEUE);
        let writer = std::thread::Builder::new().spawn(move || {
            for line in lines {
                let _ = writeln!(std::io::stderr(), "zfolio: {line}");
                WAITING.fetch_sub(1, Ordering::AcqRel);
            }
        });
        writer.ok().map(|_| sender)
    });
    let Some(queue) = queue else { return };
    WAITING.fetch_add(1, Ordering::AcqRel);
    if queue.try_send(line.to_owned()).is_err() {
        WAITING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Lets lines be written that were said before.
pub(crate) fn finish() {
    let begin = Instant::now();
    while WAITING.load(Ordering::Acquire) > 0 && begin.elapsed() < LAST {
        std::thread::sleep(Duration::from_millis(1));
    }
}
