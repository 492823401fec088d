//! One `high` for a whole tree of processes.
//!
//! Every process of some size has a *member* in the control segment, in which it
//! writes what it has and what it would need, when it publishes its statistics.
//! From what all have written each works out its own share of `high`, by the same
//! rule, and keeps to that: no process asks or waits for
//! another, and there is no lock that a killed process could leave taken. A member that was not written for two
//! seconds is nobody's any more: what a killed process had is the others' then. `zfolio run`,
//! which sees the end of a process, frees its place at once.
//!
//! Groups within the run have limits of their own: a process keeps to the least
//! of what each group above it leaves for it.
//!
//! The rule has two halves. What a process may have *at least* is max-min fair: who needs less
//! than an equal part gets what it needs, and what is left is shared equally among the others.
//! Beyond that it may have what nobody has: as long as all together are below `high` nobody moves
//! out, and once they are not, those give back who have more than their fair part, in
//! proportion to that. Under `--slowdown` the parts are not
//! equal: `zfolio run` gives each member a weight, so that room is where it saves most.

mod rule;

use self::rule::View;
pub use self::rule::{Claim, share};
use crate::segment::run_group::{RUN, path};
use crate::segment::{GroupEvent, LIVES, MOST_TIMES, Member, RunGroup, Segment, Who};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::identity;
use zfolio_sys::process::is_there;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::{ByDistance, GroupLimits};

/// A member not written for so long has ended (or is stopped), ns.
const STALE_NS: u64 = 2_000_000_000;
/// Least share of a process, pages: with less it does not get on.
const LEAST: usize = 2048;
/// A process below this part of `high` is no member yet.
const SMALL: usize = 64;
/// A member that has said nothing for so long is asked for: it may have ended. Those that live say
/// something every 20 ms, ns.
const SILENT_NS: u64 = 25_000_000;

/// What the run may have now, or each of its processes, pages, where it began with `begun`:
/// `zfolio set` and a limit of memory change it. Everybody can write there, so a process holds
/// it to what its tables are made for ([`MOST_TIMES`]).
#[must_use]
pub fn high_now(segment: &Segment, begun: usize) -> usize {
    let most = begun.saturating_mul(usize::try_from(MOST_TIMES).unwrap_or(1));
    match segment.groups[RUN as usize].high.load(Ordering::Relaxed) {
        0 => begun,
        bytes => pages(bytes).clamp(LEAST.min(begun), most),
    }
}

/// A process's group, and its place among the members.
#[derive(Debug)]
pub struct Membership {
    group: u32,
    place: AtomicU32,
    /// This process's pid namespace, once it has a place; 0: not known.
    namespace: AtomicU64,
    /// The groups whose limits hold for it, by [`holding`].
    holding: [AtomicU32; holding::COUNT],
}

/// Which limit of several groups is meant: places of [`Allowed::holding`].
mod holding {
    /// Of `high`.
    pub(super) const HIGH: usize = 0;
    /// Of `max`.
    pub(super) const MAX: usize = 1;
    /// Of `swap.high`, where more is out.
    pub(super) const SWAP_HIGH: usize = 2;
    /// Of `swap.max`.
    pub(super) const SWAP_MAX: usize = 3;
    /// How many there are.
    pub(super) const COUNT: usize = 4;
}

const NONE: u32 = u32::MAX;

/// What a process says of itself. Pages, and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Having {
    /// Which process (`zfolio_sys::identity`).
    pub owner: u64,
    /// Resident pages.
    pub resident: usize,
    /// Pages it would have resident, could it have all it needs.
    pub needs: usize,
    /// Compressed bytes in its pool.
    pub zswap_bytes: u64,
    /// Pages it has out, in bytes.
    pub swap_bytes: u64,
    /// What its backing takes.
    pub backing_bytes: ByDistance<u64>,
}

/// What it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Its part of `high` and what it may have beside that now, pages.
    pub high: usize,
    /// What it may come to have whatever the others do, pages: by this is judged when it is worth
    /// managing.
    pub assured: usize,
    /// Members that share the run's `high`, this one among them; 1 where it is not shared.
    pub members: usize,
    /// Its part of the limits of the pool and of what is out.
    pub limits: GroupLimits,
    /// Its part of what backings may take, bytes.
    pub backing: ByDistance<u64>,
    /// Its part of `max`, the run's and its groups', pages.
    pub max: usize,
    /// The least `max` of its groups, pages: with more it is too large alone. (The run's is
    /// read anew each time it is asked for.)
    pub max_alone: usize,
    /// The run's `max`, pages.
    max_of_run: usize,
    /// How long each fault waits because more is out than the `swap.high` of its group, ns.
    pub swap_penalty_ns: u64,
    /// The groups that the narrowest limits are of, by [`holding`].
    holding: [u32; holding::COUNT],
}

fn store(into: &ByDistance<AtomicU64>, bytes: ByDistance<u64>) {
    let each = into.as_ref().zip(bytes);
    each.map(|(into, bytes)| into.store(bytes, Ordering::Relaxed));
}

impl Membership {
    /// In a group, by its index; no place yet.
    #[must_use]
    pub const fn of(group: u32) -> Self {
        Self {
            group,
            place: AtomicU32::new(NONE),
            namespace: AtomicU64::new(0),
            holding: [const { AtomicU32::new(RUN) }; holding::COUNT],
        }
    }

    /// Counts an event for the group whose limit is meant, and for those above it. Pages that
    /// find no room are those of this process's own group, whatever limit that was.
    pub fn count_event(&self, segment: &Segment, event: GroupEvent) {
        let holder = |which: usize| self.holding[which].load(Ordering::Relaxed);
        let group = match event {
            GroupEvent::High => holder(holding::HIGH),
            GroupEvent::Max => holder(holding::MAX),
            GroupEvent::SwapHigh => holder(holding::SWAP_HIGH),
            GroupEvent::SwapMax => holder(holding::SWAP_MAX),
            GroupEvent::SwapFail => self.group,
        };
        for (_, group) in path(segment, group) {
            group.events[event as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a `max` holds for this process now: the run's, or a group's.
    #[must_use]
    pub fn has_max(&self, segment: &Segment) -> bool {
        let of_group = |(_, group): (u32, &RunGroup)| group.max.load(Ordering::Relaxed) != 0;
        segment.config().limits.max.load(Ordering::Relaxed) != 0
            || path(segment, self.group).any(of_group)
    }

    /// What `high` of the groups above this process leaves of `begun` pages while nobody else
    /// has anything: what holds for a process that has not yet said what it has.
    #[must_use]
    pub fn most_of(&self, segment: &Segment, begun: usize) -> usize {
        if segment.config().limits.shared.load(Ordering::Relaxed) == 0 {
            return begun;
        }
        let groups = path(segment, self.group).filter(|(index, _)| *index != RUN);
        let highs = groups.filter_map(|(_, group)| match group.high.load(Ordering::Relaxed) {
            0 => None,
            bytes => Some(pages(bytes).max(LEAST)),
        });
        highs.fold(begun, usize::min)
    }

    /// Whether anything but `high` limits this process now: `max`, what may be out or in the pool, of
    /// the run or of a group above it.
    #[must_use]
    pub fn is_limited(&self, segment: &Segment) -> bool {
        let of_group = |(_, group): (u32, &RunGroup)| {
            let limits = [&group.swap_max, &group.zswap_max];
            limits.iter().any(|max| max.load(Ordering::Relaxed) != 0)
        };
        self.has_max(segment)
            || segment.config().pool.percent.load(Ordering::Relaxed) != 0
            || path(segment, self.group).any(of_group)
    }

    /// A number that changes with the `high` of any group above this process, with each `zfolio set`
    /// and each `zfolio compact`: to see, without working out what it may have, whether that is
    /// what it was. (`high` is whole pages, and the counts add less than one.)
    #[must_use]
    pub fn asked(&self, segment: &Segment) -> u64 {
        let config = segment.config();
        let changes = u64::from(config.limits.changes.load(Ordering::Acquire));
        let compactions = u64::from(config.folios.compactions.load(Ordering::Relaxed));
        let highs = path(segment, self.group).map(|(_, group)| group.high.load(Ordering::Relaxed));
        highs.fold(changes << 32 | compactions, |sum, high| {
            sum.rotate_left(1).wrapping_add(high)
        })
    }

    /// For the child of a fork: the place is its parent's, the namespace may be.
    pub fn forget(&self) {
        self.place.store(NONE, Ordering::Relaxed);
        self.namespace.store(0, Ordering::Relaxed);
    }

    /// This process has no thread that would go on saying what it has: what it said last
    /// holds as long as it is there.
    pub fn stay(&self, segment: &Segment) {
        let at = self.place.load(Ordering::Relaxed) as usize;
        if let Some(mine) = segment.sharing.members.get(at) {
            mine.updated_ns.store(LIVES, Ordering::Release);
        }
    }

    /// Pages that the others of this process's tree have resident.
    #[must_use]
    pub fn resident_of_others(&self, segment: &Segment) -> usize {
        let at = self.place.load(Ordering::Relaxed) as usize;
        let mine = segment.sharing.members.get(at).map(core::ptr::from_ref);
        self.living(segment, now_ns(Clock::Realtime))
            .filter(|member| Some(core::ptr::from_ref(*member)) != mine)
            .map(|member| pages(member.resident_bytes.load(Ordering::Relaxed)))
            .fold(0, usize::saturating_add)
    }

    /// Nothing of what this process has counts any more: it ends.
    pub fn leave(&self, segment: &Segment) {
        let at = self.place.load(Ordering::Relaxed) as usize;
        if let Some(mine) = segment.sharing.members.get(at) {
            mine.updated_ns.store(0, Ordering::Release);
        }
    }

    /// Says that this process's backing takes `out` bytes, and returns its part of
    /// what all may take; `None` for one on its own.
    pub fn backing(&self, segment: &Segment, out: ByDistance<u64>) -> Option<ByDistance<u64>> {
        let at = self.place.load(Ordering::Relaxed) as usize;
        let mine = segment.sharing.members.get(at)?;
        let now = now_ns(Clock::Realtime);
        store(&mine.backing_bytes, out);
        // Writing back may take long, and nothing is published meanwhile.
        mine.updated_ns.store(now, Ordering::Release);
        let each = self.living(segment, now).map(|member| {
            let bytes = member.backing_bytes.as_ref();
            bytes.map(|bytes| bytes.load(Ordering::Relaxed))
        });
        let all = each.fold(ByDistance::default(), |all, of| {
            all.zip(of)
                .map(|(all, of): (u64, u64)| all.saturating_add(of))
        });
        segment.backing_peak.fetch_max(all.sum(), Ordering::Relaxed);
        let size = segment.config().backing.sizes();
        let others = all.zip(out).map(|(all, out)| all.saturating_sub(out));
        Some(
            size.zip(others)
                .map(|(size, others)| size.saturating_sub(others)),
        )
    }

    /// Writes what this process has and needs, and returns what it may have, where the run
    /// began with `begun` pages. Where no place is free, it may have the least.
    pub fn update(&self, segment: &Segment, of: Having, begun: usize) -> Allowed {
        let high = high_now(segment, begun);
        let max = match segment.config().limits.max.load(Ordering::Relaxed) {
            0 => usize::MAX,
            bytes => pages(bytes),
        };
        let all = Allowed {
            high,
            assured: high,
            members: 1,
            limits: GroupLimits::default(),
            backing: segment.config().backing.sizes(),
            max,
            max_alone: usize::MAX,
            max_of_run: max,
            swap_penalty_ns: 0,
            holding: [RUN; holding::COUNT],
        };
        if segment.config().limits.shared.load(Ordering::Relaxed) == 0 {
            return all;
        }
        // (What the run has now: a process that is small beside that is no member yet.)
        let run = match segment.groups[RUN as usize].high.load(Ordering::Relaxed) {
            0 => high,
            bytes => pages(bytes).min(high),
        };
        let now = now_ns(Clock::Realtime);
        let at = self.place.load(Ordering::Relaxed) as usize;
        let mine = segment.sharing.members.get(at);
        // Stopped for long, it may have lost its place.
        let mine = mine.filter(|member| member.owner.word.load(Ordering::Relaxed) == of.owner);
        let mine = match mine {
            Some(mine) => mine,
            None if of.resident < run / SMALL => {
                // (Its groups' hold for it from the start: it may grow a lot before it is asked again.)
                let most = self.most_of(segment, run);
                return Allowed {
                    high: most,
                    assured: most,
                    ..all
                };
            }
            None => match self.join(segment, of.owner, now) {
                Some(at) => {
                    self.place
                        .store(u32::try_from(at).unwrap_or(NONE), Ordering::Relaxed);
                    &segment.sharing.members[at]
                }
                None => {
                    return Allowed {
                        high: LEAST.min(high),
                        assured: LEAST.min(high),
                        ..all
                    };
                }
            },
        };
        let bytes = |pages: usize| (pages * PAGE_SIZE) as u64;
        mine.group.store(self.group, Ordering::Relaxed);
        mine.resident_bytes
            .store(bytes(of.resident), Ordering::Relaxed);
        mine.needed_bytes.store(bytes(of.needs), Ordering::Relaxed);
        mine.zswap_bytes.store(of.zswap_bytes, Ordering::Relaxed);
        mine.swap_bytes.store(of.swap_bytes, Ordering::Relaxed);
        store(&mine.backing_bytes, of.backing_bytes);
        mine.updated_ns.store(now, Ordering::Release);
        let mut allowed = all;
        let weight = mine.weight_now();
        for (index, group) in path(segment, self.group) {
            allowed.narrow(
                &View {
                    of: self,
                    segment,
                    now,
                    group: index,
                    mine,
                    weight,
                },
                group,
                of,
                high,
            );
        }
        let within = |pages: usize| pages.max(LEAST).min(high);
        (allowed.high, allowed.assured) = (within(allowed.high), within(allowed.assured));
        for (word, group) in self.holding.iter().zip(allowed.holding) {
            word.store(group, Ordering::Relaxed);
        }
        allowed
    }

    /// Takes a place that is nobody's.
    fn join(&self, segment: &Segment, me: u64, now: u64) -> Option<usize> {
        let who = Who {
            word: me,
            ..Who::is_calling()
        };
        self.namespace.store(who.namespace, Ordering::Relaxed);
        let turn = segment.next_turn();
        let take = |member: &Member, may: &dyn Fn(&Member) -> bool| {
            let owner = member.owner.word.load(Ordering::Relaxed);
            (owner == 0 || owner == me || may(member)) && member.owner.take(owner, who, turn)
        };
        let find = |may: &dyn Fn(&Member) -> bool| {
            let mut places = segment.sharing.members.iter();
            places.position(|member| take(member, may))
        };
        // Where there is no room, of those that have ended just now.
        let place = find(&|member| self.is_stale(member, now))
            .or_else(|| find(&|member| self.is_gone(member)))?;
        let used = u32::try_from(place + 1).unwrap_or(0);
        segment
            .sharing
            .members_used
            .fetch_max(used, Ordering::AcqRel);
        Some(place)
    }

    /// Whether a member is not to be counted any more.
    fn is_stale(&self, member: &Member, now: u64) -> bool {
        let updated = member.updated_ns.load(Ordering::Acquire);
        if updated == LIVES {
            return self.is_gone(member);
        }
        // (Not of the future either: the clock may have been set back.)
        let silent = now.abs_diff(updated);
        silent > STALE_NS || (silent > SILENT_NS && self.is_gone(member))
    }

    /// Whether a member's process is seen to be gone. In another pid namespace it is not
    /// seen at all, and `zfolio run` frees its place. (Another process may come to have the
    /// id: until that is freed as well, too much is taken to be in use.)
    fn is_gone(&self, member: &Member) -> bool {
        let here = self.namespace.load(Ordering::Relaxed);
        let owned = member.owner.owned();
        owned.is_some_and(|owned| {
            here != 0 && owned.who.namespace == here && !is_there(owned.who.pid)
        })
    }

    /// The members that count.
    fn living<'a>(&'a self, segment: &'a Segment, now: u64) -> impl Iterator<Item = &'a Member> {
        let used = segment.sharing.members_used.load(Ordering::Acquire) as usize;
        let taken = segment.sharing.members.iter().take(used);
        taken.filter(move |member| !member.owner.is_free() && !self.is_stale(member, now))
    }
}

fn pages(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX) / PAGE_SIZE
}

/// This process is about to end: the others ask for it from now on, each time they add up
/// what all have, and need not wait until it has been silent.
pub fn announce_end(segment: &Segment) {
    let me = identity::of_process();
    let used = segment.sharing.members_used.load(Ordering::Acquire) as usize;
    let mut members = segment.sharing.members.iter().take(used);
    let mine = members.find(|one| one.owner.word.load(Ordering::Relaxed) == me);
    if let Some(mine) = mine
        && mine.updated_ns.load(Ordering::Relaxed) != LIVES
    {
        let past = now_ns(Clock::Realtime).saturating_sub(STALE_NS / 2);
        mine.updated_ns.store(past, Ordering::Release);
    }
}

/// What a process needs, with something to grow by. Pages.
#[must_use]
pub const fn grown(pages: usize) -> usize {
    pages + pages / 8 + 256
}

#[cfg(test)]
mod tests;
