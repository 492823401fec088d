//! The table of classes and the counters.
//!
//! One row per class that has zspages, then a `Total` row, in the columns of the
//! kernel's `zsmalloc/*/classes` file:
//!
//! `class size 10% 20% .. 90% 99% 100% obj_allocated obj_used pages_used
//! pages_per_zspage freeable`
//!
//! | column | unit | meaning |
//! |---|---|---|
//! | class | | number of the raw class that gave the size |
//! | size | bytes | slot, header included |
//! | 10% .. 100% | zspages | members of fullness groups 1 ..= 11 |
//! | obj_allocated | slots | in all zspages of the class, used or not |
//! | obj_used | objects | |
//! | pages_used | pages | in all zspages of the class |
//! | pages_per_zspage | pages | |
//! | freeable | pages | what zspage compaction would give back: [`can_compact`], damaged zspages left out |
//!
//! # Equations
//!
//! per row `obj_allocated = zspages * objs_per_zspage`,
//! `pages_used = zspages * pages_per_zspage`, `obj_used <= obj_allocated`,
//! `sum(groups) + damaged = zspages`; the totals are sums over the rows and equal
//! [`ZsPool::objects`] and [`ZsPool::pages_used`].

use alloc::vec::Vec;
use core::fmt;

pub use crate::class::can_compact;
use crate::fullness::{Fullness, GROUPS};
use crate::pool::ZsPool;

/// Columns of fullness groups: all but the empty one.
const COLUMNS: usize = GROUPS - 1;

/// One row: a class that has zspages, or the total.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassStats {
    /// Number of the raw class that gave the size.
    pub class: usize,
    /// Bytes per slot, header included.
    pub size: usize,
    /// Zspages per fullness group 1 ..= 11 (at position group - 1).
    pub groups: [usize; COLUMNS],
    /// Zspages nothing is allocated from any more, because their list of free
    /// slots was overwritten. Not printed; 0 unless the arena was scribbled on.
    pub damaged: usize,
    /// Slots, used or not.
    pub obj_allocated: usize,
    /// Objects.
    pub obj_used: usize,
    /// Pages of the zspages.
    pub pages_used: usize,
    /// Pages per zspage.
    pub pages_per_zspage: usize,
    /// Pages zspage compaction would give back: see [`can_compact`].
    pub freeable: usize,
}

/// Counters of a pool and the rows of its classes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolStats {
    /// A row per class that has zspages, smallest size first.
    pub classes: Vec<ClassStats>,
    /// Pages of all zspages.
    pub pages_used: usize,
    /// Objects.
    pub objects: usize,
    /// Objects copied by zspage compaction since the pool was made.
    pub objs_moved: u64,
    /// Pages freed by zspage compaction since the pool was made.
    pub pages_compacted: u64,
}

impl ZsPool {
    /// The counters and a row per class that has zspages. Allocates the rows.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let rows = self
            .class_usage()
            .enumerate()
            .filter(|(_, (_, lists, _))| lists.zspages() != 0);
        let classes = rows.map(|(position, (class, lists, used))| {
            let zspages = lists.zspages();
            let allocated = zspages * class.objs;
            ClassStats {
                class: class.index,
                size: class.size,
                groups: core::array::from_fn(|column| lists.count(column + 1)),
                damaged: lists.damaged(),
                obj_allocated: allocated,
                obj_used: used,
                pages_used: zspages * class.pages,
                pages_per_zspage: class.pages,
                freeable: self.freeable(position),
            }
        });
        PoolStats {
            classes: classes.collect(),
            pages_used: self.pages_used(),
            objects: self.objects(),
            objs_moved: self.objs_moved(),
            pages_compacted: self.pages_compacted(),
        }
    }
}

impl PoolStats {
    /// The sums over all rows; `class`, `size` and `pages_per_zspage` are 0.
    #[must_use]
    pub fn total(&self) -> ClassStats {
        let zero = ClassStats {
            class: 0,
            size: 0,
            groups: [0; COLUMNS],
            damaged: 0,
            obj_allocated: 0,
            obj_used: 0,
            pages_used: 0,
            pages_per_zspage: 0,
            freeable: 0,
        };
        self.classes.iter().fold(zero, |sum, row| ClassStats {
            groups: core::array::from_fn(|column| sum.groups[column] + row.groups[column]),
            damaged: sum.damaged + row.damaged,
            obj_allocated: sum.obj_allocated + row.obj_allocated,
            obj_used: sum.obj_used + row.obj_used,
            pages_used: sum.pages_used + row.pages_used,
            freeable: sum.freeable + row.freeable,
            ..sum
        })
    }
}

impl fmt::Display for PoolStats {
    /// The table: a line of column names, the rows, a `Total` row. Columns are
    /// separated by blanks; the total has `-` for `size` and
    /// `pages_per_zspage`, so that every line has the same number of fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>5} {:>5}", "class", "size")?;
        for label in Fullness::LABELS {
            write!(f, " {label:>8}")?;
        }
        writeln!(
            f,
            " {:>13} {:>10} {:>10} {:>16} {:>8}",
            "obj_allocated", "obj_used", "pages_used", "pages_per_zspage", "freeable"
        )?;
        for row in &self.classes {
            write!(f, "{:>5} {:>5}", row.class, row.size)?;
            row.write_counts(f, Some(row.pages_per_zspage))?;
        }
        write!(f, "{:>5} {:>5}", "Total", "-")?;
        self.total().write_counts(f, None)
    }
}

impl ClassStats {
    /// The columns behind `size`.
    fn write_counts(&self, f: &mut fmt::Formatter<'_>, per_zspage: Option<usize>) -> fmt::Result {
        for count in self.groups {
            write!(f, " {count:>8}")?;
        }
        write!(
            f,
            " {:>13} {:>10} {:>10}",
            self.obj_allocated, self.obj_used, self.pages_used
        )?;
        match per_zspage {
            Some(pages) => write!(f, " {pages:>16}")?,
            None => write!(f, " {:>16}", "-")?,
        }
        writeln!(f, " {:>8}", self.freeable)
    }
}
