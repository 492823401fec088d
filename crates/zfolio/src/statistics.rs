//! Everything a group has counted, by the names of `zfolio run --stats`.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use zfolio_mm::Order;
use zfolio_runtime::segment::{Counter, ProcessSlot, class_row, engine_queue};

/// Names of the columns of a row of classes, but for those of fullness.
const COLUMNS: [(&str, usize); 7] = [
    ("class", class_row::CLASS),
    ("size", class_row::SIZE),
    ("obj_allocated", class_row::OBJ_ALLOCATED),
    ("obj_used", class_row::OBJ_USED),
    ("pages_used", class_row::PAGES_USED),
    ("pages_per_zspage", class_row::PAGES_PER_ZSPAGE),
    ("freeable", class_row::FREEABLE),
];

/// An object of JSON, as `--stats` has it for a process: `counters`, `folios`, `mm_stat`,
/// `classes` and `engine_queues`.
pub(crate) fn json(slot: &ProcessSlot) -> String {
    let count = |which: Counter| slot.counter(which).load(Relaxed);
    let counters = Counter::ALL
        .iter()
        .map(|which| (which.name(), count(*which)));
    let folios = Order::all().map(|order| {
        let at = order.index();
        let of = |words: &[AtomicU64; 10]| words[at].load(Relaxed);
        let values = object(
            [
                ("zswpout", of(&slot.by_order.zswpout)),
                ("zswpin", of(&slot.by_order.zswpin)),
                ("swpin", of(&slot.by_order.swpin)),
                ("swpin_fallback", of(&slot.by_order.swpin_fallback)),
                ("swpout_fallback", of(&slot.by_order.fallback)),
                ("split", of(&slot.by_order.split)),
                ("split_failed", of(&slot.by_order.split_failed)),
            ]
            .into_iter(),
        );
        format!("\"hugepages-{}kB\":{values}", order.bytes() >> 10)
    });
    let folios: Vec<String> = folios.collect();
    format!(
        "{{\"counters\":{},\"folios\":{{{}}},\"mm_stat\":{},\"classes\":[{}],\"engine_queues\":[{}]}}",
        object(counters),
        folios.join(","),
        mm_stat(&count),
        classes(slot).join(","),
        queues(slot).join(","),
    )
}

/// Names that need no escapes, and numbers.
fn object<'a>(values: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in values.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // (Text takes whatever is written to it.)
        let _ = write!(text, "{comma}\"{name}\":{value}");
    }
    text.push('}');
    text
}

fn mm_stat(count: &impl Fn(Counter) -> u64) -> String {
    let by = object(
        [
            ("period", count(Counter::ObjsMovedPeriod)),
            ("pressure", count(Counter::ObjsMovedPressure)),
            ("request", count(Counter::ObjsMovedRequest)),
        ]
        .into_iter(),
    );
    let columns = object(
        [
            ("orig_data_size", count(Counter::StoredPages) * 4096),
            ("compr_data_size", count(Counter::CompressedBytes)),
            ("mem_used_total", count(Counter::PoolBytes)),
            ("mem_limit", 0),
            ("mem_used_max", count(Counter::PoolPeak)),
            ("same_pages", count(Counter::SameFilled)),
            ("pages_compacted", count(Counter::PagesCompacted)),
            ("huge_pages", count(Counter::StoredIncompressible)),
            ("huge_pages_since", count(Counter::HugePagesSince)),
            ("objs_moved", count(Counter::ObjsMoved)),
        ]
        .into_iter(),
    );
    format!("{},\"objs_moved_by\":{by}}}", columns.trim_end_matches('}'))
}

fn classes(slot: &ProcessSlot) -> Vec<String> {
    let rows = slot.at_once(|| {
        let words =
            |row: &[AtomicU32; class_row::WORDS]| row.each_ref().map(|word| word.load(Relaxed));
        slot.classes.rows.each_ref().map(words)
    });
    let used = rows.iter().filter(|row| row[class_row::PAGES_USED] > 0);
    let row = |row: &[u32; class_row::WORDS]| {
        let labels = [
            "10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%", "99%", "100%",
        ];
        let fullness = labels.into_iter().zip(&row[class_row::FULLNESS..]);
        let fullness = fullness.map(|(label, zspages)| (label, u64::from(*zspages)));
        let columns = COLUMNS.into_iter();
        let columns = columns.map(|(name, at)| (name, u64::from(row[at])));
        object(columns.chain(fullness))
    };
    used.map(row).collect()
}

fn queues(slot: &ProcessSlot) -> Vec<String> {
    let rows = slot.engine_queues.iter();
    let rows = rows.map(|row| row.each_ref().map(|word| word.load(Relaxed)));
    rows.filter_map(|words| {
        let (engine, queue, kind) = engine_queue::identified(words[0])?;
        let which = [("engine", engine.into()), ("queue", queue.into())];
        let counts = engine_queue::COUNTS
            .into_iter()
            .zip(words[1..].iter().copied());
        let text = object(which.into_iter().chain(counts));
        Some(format!(
            "{},\"kind\":\"{kind}\"}}",
            text.trim_end_matches('}')
        ))
    })
    .collect()
}
