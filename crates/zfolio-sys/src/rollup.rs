//! What a process has alone, and what it shares with others since a fork: /proc/self/smaps_rollup.
//!
//! The kernel walks the page table for it, some 10 ms a GiB.

use crate::procfs::FileOf;
use crate::region::lift_descriptor;
use crate::syscall::{Errno, Kernel};

/// Longer than the text is.
const BYTES: usize = 2048;

/// Anonymous memory of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Anonymous {
    /// Resident, KiB.
    pub resident: usize,
    /// The same, a page that is in `n` processes counted as an `n`th (proportional set size), KiB.
    pub proportional: usize,
}

impl Anonymous {
    /// Looks at all of the process's memory.
    ///
    /// # Errors
    /// As the kernel says; `INVAL` where it does not tell these two.
    pub fn look<K: Kernel>() -> Result<Self, Errno> {
        // (It takes a while, and others in the process count on the lowest numbers.)
        let opened = FileOf::<K>::open(c"/proc/self/smaps_rollup")?;
        let file = FileOf::<K>::from_fd(lift_descriptor(opened.fd()));
        let mut text = [0; BYTES];
        let len = file.read_at(&mut text, 0);
        file.close();
        Self::parse(&text[..len?]).ok_or(Errno::INVAL)
    }

    /// What of it is other processes' part.
    #[must_use]
    pub const fn of_others(self) -> usize {
        self.resident.saturating_sub(self.proportional)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let kib = |name: &[u8]| {
            let mut lines = text.split(|byte| *byte == b'\n');
            let value = lines.find_map(|line| line.strip_prefix(name))?;
            let value = core::str::from_utf8(value).ok()?.trim();
            value.strip_suffix(" kB")?.trim().parse().ok()
        };
        Some(Self {
            resident: kib(b"Anonymous:")?,
            proportional: kib(b"Pss_Anon:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::syscall::Linux;

    #[test]
    fn the_text_is_read_by_name() {
        let text =
            b"1000-2000 ---p 00000000 00:00 0   [rollup]\nRss:      1788 kB\nPss:    290 kB\n\
            Pss_Dirty:   112 kB\nPss_Anon:     100 kB\nAnonymous:      112 kB\n";
        let anonymous = Anonymous {
            resident: 112,
            proportional: 100,
        };
        assert_eq!(Anonymous::parse(text), Some(anonymous));
        assert_eq!(anonymous.of_others(), 12);
        assert_eq!(Anonymous::parse(&text[..100]), None, "it was cut off");
        assert_eq!(Anonymous::parse(b"Anonymous: 1 kB\nPss_Anon: x kB\n"), None);
    }

    #[test]
    fn this_process_has_some() {
        let kept = std::vec![1_u8; 8 << 20];
        let found = Anonymous::look::<Linux>().expect("procfs");
        assert!(found.resident >= 8 << 10, "{found:?}");
        assert!(found.proportional <= found.resident, "{found:?}");
        assert_eq!(kept.len(), 8 << 20);
    }
}
