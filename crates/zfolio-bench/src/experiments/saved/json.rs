//! What is saved, as JSON.

use super::column::{Column, Kept, Native, Saved};
use super::config::Held;
use super::plan::{Compared, Plan};
use super::report::Report;
use serde_json::{Value, json};

impl Report<'_> {
    pub(super) fn json(&self) -> Value {
        let plan = self.plan;
        let load = plan.load;
        let programs = self.all.iter().map(|compared| compared.json(plan));
        json!({
            "slowdown_percent": plan.slowdown,
            "size": load.size,
            "seconds": load.seconds,
            "runs": plan.runs,
            "steps": plan.steps,
            "paired": plan.paired,
            "seed": load.seed,
            "faults": plan.faults,
            "left_out": plan.left_out,
            "programs": programs.collect::<Vec<_>>(),
        })
    }
}

impl Compared {
    fn json(&self, plan: &Plan) -> Value {
        let columns = self.columns.iter().map(|column| {
            let probes = column.search().map_or(&[][..], |search| &search.probes);
            let probes = probes.iter().map(|probe| {
                let times: Vec<f64> = probe.samples.iter().map(|s| s.times).collect();
                let used: Vec<u64> = probe.samples.iter().map(|s| s.used).collect();
                // Of runs that were ended there is no figure: null.
                json!({
                    "high": plan.high(probe.step, column.scale),
                    "times": times,
                    "used": used,
                    "zfolio_run": probe.samples.iter().map(|s| s.own).collect::<Vec<_>>(),
                })
            });
            json!({
                "name": column.config.name,
                "options": column.config.options,
                "saved": self.saved(plan, column).map(Saved::json),
                "tried": probes.collect::<Vec<_>>(),
                "controlled": column.controlled_json(plan),
                "failed": column.failed,
            })
        });
        let alike = self.alike.iter();
        let alike = alike.map(|two| json!({ "work": two.work, "cpu": two.cpu }));
        let native = |figure: &dyn Fn(&Native) -> Value| -> Vec<Value> {
            self.native.iter().map(figure).collect()
        };
        json!({
            "name": self.program.name,
            "amount": self.amount,
            "memory": native(&|native| json!(native.memory)),
            "charged": native(&|native| json!(native.charged)),
            "elapsed_s": native(&|native| json!(native.wall)),
            "cpu_s": native(&|native| json!(native.cpu)),
            "work": native(&|native| json!(native.took)),
            "alike": alike.collect::<Vec<_>>(),
            "columns": columns.collect::<Vec<_>>(),
            "left_out": self.left_out,
        })
    }
}

impl Column {
    /// Each run of the controller, and medians; null where there is none.
    fn controlled_json(&self, plan: &Plan) -> Value {
        if self.config.held != Held::Slowdown {
            return Value::Null;
        }
        let runs = self.controlled().iter().map(|run| {
            json!({
                "times": run.wall,
                "times_of_work": run.work,
                "times_of_cpu": run.cpu,
                "estimated_percent": run.estimated,
                "needed_since_bytes": run.needed,
                "resident_since_bytes": run.resident,
                "needed_mean_bytes": run.needed_whole,
                "resident_mean_bytes": run.resident_whole,
            })
        });
        let kept = Kept::of(self.controlled(), f64::from(plan.slowdown)).map(|kept| {
            json!({
                "percent": kept.percent,
                "whole_percent": kept.whole,
                "slowdown_percent": kept.slowdown.median,
                "slowdown_of_work_percent": kept.work,
                "more_cpu_percent": kept.cpu.median,
                "promise_kept": kept.kept,
                "promise_kept_by_cpu": kept.kept_by_cpu,
            })
        });
        json!({ "runs": runs.collect::<Vec<_>>(), "medians": kept })
    }
}

impl Saved {
    fn json(self) -> Value {
        json!({
            "high": self.high,
            "used": self.used,
            "bytes": self.bytes,
            "percent": self.percent,
            "pool_ratio": self.ratio,
            "slowdown_percent": {
                "curve": self.slowdown,
                "min": self.spread.min,
                "max": self.spread.max,
            },
        })
    }
}
