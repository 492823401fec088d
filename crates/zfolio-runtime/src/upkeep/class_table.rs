//! The pool's table of classes, written where `zfolio run` reads it.

use crate::segment::{CLASS_ROWS, ProcessSlot, class_row};
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_zswap::{Arena, ClassStats, PoolStats, Zswap};

/// Between two tables, ns.
const APART_NS: u64 = 1_000_000_000;

/// The table of a pool, if it is time for one; `now`: CLOCK_MONOTONIC, ns.
pub fn due<A: Arena>(stats: &ProcessSlot, zswap: &Zswap<A>, now: u64) -> Option<PoolStats> {
    let last = stats.classes.written_ns.load(Ordering::Relaxed);
    let due = last == 0 || now.saturating_sub(last) >= APART_NS;
    due.then(|| zswap.class_stats())
}

/// Makes the next table due at once.
pub fn ask(stats: &ProcessSlot) {
    stats.classes.written_ns.store(0, Ordering::Relaxed);
}

/// Writes a table, within [`ProcessSlot::update`]. After one of an empty pool the next is due
/// at once.
pub fn publish(stats: &ProcessSlot, table: &PoolStats, now: u64) {
    let at = if table.pages_used == 0 { 0 } else { now };
    stats.classes.written_ns.store(at, Ordering::Relaxed);
    write(&stats.classes.rows, table);
}

fn write(into: &[[AtomicU32; class_row::WORDS]; CLASS_ROWS], table: &PoolStats) {
    let (own, more) = match table.classes.split_at_checked(CLASS_ROWS - 1) {
        Some((own, more @ [_, _, ..])) => (own, more),
        _ => (&table.classes[..], &[][..]),
    };
    // (Classes of different sizes: no size, no pages a zspage.)
    let rest = (!more.is_empty()).then(|| total(more));
    let mut rows = own.iter().copied().chain(rest);
    for row in into {
        let words = rows.next().map_or([0; class_row::WORDS], |row| words(&row));
        for (word, value) in row.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

fn total(classes: &[ClassStats]) -> ClassStats {
    let table = PoolStats {
        classes: classes.to_vec(),
        pages_used: 0,
        objects: 0,
        objs_moved: 0,
        pages_compacted: 0,
    };
    table.total()
}

fn words(row: &ClassStats) -> [u32; class_row::WORDS] {
    let word = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let mut words = [0; class_row::WORDS];
    for (at, value) in [
        (class_row::CLASS, row.class),
        (class_row::SIZE, row.size),
        (class_row::PAGES_PER_ZSPAGE, row.pages_per_zspage),
        (class_row::OBJ_ALLOCATED, row.obj_allocated),
        (class_row::OBJ_USED, row.obj_used),
        (class_row::PAGES_USED, row.pages_used),
        (class_row::FREEABLE, row.freeable),
    ] {
        words[at] = word(value);
    }
    for (at, zspages) in row.groups.iter().enumerate() {
        words[class_row::FULLNESS + at] = word(*zspages);
    }
    words
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn row(class: usize) -> ClassStats {
        ClassStats {
            class,
            size: 16 * class,
            groups: core::array::from_fn(|group| class + group),
            damaged: 0,
            obj_allocated: 3 * class,
            obj_used: 2 * class,
            pages_used: class,
            pages_per_zspage: 4,
            freeable: 1,
        }
    }

    #[test]
    fn rows_are_as_the_pool_has_them_and_the_rest_is_added_up() {
        let rows = [const { [const { AtomicU32::new(9) }; class_row::WORDS] }; CLASS_ROWS];
        let table = |classes: usize| PoolStats {
            classes: (1..=classes).map(row).collect(),
            pages_used: 0,
            objects: 0,
            objs_moved: 0,
            pages_compacted: 0,
        };
        let read = |at: usize| -> Vec<u32> {
            let words = rows[at].iter();
            words.map(|word| word.load(Ordering::Relaxed)).collect()
        };
        write(&rows, &table(CLASS_ROWS));
        assert_eq!(read(1), words(&row(2)));
        assert_eq!(read(1)[..4], [2, 32, 4, 2]);
        assert_eq!(read(CLASS_ROWS - 1), words(&row(CLASS_ROWS)));
        write(&rows, &table(CLASS_ROWS + 1));
        let last = read(CLASS_ROWS - 1);
        assert_eq!(last[..3], [0, 0, 0]);
        let both = u32::try_from(2 * CLASS_ROWS + 1).unwrap();
        assert_eq!(last[class_row::PAGES_USED], both);
        write(&rows, &table(1));
        assert_eq!(read(1), [0; class_row::WORDS]);
    }
}
