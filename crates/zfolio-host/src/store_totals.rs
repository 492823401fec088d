//! What the pagers of a run counted, read from the exchange's file while the run lasts or at
//! its end.
//!
//! Every process of a run can write to the segment, where the file's path stands, and to the
//! file: only a plain file of the right name, length and beginning is read, nothing is mapped,
//! and numbers are numbers.

use crate::size::human;
use rustix::fs::{Mode, OFlags, open};
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use zfolio_runtime::segment::Config;
use zfolio_sys::exchange::{BUCKETS, BYTES, Head, MAGIC};

/// What the pagers of a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoreTotals {
    /// Bytes to the store: protocol and encryption included.
    #[serde(rename = "sent_bytes")]
    pub sent: u64,
    /// Bytes from it, likewise.
    #[serde(rename = "received_bytes")]
    pub received: u64,
    /// Requests tried once more.
    pub retries: u64,
    /// Copies that the store did not have any more.
    pub lost_copies: u64,
    /// Reads answered from another copy.
    pub other_copy: u64,
    /// Writes that waited for `bandwidth=`.
    pub held_back: u64,
    /// Pagers started.
    pub pagers: u32,
    /// Reads by how long they took: `reads_us[n]` of less than 2^n us.
    pub reads_us: Vec<u64>,
    /// How long all of them took together, us.
    pub reads_sum_us: u64,
}

/// The same for JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ShownTotals {
    #[serde(flatten)]
    totals: StoreTotals,
    read_p50_us: Option<u64>,
    read_p99_us: Option<u64>,
}

impl StoreTotals {
    /// Of the run whose configuration this is; `None` without a store, or where its exchange
    /// cannot be read.
    #[must_use]
    pub fn of_run(config: &Config) -> Option<Self> {
        if config.backing.sizes().far == 0 {
            return None;
        }
        let path = config
            .backing
            .path
            .far
            .with(|path| Ok(path.to_owned()))
            .ok()?;
        Self::read(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())))
    }

    /// Reads them from an exchange.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        if !name.starts_with("zfolio-") || !name.ends_with(".exchange") {
            return None;
        }
        // (What is no plain file must not be waited for.)
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Self::read_in(&File::from(open(path, flags, Mode::empty()).ok()?))
    }

    /// The same of an open file.
    #[must_use]
    pub fn read_in(file: &File) -> Option<Self> {
        let is_one = file
            .metadata()
            .is_ok_and(|of| of.is_file() && of.len() == BYTES as u64);
        let mut bytes = vec![0; size_of::<Head>()];
        if !is_one || file.read_exact_at(&mut bytes, 0).is_err() {
            return None;
        }
        let long = |at: usize| {
            let word = bytes.get(at..at + 8).and_then(|of| of.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let short = |at: usize| u32::try_from(long(at) & u64::from(u32::MAX)).unwrap_or(0);
        (long(offset_of!(Head, magic)) == MAGIC).then(|| Self {
            sent: long(offset_of!(Head, counts.sent)),
            received: long(offset_of!(Head, counts.received)),
            retries: long(offset_of!(Head, counts.retries)),
            lost_copies: long(offset_of!(Head, counts.lost_copies)),
            other_copy: long(offset_of!(Head, counts.other_copy)),
            held_back: long(offset_of!(Head, counts.held_back)),
            pagers: short(offset_of!(Head, pagers)),
            reads_us: (0..BUCKETS)
                .map(|n| long(offset_of!(Head, waits) + 8 * n))
                .collect(),
            reads_sum_us: long(offset_of!(Head, counts.waits_sum_us)),
        })
    }

    /// Reads that were counted.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads_us
            .iter()
            .fold(0, |sum, of| sum.saturating_add(*of))
    }

    /// Below how many us `percent` of the reads were; `None` without any.
    #[must_use]
    pub fn quantile(&self, percent: u64) -> Option<u64> {
        let wanted = (self.reads().saturating_mul(percent)).div_ceil(100).max(1);
        let mut seen = 0_u64;
        let bucket = self.reads_us.iter().position(|count| {
            seen = seen.saturating_add(*count);
            seen >= wanted
        });
        bucket.map(|bucket| 1 << bucket.min(63))
    }

    /// As JSON has them: with the quantiles.
    #[must_use]
    pub fn shown(&self) -> ShownTotals {
        ShownTotals {
            totals: self.clone(),
            read_p50_us: self.quantile(50),
            read_p99_us: self.quantile(99),
        }
    }

    /// For people: bytes, and how long reads took.
    #[must_use]
    pub fn words(&self) -> String {
        let span = |us: u64| match us {
            0..10_000 => format!("{us} us"),
            _ => format!("{} ms", us / 1000),
        };
        let reads = match (self.quantile(50), self.quantile(99)) {
            (Some(half), Some(most)) => {
                format!("; a read took p50 {}, p99 {}", span(half), span(most))
            }
            _ => String::new(),
        };
        let (sent, received) = (human(self.sent), human(self.received));
        format!("store: {sent} sent, {received} received{reads}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_of_buckets() {
        let mut totals = StoreTotals::default();
        assert_eq!(totals.quantile(50), None);
        totals.reads_us = vec![0; BUCKETS];
        (totals.reads_us[5], totals.reads_us[10]) = (98, 2);
        assert_eq!(totals.quantile(50), Some(32));
        assert_eq!(totals.quantile(99), Some(1024));
        assert!(totals.words().ends_with("p50 32 us, p99 1024 us"));
    }

    #[test]
    fn only_an_exchange_is_read() {
        let dir = std::env::temp_dir().join(format!("zfolio-totals-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("zfolio-1.exchange");
        let file = File::create(&path).unwrap();
        assert_eq!(StoreTotals::read(&path), None, "its length");
        file.set_len(BYTES as u64).unwrap();
        assert_eq!(StoreTotals::read(&path), None, "its beginning");
        file.write_all_at(&MAGIC.to_le_bytes(), 0).unwrap();
        let at = offset_of!(Head, counts.sent) as u64;
        file.write_all_at(&7_u64.to_le_bytes(), at).unwrap();
        assert_eq!(StoreTotals::read(&path).map(|of| of.sent), Some(7));
        let other = dir.join("exchange");
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(StoreTotals::read(&other), None, "its name");
        let link = dir.join("zfolio-2.exchange");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert_eq!(StoreTotals::read(&link), None, "a link");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
