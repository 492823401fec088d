//! How many threads of a process are ours, and the end of a process of which no others are left.
//!
//! A process ends with its last thread, if that leaves by the system call exit. Ours would keep
//! it from that.
//!
//! Invariant: the count is never more than the threads of ours that there are. A thread counts once
//! it has been made, and no more before it ends.

use crate::procfs::File;
use core::sync::atomic::{AtomicU64, Ordering};

/// The process that counts (upper half), and its threads of ours. (The child of a fork has none.)
static OWN: AtomicU64 = AtomicU64::new(0);

fn pack(of: u32, count: u32) -> u64 {
    u64::from(of) << 32 | u64::from(count)
}

fn count(word: u64, of: u32) -> u32 {
    if word >> 32 == u64::from(of) {
        u32::try_from(word & 0xffff_ffff).unwrap_or(0)
    } else {
        0
    }
}

fn change(here: u32, by: i32) {
    let next = |word| Some(pack(here, count(word, here).saturating_add_signed(by)));
    let _ = OWN.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
}

/// A thread of ours has been made in process `here`, the caller's.
pub(crate) fn made(here: u32) {
    change(here, 1);
}

/// The calling thread, one of ours in process `here`, is about to end.
pub(crate) fn ends(here: u32) {
    change(here, -1);
}

/// Looks, from a thread of ours, whether the program's last thread has ended. To be asked now
/// and then: it takes two looks that find the same.
///
/// A look is a pread, which threads of ours make anyway: a filter of system calls that the
/// program sets for all threads may kill for any other.
#[derive(Debug)]
pub struct LastThread {
    stat: Option<File>,
    seen: Option<(u32, i32)>,
}

impl LastThread {
    /// For the caller's process. (Where /proc cannot be read no look finds anything.)
    #[must_use]
    pub fn open() -> Self {
        Self {
            stat: File::open(c"/proc/self/stat").ok(),
            seen: None,
        }
    }

    /// One look, in process `here`, the caller's: the status with which the process is to end,
    /// its first thread's, if there are only threads of ours.
    pub fn look(&mut self, here: u32) -> Option<i32> {
        let found = self.stat.and_then(|stat| only_ours(stat, here));
        let before = core::mem::replace(&mut self.seen, found);
        found.filter(|_| found == before).map(|(_, status)| status)
    }

    /// Closes what [`Self::open`] opened.
    pub fn close(self) {
        if let Some(stat) = self.stat {
            stat.close();
        }
    }
}

/// How many threads of ours there are and the first thread's status, if that has ended and there are
/// no others.
fn only_ours(stat: File, here: u32) -> Option<(u32, i32)> {
    let before = count(OWN.load(Ordering::Acquire), here);
    let mut text = [0; 1024];
    let read = stat.read_at(&mut text, 0).ok()?;
    let (threads, code) = ended_of(&text[..read])?;
    let ours = count(OWN.load(Ordering::Acquire), here);
    (before == ours && threads == ours + 1).then_some((ours, code >> 8 & 0xff))
}

/// Of /proc/PID/stat of a process whose first thread has ended: its threads, that one
/// included, and how that one ended, as wait has it. `None` if it has not.
fn ended_of(stat: &[u8]) -> Option<(u32, i32)> {
    // The name may have anything in it; what follows has no brackets.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = core::str::from_utf8(&stat[after..]).ok()?;
    let mut fields = text.split_ascii_whitespace();
    // Fields 3, 20 and 52.
    if fields.next()? != "Z" {
        return None;
    }
    let threads = fields.nth(16)?.parse().ok()?;
    let code = fields.nth(31)?.parse().ok()?;
    Some((threads, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_of_one_process() {
        let word = pack(7, 3);
        assert_eq!((count(word, 7), count(word, 8)), (3, 0));
    }

    #[test]
    fn how_the_first_thread_ended_is_read() {
        // Fields 4 to 19, 20, 21 to 51, 52.
        let ended =
            b"12 (a) b) Z 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 6 21 22 23 24 25 26 27 28 29 \
            30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 768\n";
        assert_eq!(ended_of(ended), Some((6, 768)));
        let mut alive = *ended;
        alive[10] = b'S';
        assert_eq!(ended_of(&alive), None);
        assert_eq!(ended_of(b"12 (a) Z 1"), None);
    }

    #[test]
    fn a_process_that_has_its_first_thread_goes_on() {
        let mut last = LastThread::open();
        assert!(last.stat.is_some());
        assert_eq!([last.look(1), last.look(1)], [None; 2]);
        last.close();
    }
}
