//! The object that `--stats` writes.

use super::finished::Finished;
use crate::supervise::Outcome;
use crate::tree::unreached;
use serde_json::{Map, Value, json};
use zfolio_host::machine;
use zfolio_host::shown::Program;
use zfolio_mm::PAGE_SIZE;

impl Finished {
    /// The object `--stats` writes.
    pub(crate) fn json(&self) -> Value {
        let command: Vec<_> = self
            .command
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let (status, signal) = match self.outcome {
            Outcome::Exited(status) => (Some(status), None),
            Outcome::Killed(signal) => (None, Some(signal)),
        };
        let mut map = Map::new();
        map.insert("zfolio".into(), json!(Program::THIS));
        map.insert("command".into(), json!(command));
        map.insert("pid".into(), self.pid.into());
        let mut config = json!({
            "high_bytes": self.settings.high,
            "high_is_shared": self.settings.shared,
            "limit_bytes": self.settings.limit,
            "slowdown_percent": self.settings.slowdown.map(|of| f64::from(of.slowdown) / 1e4),
            "low_bytes": self.settings.slowdown.map(|of| of.low),
            "compressor": self.settings.compressor.name(),
            "folio_bytes": self.settings.folio.bytes(),
            "folio_order": self.settings.folio.get(),
            "split_huge_pages": self.settings.split_huge_pages,
            "engines": self.settings.engines.count,
            "engines_auto": self.settings.engines.auto,
            "engine_attributes": self.settings.engines.json(),
            "folio_compaction": self.settings.folio_compaction,
            "tier": self.settings.tier.name(),
        });
        let faults = self.settings.faults.json();
        for (key, value) in faults.into_iter().chain(self.settings.behind.json()) {
            config[key] = value;
        }
        map.insert("config".into(), config);
        map.insert(
            "machine".into(),
            json!({
                "kernel": machine::kernel_release(),
                "cpus": machine::cpus(),
                "page_size_bytes": PAGE_SIZE,
                "mem_total_bytes": machine::mem_total(),
            }),
        );
        map.insert("exit".into(), json!({ "status": status, "signal": signal }));
        map.insert(
            "usage".into(),
            json!({
                "wall_s": self.usage.wall.as_secs_f64(),
                "user_s": self.usage.user.as_secs_f64(),
                "sys_s": self.usage.sys.as_secs_f64(),
                "max_rss_bytes": self.usage.max_rss,
            }),
        );
        let store = self.store.as_ref().map(|totals| {
            json!({
                "sent_bytes": totals.sent,
                "received_bytes": totals.received,
                "retries": totals.retries,
                "lost_copies": totals.lost_copies,
                "other_copy": totals.other_copy,
                "pagers": totals.pagers,
                "reads_us": totals.waits,
                "read_p50_us": totals.quantile(50),
                "read_p99_us": totals.quantile(99),
            })
        });
        map.insert("store".into(), store.into());
        map.insert("slowdown".into(), self.bought_json());
        map.insert("unreached".into(), unreached::json(&self.unreached));
        let Ok(Value::Object(figures)) = serde_json::to_value(&self.tree) else {
            unreachable!("a tree is an object, and all its keys are text")
        };
        map.extend(figures);
        Value::Object(map)
    }
}
