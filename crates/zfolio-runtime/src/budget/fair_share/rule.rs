//! What the limits of one group leave for a process, and the rule by which `high` is shared.

use super::{Allowed, Having, Membership, holding, pages};
use crate::segment::run_group::{RUN, is_below};
use crate::segment::{Member, RunGroup, Segment, WEIGHT};
use core::sync::atomic::{AtomicU64, Ordering};
use zfolio_zswap::ByDistance;

/// Rounds of the rule: each sets one more process's needs aside, at least.
const ROUNDS: usize = 64;

/// The members of a group and those below it, as they are now.
pub(super) struct View<'a> {
    pub(super) of: &'a Membership,
    pub(super) segment: &'a Segment,
    /// Realtime, ns.
    pub(super) now: u64,
    pub(super) group: u32,
    /// This process's place.
    pub(super) mine: &'a Member,
    /// This process's.
    pub(super) weight: u32,
}

/// What somebody wants of something that is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Pages it needs.
    pub needs: usize,
    /// Its part beside others that lack some; not 0.
    pub weight: u32,
}

impl From<usize> for Claim {
    fn from(needs: usize) -> Self {
        let weight = WEIGHT;
        Self { needs, weight }
    }
}

/// What somebody has and claims. Pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) resident: usize,
    pub(super) claim: Claim,
    /// The one for whom the part is worked out.
    pub(super) is_me: bool,
}

/// What somebody may have of a `high`. Pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// Whatever the others do.
    pub(super) assured: usize,
    /// As long as the others have what they have now; no less than that.
    pub(super) now: usize,
}

/// Pages for each so much of weight: a fraction.
#[derive(Clone, Copy)]
struct Level {
    pages: usize,
    weights: u64,
}

impl Level {
    /// What one of `weight` gets.
    fn of(self, weight: u32) -> usize {
        let pages = self.pages as u128 * u128::from(weight) / u128::from(self.weights.max(1));
        usize::try_from(pages).unwrap_or(usize::MAX)
    }

    fn is_above(self, other: Self) -> bool {
        self.pages as u128 * u128::from(other.weights)
            > other.pages as u128 * u128::from(self.weights)
    }
}

impl View<'_> {
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.of.living(self.segment, self.now).filter(|member| {
            let group = member.group.load(Ordering::Relaxed);
            is_below(self.segment, group, self.group)
        })
    }

    fn sum(&self, word: impl Fn(&Member) -> &AtomicU64) -> u64 {
        let words = self
            .members()
            .map(|member| word(member).load(Ordering::Relaxed));
        words.fold(0, u64::saturating_add)
    }
}

impl Allowed {
    /// Takes the limits of one group into account. `run`: the run's `high`, as it is now.
    pub(super) fn narrow(&mut self, view: &View<'_>, group: &RunGroup, of: Having, run: usize) {
        let total = view.sum(|member| &member.resident_bytes);
        group.usage.resident_bytes.store(total, Ordering::Relaxed);
        group
            .usage
            .resident_peak
            .fetch_max(total, Ordering::Relaxed);
        let high = match group.high.load(Ordering::Relaxed) {
            _ if view.group == RUN => run,
            0 => usize::MAX,
            bytes => pages(bytes),
        };
        if high < usize::MAX {
            // (Weights are the run's: within a group all are alike.)
            let is_run = view.group == RUN;
            let weight_of = |member: &Member| if is_run { member.weight_now() } else { WEIGHT };
            let mine = Holder {
                resident: of.resident,
                claim: Claim {
                    needs: of.needs,
                    weight: if is_run { view.weight } else { WEIGHT },
                },
                is_me: true,
            };
            let holder = |member: &Member| {
                if core::ptr::eq(member, view.mine) {
                    return mine;
                }
                let needs = pages(member.needed_bytes.load(Ordering::Relaxed));
                let weight = weight_of(member);
                Holder {
                    resident: pages(member.resident_bytes.load(Ordering::Relaxed)),
                    claim: Claim { needs, weight },
                    is_me: false,
                }
            };
            let part = part_of_high(high, mine, || view.members().map(holder));
            if is_run {
                self.members = view.members().count().max(1);
            }
            self.assured = self.assured.min(part.assured);
            if part.now < self.high {
                (self.high, self.holding[holding::HIGH]) = (part.now, view.group);
            }
        }
        // What the others have is taken; the rest may be mine.
        let left = |max: u64, total: u64, mine: u64| max.saturating_sub(total.saturating_sub(mine));
        let rest = |limit: &AtomicU64, total: u64, mine: u64| {
            let max = limit.load(Ordering::Relaxed).checked_sub(1)?;
            Some(left(max, total, mine))
        };
        if view.group == RUN {
            let out = ByDistance {
                near: view.sum(|member| &member.backing_bytes.near),
                far: view.sum(|member| &member.backing_bytes.far),
            };
            let each = self.backing.zip(out.zip(of.backing_bytes));
            self.backing = each.map(|(all, (out, mine))| left(all, out, mine));
        }
        let max = match group.max.load(Ordering::Relaxed) {
            _ if view.group == RUN => self.max_of_run,
            0 => usize::MAX,
            bytes => pages(bytes),
        };
        if max < usize::MAX {
            let resident = |member: &Member| pages(member.resident_bytes.load(Ordering::Relaxed));
            let part = part_of_max(max, of.resident, || view.members().map(resident));
            if part < self.max {
                (self.max, self.holding[holding::MAX]) = (part, view.group);
            }
            if view.group != RUN {
                self.max_alone = self.max_alone.min(max);
            }
        }
        let zswap = view.sum(|member| &member.zswap_bytes);
        let swap = view.sum(|member| &member.swap_bytes);
        group.usage.zswap_bytes.store(zswap, Ordering::Relaxed);
        group.usage.swap_bytes.store(swap, Ordering::Relaxed);
        let high = group.swap_high.load(Ordering::Relaxed).checked_sub(1);
        let wait = high.map_or(0, |high| swap_penalty(swap, high));
        if wait > self.swap_penalty_ns {
            (self.swap_penalty_ns, self.holding[holding::SWAP_HIGH]) = (wait, view.group);
        }
        let limits = &mut self.limits;
        limits.zswap_max = least(
            limits.zswap_max,
            rest(&group.zswap_max, zswap, of.zswap_bytes),
        );
        let swap = rest(&group.swap_max, swap, of.swap_bytes);
        if swap.is_some_and(|swap| limits.swap_max.is_none_or(|before| swap < before)) {
            (limits.swap_max, self.holding[holding::SWAP_MAX]) = (swap, view.group);
        }
        limits.writeback &= group.no_writeback.load(Ordering::Relaxed) == 0;
    }
}

/// How long a fault waits where `swap` bytes are out and `high` may be, ns: as the kernel has
/// it, by the square of what is too much, but 10 ms at most, which an eighth too much comes to.
pub(super) fn swap_penalty(swap: u64, high: u64) -> u64 {
    const MOST_NS: u128 = 10_000_000;
    const SCALE: u128 = 1 << 20;
    let excess = u128::from(swap.saturating_sub(high));
    let part = (excess * 8 * SCALE / u128::from(high.max(1))).min(SCALE);
    let wait = (MOST_NS * part / SCALE * part).div_ceil(SCALE);
    u64::try_from(wait).unwrap_or(0)
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The share of `mine`, of `high` among all (that one included) who claim what `all` says. Pages.
pub fn share<I: Iterator<Item = Claim>>(high: usize, mine: Claim, all: impl Fn() -> I) -> usize {
    match level(high, &all) {
        // All have what they need, and the rest is everybody's.
        Ok(left) => mine.needs + left / all().count().max(1),
        Err(level) => mine.needs.min(level.of(mine.weight)),
    }
}

/// What of `high` is nobody's: by the time somebody is told that it has too much, others have
/// grown into this. Pages.
const fn kept(high: usize) -> usize {
    high / 32
}

/// What `mine` may have of `high`, among all (that one included) whom `all` names.
///
/// Assured is its fair part, should it need all there is. As long as all together have less than
/// `high` it may have half of what nobody has as well (all of it where there is no other), so that two
/// who grow at once do not take the same; once they have more, those above their fair parts
/// give back as much, in proportion to what they have beyond these.
pub(super) fn part_of_high<I: Iterator<Item = Holder>>(
    high: usize,
    mine: Holder,
    all: impl Fn() -> I,
) -> Part {
    let greedy = |claim: Claim| Claim {
        needs: claim.needs.max(high),
        ..claim
    };
    let mine_claims = greedy(mine.claim);
    let assured = share(high, mine_claims, || {
        all().map(|one| {
            if one.is_me {
                greedy(one.claim)
            } else {
                one.claim
            }
        })
    });
    let (mut total, mut others) = (0_usize, 0_usize);
    for one in all() {
        total = total.saturating_add(one.resident);
        others += usize::from(!one.is_me);
    }
    let most = high.saturating_sub(kept(high));
    let lent = match most.checked_sub(total) {
        Some(spare) if others == 0 => mine.resident + spare,
        Some(spare) => mine.resident + spare / 2,
        None => {
            let level = level(high, &|| all().map(|one| one.claim));
            let beyond = |one: &Holder| {
                let part =
                    level.map_or_else(|level| level.of(one.claim.weight), |_| one.claim.needs);
                one.resident.saturating_sub(part)
            };
            give_back(total - most, mine, beyond, &all)
        }
    };
    Part {
        assured,
        now: assured.max(lent),
    }
}

/// What `mine` keeps where all together have to give back `pages`, those who have something
/// `beyond` their part in proportion to that.
fn give_back<I: Iterator<Item = Holder>>(
    pages: usize,
    mine: Holder,
    beyond: impl Fn(&Holder) -> usize,
    all: &impl Fn() -> I,
) -> usize {
    let of_all = all().fold(0_u128, |sum, one| sum + beyond(&one) as u128);
    let of_mine = beyond(&mine);
    let back = (pages as u128 * of_mine as u128).div_ceil(of_all.max(1));
    let back = usize::try_from(back).unwrap_or(usize::MAX);
    mine.resident.saturating_sub(back.min(of_mine))
}

/// What one who has `mine` may come to have of `max`, where all have what `all`
/// says: all that the others do not have, and always a fair part.
pub(super) fn part_of_max<I: Iterator<Item = usize>>(
    max: usize,
    mine: usize,
    all: impl Fn() -> I,
) -> usize {
    let others = all().fold(0, usize::saturating_add).saturating_sub(mine);
    let rest = max.saturating_sub(others);
    let equal = max / all().count().max(1);
    let all = || all().map(Claim::from);
    rest.max(level(max, &all).map_or_else(|level| level.of(WEIGHT), |_| equal))
}

/// What is left of `high` when all have what they need.
///
/// # Errors
/// It is not enough: what each gets at most.
fn level<I: Iterator<Item = Claim>>(high: usize, all: &impl Fn() -> I) -> Result<usize, Level> {
    let weights = all().map(|claim| u64::from(claim.weight)).sum();
    let mut level = Level {
        pages: high,
        weights,
    };
    for _ in 0..ROUNDS {
        let (mut small, mut large) = (0, 0);
        for claim in all() {
            if claim.needs < level.of(claim.weight) {
                small += claim.needs;
            } else {
                large += u64::from(claim.weight);
            }
        }
        let left = high.saturating_sub(small);
        if large == 0 {
            return Ok(left);
        }
        let next = Level {
            pages: left,
            weights: large,
        };
        if !next.is_above(level) {
            break;
        }
        level = next;
    }
    Err(level)
}
