//! `--engines N[,ATTRIBUTE=VALUE...]`: threads that help to compress, and how they are set up.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::engine_attributes::{AttributeShown, shown};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::human;
use zfolio_runtime::options::{Attributes, MOST_ENGINES, SyncMode};
use zfolio_runtime::segment::Config;

/// In place of a number: one for each processor but one, which work while processors are idle.
const AUTO: &str = "auto";
/// The attribute that a run does not take: its units are pages.
const FIXED: &str = "unit_size";

/// How many engines each process has, with what settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Engines {
    /// Threads; 0: none.
    pub(crate) count: u32,
    /// Their settings.
    pub(crate) attributes: Attributes,
    /// They work while processors are idle.
    pub(crate) auto: bool,
}

impl Engines {
    /// Reads `2`, `auto`, `2,sync_mode=async,wqs_per_iaa=4` ...
    ///
    /// # Errors
    /// What is wrong with the first part that is, in one line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let number = parts.next().unwrap_or_default();
        let auto = number == AUTO;
        // (The program itself has a processor.)
        let others = || machine::cpus().saturating_sub(1).clamp(1, MOST_ENGINES);
        let count = if auto {
            u32::try_from(others()).ok()
        } else {
            number.parse().ok()
        };
        let count = count.filter(|count| *count as usize <= MOST_ENGINES);
        let count: u32 = count.ok_or_else(|| {
            format!("`{number}` is not a number of engines, 0 to {MOST_ENGINES}, or {AUTO}")
        })?;
        let mut attributes = Attributes::for_engines(count as usize);
        let mut given = Vec::new();
        for part in parts {
            if count == 0 {
                return Err(format!("`{part}`: there are no engines to have it"));
            }
            let (name, value) = named(part)?;
            if given.contains(&name) {
                return Err(format!("{name} is there twice"));
            }
            given.push(name);
            set(&mut attributes, name, value)?;
        }
        Ok(Self {
            count,
            attributes,
            auto,
        })
    }

    /// Those of a run.
    pub(crate) fn of(config: &Config) -> Self {
        let numbers = config.engines.attributes.each_ref();
        let numbers = numbers.map(|word| word.load(Relaxed));
        let count = config.engines.count.load(Relaxed);
        let none = Attributes::for_engines(count as usize);
        Self {
            count,
            attributes: Attributes::from_numbers(&numbers).unwrap_or(none),
            auto: config.engines.auto.load(Relaxed) != 0,
        }
    }

    /// These with `text`, `NAME=VALUE,...`, changed while they work, and each attribute named
    /// there with what it was and what it is.
    ///
    /// # Errors
    /// What is wrong with the first part that is, or an attribute does not change then.
    pub(crate) fn changed(mut self, text: &str) -> Result<(Self, Vec<Change>), String> {
        if self.count == 0 {
            return Err("the run has no engines".into());
        }
        let mut changes = Vec::new();
        for part in text.split(',') {
            let (name, value) = named(part)?;
            let live = Attributes::LIVE.into_iter();
            let Some(name) = live.clone().find(|known| *known == name) else {
                return Err(format!(
                    "{name} is what queues are made by, which stays; {} change",
                    live.collect::<Vec<_>>().join(", ")
                ));
            };
            let was = self.value(name);
            set(&mut self.attributes, name, value)?;
            changes.push((name, [was, self.value(name)]));
        }
        Ok((self, changes))
    }

    /// The value of an attribute as it is shown.
    fn value(&self, name: &str) -> String {
        let shown = self.shown().unwrap_or_default();
        shown.get(name).map(ToString::to_string).unwrap_or_default()
    }

    /// Checks that their buffers leave the program its memory.
    ///
    /// # Errors
    /// They would take more than an eighth of `high`, bytes.
    pub(crate) fn check(&self, high: u64) -> Result<(), Failure> {
        let bytes = self.attributes.buffer_bytes(self.count as usize) as u64;
        if bytes <= high / 8 {
            return Ok(());
        }
        let why = format!(
            "{} for the descriptors of each process is more than an eighth of --high",
            human(bytes)
        );
        Err(Failure::new(
            Status::Usage,
            "--engines",
            why,
            "take fewer engines, wqs_per_iaa or descriptors",
        ))
    }

    /// Writes them where processes read them.
    pub(crate) fn store(&self, config: &Config) {
        config.engines.count.store(self.count, Relaxed);
        config.engines.auto.store(self.auto.into(), Relaxed);
        // (Until it was found that a processor is idle.)
        config.engines.rest.store(self.auto.into(), Relaxed);
        self.store_attributes(config);
    }

    /// Writes their attributes alone.
    pub(crate) fn store_attributes(&self, config: &Config) {
        let numbers = self.attributes.numbers();
        for (word, number) in config.engines.attributes.iter().zip(numbers) {
            word.store(number, Relaxed);
        }
    }

    /// The attributes by name, for the JSON; `None` without engines.
    pub(crate) fn shown(&self) -> Option<BTreeMap<&'static str, AttributeShown>> {
        (self.count > 0).then(|| shown(&self.attributes))
    }
}

/// An attribute, with what it was and what it is.
pub(crate) type Change = (&'static str, [String; 2]);

/// `NAME=VALUE` of an attribute that a run takes.
fn named(part: &str) -> Result<(&str, &str), String> {
    let Some((name, value)) = part.split_once('=') else {
        return Err(format!("`{part}` is not ATTRIBUTE=VALUE"));
    };
    if names().any(|known| known == name) {
        return Ok((name, value));
    }
    let known: Vec<&str> = names().collect();
    Err(format!(
        "there is no attribute `{name}`, but {}",
        known.join(", ")
    ))
}

fn set(attributes: &mut Attributes, name: &str, value: &str) -> Result<(), String> {
    let set = attributes.set(name, value);
    set.map_err(|error| format!("{error}, not `{value}`"))
}

/// The attributes that a run takes.
fn names() -> impl Iterator<Item = &'static str> {
    let all = Attributes::NAMES.into_iter();
    all.filter(|name| *name != FIXED)
}

/// The help of the option.
pub(crate) fn help() -> String {
    let modes: Vec<&str> = SyncMode::NAMES.iter().map(|(name, _)| *name).collect();
    let names: Vec<&str> = names().collect();
    format!(
        "Threads of each process that help to compress what is moved out, and to decompress where \
         many pages come back, 0 to {MOST_ENGINES}, or auto (for each processor but one, which work \
         while a processor is idle), and their attributes: {}. sync_mode is {}; docs/engines.md says what each means",
        names.join(", "),
        modes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_host::segment_file::OwnSegment;

    #[test]
    fn every_attribute_is_reached_by_its_name() {
        let text = "2,wqs_per_iaa=4,g_comp_wqs_per_iaa=3,distribute_comps=0,distribute_decomps=1,\
                    share=0,sync_mode=async_irq,batch_size=8,verify_compress=1,descriptors=5,\
                    retries=7,timeout_ns=9,decompress=on";
        assert_eq!(text.split(',').count(), Attributes::NAMES.len());
        let engines = Engines::parse(text).expect("all there are");
        assert_eq!(engines.count, 2);
        assert_eq!(
            engines.attributes.numbers(),
            [4, 3, 0, 1, 0, 2, 8, 1, 5, 7, 9, 4096, 2]
        );
        let json = serde_json::to_value(engines.shown()).expect("JSON");
        assert_eq!(json["sync_mode"], "async_irq");
        assert_eq!(json["decompress"], "on");
        assert_eq!(
            (&json["retries"], &json["unit_size"]),
            (&serde_json::json!(7), &serde_json::json!(4096))
        );
        let segment =
            OwnSegment::create(|segment| engines.store(segment.config())).expect("a segment");
        let read = segment
            .config()
            .engines
            .attributes
            .each_ref()
            .map(|word| word.load(Relaxed));
        assert_eq!(Attributes::from_numbers(&read), Ok(engines.attributes));
        assert_eq!(Engines::of(segment.config()), engines);
        // What is not said depends on how many there are.
        let two = Engines::parse("2").expect("a number").attributes;
        assert_eq!((two.descriptors, two.sync_mode), (16, SyncMode::Assist));
        assert_eq!(two.decompress.name(), "auto");
        assert_eq!(Engines::parse("0").map(|none| none.shown()), Ok(None));
    }

    #[test]
    fn each_mistake_is_told_in_one_line() {
        for (text, told) in [
            ("", "`` is not a number of engines, 0 to 16, or auto"),
            ("17", "`17` is not a number of engines, 0 to 16, or auto"),
            ("two", "`two` is not a number of engines, 0 to 16, or auto"),
            (
                "0,retries=1",
                "`retries=1`: there are no engines to have it",
            ),
            ("1,", "`` is not ATTRIBUTE=VALUE"),
            ("1,retries", "`retries` is not ATTRIBUTE=VALUE"),
            ("1,retries=1,retries=2", "retries is there twice"),
            ("1,wqs_per_iaa=9", "wqs_per_iaa: expected 1 to 8, not `9`"),
            (
                "1,g_comp_wqs_per_iaa=x",
                "g_comp_wqs_per_iaa: expected a number, not `x`",
            ),
            (
                "1,distribute_comps=2",
                "distribute_comps: expected 0 or 1, not `2`",
            ),
            (
                "1,distribute_decomps=",
                "distribute_decomps: expected 0 or 1, not ``",
            ),
            ("1,share=yes", "share: expected 0 or 1, not `yes`"),
            (
                "1,sync_mode=lazy",
                "sync_mode: expected sync, async, async_irq or assist, not `lazy`",
            ),
            (
                "1,decompress=1",
                "decompress: expected off, auto or on, not `1`",
            ),
            ("1,batch_size=0", "batch_size: expected 1 to 64, not `0`"),
            (
                "1,verify_compress=2",
                "verify_compress: expected 0 or 1, not `2`",
            ),
            (
                "1,descriptors=65",
                "descriptors: expected 1 to 64, not `65`",
            ),
            ("1,retries=-1", "retries: expected a number, not `-1`"),
            ("1,timeout_ns=0", "timeout_ns: expected 1 or more, not `0`"),
        ] {
            assert_eq!(Engines::parse(text), Err(told.to_owned()), "{text}");
        }
        let unknown = Engines::parse("1,unit_size=64").expect_err("of a run it is a page");
        assert!(unknown.starts_with("there is no attribute `unit_size`, but wqs_per_iaa, "));
    }

    #[test]
    fn auto_is_for_every_processor_but_one() {
        let auto = Engines::parse("auto,verify_compress=1").expect("engines");
        let count = machine::cpus().saturating_sub(1).clamp(1, MOST_ENGINES);
        assert_eq!(auto.count as usize, count);
        assert!(auto.auto && auto.attributes.verify);
        let segment = OwnSegment::create(|segment| auto.store(segment.config()));
        let segment = segment.expect("a segment");
        assert_eq!(Engines::of(segment.config()), auto);
        assert_eq!(segment.config().engines.rest.load(Relaxed), 1);
    }

    #[test]
    fn buffers_leave_the_program_its_memory() {
        let engines = |text: &str| Engines::parse(text).expect(text);
        assert_eq!(engines("16").check(64 << 20), Ok(()));
        let most = engines("16,wqs_per_iaa=8,descriptors=64");
        let told = most.check(64 << 20).expect_err("65 MiB").to_string();
        assert_eq!(
            told,
            "zfolio: --engines: 65 MiB for the descriptors of each process is more than an \
             eighth of --high; take fewer engines, wqs_per_iaa or descriptors"
        );
        assert_eq!(most.check(1 << 30), Ok(()));
    }
}
