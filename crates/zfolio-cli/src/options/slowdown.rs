//! `--slowdown PERCENT`: what may be paid for memory.

use clap::Args;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, Size, human, percent};

/// Least and most that may be asked for, millionths.
const LEAST: u32 = 1_000;
const MOST: u32 = 1_000_000;

/// Options of `zfolio run`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Slowdown {
    /// Find by itself the least memory with which the program and all it starts lose at most
    /// so much of their time: 5%. --high is then the most they may have
    #[arg(long, value_name = "PERCENT", value_parser = parse, conflicts_with = "per_process")]
    pub(crate) slowdown: Option<u32>,
    /// The least that --slowdown goes down to; default: 8M
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, requires = "slowdown")]
    pub(crate) low: Option<Size>,
}

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// Millionths of the time run.
    pub(crate) slowdown: u32,
    /// Least `high`, bytes.
    pub(crate) low: u64,
}

impl Slowdown {
    /// What was asked for beside `high`; `None` without the option.
    ///
    /// # Errors
    /// A floor above `high`, or below the least.
    pub(crate) fn check(self, high: u64) -> Result<Option<Asked>, Failure> {
        let Some(slowdown) = self.slowdown else {
            return Ok(None);
        };
        let low = self.low.map(|low| low.bytes(machine::mem_total()));
        let low = low.unwrap_or(MIN_HIGH);
        let refuse = |why: String| Err(Failure::new(Status::Usage, "--low", why, "give another"));
        if low > high {
            return refuse(format!("{} is above --high, {}", human(low), human(high)));
        }
        if low < MIN_HIGH {
            return refuse(format!("{} is below the least, 8M", human(low)));
        }
        Ok(Some(Asked { slowdown, low }))
    }
}

impl Asked {
    /// As people write it.
    pub(crate) fn percent(self) -> String {
        percent(f64::from(self.slowdown) / 1e6)
    }
}

/// `5%`, `5` or `2.5%`, as millionths.
fn parse(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value: f64 = number
        .parse()
        .ok()
        .filter(|_| plain)
        .ok_or_else(|| format!("{text:?} is no number of percent (5%, 2.5%)"))?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "digits and a point: not below 0; saturates"
    )]
    let millionths = (value * 10_000.0).round() as u32;
    if (LEAST..=MOST).contains(&millionths) {
        Ok(millionths)
    } else {
        Err(format!("{text:?} is not between 0.1% and 100%"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_read_and_written() {
        for (text, millionths, shown) in [
            ("5%", 50_000, "5 %"),
            ("5", 50_000, "5 %"),
            ("2.5 %", 25_000, "2.5 %"),
            ("0.1%", 1_000, "0.1 %"),
            ("100%", 1_000_000, "100 %"),
        ] {
            assert_eq!(parse(text), Ok(millionths), "{text}");
            let asked = Asked {
                slowdown: millionths,
                low: 0,
            };
            assert_eq!(asked.percent(), shown);
        }
        for text in [
            "", "%", "-5%", "5%%", "1e1", "0", "0.04%", "101%", "inf", "1.2.3", "5 MiB",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(percent(0.043_21), "4.3 %");
    }

    #[test]
    fn the_floor_is_below_high_and_not_below_the_least() {
        let with = |slowdown, low: Option<u64>| Slowdown {
            slowdown,
            low: low.map(Size::Bytes),
        };
        let high = 100 << 20;
        assert_eq!(with(None, None).check(high), Ok(None));
        let low = |low| {
            with(Some(50_000), low)
                .check(high)
                .map(|asked| asked.unwrap().low)
        };
        assert_eq!(low(None), Ok(8 << 20));
        assert_eq!(low(Some(100 << 20)), Ok(100 << 20));
        assert!(low(Some(101 << 20)).is_err());
        assert!(low(Some(7 << 20)).is_err());
    }
}
