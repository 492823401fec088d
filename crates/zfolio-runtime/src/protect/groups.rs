//! Which groups are not closed, in which order they were opened and left, and
//! how many runs of mappings they make. Knows nothing of bytes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use zfolio_mm::PAGE_SIZE;

/// Most degrees of heat: turns in the ring for which a group is spared.
pub(super) const HOTTEST: u8 = 6;

/// State of a group that is not closed; see the module above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Loading,
    Open,
    Standby,
    Storing,
}

impl State {
    const fn is_busy(self) -> bool {
        matches!(self, Self::Loading | Self::Storing)
    }
}

/// A group that is not closed.
#[derive(Debug)]
struct Group {
    state: State,
    pages: usize,
    /// Of the entry in a queue that is this group's.
    stamp: u64,
    /// Turns in the ring for which it is spared.
    heat: u8,
    /// Somebody waits for it.
    wanted: bool,
}

/// A place in a queue. It stands for nothing once the group has another stamp.
#[derive(Clone, Copy, Debug)]
struct Entry {
    group: usize,
    stamp: u64,
}

/// Where in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Last to be taken.
    Hot,
    /// Next to be taken.
    Cold,
}

/// The groups.
///
/// # Invariants
/// Checked by [`Self::validate`]: every group that is Open has one entry that is
/// its own in `ring`, every Standby one in `standby`, busy ones none; the counts
/// of pages, groups and runs are those of the groups.
#[derive(Debug)]
pub(super) struct Table {
    /// Bytes of a group.
    unit: usize,
    groups: BTreeMap<usize, Group>,
    ring: VecDeque<Entry>,
    standby: VecDeque<Entry>,
    stamps: u64,
    pages: usize,
    standby_pages: usize,
    open: usize,
    runs: usize,
    busy: usize,
}

impl Table {
    /// No groups, of `pages` pages each.
    pub(super) fn new(pages: usize) -> Self {
        Self {
            unit: pages * PAGE_SIZE,
            groups: BTreeMap::new(),
            ring: VecDeque::new(),
            standby: VecDeque::new(),
            stamps: 0,
            pages: 0,
            standby_pages: 0,
            open: 0,
            runs: 0,
            busy: 0,
        }
    }

    /// Pages of a group.
    pub(super) fn unit_pages(&self) -> usize {
        self.unit / PAGE_SIZE
    }

    /// The group of an address.
    pub(super) fn group_of(&self, address: usize) -> usize {
        address / self.unit
    }

    /// The addresses of a group, whether a region has them all or not.
    pub(super) fn addresses(&self, group: usize) -> Range<usize> {
        group * self.unit..(group + 1) * self.unit
    }

    /// Groups that have an address of `range`.
    fn groups_of(&self, range: &Range<usize>) -> Range<usize> {
        range.start / self.unit..range.end.div_ceil(self.unit)
    }

    /// `None` for one that is closed.
    pub(super) fn state(&self, group: usize) -> Option<State> {
        self.groups.get(&group).map(|known| known.state)
    }

    /// Pages of all groups that are not closed.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// Pages of those in Standby.
    pub(super) fn standby_pages(&self) -> usize {
        self.standby_pages
    }

    /// Groups that are open.
    pub(super) fn open_groups(&self) -> usize {
        self.open
    }

    /// Puts a group in a state; `pages` of it are its region's.
    pub(super) fn set(&mut self, group: usize, pages: usize, state: State, end: End) {
        let stamp = self.stamps;
        self.stamps += 1;
        let heat = self.forget(group).map_or(0, |known| known.heat);
        self.pages += pages;
        let entry = Entry { group, stamp };
        let queue = match state {
            State::Open => {
                self.open += 1;
                Some(&mut self.ring)
            }
            State::Standby => {
                self.standby_pages += pages;
                Some(&mut self.standby)
            }
            State::Loading | State::Storing => {
                self.busy += 1;
                None
            }
        };
        match (queue, end) {
            (Some(queue), End::Hot) => queue.push_back(entry),
            (Some(queue), End::Cold) => queue.push_front(entry),
            (None, _) => {}
        }
        let known = Group {
            state,
            pages,
            stamp,
            heat,
            wanted: false,
        };
        self.groups.insert(group, known);
        self.sweep();
    }

    /// Closes a group.
    pub(super) fn close(&mut self, group: usize) {
        self.forget(group);
    }

    fn forget(&mut self, group: usize) -> Option<Group> {
        let known = self.groups.remove(&group)?;
        self.pages -= known.pages;
        match known.state {
            State::Open => self.open -= 1,
            State::Standby => self.standby_pages -= known.pages,
            State::Loading | State::Storing => self.busy -= 1,
        }
        Some(known)
    }

    /// Drops entries that stand for nothing, once most of them do.
    fn sweep(&mut self) {
        for (queue, state) in [
            (&mut self.ring, State::Open),
            (&mut self.standby, State::Standby),
        ] {
            if queue.len() > 64 + 4 * self.groups.len() {
                queue.retain(|entry| is_of(&self.groups, *entry, state));
            }
        }
    }

    /// The group that has been open for longest; it is in no queue until it is
    /// [set](Self::set) again.
    pub(super) fn oldest_open(&mut self) -> Option<usize> {
        pop(&mut self.ring, &self.groups, State::Open)
    }

    /// The coldest in standby, likewise.
    pub(super) fn coldest(&mut self) -> Option<usize> {
        pop(&mut self.standby, &self.groups, State::Standby)
    }

    /// A run of open groups of at most `longest`, for which `may` says yes; of the
    /// `looks` groups that have been open for longest.
    pub(super) fn short_run(
        &mut self,
        longest: usize,
        looks: usize,
        may: impl Fn(&Range<usize>) -> bool,
    ) -> Option<Range<usize>> {
        while let Some(entry) = self.ring.front()
            && !is_of(&self.groups, *entry, State::Open)
        {
            self.ring.pop_front();
        }
        let entries = self.ring.iter().take(looks);
        entries
            .filter(|entry| is_of(&self.groups, **entry, State::Open))
            .map(|entry| self.run_of(entry.group, longest + 1))
            .find(|run| run.len() <= longest && may(run))
    }

    /// The open groups around one that is open, those that are at most `most` away.
    fn run_of(&self, group: usize, most: usize) -> Range<usize> {
        let open = |group: &usize| self.state(*group) == Some(State::Open);
        let before = (1..=most).map_while(|back| group.checked_sub(back).filter(open));
        let after = (group + 1..).take(most).take_while(open);
        group - before.count()..group + 1 + after.count()
    }

    /// Makes a group hotter.
    pub(super) fn warm(&mut self, group: usize) {
        if let Some(known) = self.groups.get_mut(&group) {
            known.heat = (known.heat + 2).min(HOTTEST);
        }
    }

    /// Makes a group colder; false if it is as cold as can be.
    pub(super) fn cool(&mut self, group: usize) -> bool {
        let Some(known) = self.groups.get_mut(&group) else {
            return false;
        };
        let warm = known.heat > 0;
        known.heat = known.heat.saturating_sub(1);
        warm
    }

    /// Asks for a group that is busy.
    pub(super) fn want(&mut self, group: usize) {
        if let Some(known) = self.groups.get_mut(&group) {
            known.wanted = true;
        }
    }

    /// Whether somebody has.
    pub(super) fn is_wanted(&self, group: usize) -> bool {
        self.groups.get(&group).is_some_and(|known| known.wanted)
    }

    /// Asks for every group of `range` that is busy; false if none is.
    pub(super) fn want_busy(&mut self, range: &Range<usize>) -> bool {
        let groups = self.groups_of(range);
        let busy = self.groups.range_mut(groups);
        let busy = busy.filter(|(_, known)| known.state.is_busy());
        busy.map(|(_, known)| known.wanted = true).count() > 0
    }

    /// The groups with an address in `range` that are not closed.
    pub(super) fn within(&self, range: &Range<usize>) -> impl Iterator<Item = (usize, State)> + '_ {
        let groups = self.groups.range(self.groups_of(range));
        groups.map(|(group, known)| (*group, known.state))
    }

    /// How many of the two groups beside this one are open.
    fn neighbours(&self, group: usize) -> usize {
        let beside = [group.wrapping_sub(1), group + 1];
        let open = |group: &&usize| self.state(**group) == Some(State::Open);
        beside.iter().filter(open).count()
    }

    /// Whether opening this group makes a run more.
    pub(super) fn makes_run(&self, group: usize) -> bool {
        self.neighbours(group) == 0
    }

    /// Keeps the number of runs in step, here and in `all`, where those of other
    /// tables are counted too: the group was just opened or closed.
    pub(super) fn count_run(&mut self, group: usize, opened: bool, all: &AtomicUsize) {
        match (self.neighbours(group), opened) {
            (0, true) | (2, false) => {
                self.runs += 1;
                all.fetch_add(1, Ordering::Relaxed);
            }
            (0, false) | (2, true) => {
                self.runs -= 1;
                all.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Whether a group is being loaded or stored.
    pub(super) fn is_any_busy(&self) -> bool {
        self.busy > 0
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// Which does not hold.
    pub(super) fn validate(&self) -> Result<(), String> {
        let pages = |which: fn(State) -> bool| -> usize {
            let groups = self.groups.values();
            let groups = groups.filter(|known| which(known.state));
            groups.map(|known| known.pages).sum()
        };
        if pages(|_| true) != self.pages
            || pages(|state| state == State::Standby) != self.standby_pages
        {
            return Err(format!(
                "{} pages, {} in standby: not what the groups have",
                self.pages, self.standby_pages
            ));
        }
        for (queue, state, name) in [
            (&self.ring, State::Open, "open"),
            (&self.standby, State::Standby, "in standby"),
        ] {
            let entries = queue.iter();
            let own = entries.filter(|entry| is_of(&self.groups, **entry, state));
            let groups = self.groups.values();
            let there = groups.filter(|known| known.state == state).count();
            let own = own.count();
            if own != there {
                return Err(format!("{there} groups {name}, {own} in the queue"));
            }
        }
        let open = self.groups.values();
        let open = open.filter(|known| known.state == State::Open).count();
        if open != self.open {
            return Err(format!("{open} groups open, counted {}", self.open));
        }
        let ends = self.groups.iter();
        let ends = ends.filter(|(_, known)| known.state == State::Open);
        let ends = ends.filter(|(group, _)| self.state(**group + 1) != Some(State::Open));
        let runs = ends.count();
        if runs != self.runs {
            return Err(format!("{runs} runs of open groups, counted {}", self.runs));
        }
        let busy = self.groups.values();
        let busy = busy.filter(|known| known.state.is_busy()).count();
        if busy != self.busy {
            return Err(format!("{busy} groups busy, counted {}", self.busy));
        }
        Ok(())
    }
}

fn is_of(groups: &BTreeMap<usize, Group>, entry: Entry, state: State) -> bool {
    let known = groups.get(&entry.group);
    known.is_some_and(|known| known.state == state && known.stamp == entry.stamp)
}

fn pop(
    queue: &mut VecDeque<Entry>,
    groups: &BTreeMap<usize, Group>,
    state: State,
) -> Option<usize> {
    loop {
        let entry = queue.pop_front()?;
        if is_of(groups, entry, state) {
            return Some(entry.group);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn groups_come_out_in_the_order_they_went_in() {
        let mut table = Table::new(16);
        for group in [5, 9, 7] {
            table.set(group, 16, State::Open, End::Hot);
        }
        table.set(9, 16, State::Open, End::Hot);
        assert_eq!(table.oldest_open(), Some(5));
        table.set(5, 16, State::Standby, End::Hot);
        assert_eq!(table.oldest_open(), Some(7));
        table.set(7, 16, State::Standby, End::Cold);
        assert_eq!(table.coldest(), Some(7));
        table.close(7);
        assert_eq!((table.pages(), table.standby_pages()), (32, 16));
        assert_eq!(table.state(7), None);
        table.set(7, 3, State::Open, End::Hot);
        assert_eq!(table.oldest_open(), Some(9), "7 was there before");
    }

    #[test]
    fn short_runs_are_found_whole() {
        let mut table = Table::new(16);
        for group in [1, 2, 3, 10, 20, 21] {
            table.set(group, 16, State::Open, End::Hot);
        }
        table.set(1, 16, State::Standby, End::Hot);
        let mut run = |longest, looks| table.short_run(longest, looks, |_| true);
        assert_eq!(run(1, 9), Some(10..11));
        assert_eq!(run(1, 2), None, "2 and 3 are looked at");
        assert_eq!(run(2, 1), Some(2..4));
        let mut not = |no| table.short_run(5, 9, |run| !run.contains(&no));
        assert_eq!(not(2), Some(10..11));
        assert_eq!(not(10), Some(2..4));
    }

    #[test]
    fn heat_is_spent_turn_by_turn() {
        let mut table = Table::new(16);
        table.set(1, 16, State::Open, End::Hot);
        assert!(!table.cool(1));
        table.warm(1);
        assert!(table.cool(1) && table.cool(1) && !table.cool(1));
        (0..10).for_each(|_| table.warm(1));
        let turns = (0..100).take_while(|_| table.cool(1)).count();
        assert_eq!(turns, usize::from(HOTTEST));
    }

    proptest! {
        #[test]
        fn counts_follow_whatever_is_set(
            ops in prop::collection::vec((0_usize..24, 0_u32..6, any::<bool>()), 1..300)
        ) {
            let mut table = Table::new(16);
            let runs = AtomicUsize::new(0);
            for (group, what, hot) in ops {
                let end = if hot { End::Hot } else { End::Cold };
                let was = table.state(group) == Some(State::Open);
                let is = what == 0;
                match what {
                    0 => table.set(group, 16, State::Open, end),
                    1 => table.set(group, 16, State::Standby, end),
                    2 => table.set(group, 16, State::Storing, end),
                    3 => table.set(group, 16, State::Loading, end),
                    _ => table.close(group),
                }
                if was != is {
                    table.count_run(group, is, &runs);
                }
                table.validate().unwrap();
                prop_assert_eq!(runs.load(Ordering::Relaxed), table.runs);
                prop_assert_eq!(table.within(&(0..24 * table.unit)).count(), table.groups.len());
            }
            let mut left = 0;
            while table.oldest_open().is_some() { left += 1; }
            prop_assert_eq!(left, table.open_groups());
        }
    }
}
