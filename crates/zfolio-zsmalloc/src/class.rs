//! The table of size classes.
//!
//! Raw classes lie a 256th of a page apart, from 32 bytes to a page. Each gets
//! the zspage length (1 ..= chain pages) that leaves the smallest rest behind
//! the last object; neighbours with equal length and equal number of objects
//! are one class, the largest of them, since a smaller object gains nothing
//! from a class of its own. Source of the arithmetic: the zsmalloc of the Linux
//! kernel (its documented class table is reproduced by the tests).
//!
//! Above a page lie the *unit classes*, for what several pages compress to
//! together: the run length that wastes the smallest share, slots of all the
//! bytes there are; above half of the longest run an object has whole pages of
//! its own. The kernel has none.

use alloc::vec::Vec;

use zfolio_mm::PAGE_SIZE;

/// Bytes in front of each object that name its handle.
pub const ZS_HANDLE_SIZE: usize = 8;

/// Size of the smallest class, in bytes.
pub const MIN_CLASS_SIZE: usize = 32;

/// Raw classes lie `page size / CLASS_STEPS` bytes apart.
pub const CLASS_STEPS: usize = 256;

/// Pages in the longest zspage unless told otherwise.
pub const DEFAULT_CHAIN: usize = 8;

/// Pages in the longest zspage that may be asked for.
pub const MAX_CHAIN: usize = 16;

/// Bytes of the largest object, with [`Layout::units`].
pub const MAX_UNIT: usize = MAX_CHAIN * PAGE_SIZE;

/// Raw unit classes lie so many bytes apart.
const UNIT_STEP: usize = 256;

/// Which classes a pool has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Pages in the longest zspage of objects up to a page, 1 ..= [`MAX_CHAIN`].
    pub chain: usize,
    /// Only runs of 1, 2, 4, 8 or 16 pages, whole blocks of the buddy allocator.
    pub powers: bool,
    /// Objects larger than a page, up to [`MAX_UNIT`].
    pub units: bool,
    /// An object may be the *guest* of a larger class that has a free slot,
    /// where a zspage of its own class would stay emptier.
    pub guests: bool,
}

impl Layout {
    /// What the running system uses; `docs/zsmalloc.md` has the measurements.
    pub const ARENA: Self = Self {
        chain: DEFAULT_CHAIN,
        powers: false,
        units: true,
        guests: true,
    };

    /// The kernel's classes for a chain length.
    #[must_use]
    pub const fn kernel(chain: usize) -> Self {
        Self {
            chain,
            powers: false,
            units: false,
            guests: false,
        }
    }

    /// The classes, for pages of [`PAGE_SIZE`].
    ///
    /// # Panics
    /// When `chain` is not in 1 ..= [`MAX_CHAIN`].
    #[must_use]
    pub fn table(self) -> ClassTable {
        let mut table = ClassTable::with_lengths(PAGE_SIZE, self.chain, self.powers);
        if self.units {
            table.add_units(self.powers);
        }
        table
    }
}

/// One class: every slot of its zspages has the same size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeClass {
    /// Number of the raw class that gave its size (names the row in statistics).
    pub index: usize,
    /// Bytes per slot, header included.
    pub size: usize,
    /// Pages per zspage.
    pub pages: usize,
    /// Slots per zspage.
    pub objs: usize,
}

impl SizeClass {
    /// Whether an object has its zspage to itself: then it has no header.
    #[must_use]
    pub const fn is_huge(&self) -> bool {
        self.objs == 1
    }

    /// Bytes in front of the payload of a slot.
    #[must_use]
    pub const fn header(&self) -> usize {
        if self.is_huge() { 0 } else { ZS_HANDLE_SIZE }
    }

    /// Bytes an object of this class can hold.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.size - self.header()
    }
}

/// The classes for one page size and chain length.
#[derive(Clone, Debug)]
pub struct ClassTable {
    page_size: usize,
    /// Merged classes, smallest size first.
    classes: Vec<SizeClass>,
    /// Raw class -> position in `classes`.
    merged: Vec<u16>,
    /// Raw unit class -> position in `classes`; empty without units.
    units: Vec<u16>,
    huge_class_size: usize,
}

impl ClassTable {
    /// The table for pages of `page_size` bytes and zspages of 1 ..= `chain`
    /// pages.
    ///
    /// # Panics
    /// When `page_size` is not a power of two in 4096 ..= 65536 or `chain` not
    /// in 1 ..= [`MAX_CHAIN`].
    #[must_use]
    pub fn new(page_size: usize, chain: usize) -> Self {
        Self::with_lengths(page_size, chain, false)
    }

    fn with_lengths(page_size: usize, chain: usize, powers: bool) -> Self {
        assert!(
            page_size.is_power_of_two() && (4096..=65536).contains(&page_size),
            "unsupported page size"
        );
        assert!((1..=MAX_CHAIN).contains(&chain), "unsupported chain length");
        let step = page_size / CLASS_STEPS;
        let raw = (page_size - MIN_CLASS_SIZE).div_ceil(step) + 1;

        // From large to small, so that each run of equal classes is named by
        // its largest; turned round at the end.
        let mut classes: Vec<SizeClass> = Vec::with_capacity(raw);
        let mut merged: Vec<u16> = Vec::with_capacity(raw);
        let mut huge_class_size = None;
        for index in (0..raw).rev() {
            let size = (MIN_CLASS_SIZE + index * step).min(page_size);
            let pages = pages_per_zspage(size, page_size, chain, powers);
            let objs = pages * page_size / size;
            if pages != 1 && objs != 1 && huge_class_size.is_none() {
                huge_class_size = Some(size - (ZS_HANDLE_SIZE - 1));
            }
            let same = classes
                .last()
                .is_some_and(|c| c.pages == pages && c.objs == objs);
            if !same {
                classes.push(SizeClass {
                    index,
                    size,
                    pages,
                    objs,
                });
            }
            merged.push(u16::try_from(classes.len() - 1).unwrap_or(u16::MAX));
        }
        classes.reverse();
        merged.reverse();
        let last = u16::try_from(classes.len() - 1).unwrap_or(u16::MAX);
        for position in &mut merged {
            *position = last - *position;
        }
        // With a chain of 1 only the page-sized class has no header.
        let huge_class_size = huge_class_size.unwrap_or(page_size - (ZS_HANDLE_SIZE - 1));
        Self {
            page_size,
            classes,
            merged,
            units: Vec::new(),
            huge_class_size,
        }
    }

    /// Adds the classes above a page, smallest first.
    fn add_units(&mut self, powers: bool) {
        let page = self.page_size;
        let (longest, first) = (MAX_CHAIN * page, self.classes.len());
        for size in (page + UNIT_STEP..=longest).step_by(UNIT_STEP) {
            let (pages, objs) = unit_run(size, page, powers);
            // All the bytes there are: neighbours that share the run share the class.
            let slot = (pages * page / objs) & !15;
            let same = self.classes[first..]
                .iter()
                .position(|c| (c.pages, c.objs) == (pages, objs));
            let position = same.map_or(self.classes.len(), |nth| first + nth);
            if same.is_none() {
                self.classes.push(SizeClass {
                    index: self.merged.len() + self.units.len(),
                    size: slot,
                    pages,
                    objs,
                });
            }
            self.units.push(u16::try_from(position).unwrap_or(u16::MAX));
        }
    }

    /// The classes, smallest size first.
    #[must_use]
    pub fn classes(&self) -> &[SizeClass] {
        &self.classes
    }

    /// Raw classes before merging.
    #[must_use]
    pub fn raw_classes(&self) -> usize {
        self.merged.len()
    }

    /// The smallest payload, in bytes, that gets pages of its own.
    #[must_use]
    pub fn huge_class_size(&self) -> usize {
        self.huge_class_size
    }

    /// Bytes of the largest payload.
    #[must_use]
    pub fn largest(&self) -> usize {
        if self.units.is_empty() {
            self.page_size
        } else {
            MAX_CHAIN * self.page_size
        }
    }

    /// The position in [`Self::classes`] of the class for a payload of `size`
    /// bytes; `None` for 0 or more than [`Self::largest`].
    ///
    /// The header is added before looking up. A payload too large to have one
    /// within a page is in the page-sized class, which needs none.
    #[must_use]
    pub fn lookup(&self, size: usize) -> Option<usize> {
        if size == 0 || size > self.largest() {
            return None;
        }
        if size > self.page_size {
            // Above half of the longest run objects have no header.
            let header = if size + ZS_HANDLE_SIZE > MAX_CHAIN / 2 * self.page_size {
                0
            } else {
                ZS_HANDLE_SIZE
            };
            let raw = (size + header - self.page_size).div_ceil(UNIT_STEP) - 1;
            return self.units.get(raw).map(|position| usize::from(*position));
        }
        let step = self.page_size / CLASS_STEPS;
        let raw = (size + ZS_HANDLE_SIZE)
            .saturating_sub(MIN_CLASS_SIZE)
            .div_ceil(step);
        let raw = raw.min(self.merged.len() - 1);
        Some(usize::from(self.merged[raw]))
    }
}

/// Pages per zspage for slots of `size` bytes: the shortest run that leaves the
/// smallest rest. A power of two divides a page, so one page it is.
fn pages_per_zspage(size: usize, page_size: usize, chain: usize, powers: bool) -> usize {
    (1..=chain)
        .filter(|pages| !powers || pages.is_power_of_two())
        .min_by_key(|pages| pages * page_size % size)
        .unwrap_or(1)
}

/// Pages and slots of the run for units of `size` bytes: the shortest that wastes
/// less than a 32nd, or else the smallest share. (Classes of units have few objects:
/// a long zspage stays half empty for long.)
fn unit_run(size: usize, page_size: usize, powers: bool) -> (usize, usize) {
    let runs = (1..=MAX_CHAIN).filter(|pages| !powers || pages.is_power_of_two());
    let fit = runs.filter(|pages| pages * page_size >= size);
    // In 2^16ths of the pages.
    let waste = |pages: &usize| (pages * page_size % size) * (1 << 16) / (pages * page_size);
    let little = fit.clone().find(|pages| waste(pages) < (1 << 16) / 32);
    let pages = little.or_else(|| fit.min_by_key(waste));
    let pages = pages.unwrap_or(MAX_CHAIN);
    (pages, pages * page_size / size)
}

/// Pages that filling up the zspages of `class` would free, when `allocated`
/// of its slots exist and `used` are in use: whole zspages' worth of free
/// slots. 0 when nothing is free.
#[must_use]
pub const fn can_compact(class: &SizeClass, allocated: usize, used: usize) -> usize {
    allocated.saturating_sub(used) / class.objs * class.pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(table: &ClassTable, size: usize) -> SizeClass {
        let found = table.classes().iter().find(|c| c.size == size);
        *found.expect("no class of that size")
    }

    /// Page size, chain, raw, merged, huge_class_size, the largest class that
    /// is not huge (size, pages, objects).
    type Vector = (usize, usize, usize, usize, usize, (usize, usize, usize));

    #[test]
    fn published_tables() {
        let vectors: [Vector; 4] = [
            (4096, 4, 255, 69, 3257, (3264, 4, 5)),
            (4096, 8, 255, 119, 3625, (3632, 8, 9)),
            (4096, 16, 255, 192, 3833, (3840, 15, 16)),
            (16384, 8, 257, 121, 14553, (14560, 8, 9)),
        ];
        for (page, chain, raw, merged, huge, largest) in vectors {
            let table = ClassTable::new(page, chain);
            assert_eq!(table.raw_classes(), raw, "{page}/{chain}");
            assert_eq!(table.classes().len(), merged, "{page}/{chain}");
            assert_eq!(table.huge_class_size(), huge, "{page}/{chain}");
            let class = table.classes().iter().rev().find(|c| !c.is_huge());
            let class = class.expect("a class with several objects");
            assert_eq!(
                (class.size, class.pages, class.objs),
                largest,
                "{page}/{chain}"
            );
        }
    }

    #[test]
    fn published_classes_of_the_default_table() {
        let table = ClassTable::new(4096, DEFAULT_CHAIN);
        for (size, pages, objs) in [
            (48, 3, 256),
            (96, 3, 128),
            (768, 3, 16),
            (2048, 1, 2),
            (3072, 3, 4),
        ] {
            let class = find(&table, size);
            assert_eq!((class.pages, class.objs), (pages, objs), "class {size}");
        }
    }

    #[test]
    fn every_payload_gets_the_smallest_class_that_holds_it() {
        for (page, chain) in [(4096, 4), (4096, 8), (4096, 16), (16384, 8)] {
            let table = ClassTable::new(page, chain);
            for size in 1..=page {
                let at = table.lookup(size).expect("a payload of 1 to a page");
                let class = table.classes()[at];
                assert!(class.capacity() >= size, "{size} in {class:?}");
                let smaller = at.checked_sub(1).map(|below| table.classes()[below]);
                assert!(
                    smaller.is_none_or(|c| c.size < size + ZS_HANDLE_SIZE),
                    "{size} fits {smaller:?}"
                );
            }
            assert_eq!(table.lookup(0), None);
            assert_eq!(table.lookup(page + 1), None);
        }
    }

    #[test]
    fn huge_begins_at_huge_class_size() {
        for (page, chain) in [(4096, 1), (4096, 4), (4096, 8), (4096, 16), (16384, 8)] {
            let table = ClassTable::new(page, chain);
            let huge = |size| {
                table
                    .lookup(size)
                    .is_some_and(|c| table.classes()[c].is_huge())
            };
            if chain > 1 {
                assert!(!huge(table.huge_class_size() - 1), "{page}/{chain}");
            }
            assert!(huge(table.huge_class_size()), "{page}/{chain}");
            assert!(table.classes().iter().all(|c| !c.is_huge() || c.pages == 1));
            assert_eq!(table.classes().iter().filter(|c| c.is_huge()).count(), 1);
        }
    }

    #[test]
    fn units_get_a_class_that_holds_them() {
        for powers in [false, true] {
            let layout = Layout {
                powers,
                ..Layout::ARENA
            };
            let table = layout.table();
            assert_eq!(table.largest(), 65536);
            assert_eq!(table.lookup(table.largest() + 1), None);
            assert_eq!(ClassTable::new(4096, 8).lookup(4097), None);
            for size in 4097..=table.largest() {
                let class = table.classes()[table.lookup(size).expect("a unit")];
                assert!(class.capacity() >= size, "{size} in {class:?}");
                assert!(class.pages <= MAX_CHAIN && class.objs * class.size <= class.pages * 4096);
                assert!(!powers || class.pages.is_power_of_two());
                // Never more than a quarter in vain; with runs of any length less.
                let lost = class.pages * 4096 - class.objs * size;
                let bound = if powers { 2 } else { 6 };
                assert!(lost * bound <= class.pages * 4096, "{size} in {class:?}");
            }
            let classes = table.classes();
            assert!(classes.iter().all(|c| c.size % 16 == 0 && c.objs <= 256));
            assert!(classes.len() <= 400);
        }
    }

    #[test]
    fn slots_fit_their_zspage() {
        for chain in 1..=MAX_CHAIN {
            let table = ClassTable::new(4096, chain);
            for class in table.classes() {
                assert!(class.objs * class.size <= class.pages * 4096);
                assert!((class.objs + 1) * class.size > class.pages * 4096);
                assert!(class.pages <= chain && class.size % 16 == 0);
            }
        }
    }
}
