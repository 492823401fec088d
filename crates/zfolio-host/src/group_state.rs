//! A named group of a run as its control segment shows it now.

use crate::size::human;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use zfolio_runtime::segment::run_group::all;
use zfolio_runtime::segment::{GroupEvent, RunGroup, Segment};

/// A group as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupState {
    /// A path: `a/b` is within `a`.
    pub name: String,
    /// Bytes; 0 without a `high` of its own.
    pub high: u64,
    resident: u64,
    peak: u64,
    /// Bytes; 0 without a `max` of its own.
    max: u64,
    /// `zswap.max`, `swap.high` and `swap.max`, bytes.
    limits: [Option<u64>; 3],
    writeback: bool,
    /// `zswap.current` and `swap.current`, bytes.
    current: [u64; 2],
    /// By [`GroupEvent`].
    events: [u64; GroupEvent::ALL.len()],
}

impl GroupState {
    fn read(group: &RunGroup) -> Self {
        let name: Vec<u8> = group
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        Self {
            name: String::from_utf8_lossy(&name).into_owned(),
            high: group.high.load(Relaxed),
            resident: group.resident_bytes.load(Relaxed),
            peak: group.resident_peak.load(Relaxed),
            max: group.max.load(Relaxed),
            limits: [&group.zswap_max, &group.swap_high, &group.swap_max]
                .map(|word| word.load(Relaxed).checked_sub(1)),
            writeback: group.no_writeback.load(Relaxed) == 0,
            current: [&group.zswap_bytes, &group.swap_bytes].map(|word| word.load(Relaxed)),
            events: group.events.each_ref().map(|word| word.load(Relaxed)),
        }
    }

    /// The named groups of a run.
    pub fn all(segment: &Segment) -> Vec<Self> {
        all(segment).map(|(_, group)| Self::read(group)).collect()
    }

    /// For `--stats`.
    pub fn json(&self) -> Value {
        let [zswap_max, swap_high, swap_max] = self.limits;
        let events = GroupEvent::ALL.iter().zip(self.events);
        let events = events.map(|(event, count)| (event.name().to_owned(), count.into()));
        json!({
            "name": self.name,
            "high_bytes": (self.high > 0).then_some(self.high),
            "max_bytes": (self.max > 0).then_some(self.max),
            "resident_bytes": self.resident,
            "resident_peak_bytes": self.peak,
            "zswap.max": zswap_max,
            "zswap.current": self.current[0],
            "zswap.writeback": u8::from(self.writeback),
            "swap.high": swap_high,
            "swap.max": swap_max,
            "swap.current": self.current[1],
            "events": Value::Object(events.collect()),
        })
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
            "group {}: {high}, {now} resident, {peak} at most, {zswap} zswap, {swap} swap{events}",
            self.name
        )
    }
}
