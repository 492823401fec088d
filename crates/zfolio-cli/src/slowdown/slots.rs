//! What the slots of a run's processes say of them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use zfolio_host::controller::division::Part;
use zfolio_host::slots::used;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::{Counter, Member, Owned, ProcessSlot, Segment, faults, state};

/// A thread that faults sleeps before its message is read, and is woken after. ns.
const WAKE: u64 = 5_000;
/// A call that is reported waits for the thread that reads the report. ns.
const EVENT: u64 = 15_000;
/// What a call that takes pages out costs a thread that runs on another processor. ns.
pub(super) const CALL: u64 = 10_000;
/// Without privilege: caches and page-table entries that are cold after our work, which the program's threads do
/// themselves, one part of it in so many. (By what programs took more than was counted: docs/slowdown.md.)
const UNSEEN: u64 = 2;
/// Without privilege: what a call of the program's takes longer because it is seen, ns. (Between what it is in a loop of
/// calls and in a server that waits before each: docs/slowdown.md.)
const SEEN_CALL: u64 = 100;
/// Pages that such a call takes, rather few.
pub(super) const PAGES_A_CALL: u64 = 16;

/// What a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Has {
    pub(super) needed: u64,
    pub(super) resident: u64,
    pub(super) out: u64,
}

impl Has {
    pub(super) const fn unmanaged(resident: u64) -> Self {
        Self {
            needed: resident,
            resident,
            out: 0,
        }
    }

    fn of(slot: &ProcessSlot) -> Self {
        let [program, resident, pool, standby, free] = slot.at_once(|| {
            [
                Counter::ProgramBytes,
                Counter::ResidentBytes,
                Counter::PoolBytes,
                Counter::StandbyPages,
                Counter::FreeFrames,
            ]
            .map(|which| slot.counter(which).load(Relaxed))
        });
        // (What a process says of itself may be anything.)
        let frames = standby.saturating_add(free);
        let ours = pool.saturating_add(frames.saturating_mul(PAGE_SIZE as u64));
        Self {
            needed: program,
            resident,
            out: program.saturating_add(ours).saturating_sub(resident),
        }
    }
}

/// How a process that has a slot counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    Managed(Has),
    /// It cannot be managed: no `high` changes what it has.
    No,
}

/// What zfolio did in a process, or in all of them, so far. Nanoseconds, pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Processor time of threads of ours.
    pub(super) ours: u64,
    /// Of that, of those that nobody waits for.
    pub(super) beside: u64,
    /// What the program's threads did for us.
    pub(super) done: u64,
    /// By messages: what faults took, and the processor time of the threads that serve them.
    pub(super) waited: u64,
    pub(super) served: u64,
    /// Lost for what came back otherwise, and for moving pages out, the processor apart.
    pub(super) lost: u64,
    pub(super) moving_out: u64,
    /// Lost by calls that are seen, however much memory there is.
    pub(super) calls: u64,
    /// Pages that came back, and that were moved out.
    pub(super) pages_in: u64,
    pub(super) pages_out: u64,
}

impl Work {
    fn of(slot: &ProcessSlot) -> Self {
        let count = |which| slot.counter(which).load(Relaxed);
        let pages_out = count(Counter::PagesOut);
        let interrupts = (pages_out / PAGES_A_CALL).saturating_mul(CALL);
        let (manager, reclaim) = (count(Counter::ManagerCpuNs), count(Counter::ReclaimNs));
        let pages_in = count(Counter::PagesIn);
        if serves_itself(slot.process.told_by.load(Relaxed)) {
            let done = count(Counter::InlineNs);
            let reclaim = reclaim.min(done);
            let with_unseen = |of: u64| of.saturating_add(of / UNSEEN);
            let beside = manager.saturating_sub(count(Counter::StallNs));
            return Self {
                ours: beside,
                beside,
                done,
                lost: with_unseen(done - reclaim),
                moving_out: with_unseen(reclaim).saturating_add(interrupts),
                calls: count(Counter::CallsSeen).saturating_mul(SEEN_CALL),
                pages_in,
                pages_out,
                ..Self::default()
            };
        }
        let events = [
            Counter::Removes,
            Counter::Unmaps,
            Counter::Remaps,
            Counter::Forks,
        ];
        let sum = |of: &mut dyn Iterator<Item = u64>| of.fold(0_u64, u64::saturating_add);
        let events = sum(&mut events.map(count).into_iter());
        let wakes = count(Counter::FaultsServed).saturating_mul(WAKE);
        Self {
            ours: manager,
            beside: reclaim,
            waited: sum(&mut slot.faults.iter().map(|of| of.sum.load(Relaxed))),
            served: manager.saturating_sub(reclaim),
            lost: wakes.saturating_add(events.saturating_mul(EVENT)),
            moving_out: interrupts,
            pages_in,
            pages_out,
            ..Self::default()
        }
    }

    fn add(&mut self, more: &Self) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.ours, more.ours);
        add(&mut self.beside, more.beside);
        add(&mut self.done, more.done);
        add(&mut self.waited, more.waited);
        add(&mut self.served, more.served);
        add(&mut self.lost, more.lost);
        add(&mut self.moving_out, more.moving_out);
        add(&mut self.calls, more.calls);
        add(&mut self.pages_in, more.pages_in);
        add(&mut self.pages_out, more.pages_out);
    }

    /// What it cost, processors that were not idle apart.
    const fn stall(&self) -> u64 {
        let waited = self.waited.saturating_add(self.lost);
        waited.saturating_add(self.moving_out)
    }
}

/// What the slots say.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) work: Work,
    /// Of each process that is managed now: its number (`zfolio_sys::identity`), what it has, what it has
    /// lost so far, ns.
    each: Vec<(u64, Has, u64)>,
    /// Numbers of those that are managed no more, or never were: no weight changes what they have.
    unmanaged: HashSet<u64>,
    /// The last slot of a process is its own: it may have become another program.
    pub(super) by_pid: HashMap<u32, Kept>,
}

impl Slots {
    pub(super) fn read(segment: &Segment) -> Self {
        let mut this = Self::default();
        for used in used(segment) {
            let slot = used.slot;
            let pid = slot.process.pid.load(Relaxed);
            match slot.state.load(Relaxed) {
                state::MANAGING => {
                    this.by_pid.insert(pid, Kept::Managed(Has::of(slot)));
                }
                state::WATCHING | state::FREE => {
                    this.by_pid.remove(&pid);
                }
                _ => {
                    this.by_pid.insert(pid, Kept::No);
                    let owned = segment.owners[used.index].owned();
                    this.unmanaged.extend(owned.map(|owned| owned.who.word));
                }
            }
            let work = Work::of(slot);
            this.work.add(&work);
            if let Some(Kept::Managed(has)) = this.by_pid.get(&pid)
                && let Some(owned) = segment.owners[used.index].owned()
            {
                this.each.push((owned.who.word, *has, work.stall()));
            }
        }
        this
    }
}

impl Slots {
    /// The processes that share `high`: those that have a place among the members. Of one that has nothing
    /// out yet the member says what it has; it has lost nothing.
    pub(super) fn parts(&self, segment: &Segment) -> Vec<Part> {
        let managed: HashMap<u64, (Has, u64)> = self
            .each
            .iter()
            .map(|(word, has, lost)| (*word, (*has, *lost)))
            .collect();
        let part = |(member, owned): (&Member, Owned)| {
            let (has, lost) = managed
                .get(&owned.who.word)
                .copied()
                .unwrap_or_else(|| (Has::unmanaged(member.resident_bytes.load(Relaxed)), 0));
            Part {
                id: owned.turn,
                needed: has.needed,
                resident: has.resident,
                stall: Duration::from_nanos(lost),
            }
        };
        let takes_part = |(_, owned): &(&Member, Owned)| !self.unmanaged.contains(&owned.who.word);
        members(segment).filter(takes_part).map(part).collect()
    }
}

/// The places of members that are somebody's.
fn members(segment: &Segment) -> impl Iterator<Item = (&Member, Owned)> {
    let used = segment.sharing.members_used.load(Relaxed) as usize;
    let members = segment.sharing.members.iter().take(used);
    members.filter_map(|member| Some((member, member.owner.owned()?)))
}

/// Gives each of these processes its weight.
pub(super) fn weigh(segment: &Segment, weights: &[(u64, u32)]) {
    for (turn, weight) in weights {
        let mut all = members(segment);
        if let Some((member, _)) = all.find(|(_, owned)| owned.turn == *turn) {
            member.weigh(*turn, *weight);
        }
    }
}

/// Whether a process's own threads serve its faults.
const fn serves_itself(told_by: u32) -> bool {
    matches!(told_by, faults::IN_THREAD | faults::GUARD | faults::PROTECT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::segment::Who;

    /// What nothing was taken of is what memory is to be had of.
    #[test]
    fn who_has_nothing_out_shares_as_well() {
        let segment = crate::example::example();
        let before = Slots::read(&segment).parts(&segment).len();
        let place = segment.sharing.members_used.load(Relaxed);
        let member = &segment.sharing.members[place as usize];
        let who = Who {
            word: 0x5a5a,
            ..Who::is_calling()
        };
        let turn = segment.next_turn();
        assert!(member.owner.take(0, who, turn));
        member.resident_bytes.store(186 << 20, Relaxed);
        // (With something to grow by, which it does not lack.)
        member.needed_bytes.store(210 << 20, Relaxed);
        segment.sharing.members_used.store(place + 1, Relaxed);
        let parts = Slots::read(&segment).parts(&segment);
        assert_eq!(parts.len(), before + 1);
        let part = parts.iter().find(|part| part.id == turn).unwrap();
        assert_eq!((part.needed, part.resident), (186 << 20, 186 << 20));
        assert_eq!(part.stall, Duration::ZERO);
        // One that is managed no more.
        let index = segment.claim_for(who, |_| true);
        segment.slots[index].state.store(state::FAILED, Relaxed);
        let parts = Slots::read(&segment).parts(&segment);
        assert_eq!(parts.len(), before);
    }

    /// A process may write there what it likes.
    #[test]
    fn nothing_that_a_process_says_is_too_much() {
        let segment = crate::example::example();
        let slot = &segment.slots[0];
        for &which in Counter::ALL {
            slot.set(which, u64::MAX);
        }
        for kind in &slot.faults {
            kind.sum.store(u64::MAX, Relaxed);
        }
        for told_by in [faults::MESSAGE, faults::IN_THREAD] {
            slot.process.told_by.store(told_by, Relaxed);
            let slots = Slots::read(&segment);
            assert!(slots.work.moving_out > 0 && slots.work.pages_in == u64::MAX);
            assert!(slots.parts(&segment).len() <= 1);
        }
    }

    /// Without threads of ours what is lost is what the program's threads did.
    #[test]
    fn what_its_own_threads_do_is_lost_and_not_run() {
        let segment = crate::example::example();
        let slot = &segment.slots[0];
        slot.process.told_by.store(faults::GUARD, Relaxed);
        slot.set(Counter::InlineNs, 5_000_000);
        slot.set(Counter::PagesOut, 0);
        slot.set(
            Counter::StallNs,
            slot.counter(Counter::ManagerCpuNs).load(Relaxed),
        );
        let work = Slots::read(&segment).work;
        slot.process.told_by.store(faults::MESSAGE, Relaxed);
        let by_messages = Slots::read(&segment).work;
        assert_eq!(work.done, 5_000_000);
        assert_eq!(work.lost, 7_500_000, "and a half more");
        assert_eq!((by_messages.done, work.ours), (0, 0));
        assert!(by_messages.ours > 0 && by_messages.lost != work.lost);
        // What was for moving out among it is told apart.
        slot.process.told_by.store(faults::GUARD, Relaxed);
        slot.set(Counter::ReclaimNs, 2_000_000);
        slot.set(Counter::CallsSeen, 20_000);
        let work = Slots::read(&segment).work;
        assert_eq!((work.lost, work.moving_out), (4_500_000, 3_000_000));
        assert_eq!(work.calls, 2_000_000);
    }
}
