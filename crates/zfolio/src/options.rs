//! How a group's memory is kept: `zfolio run`'s options, by their names.

use crate::error::Error;
use zfolio_mm::{Order, PAGE_SHIFT};
use zfolio_runtime::options::{
    Attributes, BackingOptions, ByDistance, Codec, Directory, MOST_ENGINES, OnMax, Options,
};

/// Least of a backing, bytes.
const LEAST_BACKING: u64 = 4 << 20;
/// The pool's maximum with a backing, percent of `high`.
const MAX_POOL: u32 = 40;
/// Names that [`set`] knows, as `zfolio run --help` has them.
const NAMES: [&str; 13] = [
    "compressor",
    "folio",
    "split-huge-pages",
    "huge-page-assembly",
    "page-cluster",
    "engines",
    "tier",
    "backing",
    "max",
    "on-max",
    "max-pool",
    "accept-threshold",
    "no-shrinker",
];

/// Sets one of [`NAMES`] as `zfolio run` would read it.
pub(crate) fn set(options: &mut Options, name: &str, value: &str) -> Result<(), Error> {
    let option = NAMES.into_iter().find(|known| *known == name);
    let option = option.ok_or(Error::UnknownOption)?;
    let bad = Error::BadOption { option };
    match option {
        "compressor" => options.codec = Codec::parse(value).map_err(|_| bad)?,
        "folio" => options.folio = size(value).and_then(folio_of).ok_or(bad)?,
        "engines" => {
            (options.engines, options.engine_attributes) = engines_of(value).ok_or(bad)?;
        }
        "tier" => {
            options.tier = match value {
                "off" => false,
                "auto" => true,
                _ => return Err(bad),
            }
        }
        "backing" => options.backing = Some(backing_of(value).ok_or(bad)?),
        "max" => options.at_max.max = Some(pages_of(value).ok_or(bad)?),
        "on-max" => {
            options.at_max.on_max = match value {
                "kill" => OnMax::Kill,
                "wait" => OnMax::Wait,
                "allow" => OnMax::Allow,
                _ => return Err(bad),
            }
        }
        "max-pool" => options.pool.percent = Some(percent(value, 90).ok_or(bad)?),
        "accept-threshold" => options.pool.accept_percent = percent(value, 100).ok_or(bad)?,
        "huge-page-assembly" => options.folios.huge_page_assembly = flag(value).ok_or(bad)?,
        "page-cluster" => {
            let order = value.parse().ok().and_then(Order::new);
            options.folios.page_cluster = Some(order.ok_or(bad)?);
        }
        "split-huge-pages" => options.folios.split_huge_pages = flag(value).ok_or(bad)?,
        _ => options.pool.shrinker = !flag(value).ok_or(bad)?,
    }
    Ok(())
}

/// Checks options against each other and `high`, bytes, and fills in what depends on them.
pub(crate) fn check(options: &mut Options, high: usize) -> Result<(), Error> {
    let must = |holds: bool, option: &'static str| {
        if holds {
            Ok(())
        } else {
            Err(Error::BadOption { option })
        }
    };
    options.high = high >> PAGE_SHIFT;
    must(
        options.at_max.max.is_none_or(|max| max >= options.high),
        "max",
    )?;
    must(!options.tier || options.codec == Codec::Auto, "tier")?;
    let buffers = options.engine_attributes.buffer_bytes(options.engines);
    must(options.engines == 0 || buffers <= high / 8, "engines")?;
    if options.backing.is_some() && options.pool.percent.is_none() {
        options.pool.percent = Some(MAX_POOL);
    }
    Ok(())
}

/// 200M, 512MiB, 1.5G (2^30 each), 10MB (10^6), or a number of bytes.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let mut letters = unit.chars();
    let power = match letters.next() {
        None => 0,
        Some('k' | 'K') => 1,
        Some('M') => 2,
        Some('G') => 3,
        Some('T') => 4,
        Some(_) => return None,
    };
    let unit = match letters.as_str() {
        "" | "i" | "iB" => 1024_u64.pow(power),
        "B" => 1000_u64.pow(power),
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).filter(|bytes| *bytes > 0);
    }
    let (whole, part) = number.split_once('.')?;
    let whole: u64 = whole.parse().ok()?;
    let part = part.get(..part.len().min(9))?;
    let scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
    let part: u64 = part.parse().ok()?;
    let part = u128::from(part) * u128::from(unit) / u128::from(scale);
    let bytes = whole.checked_mul(unit)?;
    bytes
        .checked_add(u64::try_from(part).ok()?)
        .filter(|bytes| *bytes > 0)
}

/// Pages of a size.
fn pages_of(text: &str) -> Option<usize> {
    usize::try_from(size(text)? >> PAGE_SHIFT).ok()
}

/// Of an option that takes nothing.
fn flag(text: &str) -> Option<bool> {
    match text {
        "" | "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn folio_of(bytes: u64) -> Option<Order> {
    Order::all().find(|order| order.bytes() as u64 == bytes)
}

fn percent(text: &str, most: u32) -> Option<u32> {
    let percent = text.parse().ok();
    percent.filter(|percent| (1..=most).contains(percent))
}

/// `N[,ATTRIBUTE=VALUE...]`.
fn engines_of(text: &str) -> Option<(usize, Attributes)> {
    let mut parts = text.split(',');
    let count: usize = parts.next()?.parse().ok()?;
    let mut attributes = Attributes::for_engines(count);
    for part in parts {
        let (name, value) = part.split_once('=')?;
        // (Units are pages.)
        if count == 0 || name == "unit_size" {
            return None;
        }
        attributes.set(name, value).ok()?;
    }
    (count <= MOST_ENGINES).then_some((count, attributes))
}

/// `file:DIR,size=SIZE`.
fn backing_of(text: &str) -> Option<BackingOptions> {
    let (dir, bytes) = text.strip_prefix("file:")?.rsplit_once(",size=")?;
    let bytes = size(bytes).filter(|bytes| *bytes >= LEAST_BACKING)?;
    Some(BackingOptions {
        size: ByDistance {
            near: bytes,
            far: 0,
        },
        directory: Some(Directory::new(dir.as_bytes())?),
        deadline_ns: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<Options, Error> {
        let mut options = Options::for_regions(64 << 20, Codec::Auto);
        set(&mut options, name, value)?;
        check(&mut options, 64 << 20)?;
        Ok(options)
    }

    #[test]
    fn each_option_is_read_as_run_reads_it() {
        let is = |name, value| of(name, value).expect(name);
        assert_eq!(is("compressor", "zstd:3").codec, Codec::Zstd { level: 3 });
        assert_eq!(is("folio", "16K").folio.bytes(), 16 << 10);
        let engines = is("engines", "2,verify_compress=1");
        assert_eq!(
            (engines.engines, engines.engine_attributes.verify),
            (2, true)
        );
        assert!(is("tier", "auto").tier);
        let backed = is("backing", "file:/a,b,size=1G");
        let backing = backed.backing.expect("one");
        let path = backing.directory.expect("one");
        assert_eq!(
            (backing.size.near, path.path().to_bytes()),
            (1 << 30, &b"/a,b"[..])
        );
        assert_eq!(backed.pool.percent, Some(MAX_POOL));
        assert_eq!(is("max", "1.5G").at_max.max, Some(3 << 17));
        assert_eq!(size("10MB"), Some(10_000_000));
        assert_eq!(size("10MiB"), Some(10 << 20));
        assert_eq!(is("on-max", "allow").at_max.on_max, OnMax::Allow);
        assert_eq!(is("max-pool", "90").pool.percent, Some(90));
        assert_eq!(is("accept-threshold", "100").pool.accept_percent, 100);
        assert!(!is("no-shrinker", "").pool.shrinker);
        assert!(is("split-huge-pages", "1").folios.split_huge_pages);
        assert!(is("huge-page-assembly", "1").folios.huge_page_assembly);
        assert_eq!(
            is("page-cluster", "0").folios.page_cluster,
            Some(Order::PAGE)
        );
        assert!(!is("split-huge-pages", "0").folios.split_huge_pages);
    }

    #[test]
    fn what_is_no_value_is_refused_by_name() {
        for (name, values) in [
            ("compressor", &["", "gzip", "zstd:99"][..]),
            ("folio", &["3K", "2K", "4M", "64"]),
            (
                "engines",
                &[
                    "",
                    "17",
                    "1,x=1",
                    "1,unit_size=64",
                    "0,retries=1",
                    "16,descriptors=64,wqs_per_iaa=8",
                ],
            ),
            ("tier", &["on"]),
            (
                "backing",
                &["/tmp", "file:/tmp", "file:,size=1G", "file:/tmp,size=4K"],
            ),
            ("max", &["0", "1M", "x", "99999999999T"]),
            ("on-max", &["stop"]),
            ("max-pool", &["0", "91"]),
            ("accept-threshold", &["101", "-1"]),
            ("no-shrinker", &["2"]),
            ("split-huge-pages", &["yes"]),
            ("huge-page-assembly", &["yes"]),
            ("page-cluster", &["", "10", "-1", "4K"]),
        ] {
            for value in values {
                assert_eq!(
                    of(name, value),
                    Err(Error::BadOption { option: name }),
                    "{value}"
                );
            }
        }
        assert_eq!(of("high", "1G"), Err(Error::UnknownOption));
        let mut options = Options::for_regions(64 << 20, Codec::LZ4);
        options.tier = true;
        let refused = Err(Error::BadOption { option: "tier" });
        assert_eq!(check(&mut options, 64 << 20), refused);
    }
}
