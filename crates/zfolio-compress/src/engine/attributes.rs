//! Settings of the engines, under the names the kernel's accelerator driver
//! gives them where it has them. They only change while the engines are
//! disabled.

use super::queue::MAX_DESCRIPTORS;
use crate::MAX_UNIT;
use core::array::from_fn;
use core::fmt;
use core::str::FromStr;

/// Most engines.
pub const MAX_ENGINES: usize = 16;
/// Most queues of one engine.
pub const MAX_QUEUES: usize = 8;
/// Most units of one submission.
pub const MAX_SUBMITTED: usize = 64;
/// Units that whoever stores submits for one round of its engines: descriptors are shared out
/// for so many.
const ROUND_UNITS: usize = 32;

/// How a submitter waits (`sync_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncMode {
    /// `sync`: one at a time.
    Sync,
    /// `async`: submit all, then poll.
    Async,
    /// `async_irq`: submit all, sleep until notified.
    AsyncIrq,
    /// `assist`: submit all, take back and do what no engine has begun, then
    /// sleep. Not the kernel's.
    Assist,
}

impl SyncMode {
    /// Every mode, by name.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("sync", Self::Sync),
        ("async", Self::Async),
        ("async_irq", Self::AsyncIrq),
        ("assist", Self::Assist),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, mode)| *mode == self);
        named.map_or("", |(name, _)| name)
    }
}

/// Whether loads of many pages are decompressed by the engines (`decompress`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decompress {
    /// `off`: whoever loads does it.
    Never,
    /// `auto`: where that takes less time, as it is measured.
    Judged,
    /// `on`: whenever there is more than one unit.
    Always,
}

impl Decompress {
    /// Every choice, by name.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("off", Self::Never),
        ("auto", Self::Judged),
        ("on", Self::Always),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, choice)| *choice == self);
        named.map_or("", |(name, _)| name)
    }
}

/// All settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Queues of each engine, 1 to [`MAX_QUEUES`] (`wqs_per_iaa`).
    pub queues_per_engine: usize,
    /// Of these, the last so many only compress and the others only decompress
    /// (`g_comp_wqs_per_iaa`); 0, or not fewer than there are: all do both.
    pub compress_queues: usize,
    /// Where submissions go.
    pub distribute: Distribute,
    /// An engine without work takes what waits for another one (`share`). Devices
    /// do not; threads that are woken one after the other gain by it.
    pub share: bool,
    /// How a submitter waits (`sync_mode`).
    pub sync_mode: SyncMode,
    /// Most units submitted before the first is waited for, 1 to [`MAX_SUBMITTED`]
    /// (`batch_size`).
    pub batch: usize,
    /// Each result of compressing is decompressed and compared
    /// (`verify_compress`).
    pub verify: bool,
    /// Descriptors of each queue, 1 to 64 (`descriptors`).
    pub descriptors: usize,
    /// Times that allocating a descriptor is tried before the unit is done
    /// inline (`retries`).
    pub retries: u32,
    /// How long a submitter waits for the engines before it does the work
    /// itself, ns (`timeout_ns`).
    pub timeout_ns: u64,
    /// Largest unit the engines take, bytes; larger ones are done inline
    /// (`unit_size`).
    pub unit: usize,
    /// Whether loads are decompressed by the engines (`decompress`).
    pub decompress: Decompress,
}

/// Whether submissions go round over all engines, not only to the one mapped to the submitter's
/// core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Distribute {
    /// Those to compress (`distribute_comps`).
    pub compress: bool,
    /// Those to decompress (`distribute_decomps`).
    pub decompress: bool,
}

impl Distribute {
    /// All of them.
    pub const ALL: Self = Self {
        compress: true,
        decompress: true,
    };
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            queues_per_engine: 1,
            compress_queues: 0,
            distribute: Distribute {
                compress: true,
                decompress: false,
            },
            share: true,
            sync_mode: SyncMode::Assist,
            batch: MAX_SUBMITTED,
            verify: false,
            descriptors: 16,
            retries: 1,
            timeout_ns: 100_000_000,
            unit: 4096,
            decompress: Decompress::Always,
        }
    }
}

impl Attributes {
    /// The names that [`Self::set`] takes, and [`Self::numbers`] gives, in this order.
    pub const NAMES: [&'static str; 13] = [
        "wqs_per_iaa",
        "g_comp_wqs_per_iaa",
        "distribute_comps",
        "distribute_decomps",
        "share",
        "sync_mode",
        "batch_size",
        "verify_compress",
        "descriptors",
        "retries",
        "timeout_ns",
        "unit_size",
        "decompress",
    ];

    /// The names of those that may change while engines work: nothing is sized by them, and each
    /// batch reads them as it begins.
    pub const LIVE: [&'static str; 8] = [
        "distribute_comps",
        "distribute_decomps",
        "share",
        "sync_mode",
        "batch_size",
        "retries",
        "timeout_ns",
        "decompress",
    ];

    /// These settings, but those of [`Self::LIVE`] as `other` has them.
    #[must_use]
    pub const fn with_live_of(self, other: &Self) -> Self {
        Self {
            queues_per_engine: self.queues_per_engine,
            compress_queues: self.compress_queues,
            verify: self.verify,
            descriptors: self.descriptors,
            unit: self.unit,
            ..*other
        }
    }

    /// What `engines` engines have unless something else is asked for: descriptors for one
    /// round of whoever stores.
    #[must_use]
    pub fn for_engines(engines: usize) -> Self {
        Self {
            descriptors: (ROUND_UNITS / engines.max(1)).clamp(8, MAX_DESCRIPTORS),
            decompress: Decompress::Judged,
            ..Self::default()
        }
    }

    /// Bytes of the buffers of all descriptors of `engines` engines, about.
    #[must_use]
    pub const fn buffer_bytes(&self, engines: usize) -> usize {
        // In and out, of a unit and what it becomes at worst.
        engines * self.queues_per_engine * self.descriptors * 2 * (self.unit + self.unit / 64)
    }

    /// All as numbers, in the order of [`Self::NAMES`]; `sync_mode` as its place in
    /// [`SyncMode::NAMES`].
    #[must_use]
    pub fn numbers(&self) -> [u64; Self::NAMES.len()] {
        let mut modes = SyncMode::NAMES.iter();
        let mode = modes.position(|(_, mode)| *mode == self.sync_mode);
        let mut choices = Decompress::NAMES.iter();
        let decompress = choices.position(|(_, choice)| *choice == self.decompress);
        [
            self.queues_per_engine as u64,
            self.compress_queues as u64,
            self.distribute.compress.into(),
            self.distribute.decompress.into(),
            self.share.into(),
            mode.unwrap_or(0) as u64,
            self.batch as u64,
            self.verify.into(),
            self.descriptors as u64,
            self.retries.into(),
            self.timeout_ns,
            self.unit as u64,
            decompress.unwrap_or(0) as u64,
        ]
    }

    /// The opposite.
    ///
    /// # Errors
    /// The first that is none.
    pub fn from_numbers(numbers: &[u64; Self::NAMES.len()]) -> Result<Self, AttributeError> {
        let wrong = |at: usize| AttributeError::Value {
            name: Self::NAMES[at],
            expected: "what numbers() gives",
        };
        let sizes: [usize; Self::NAMES.len()] =
            from_fn(|at| usize::try_from(numbers[at]).unwrap_or(usize::MAX));
        let switch = |at: usize| match numbers[at] {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(wrong(at)),
        };
        let all = Self {
            queues_per_engine: sizes[0],
            compress_queues: sizes[1],
            distribute: Distribute {
                compress: switch(2)?,
                decompress: switch(3)?,
            },
            share: switch(4)?,
            sync_mode: SyncMode::NAMES.get(sizes[5]).ok_or(wrong(5))?.1,
            batch: sizes[6],
            verify: switch(7)?,
            descriptors: sizes[8],
            retries: u32::try_from(numbers[9]).map_err(|_| wrong(9))?,
            timeout_ns: numbers[10],
            unit: sizes[11],
            decompress: Decompress::NAMES.get(sizes[12]).ok_or(wrong(12))?.1,
        };
        all.check()?;
        Ok(all)
    }

    /// Sets one by name.
    ///
    /// # Errors
    /// When there is no such attribute, or it does not take that value; nothing
    /// is changed then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), AttributeError> {
        let name = Self::NAMES
            .into_iter()
            .find(|known| *known == name)
            .ok_or(AttributeError::Unknown)?;
        let mut changed = *self;
        match name {
            "wqs_per_iaa" => changed.queues_per_engine = number(name, value)?,
            "g_comp_wqs_per_iaa" => changed.compress_queues = number(name, value)?,
            "distribute_comps" => changed.distribute.compress = switch(name, value)?,
            "distribute_decomps" => changed.distribute.decompress = switch(name, value)?,
            "share" => changed.share = switch(name, value)?,
            "sync_mode" => {
                let mode = SyncMode::NAMES.iter().find(|(known, _)| *known == value);
                let (_, mode) = mode.ok_or(AttributeError::Value {
                    name,
                    expected: "sync, async, async_irq or assist",
                })?;
                changed.sync_mode = *mode;
            }
            "batch_size" => changed.batch = number(name, value)?,
            "verify_compress" => changed.verify = switch(name, value)?,
            "descriptors" => changed.descriptors = number(name, value)?,
            "retries" => changed.retries = number(name, value)?,
            "timeout_ns" => changed.timeout_ns = number(name, value)?,
            "decompress" => {
                let choice = Decompress::NAMES.iter().find(|(known, _)| *known == value);
                let (_, choice) = choice.ok_or(AttributeError::Value {
                    name,
                    expected: "off, auto or on",
                })?;
                changed.decompress = *choice;
            }
            _ => changed.unit = number(name, value)?,
        }
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// Whether every value is within its range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), AttributeError> {
        let within = |name, range: core::ops::RangeInclusive<usize>, value, expected| {
            if range.contains(&value) {
                Ok(())
            } else {
                Err(AttributeError::Value { name, expected })
            }
        };
        within(
            "wqs_per_iaa",
            1..=MAX_QUEUES,
            self.queues_per_engine,
            "1 to 8",
        )?;
        within(
            "g_comp_wqs_per_iaa",
            0..=MAX_QUEUES,
            self.compress_queues,
            "0 to 8",
        )?;
        within("batch_size", 1..=MAX_SUBMITTED, self.batch, "1 to 64")?;
        within(
            "descriptors",
            1..=MAX_DESCRIPTORS,
            self.descriptors,
            "1 to 64",
        )?;
        within("unit_size", 64..=MAX_UNIT, self.unit, "64 to 2097152")?;
        if self.timeout_ns == 0 {
            return Err(AttributeError::Value {
                name: "timeout_ns",
                expected: "1 or more",
            });
        }
        Ok(())
    }
}

fn number<T: FromStr>(name: &'static str, value: &str) -> Result<T, AttributeError> {
    value.parse().map_err(|_| AttributeError::Value {
        name,
        expected: "a number",
    })
}

fn switch(name: &'static str, value: &str) -> Result<bool, AttributeError> {
    match value {
        "0" | "off" => Ok(false),
        "1" | "on" => Ok(true),
        _ => Err(AttributeError::Value {
            name,
            expected: "0 or 1",
        }),
    }
}

/// Why an attribute was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttributeError {
    /// The engines are enabled.
    InUse,
    /// There is none of that name.
    Unknown,
    /// It does not take that value.
    Value {
        /// Of the attribute.
        name: &'static str,
        /// What it takes.
        expected: &'static str,
    },
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => {
                f.write_str("attributes cannot change while the engines are in use: disable them")
            }
            Self::Unknown => f.write_str("there is no such attribute"),
            Self::Value { name, expected } => write!(f, "{name}: expected {expected}"),
        }
    }
}

impl core::error::Error for AttributeError {}

#[cfg(test)]
mod tests;
