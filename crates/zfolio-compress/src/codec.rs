//! Names and options of the codecs.

use crate::adaptive::{Adaptive, Density};
use crate::deflate::{Deflate, Tables};
use crate::lz4::{ACCELERATION, Lz4};
use crate::noop::Noop;
use crate::zstd::{LEVELS, Zstd};
use crate::{Compressor, lz4, zstd};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// A choice of codec, as an option spells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// `lz4` or `lz4:ACCELERATION`.
    Lz4 {
        /// Within [`lz4::ACCELERATION`]; 1 unless said.
        acceleration: i32,
    },
    /// `zstd` or `zstd:LEVEL`.
    Zstd {
        /// Within [`zstd::LEVELS`]; 1 unless said.
        level: i32,
    },
    /// `deflate-iaa`, `deflate-iaa:dynamic` or `deflate-iaa:canned`.
    Deflate {
        /// Which Huffman tables; fixed unless said, as with the kernel's driver.
        tables: Tables,
    },
    /// `auto`: lz4, and zstd when the pool has grown large.
    Auto,
    /// `none`: units are kept as they are.
    Noop,
}

impl Codec {
    /// lz4 at its default acceleration.
    pub const LZ4: Self = Self::Lz4 { acceleration: 1 };
    /// What `auto` is called.
    pub const ADAPTIVE_NAME: &str = Adaptive::NAME;
    /// zstd at its default level.
    pub const ZSTD: Self = Self::Zstd { level: 1 };

    /// Reads `auto`, `lz4`, `lz4:ACCELERATION`, `zstd`, `zstd:LEVEL`, `deflate-iaa`,
    /// `deflate-iaa:dynamic`, `deflate-iaa:canned` or `none`.
    ///
    /// # Errors
    /// When it is none of these, or the number is out of range; the message is
    /// one line and names what was given and what is accepted.
    pub fn parse(text: &str) -> Result<Self, ParseCodecError> {
        let (name, option) = match text.split_once(':') {
            Some((name, option)) => (name, Some(option)),
            None => (text, None),
        };
        let error = |problem| ParseCodecError {
            given: text.to_string(),
            problem,
        };
        let number = |range: core::ops::RangeInclusive<i32>, problem| match option {
            None => Ok(1),
            Some(digits) => {
                let value = digits.parse().ok().filter(|value| range.contains(value));
                value.ok_or_else(|| error(problem))
            }
        };
        match name {
            "lz4" => {
                let acceleration = number(ACCELERATION, Problem::Acceleration)?;
                Ok(Self::Lz4 { acceleration })
            }
            "zstd" => Ok(Self::Zstd {
                level: number(LEVELS, Problem::Level)?,
            }),
            Deflate::NAME => {
                let wanted = option.unwrap_or("fixed");
                let known = Tables::NAMES.iter().find(|(name, _)| *name == wanted);
                let (_, tables) = known.ok_or_else(|| error(Problem::Tables))?;
                Ok(Self::Deflate { tables: *tables })
            }
            Self::ADAPTIVE_NAME if option.is_none() => Ok(Self::Auto),
            "none" if option.is_none() => Ok(Self::Noop),
            _ => Err(error(Problem::Unknown)),
        }
    }

    /// The compressor this choice means; `auto` without anybody to turn its
    /// switch (see [`Adaptive`]) is lz4.
    #[must_use]
    pub fn compressor(self) -> Box<dyn Compressor> {
        match self {
            Self::Lz4 { acceleration } => Box::new(Lz4::new(acceleration)),
            Self::Zstd { level } => Box::new(Zstd::new(level)),
            Self::Deflate { tables } => Box::new(Deflate::new(tables)),
            Self::Auto => Box::new(Adaptive::new(Density::default())),
            Self::Noop => Box::new(Noop),
        }
    }
}

impl Default for Codec {
    fn default() -> Self {
        Self::LZ4
    }
}

impl fmt::Display for Codec {
    /// What [`Codec::parse`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lz4 { acceleration: 1 } => f.write_str("lz4"),
            Self::Lz4 { acceleration } => write!(f, "lz4:{acceleration}"),
            Self::Zstd { level: 1 } => f.write_str("zstd"),
            Self::Zstd { level } => write!(f, "zstd:{level}"),
            Self::Deflate {
                tables: Tables::Fixed,
            } => f.write_str(Deflate::NAME),
            Self::Deflate { tables } => {
                let known = Tables::NAMES.iter().find(|(_, mode)| mode == tables);
                write!(
                    f,
                    "{}:{}",
                    Deflate::NAME,
                    known.map_or("", |(name, _)| name)
                )
            }
            Self::Auto => f.write_str(Self::ADAPTIVE_NAME),
            Self::Noop => f.write_str("none"),
        }
    }
}

impl FromStr for Codec {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// A codec name that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseCodecError {
    given: String,
    problem: Problem,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Problem {
    Unknown,
    Level,
    Acceleration,
    Tables,
}

impl fmt::Display for ParseCodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = &self.given;
        match self.problem {
            Problem::Unknown => write!(
                f,
                "unknown codec {given:?}: expected auto, lz4, lz4:ACCELERATION, zstd, zstd:LEVEL, deflate-iaa, deflate-iaa:dynamic, deflate-iaa:canned or none"
            ),
            Problem::Tables => write!(
                f,
                "bad tables in {given:?}: expected deflate-iaa, deflate-iaa:dynamic or deflate-iaa:canned"
            ),
            Problem::Level => {
                let (low, high) = (zstd::LEVELS.start(), zstd::LEVELS.end());
                write!(f, "bad zstd level in {given:?}: expected {low} to {high}")
            }
            Problem::Acceleration => {
                let (low, high) = (lz4::ACCELERATION.start(), lz4::ACCELERATION.end());
                write!(
                    f,
                    "bad lz4 acceleration in {given:?}: expected {low} to {high}"
                )
            }
        }
    }
}

impl core::error::Error for ParseCodecError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn deflate(tables: Tables) -> Codec {
        Codec::Deflate { tables }
    }

    #[test]
    fn names_round_trip() {
        for (text, codec) in [
            ("lz4", Codec::LZ4),
            ("lz4:4", Codec::Lz4 { acceleration: 4 }),
            ("zstd", Codec::ZSTD),
            ("zstd:-7", Codec::Zstd { level: -7 }),
            ("zstd:19", Codec::Zstd { level: 19 }),
            ("deflate-iaa", deflate(Tables::Fixed)),
            ("deflate-iaa:dynamic", deflate(Tables::Dynamic)),
            ("deflate-iaa:canned", deflate(Tables::Canned)),
            ("none", Codec::Noop),
        ] {
            assert_eq!(Codec::parse(text), Ok(codec));
            assert_eq!(codec.to_string(), text);
            assert_eq!(codec.compressor().name(), text.split(':').next().unwrap());
        }
        assert_eq!(Codec::parse("zstd:1"), Ok(Codec::ZSTD));
    }

    #[test]
    fn errors_are_one_clear_line() {
        for (text, expected) in [
            (
                "",
                "unknown codec \"\": expected auto, lz4, lz4:ACCELERATION, zstd, zstd:LEVEL, deflate-iaa, deflate-iaa:dynamic, deflate-iaa:canned or none",
            ),
            (
                "none:1",
                "unknown codec \"none:1\": expected auto, lz4, lz4:ACCELERATION, zstd, zstd:LEVEL, deflate-iaa, deflate-iaa:dynamic, deflate-iaa:canned or none",
            ),
            (
                "zstd:20",
                "bad zstd level in \"zstd:20\": expected -7 to 19",
            ),
            (
                "deflate-iaa:static",
                "bad tables in \"deflate-iaa:static\": expected deflate-iaa, deflate-iaa:dynamic or deflate-iaa:canned",
            ),
            ("zstd:", "bad zstd level in \"zstd:\": expected -7 to 19"),
            (
                "lz4:0",
                "bad lz4 acceleration in \"lz4:0\": expected 1 to 65537",
            ),
        ] {
            assert_eq!(Codec::parse(text).unwrap_err().to_string(), expected);
        }
        let newline = Codec::parse("a\nb").unwrap_err().to_string();
        assert_eq!(newline.lines().count(), 1);
    }
}
