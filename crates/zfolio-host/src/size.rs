//! Sizes as people write and read them.
//!
//! `200M`, `200Mi` and `200MiB` are 200 * 2^20 bytes, as in systemd and the
//! kernel's cgroup files; `200MB` is 200 * 10^6. What we print is binary and
//! says so (`MiB`).

use std::fmt;
use zfolio_mm::Order;

/// Smallest `--high`, bytes: below it the manager's own memory dominates.
pub const MIN_HIGH: u64 = 8 << 20;

/// A size on the command line: absolute, or a share of this machine's memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Percent of `MemTotal`, above 0 and up to 100.
    Percent(f64),
}

/// Why a text is no size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotASize(&'static str);

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NotASize {}

impl Size {
    /// Reads `200M`, `1.5G`, `512MiB`, `300MB`, `4096` or `40%`.
    ///
    /// # Errors
    /// When it is none of these, zero, or above 2^63.
    pub fn parse(text: &str) -> Result<Self, NotASize> {
        const FORMS: NotASize =
            NotASize("not a size: write 200M, 1.5G, 512MiB, 40% or a number of bytes");
        let text = text.trim();
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() || number == "." {
            return Err(FORMS);
        }
        if unit.trim() == "%" {
            let percent: f64 = number.parse().map_err(|_| FORMS)?;
            return if percent > 0.0 && percent <= 100.0 {
                Ok(Self::Percent(percent))
            } else {
                Err(NotASize("a percentage must be above 0 and at most 100"))
            };
        }
        let unit = multiplier(unit.trim()).ok_or(FORMS)?;
        let bytes = scale(number, unit).ok_or(FORMS)?;
        match bytes {
            0 => Err(NotASize("a size must be above zero")),
            bytes if bytes > 1 << 63 => Err(NotASize("larger than any memory")),
            bytes => Ok(Self::Bytes(bytes)),
        }
    }

    /// The size in bytes on a machine with `mem_total` bytes.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a percentage of memory, positive and at most mem_total"
    )]
    pub fn bytes(self, mem_total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (mem_total as f64 * percent / 100.0) as u64,
        }
    }
}

fn multiplier(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, rest) = unit.split_at(unit.chars().next().map_or(0, char::len_utf8));
    let power = match prefix {
        "" | "b" if rest.is_empty() => return Some(1),
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    match rest {
        "" | "i" | "ib" => Some(1 << (10 * power)),
        "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// `number * unit`, exact for whole numbers, rounded down for fractions.
fn scale(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut total = u128::from(whole) * u128::from(unit);
    if !fraction.is_empty() {
        if fraction.len() > 18 || fraction.contains('.') {
            return None;
        }
        let numerator: u128 = fraction.parse().ok()?;
        let places = u32::try_from(fraction.len()).ok()?;
        total += numerator * u128::from(unit) / 10_u128.pow(places);
    }
    u64::try_from(total).ok()
}

/// Reads the size of a folio: a power of two, 4K to 2M.
///
/// # Errors
/// When it is not.
pub fn parse_folio(text: &str) -> Result<Order, NotASize> {
    const RANGE: NotASize = NotASize("a folio is a power of two from 4K to 2M");
    let Size::Bytes(bytes) = Size::parse(text)? else {
        return Err(RANGE);
    };
    Order::all()
        .find(|order| order.bytes() as u64 == bytes)
        .ok_or(RANGE)
}

/// Bytes for people: three figures at most, `474 MiB`, `1.2 GiB`.
#[allow(
    clippy::cast_precision_loss,
    reason = "shown with two or three figures"
)]
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit > 0 && value < 9.95 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

/// Bytes as `--high` takes them: `200M`, exact where a unit divides them.
pub fn short(bytes: u64) -> String {
    for (shift, letter) in [(30, 'G'), (20, 'M'), (10, 'K')] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{letter}", bytes >> shift);
        }
    }
    human(bytes)
}

/// A count with thousands separated: `51,234`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part as percent: `5 %`, `2.5 %`.
#[must_use]
pub fn percent(part: f64) -> String {
    let tenths = (part * 1000.0).round() / 10.0;
    format!("{tenths} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_parse() {
        for (text, bytes) in [
            ("200M", 200 << 20),
            ("200m", 200 << 20),
            ("512MiB", 512 << 20),
            ("512Mi", 512 << 20),
            ("300MB", 300_000_000),
            ("2G", 2 << 30),
            ("1.5G", 3 << 29),
            (".5K", 512),
            ("0.1K", 102),
            ("4096", 4096),
            ("4096B", 4096),
            (" 8 M ", 8 << 20),
            ("1T", 1 << 40),
        ] {
            assert_eq!(Size::parse(text), Ok(Size::Bytes(bytes)), "{text}");
        }
        assert_eq!(Size::parse("40%").map(|size| size.bytes(1000)), Ok(400));
        assert_eq!(Size::parse("12.5%").map(|size| size.bytes(800)), Ok(100));
    }

    #[test]
    fn other_texts_do_not() {
        for text in [
            "",
            " ",
            "M",
            ".",
            "-1",
            "+1",
            "0",
            "0M",
            "1X",
            "1MM",
            "1iB",
            "1..5M",
            "1.2.3",
            "0%",
            "101%",
            "%",
            "1e9",
            "nan",
            "inf",
            "99999999999T",
            "18446744073709551616",
            "8M high",
            "é",
            "1é",
        ] {
            assert!(Size::parse(text).is_err(), "{text:?} parsed");
        }
    }

    #[test]
    fn folios_are_orders() {
        assert_eq!(parse_folio("4K").map(Order::get), Ok(0));
        assert_eq!(parse_folio("64K").map(Order::get), Ok(4));
        assert_eq!(parse_folio("2M").map(Order::get), Ok(9));
        for text in ["2K", "4M", "5K", "64KB", "50%", ""] {
            assert!(parse_folio(text).is_err(), "{text}");
        }
    }

    #[test]
    fn people_read_them() {
        assert_eq!(human(0), "0 bytes");
        assert_eq!(human(999), "999 bytes");
        assert_eq!(human(1000), "1.0 KiB");
        assert_eq!(human(474 << 20), "474 MiB");
        assert_eq!(human(1000 << 20), "1.0 GiB");
        assert_eq!(human(1_288_490_189), "1.2 GiB");
        assert_eq!(human(10 << 30), "10 GiB");
        assert_eq!(short(200 << 20), "200M");
        assert_eq!(short(3 << 29), "1536M");
        assert_eq!(short(2 << 30), "2G");
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(51_234), "51,234");
        assert_eq!(grouped(1_000_000), "1,000,000");
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,12}") {
            if let Ok(Size::Bytes(bytes)) = Size::parse(&text) {
                prop_assert!(bytes > 0);
            }
        }

        #[test]
        fn short_reads_back(pages in 1_u64..1 << 40) {
            let bytes = pages << 10;
            prop_assert_eq!(Size::parse(&short(bytes)), Ok(Size::Bytes(bytes)));
        }
    }
}
