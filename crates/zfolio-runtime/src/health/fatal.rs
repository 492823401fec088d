//! Failing closed: one line, and the process ends rather than read a wrong byte.

use crate::error::Unstarted;
use crate::health::Health;
use crate::segment::{Counter, ProcessSlot, state};
use core::fmt::{Arguments, Write};
use core::sync::atomic::Ordering;
use zfolio_sys::process::{exit_now, say};
use zfolio_zswap::Stats;

/// Exit status of a process that was ended by its manager.
pub const EXIT_FAILED: i32 = 70;

/// A line of text without a heap.
pub struct Line {
    bytes: [u8; 240],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 240],
            len: 0,
        }
    }
}

impl Line {
    /// What was written, cut to what fits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("(message cut)")
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let headroom = self.bytes.len() - self.len;
        let mut take = text.len().min(headroom);
        while !text.is_char_boundary(take) {
            take -= 1;
        }
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

impl Health {
    /// Ends the process with a line that says why.
    pub(crate) fn fail(&self, why: Arguments<'_>) -> ! {
        self.fail_and_say(why, || ())
    }

    /// The same; `more` is said behind that line. Should the caller be ended by what it calls for that, `zfolio run`
    /// finds the process without it, and ends it.
    pub(crate) fn fail_and_say(&self, why: Arguments<'_>, more: impl FnOnce()) -> ! {
        if cfg!(test) {
            panic!("the process would be ended: {why}");
        }
        let pid = self.pid.load(Ordering::Relaxed);
        fail_and_say(self.stats(), self.zswap.stats(), pid, why, more)
    }
}

/// Ends process `pid`, this one, with a line that says why, which is left in
/// its statistics as well.
pub fn fail(stats: &ProcessSlot, pool: &Stats, pid: u32, why: Arguments<'_>) -> ! {
    fail_and_say(stats, pool, pid, why, || ())
}

fn fail_and_say(
    stats: &ProcessSlot,
    pool: &Stats,
    pid: u32,
    why: Arguments<'_>,
    more: impl FnOnce(),
) -> ! {
    let mut line = Line::default();
    let _ = line.write_fmt(why);
    stats.set_message(line.as_str());
    // Nobody publishes any more, and these may be what it is about.
    let pool = pool.snapshot();
    for (counter, value) in [
        (Counter::DecompressFail, pool.decompress_fail),
        (Counter::BackingReadFail, pool.backing_read_fail),
    ] {
        stats.set(counter, value);
    }
    let mut out = Line::default();
    let _ = writeln!(
        out,
        "zfolio: process {pid} ended: {}; please report this",
        line.as_str()
    );
    stats
        .said
        .told
        .store(say(out.as_str()).into(), Ordering::Release);
    more();
    stats.state.store(state::FAILED, Ordering::Release);
    exit_now(EXIT_FAILED);
}

/// Says once that process `pid`, this one, has sent `signal` to a thread of ours.
pub(crate) fn say_signalled(pid: u32, signal: u32) {
    let mut out = Line::default();
    let _ = writeln!(
        out,
        "zfolio: process {pid} sends signal {signal} to each of its threads; ours take none: if it \
         waits for them (libpsx does), it hangs. `--faults in-thread` has no such threads"
    );
    say(out.as_str());
}

pub(crate) fn say_unmanaged(slot: &ProcessSlot, becomes: u32, why: &Unstarted) {
    let mut line = Line::default();
    let _ = match why {
        Unstarted::Failed { what, errno } => write!(
            line,
            "{what} failed (errno {}); `zfolio doctor` says what is missing",
            errno.0
        ),
        Unstarted::Unfit(why) => line.write_str(why),
    };
    slot.set_message(line.as_str());
    slot.state.store(becomes, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let mut line = Line::default();
        for _ in 0..200 {
            line.write_str("aé").unwrap();
        }
        assert!(line.as_str().starts_with("aéaé") && line.as_str().len() >= 238);
    }
}
