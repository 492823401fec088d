//! What could not leave, and why, in a line.

use crate::size::human;
use crate::statistics::Figures;
use zfolio_runtime::segment::Counter;

/// The reasons, as people are told.
const REASONS: [(Counter, &str); 6] = [
    (Counter::StaysNoAccess, "closed to the program (PROT_NONE)"),
    (Counter::StaysReadOnly, "read-only"),
    (Counter::StaysExecutable, "executable"),
    (Counter::StaysShared, "shared"),
    (Counter::StaysFile, "of files"),
    (Counter::StaysApart, "stack and small mappings"),
];

/// Below this a reason is not told: every program has a little of each. Bytes.
const TOLD: u64 = 1 << 20;

/// All that stayed, bytes.
pub fn bytes(figures: &Figures) -> u64 {
    REASONS.iter().map(|(which, _)| figures.get(*which)).sum()
}

/// `112 MiB could not leave (96 MiB read-only, 16 MiB of files)`; `None` where nothing to
/// speak of stayed.
pub fn words(figures: &Figures) -> Option<String> {
    let all = bytes(figures);
    let mut told: Vec<(u64, &str)> = REASONS
        .iter()
        .map(|(which, what)| (figures.get(*which), *what))
        .filter(|(bytes, _)| *bytes >= TOLD)
        .collect();
    told.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let told: Vec<String> = told
        .iter()
        .map(|(bytes, what)| format!("{} {what}", human(*bytes)))
        .collect();
    (!told.is_empty()).then(|| format!("{} could not leave ({})", human(all), told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Tree;

    #[test]
    fn the_largest_reason_comes_first_and_small_ones_are_not_told() {
        let segment = crate::example::example();
        assert_eq!(words(&Tree::read(&segment).processes[0].figures), None);
        for (which, bytes) in [
            (Counter::StaysFile, 3 << 20),
            (Counter::StaysReadOnly, 96 << 20),
            (Counter::StaysApart, 1 << 10),
        ] {
            segment.slots[0].set(which, bytes);
        }
        assert_eq!(
            words(&Tree::read(&segment).processes[0].figures).as_deref(),
            Some("99 MiB could not leave (96 MiB read-only, 3.0 MiB of files)")
        );
    }
}
