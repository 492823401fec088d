//! What went to a store behind the pool, as metrics of the run.

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use zfolio_host::store_totals::StoreTotals;

/// Tells them.
pub(crate) fn encode(totals: &StoreTotals, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let counters = [
        (
            "sent",
            Some(Unit::Bytes),
            totals.sent,
            "to the store, with the protocol",
        ),
        (
            "received",
            Some(Unit::Bytes),
            totals.received,
            "from the store, with the protocol",
        ),
        ("retries", None, totals.retries, "requests tried once more"),
        (
            "other_copy",
            None,
            totals.other_copy,
            "reads that another copy than the first answered",
        ),
        (
            "lost_copies",
            None,
            totals.lost_copies,
            "copies that were not there any more",
        ),
        (
            "held_back",
            None,
            totals.held_back,
            "writes that waited for bandwidth",
        ),
        (
            "pagers",
            None,
            u64::from(totals.pagers),
            "pagers that were started",
        ),
    ];
    for (name, unit, value, help) in counters {
        encoder
            .encode_descriptor(
                &format!("zfolio_store_{name}"),
                help,
                unit.as_ref(),
                MetricType::Counter,
            )?
            .encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
    }
    let help = "how long reads from the store took, as processes saw it";
    let buckets = buckets(&totals.reads_us);
    encoder
        .encode_descriptor(
            "zfolio_store_read",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?
        .encode_histogram::<NoLabelSet>(
            seconds(totals.reads_sum_us),
            totals.reads(),
            &buckets,
            None,
        )
}

/// Buckets as a histogram has them: bound in seconds, and how many are in it alone.
fn buckets(reads_us: &[u64]) -> Vec<(f64, u64)> {
    let (all, last) = reads_us.split_at(reads_us.len().saturating_sub(1));
    let bounded = all
        .iter()
        .enumerate()
        .map(|(n, count)| (seconds(1 << n), *count));
    let beyond = (f64::INFINITY, last.first().copied().unwrap_or(0));
    bounded.chain([beyond]).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a span to some digits")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_their_bounds_in_seconds() {
        let mut reads = vec![0; 32];
        (reads[10], reads[31]) = (3, 1);
        let buckets = buckets(&reads);
        assert_eq!(buckets.len(), 32);
        assert_eq!(buckets[10], (0.001_024, 3));
        assert_eq!(buckets[31], (f64::INFINITY, 1));
    }
}
