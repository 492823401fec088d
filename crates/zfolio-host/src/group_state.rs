//! A named group of a run as its control segment shows it now.

use crate::size::human;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_runtime::segment::run_group::all;
use zfolio_runtime::segment::{GroupEvent, RunGroup, Segment};

/// What a run's processes share now, bytes.
pub fn high_now(segment: &Segment) -> u64 {
    match segment.groups[0].high.load(Relaxed) {
        0 => segment.config().limits.high.load(Relaxed),
        high => high,
    }
}

/// A group as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupState {
    /// A path: `a/b` is within `a`.
    pub name: String,
    /// Bytes; 0 without a `high` of its own.
    pub high: u64,
    /// Resident now, as last added up. Bytes.
    pub resident: u64,
    /// The highest of those. Bytes.
    pub peak: u64,
    /// Bytes; 0 without a `max` of its own.
    max: u64,
    /// `zswap.max`, `swap.high` and `swap.max`, bytes.
    most_out: [Option<u64>; 3],
    writeback: bool,
    /// `zswap.current` and `swap.current`, bytes.
    current: [u64; 2],
    /// By [`GroupEvent`].
    events: [u64; GroupEvent::ALL.len()],
    /// As [`Self::limits`].
    limits: String,
}

impl GroupState {
    /// Copies a group that may be changing meanwhile.
    pub fn read(group: &RunGroup) -> Self {
        let name: Vec<u8> = group
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        Self {
            name: String::from_utf8_lossy(&name).into_owned(),
            high: group.high.load(Relaxed),
            resident: group.usage.resident_bytes.load(Relaxed),
            peak: group.usage.resident_peak.load(Relaxed),
            max: group.max.load(Relaxed),
            most_out: [&group.zswap_max, &group.swap_high, &group.swap_max]
                .map(|word| word.load(Relaxed).checked_sub(1)),
            writeback: group.no_writeback.load(Relaxed) == 0,
            current: [&group.usage.zswap_bytes, &group.usage.swap_bytes]
                .map(|word| word.load(Relaxed)),
            events: group.events.each_ref().map(|word| word.load(Relaxed)),
            limits: Self::limits(group),
        }
    }

    /// What limits a group, or the run, besides `high`; empty if nothing does.
    pub fn limits(group: &RunGroup) -> String {
        let mut text = match group.max.load(Relaxed) {
            0 => String::new(),
            max => format!(", max {}", human(max)),
        };
        for (name, word) in [
            ("swap.high", &group.swap_high),
            ("swap.max", &group.swap_max),
            ("zswap.max", &group.zswap_max),
        ] {
            if let Some(bytes) = word.load(Relaxed).checked_sub(1) {
                text.push_str(&format!(", {name} {}", human(bytes)));
            }
        }
        if group.no_writeback.load(Relaxed) != 0 {
            text.push_str(", no writeback");
        }
        text
    }

    /// The named groups of a run.
    pub fn all(segment: &Segment) -> Vec<Self> {
        all(segment).map(|(_, group)| Self::read(group)).collect()
    }

    /// For `zfolio stat`.
    pub fn line(&self) -> String {
        let high = match self.high {
            0 => String::from("no high of its own"),
            high => format!("high {}", human(high)),
        };
        let (now, peak) = (human(self.resident), human(self.peak));
        let [zswap, swap] = self.current.map(human);
        let events = GroupEvent::ALL.iter().zip(self.events);
        let events = events.filter(|(_, count)| *count > 0);
        let events: String = events
            .map(|(event, count)| format!(", {} {count}", event.name()))
            .collect();
        format!(
            "group {}: {high}{}, {now} resident, {peak} at most, {zswap} zswap, {swap} swap{events}",
            self.name, self.limits
        )
    }
}

/// A named group in the statistics. Limits are null where there is none.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Group")]
pub(crate) struct GroupShown<'a> {
    name: &'a str,
    high_bytes: Option<u64>,
    max_bytes: Option<u64>,
    resident_bytes: u64,
    resident_peak_bytes: u64,
    #[serde(rename = "zswap.max")]
    zswap_max: Option<u64>,
    #[serde(rename = "zswap.current")]
    zswap_current: u64,
    #[serde(rename = "zswap.writeback")]
    writeback: u8,
    #[serde(rename = "swap.high")]
    swap_high: Option<u64>,
    #[serde(rename = "swap.max")]
    swap_max: Option<u64>,
    #[serde(rename = "swap.current")]
    swap_current: u64,
    events: BTreeMap<&'static str, u64>,
}

impl Serialize for GroupState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [zswap_max, swap_high, swap_max] = self.most_out;
        let [zswap_current, swap_current] = self.current;
        let events = GroupEvent::ALL.iter().zip(self.events);
        let shown = GroupShown {
            name: &self.name,
            high_bytes: (self.high > 0).then_some(self.high),
            max_bytes: (self.max > 0).then_some(self.max),
            resident_bytes: self.resident,
            resident_peak_bytes: self.peak,
            zswap_max,
            zswap_current,
            writeback: self.writeback.into(),
            swap_high,
            swap_max,
            swap_current,
            events: events.map(|(event, count)| (event.name(), count)).collect(),
        };
        shown.serialize(serializer)
    }
}
