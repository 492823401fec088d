//! Groups: who is charged for what, up to the root.
//!
//! A tree, as control groups are one. Each group has limits and current values
//! of three resources; a charge to a group counts in it and in all above it,
//! and is refused if it would break a limit of any of them: then it counts
//! nowhere. What the words mean is what the kernel means by them:
//!
//! | limit | what happens |
//! |---|---|
//! | `high` | never refuses; a charge above it is an event, and the caller's to relieve |
//! | `max` | a charge that would exceed it is refused: event `max` |
//! | `swap.max` | likewise: event `swap_fail` |
//! | `zswap.max` | looked at before a folio is stored, at or above it the answer is no; the charges themselves are never refused. 0: nothing is stored |
//! | `zswap.writeback` | 0 keeps what the group and all below it have from the backing, whatever those say themselves |
//!
//! # Invariants
//! Of every group and resource: current = what was charged to it and to the
//! groups below it, less what was uncharged.

use alloc::vec::Vec;

/// Names a group of a [`Groups`] tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub(crate) u8);

impl GroupId {
    /// The group above all others; it always exists.
    pub const ROOT: Self = Self(0);

    /// Most groups of a tree, the root included.
    pub const MOST: usize = 256;

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is charged, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Resource {
    /// Memory of any kind. Compressed bytes count here as well.
    Memory,
    /// Compressed bytes in the pool.
    Zswap,
    /// Pages that are out, uncompressed size: in the pool or in a backing.
    Swap,
}

const RESOURCES: usize = 3;

/// What a group may have. `None`: no limit. Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// `memory.high`.
    pub high: Option<u64>,
    /// `memory.max`.
    pub max: Option<u64>,
    /// `memory.swap.max`.
    pub swap_max: Option<u64>,
    /// `memory.zswap.max`.
    pub zswap_max: Option<u64>,
    /// `memory.zswap.writeback`.
    pub writeback: bool,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            high: None,
            max: None,
            swap_max: None,
            zswap_max: None,
            writeback: true,
        }
    }
}

/// Events of a group: charges that ran into its own limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupEvents {
    /// Charges that left memory above `high`.
    pub high: u64,
    /// Charges of memory refused by `max`.
    pub max: u64,
    /// Charges of swap refused by `swap.max`.
    pub swap_fail: u64,
}

/// A group at one moment. Current values include those of the groups below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupFigures {
    /// Memory, bytes.
    pub memory: u64,
    /// Compressed bytes in the pool: the kernel's `zswap`.
    pub zswap: u64,
    /// What these are uncompressed, bytes: `zswapped`.
    pub zswapped: u64,
    /// Of those, pages kept as they are, bytes: `zswap_incomp`.
    pub zswap_incomp: u64,
    /// Pages out, bytes: `swap.current`.
    pub swap: u64,
    /// Events.
    pub events: GroupEvents,
}

/// A limit that a charge would have broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverLimit {
    /// Whose limit.
    pub group: GroupId,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// `None` for the root.
    parent: Option<GroupId>,
    limits: GroupLimits,
    current: [u64; RESOURCES],
    /// Pages in the pool, and of those raw ones; bytes.
    zswapped: u64,
    zswap_incomp: u64,
    /// Pages read from the backing since the shrinker last looked.
    swapins: usize,
    events: GroupEvents,
}

/// The tree. Who uses it from several threads keeps it under a lock.
#[derive(Debug)]
pub struct Groups {
    all: Vec<Group>,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            all: alloc::vec![Group {
                parent: None,
                limits: GroupLimits::default(),
                current: [0; RESOURCES],
                zswapped: 0,
                zswap_incomp: 0,
                swapins: 0,
                events: GroupEvents::default(),
            }],
        }
    }
}

impl Groups {
    /// Makes a group below `parent`; `None` when there are [`GroupId::MOST`],
    /// or no memory, or no such parent.
    pub fn add(&mut self, parent: GroupId, limits: GroupLimits) -> Option<GroupId> {
        let id = u8::try_from(self.all.len()).ok().map(GroupId)?;
        self.all.get(parent.index())?;
        self.all.try_reserve(1).ok()?;
        self.all.push(Group {
            parent: Some(parent),
            limits,
            current: [0; RESOURCES],
            zswapped: 0,
            zswap_incomp: 0,
            swapins: 0,
            events: GroupEvents::default(),
        });
        Some(id)
    }

    /// How many there are, the root included.
    #[allow(clippy::len_without_is_empty, reason = "there is always the root")]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Every group.
    pub fn ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..=u8::MAX).take(self.all.len()).map(GroupId)
    }

    /// The limits of a group; the root's if there is no such group.
    pub fn limits(&self, group: GroupId) -> GroupLimits {
        self.get(group).limits
    }

    /// Changes the limits of a group, for charges from now on.
    pub fn set_limits(&mut self, group: GroupId, limits: GroupLimits) {
        if let Some(group) = self.all.get_mut(group.index()) {
            group.limits = limits;
        }
    }

    /// The current values and events of a group.
    pub fn figures(&self, group: GroupId) -> GroupFigures {
        let group = self.get(group);
        let [memory, zswap, swap] = group.current;
        GroupFigures {
            memory,
            zswap,
            zswapped: group.zswapped,
            zswap_incomp: group.zswap_incomp,
            swap,
            events: group.events,
        }
    }

    /// A group and all above it, from the group up.
    pub fn path(&self, group: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        core::iter::successors(Some(group), |group| self.get(*group).parent)
    }

    /// Charges `bytes` of `what`.
    ///
    /// # Errors
    /// The lowest group whose limit this would break; nothing is charged then.
    pub fn charge(&mut self, group: GroupId, what: Resource, bytes: u64) -> Result<(), OverLimit> {
        let mut at = Some(group);
        while let Some(id) = at {
            let of = &mut self.all[id.index()];
            let limit = match what {
                Resource::Memory => of.limits.max,
                Resource::Swap => of.limits.swap_max,
                Resource::Zswap => None,
            };
            let after = of.current[what as usize].saturating_add(bytes);
            if limit.is_some_and(|limit| after > limit) {
                match what {
                    Resource::Memory => of.events.max += 1,
                    Resource::Swap => of.events.swap_fail += 1,
                    Resource::Zswap => {}
                }
                return Err(OverLimit { group: id });
            }
            at = of.parent;
        }
        self.add_up(group, |of| {
            of.current[what as usize] += bytes;
            if what == Resource::Memory {
                of.note_high();
            }
        });
        Ok(())
    }

    /// Takes back what was charged.
    pub fn uncharge(&mut self, group: GroupId, what: Resource, bytes: u64) {
        self.add_up(group, |of| of.current[what as usize] -= bytes);
    }

    /// An entry with an object of `len` bytes (0: none) came into the pool.
    pub(crate) fn charge_entry(&mut self, group: GroupId, len: u64, raw: bool, page: u64) {
        self.add_up(group, |of| {
            of.current[Resource::Zswap as usize] += len;
            of.current[Resource::Memory as usize] += len;
            of.zswapped += page;
            of.zswap_incomp += if raw { page } else { 0 };
            of.note_high();
        });
    }

    /// It left the pool.
    pub(crate) fn uncharge_entry(&mut self, group: GroupId, len: u64, raw: bool, page: u64) {
        self.add_up(group, |of| {
            of.current[Resource::Zswap as usize] -= len;
            of.current[Resource::Memory as usize] -= len;
            of.zswapped -= page;
            of.zswap_incomp -= if raw { page } else { 0 };
        });
    }

    /// One of its pages takes so much less in the pool; of `incompressible` bytes
    /// it is not true any more that they do not compress.
    pub(crate) fn shorten_entry(&mut self, group: GroupId, saved: u64, incompressible: u64) {
        self.add_up(group, |of| {
            of.current[Resource::Zswap as usize] -= saved;
            of.current[Resource::Memory as usize] -= saved;
            of.zswap_incomp -= incompressible;
        });
    }

    /// One of its pages takes so much more in the pool.
    pub(crate) fn lengthen_entry(&mut self, group: GroupId, more: u64) {
        self.add_up(group, |of| {
            of.current[Resource::Zswap as usize] += more;
            of.current[Resource::Memory as usize] += more;
        });
    }

    /// Whether a folio of the group may be stored: `zswap.max`, up to the root.
    pub fn may_zswap(&self, group: GroupId) -> Result<(), OverLimit> {
        self.path(group)
            .find(|id| {
                let of = self.get(*id);
                let current = of.current[Resource::Zswap as usize];
                of.limits.zswap_max.is_some_and(|max| current >= max)
            })
            .map_or(Ok(()), |group| Err(OverLimit { group }))
    }

    /// Whether what the group has may be written back.
    pub fn may_write_back(&self, group: GroupId) -> bool {
        self.path(group).all(|id| self.get(id).limits.writeback)
    }

    /// Bytes by which memory of the group, or of the one above it that is
    /// worst off, exceeds `high`.
    pub fn over_high(&self, group: GroupId) -> u64 {
        let over = |id: GroupId| {
            let of = self.get(id);
            let memory = of.current[Resource::Memory as usize];
            of.limits.high.map_or(0, |high| memory.saturating_sub(high))
        };
        self.path(group).map(over).max().unwrap_or(0)
    }

    /// A page of the group was read from the backing.
    pub(crate) fn note_swapin(&mut self, group: GroupId) {
        if let Some(group) = self.all.get_mut(group.index()) {
            group.swapins += 1;
        }
    }

    /// Of `pages`, those that recent reads from the backing do not hold back;
    /// these are used up by it.
    pub(crate) fn unprotected(&mut self, group: GroupId, pages: usize) -> usize {
        let Some(group) = self.all.get_mut(group.index()) else {
            return 0;
        };
        let held_back = group.swapins.min(pages);
        group.swapins = 0;
        pages - held_back
    }

    /// Whether `below` is `group` or lies below it.
    pub fn is_below(&self, below: GroupId, group: GroupId) -> bool {
        self.path(below).any(|id| id == group)
    }

    fn get(&self, group: GroupId) -> &Group {
        self.all.get(group.index()).unwrap_or(&self.all[0])
    }

    fn add_up(&mut self, group: GroupId, mut change: impl FnMut(&mut Group)) {
        let mut at = Some(group);
        while let Some(id) = at {
            let of = &mut self.all[id.index()];
            change(of);
            at = of.parent;
        }
    }
}

impl Group {
    fn note_high(&mut self) {
        let memory = self.current[Resource::Memory as usize];
        self.events.high += u64::from(self.limits.high.is_some_and(|high| memory > high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const ALL: [Resource; RESOURCES] = [Resource::Memory, Resource::Zswap, Resource::Swap];

    #[derive(Clone, Debug)]
    enum Op {
        Add {
            parent: prop::sample::Index,
            limits: [Option<u64>; 4],
        },
        Charge {
            group: prop::sample::Index,
            what: usize,
            bytes: u64,
        },
        Uncharge {
            charge: prop::sample::Index,
        },
        Limit {
            group: prop::sample::Index,
            limits: [Option<u64>; 4],
        },
    }

    fn limits() -> impl Strategy<Value = [Option<u64>; 4]> {
        prop::array::uniform4(prop::option::of(0_u64..200))
    }

    fn op() -> impl Strategy<Value = Op> {
        let index = || any::<prop::sample::Index>();
        prop_oneof![
            1 => (index(), limits()).prop_map(|(parent, limits)| Op::Add { parent, limits }),
            5 => (index(), 0_usize..RESOURCES, 0_u64..60)
                .prop_map(|(group, what, bytes)| Op::Charge { group, what, bytes }),
            3 => index().prop_map(|charge| Op::Uncharge { charge }),
            1 => (index(), limits()).prop_map(|(group, limits)| Op::Limit { group, limits }),
        ]
    }

    fn limits_of([high, max, swap_max, zswap_max]: [Option<u64>; 4]) -> GroupLimits {
        GroupLimits {
            high,
            max,
            swap_max,
            zswap_max,
            writeback: true,
        }
    }

    /// Every charge that stands; a group's current value is the sum of those
    /// of the groups below it.
    #[derive(Default)]
    struct Model {
        parents: Vec<Option<usize>>,
        limits: Vec<GroupLimits>,
        charges: Vec<(usize, usize, u64)>,
    }

    impl Model {
        fn is_below(&self, mut below: usize, group: usize) -> bool {
            loop {
                if below == group {
                    return true;
                }
                match self.parents[below] {
                    Some(parent) => below = parent,
                    None => return false,
                }
            }
        }

        fn current(&self, group: usize, what: usize) -> u64 {
            let mine = self
                .charges
                .iter()
                .filter(|(of, kind, _)| *kind == what && self.is_below(*of, group));
            mine.map(|(.., bytes)| bytes).sum()
        }
    }

    proptest! {
        #[test]
        fn charges_add_up_and_refusals_change_nothing(ops in prop::collection::vec(op(), 1..120)) {
            let mut groups = Groups::default();
            let mut model = Model { parents: std::vec![None], limits: std::vec![GroupLimits::default()], ..Model::default() };
            for op in ops {
                match op {
                    Op::Add { parent, limits } => {
                        let parent = parent.index(model.parents.len());
                        let id = groups.add(GroupId(u8::try_from(parent).unwrap()), limits_of(limits)).unwrap();
                        prop_assert_eq!(id.index(), model.parents.len());
                        model.parents.push(Some(parent));
                        model.limits.push(limits_of(limits));
                    }
                    Op::Limit { group, limits } => {
                        let group = group.index(model.parents.len());
                        model.limits[group] = limits_of(limits);
                        groups.set_limits(GroupId(u8::try_from(group).unwrap()), limits_of(limits));
                    }
                    Op::Charge { group, what, bytes } => {
                        let group = group.index(model.parents.len());
                        let id = GroupId(u8::try_from(group).unwrap());
                        let broken = (0..model.parents.len()).any(|of| {
                            let limit = match ALL[what] {
                                Resource::Memory => model.limits[of].max,
                                Resource::Swap => model.limits[of].swap_max,
                                Resource::Zswap => None,
                            };
                            model.is_below(group, of) && limit.is_some_and(|limit| model.current(of, what) + bytes > limit)
                        });
                        let result = groups.charge(id, ALL[what], bytes);
                        prop_assert_eq!(result.is_err(), broken);
                        if result.is_ok() {
                            model.charges.push((group, what, bytes));
                        }
                    }
                    Op::Uncharge { charge } => {
                        if !model.charges.is_empty() {
                            let (group, what, bytes) = model.charges.swap_remove(charge.index(model.charges.len()));
                            groups.uncharge(GroupId(u8::try_from(group).unwrap()), ALL[what], bytes);
                        }
                    }
                }
                for (index, id) in groups.ids().enumerate() {
                    let now = groups.figures(id);
                    prop_assert_eq!(
                        [now.memory, now.zswap, now.swap],
                        [0, 1, 2].map(|what| model.current(index, what))
                    );
                }
            }
        }
    }

    #[test]
    fn events_are_of_the_group_whose_limit_it_is() {
        let mut groups = Groups::default();
        let limited = GroupLimits {
            high: Some(10),
            max: Some(20),
            swap_max: Some(5),
            ..GroupLimits::default()
        };
        let middle = groups.add(GroupId::ROOT, limited).unwrap();
        let leaf = groups.add(middle, GroupLimits::default()).unwrap();
        assert_eq!(groups.charge(leaf, Resource::Memory, 10), Ok(()));
        assert_eq!(groups.over_high(leaf), 0);
        assert_eq!(groups.charge(leaf, Resource::Memory, 1), Ok(()));
        assert_eq!(groups.over_high(leaf), 1);
        assert_eq!(
            groups.charge(leaf, Resource::Memory, 10),
            Err(OverLimit { group: middle })
        );
        assert_eq!(
            groups.charge(leaf, Resource::Swap, 6),
            Err(OverLimit { group: middle })
        );
        let events = GroupEvents {
            high: 1,
            max: 1,
            swap_fail: 1,
        };
        assert_eq!(groups.figures(middle).events, events);
        assert_eq!(groups.figures(leaf).events, GroupEvents::default());
        assert_eq!(groups.figures(GroupId::ROOT).memory, 11);
    }

    #[test]
    fn a_parents_writeback_of_0_wins() {
        let mut groups = Groups::default();
        let no = GroupLimits {
            writeback: false,
            ..GroupLimits::default()
        };
        let parent = groups.add(GroupId::ROOT, no).unwrap();
        let child = groups.add(parent, GroupLimits::default()).unwrap();
        let other = groups.add(GroupId::ROOT, GroupLimits::default()).unwrap();
        assert!(!groups.may_write_back(parent) && !groups.may_write_back(child));
        assert!(groups.may_write_back(other));
        groups.set_limits(parent, GroupLimits::default());
        assert!(groups.may_write_back(child));
    }

    #[test]
    fn zswap_max_is_looked_at_up_to_the_root() {
        let mut groups = Groups::default();
        let parent = groups
            .add(
                GroupId::ROOT,
                GroupLimits {
                    zswap_max: Some(100),
                    ..GroupLimits::default()
                },
            )
            .unwrap();
        let child = groups.add(parent, GroupLimits::default()).unwrap();
        let never = groups
            .add(
                GroupId::ROOT,
                GroupLimits {
                    zswap_max: Some(0),
                    ..GroupLimits::default()
                },
            )
            .unwrap();
        assert_eq!(groups.may_zswap(child), Ok(()));
        groups.charge_entry(child, 100, true, 4096);
        assert_eq!(groups.may_zswap(child), Err(OverLimit { group: parent }));
        assert_eq!(groups.may_zswap(never), Err(OverLimit { group: never }));
        let now = groups.figures(parent);
        assert_eq!(
            (now.zswap, now.zswapped, now.zswap_incomp, now.memory),
            (100, 4096, 4096, 100)
        );
        groups.uncharge_entry(child, 100, true, 4096);
        assert_eq!(groups.may_zswap(child), Ok(()));
        assert_eq!(groups.figures(GroupId::ROOT), GroupFigures::default());
    }

    #[test]
    fn there_is_an_end_to_groups() {
        let mut groups = Groups::default();
        let made = (0..300)
            .map_while(|_| groups.add(GroupId::ROOT, GroupLimits::default()))
            .count();
        assert_eq!(made + 1, GroupId::MOST);
    }
}
