//! A pool's table of classes, copied out of its process's slot.

use crate::schema::keys;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_runtime::segment::{ProcessSlot, class_row};
use zfolio_zsmalloc::{ClassStats, Fullness, PoolStats};

/// The classes of a process's pool that have zspages, or of all processes': by number and
/// size.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClassTable(BTreeMap<(usize, usize), ClassStats>);

impl ClassTable {
    pub(crate) fn read(slot: &ProcessSlot) -> Self {
        let rows = slot.at_once(|| {
            slot.classes
                .rows
                .each_ref()
                .map(|row| row.each_ref().map(|word| word.load(Relaxed) as usize))
        });
        let rows = rows.iter().map(class_of).filter(|row| row.pages_used > 0);
        Self(rows.map(|row| ((row.class, row.size), row)).collect())
    }

    /// Adds another process's.
    pub(crate) fn add(&mut self, other: &Self) {
        for (key, more) in &other.0 {
            let Some(sum) = self.0.get_mut(key) else {
                self.0.insert(*key, *more);
                continue;
            };
            let both = |one: usize, other: usize| one.saturating_add(other);
            *sum = ClassStats {
                groups: std::array::from_fn(|at| both(sum.groups[at], more.groups[at])),
                obj_allocated: both(sum.obj_allocated, more.obj_allocated),
                obj_used: both(sum.obj_used, more.obj_used),
                pages_used: both(sum.pages_used, more.pages_used),
                freeable: both(sum.freeable, more.freeable),
                ..*sum
            };
        }
    }

    /// Whether there is no class in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for ClassTable {
    /// An object a class, with the columns' names.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.values().map(Row))
    }
}

impl fmt::Display for ClassTable {
    /// As the kernel's file of that name, with its `Total`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = PoolStats {
            classes: self.0.values().copied().collect(),
            pages_used: 0,
            objects: 0,
            objs_moved: 0,
            pages_compacted: 0,
        };
        table.fmt(f)
    }
}

fn class_of(words: &[usize; class_row::WORDS]) -> ClassStats {
    ClassStats {
        class: words[class_row::CLASS],
        size: words[class_row::SIZE],
        groups: std::array::from_fn(|at| words[class_row::FULLNESS + at]),
        damaged: 0,
        obj_allocated: words[class_row::OBJ_ALLOCATED],
        obj_used: words[class_row::OBJ_USED],
        pages_used: words[class_row::PAGES_USED],
        pages_per_zspage: words[class_row::PAGES_PER_ZSPAGE],
        freeable: words[class_row::FREEABLE],
    }
}

/// The columns after those of how full zspages are.
const AFTER: [&str; 5] = [
    "obj_allocated",
    "obj_used",
    "pages_used",
    "pages_per_zspage",
    "freeable",
];

impl JsonSchema for ClassTable {
    fn schema_name() -> Cow<'static, str> {
        "Classes".into()
    }

    fn json_schema(of: &mut SchemaGenerator) -> Schema {
        let columns = ["class", "size"].into_iter().chain(Fullness::LABELS);
        let row = keys::<u64>(columns.chain(AFTER), of);
        json_schema!({ "type": "array", "items": row })
    }
}

/// A class, to be shown.
struct Row<'a>(&'a ClassStats);

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("class", &row.class)?;
        map.serialize_entry("size", &row.size)?;
        for (label, zspages) in Fullness::LABELS.iter().zip(row.groups) {
            map.serialize_entry(label, &zspages)?;
        }
        let rest = [
            row.obj_allocated,
            row.obj_used,
            row.pages_used,
            row.pages_per_zspage,
            row.freeable,
        ];
        for (name, value) in AFTER.iter().zip(rest) {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example;

    #[test]
    fn a_table_is_read_added_up_and_printed_as_the_kernels() {
        let segment = example();
        let mut table = ClassTable::read(&segment.slots[0]);
        assert!(ClassTable::read(&segment.slots[1]).is_empty());
        let json = serde_json::to_value(&table).expect("JSON");
        assert_eq!(json.as_array().map(Vec::len), Some(2));
        assert_eq!(
            (&json[0]["class"], &json[0]["size"]),
            (&serde_json::json!(3), &serde_json::json!(80))
        );
        assert_eq!(json[0]["10%"], 1);
        assert_eq!(json[0]["100%"], 2);
        assert_eq!(json[1]["freeable"], 2);
        table.add(&table.clone());
        let text = table.to_string();
        let words = |line: usize| -> Vec<&str> {
            let line = text.lines().nth(line).expect("a line");
            line.split_whitespace().collect()
        };
        assert_eq!(words(0)[..3], ["class", "size", "10%"]);
        assert_eq!(words(1)[..3], ["3", "80", "2"]);
        assert_eq!(words(3)[0], "Total");
        assert_eq!(words(3)[13..], ["510", "400", "14", "-", "4"]);
    }
}
