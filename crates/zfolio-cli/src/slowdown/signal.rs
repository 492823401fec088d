//! What a tree of processes runs, loses, needs and has.
//!
//! *Run* is processor time of the program's own threads: that of all processes below us, as
//! /proc has it, less what our threads in them took.
//!
//! *Lost* is the sum of
//!
//! | what | from |
//! |---|---|
//! | faults, from the message read to the page in place | the histograms of the slots |
//! | the thread asleep before and woken after | [`WAKE`] for each |
//! | calls that discard, unmap or move memory: they wait until they were seen | [`EVENT`] for each |
//! | the interrupt when pages are taken out | [`CALL`] for each call, of [`PAGES_A_CALL`] pages |
//! | processor time of our threads that move pages out, and of `zfolio run`, as far as no processor was idle | `reclaim_ns` of the slots, our own time; [`Spare`] |
//!
//! Without privilege what is done is done by the program's threads:
//!
//! | what | from |
//! |---|---|
//! | faults, what calls brought, room made | `inline_ns` of the slots, of that `reclaim_ns` for moving out |
//! | the interrupt when pages are taken out | as above |
//! | processor time of a thread that reclaims beside them, and of `zfolio run`, as far as no processor was idle | what `manager_cpu_ns` has beyond `high_stall_ns`; as above |
//!
//! (Processor time of threads that serve faults is not added to the time that these faults took.)
//!
//! Nobody can lose more time than there is: between two looks each thread loses at most what has
//! passed, and that is taken for a second at most. So a fault that was under way while the program, or all of the
//! tree, was stopped (a signal, a frozen control group, a suspended job) is not a loss of hours.
//!
//! What nothing tells: caches and page-table entries that are cold after a page came back, and
//! huge pages that came back as small ones. docs/slowdown.md has what the estimate was
//! measured against.

use super::spare::Spare;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use zfolio_host::controller::Sample;
use zfolio_host::controller::division::Part;
use zfolio_host::process_time::ProcessTime;
use zfolio_host::process_tree::descendants;
use zfolio_host::slots::used;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::{Counter, Member, Owned, ProcessSlot, Segment, faults, state};

/// A thread that faults sleeps before its message is read, and is woken after. ns.
const WAKE: u64 = 5_000;
/// A call that is reported waits for the thread that reads the report. ns.
const EVENT: u64 = 15_000;
/// What a call that takes pages out costs a thread that runs on another processor. ns.
const CALL: u64 = 10_000;
/// Pages that such a call takes, rather few.
const PAGES_A_CALL: u64 = 16;
/// Between two looks no more than this is taken to have passed: who looks was stopped itself. ns.
const LONGEST: u64 = 1_000_000_000;

/// Sums over the tree as they are now. Nanoseconds, bytes, pages.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    /// Of all threads.
    cpu: u64,
    /// Of ours among them.
    ours: u64,
    /// What threads of ours did that nobody waits for.
    beside: u64,
    /// What the program's threads did for us.
    done: u64,
    /// Lost for what came back, and for moving pages out, the processor apart.
    lost: u64,
    moving_out: u64,
    /// Pages that came back, and that were moved out.
    pages_in: u64,
    pages_out: u64,
}

/// A sum that only grows, of parts that may go away.
#[derive(Clone, Copy, Debug, Default)]
struct Growing {
    last: u64,
    total: u64,
}

impl Growing {
    /// What it grew by.
    fn take(&mut self, now: u64) -> u64 {
        self.take_at_most(now, u64::MAX)
    }

    /// The same, where more than `most` cannot be.
    fn take_at_most(&mut self, now: u64, most: u64) -> u64 {
        let more = now.saturating_sub(self.last).min(most);
        self.last = now;
        self.total += more;
        more
    }
}

/// Looks at a tree, again and again.
#[derive(Debug, Default)]
pub(super) struct Signal {
    cpu: Growing,
    ours: Growing,
    beside: Growing,
    done: Growing,
    lost: Growing,
    moving_out: Growing,
    pages_in: Growing,
    pages_out: Growing,
    /// When it was looked at last.
    looked: Duration,
    spare: Spare,
    /// Processor time that ours took from others, ns.
    taken: u64,
}

impl Signal {
    /// The tree below `root` as it is, `at` so long after the start; and those of its processes that
    /// share `high`, by the turn in which they took their places.
    pub(super) fn sample(
        &mut self,
        segment: &Segment,
        root: u32,
        at: Duration,
    ) -> (Sample, Vec<Part>) {
        let slots = Slots::read(segment);
        let parts = slots.parts(segment);
        let mut now = slots.now;
        let (mut needed, mut resident, mut out) = (0, 0, 0);
        // (What has ended since the last look had some as well: a processor's worth.)
        let mut threads = self.spare.at_once();
        let pids = descendants(root);
        for &pid in &pids {
            let ran = ProcessTime::of(pid).unwrap_or_default();
            now.cpu += u64::try_from(ran.total().as_nanos()).unwrap_or(u64::MAX);
            threads += ran.threads;
            let has = match slots.by_pid.get(&pid) {
                Some(Kept::Managed(has)) => *has,
                Some(Kept::No) => continue,
                None => Has::unmanaged(resident_of(pid).unwrap_or(0)),
            };
            needed += has.needed;
            resident += has.resident;
            out += has.out;
        }
        now.beside += own_time();
        let passed = at.saturating_sub(self.looked);
        self.looked = at;
        self.spare.look(&pids, passed);
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(LONGEST);
        self.add(now, passed.min(LONGEST) * threads);
        let ours = self.ours.total + self.done.total;
        let run = self.cpu.total.saturating_sub(ours);
        let moving_out = self.moving_out.total + self.taken;
        let sample = Sample {
            at,
            run: Duration::from_nanos(run),
            stall: Duration::from_nanos(self.lost.total + moving_out),
            moving_out: Duration::from_nanos(moving_out),
            needed,
            resident,
            out,
            pages_in: self.pages_in.total,
            pages_out: self.pages_out.total,
        };
        (sample, parts)
    }

    /// Adds what has come since; of what threads wait for at most `most`, ns.
    fn add(&mut self, now: Now, most: u64) {
        let cpu = self.cpu.take(now.cpu);
        self.ours.take(now.ours);
        self.done.take_at_most(now.done, most);
        let most = most - self.moving_out.take_at_most(now.moving_out, most);
        self.lost.take_at_most(now.lost, most);
        self.pages_in.take(now.pages_in);
        self.pages_out.take(now.pages_out);
        // What was idle at the time was nobody's loss.
        let beside = self.beside.take(now.beside);
        self.taken += self.spare.beyond(beside, cpu);
    }
}

/// What a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Has {
    needed: u64,
    resident: u64,
    out: u64,
}

impl Has {
    const fn unmanaged(resident: u64) -> Self {
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
        let ours = pool + (standby + free) * PAGE_SIZE as u64;
        Self {
            needed: program,
            resident,
            out: (program + ours).saturating_sub(resident),
        }
    }
}

/// How a process that has a slot counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Managed(Has),
    /// It cannot be managed: no `high` changes what it has.
    No,
}

/// What the slots say.
#[derive(Debug, Default)]
struct Slots {
    now: Now,
    /// Of each process that is managed now: its number (`zfolio_sys::identity`), what it has, what it has
    /// lost so far, ns.
    each: Vec<(u64, Has, u64)>,
    /// The last slot of a process is its own: it may have become another program.
    by_pid: HashMap<u32, Kept>,
}

impl Slots {
    fn read(segment: &Segment) -> Self {
        let mut this = Self::default();
        for used in used(segment) {
            let slot = used.slot;
            let count = |which| slot.counter(which).load(Relaxed);
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
                }
            }
            let events = [
                Counter::Removes,
                Counter::Unmaps,
                Counter::Remaps,
                Counter::Forks,
            ];
            let served: u64 = slot.faults.iter().map(|of| of.sum.load(Relaxed)).sum();
            let faults = count(Counter::FaultsServed);
            let interrupts = count(Counter::PagesOut) / PAGES_A_CALL * CALL;
            let (manager, reclaim) = (count(Counter::ManagerCpuNs), count(Counter::ReclaimNs));
            let [back, out] = if serves_itself(slot.process.told_by.load(Relaxed)) {
                let done = count(Counter::InlineNs);
                let beside = manager.saturating_sub(count(Counter::StallNs));
                this.now.done += done;
                this.now.ours += beside;
                this.now.beside += beside;
                [done.saturating_sub(reclaim), reclaim.min(done)]
            } else {
                let events = events.map(count).iter().sum::<u64>();
                this.now.ours += manager;
                this.now.beside += reclaim;
                [served + faults * WAKE + events * EVENT, 0]
            };
            this.now.lost += back;
            this.now.moving_out += out + interrupts;
            let lost = back + out + interrupts;
            if let Some(Kept::Managed(has)) = this.by_pid.get(&pid)
                && let Some(owned) = segment.owners[used.index].owned()
            {
                this.each.push((owned.who.word, *has, lost));
            }
            this.now.pages_in += count(Counter::PagesIn);
            this.now.pages_out += count(Counter::PagesOut);
        }
        this
    }
}

impl Slots {
    /// The managed processes that have a place among the members.
    fn parts(&self, segment: &Segment) -> Vec<Part> {
        let members: HashMap<u64, u64> = members(segment)
            .map(|(_, owned)| (owned.who.word, owned.turn))
            .collect();
        let part = |(word, has, lost): &(u64, Has, u64)| {
            let id = *members.get(word)?;
            Some(Part {
                id,
                needed: has.needed,
                resident: has.resident,
                stall: Duration::from_nanos(*lost),
            })
        };
        self.each.iter().filter_map(part).collect()
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

/// Processor time of this process, ns.
fn own_time() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    let [seconds, more] = [tv_sec, tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + more
}

/// Resident memory of a process, its files left out, bytes.
fn resident_of(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut fields = statm.split(' ').map(str::parse::<u64>);
    let (resident, shared) = (fields.nth(1)?.ok()?, fields.next()?.ok()?);
    Some(resident.saturating_sub(shared) * PAGE_SIZE as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_tree_is_added_up() {
        let segment = crate::example::example();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let slot = &segment.slots[0];
        slot.process.pid.store(child.id(), Relaxed);
        slot.set(Counter::ProgramBytes, 474 << 20);
        slot.set(Counter::ResidentBytes, 210 << 20);
        slot.set(Counter::StandbyPages, 1024);
        slot.set(Counter::FreeFrames, 512);
        let mut signal = Signal::default();
        let root = std::process::id();
        let (sample, _) = signal.sample(&segment, root, Duration::from_secs(1));
        assert!(sample.needed >= 474 << 20, "{sample:?}");
        assert_eq!(sample.needed - sample.resident, (474 - 210) << 20);
        // What it has less than it needs, and what ours are of what it has.
        assert_eq!(sample.out, (474 - 210 + 122 + 6) << 20);
        assert_eq!(sample.pages_in, 200_000);
        // The sums of 100 faults, and pages taken out in calls.
        let faults = 99 * 20_000 + 140_000;
        let calls = 300_000 / PAGES_A_CALL * CALL;
        let lost = u64::try_from(sample.stall.as_nanos()).unwrap();
        assert!(lost >= faults + calls, "{lost}");
        // What goes away is not subtracted.
        let before = sample.stall;
        segment.retire(0);
        let (after, _) = signal.sample(&segment, root, Duration::from_secs(2));
        assert!(after.stall >= before && after.run >= sample.run);
        child.kill().unwrap();
        child.wait().unwrap();
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
        let now = Slots::read(&segment).now;
        slot.process.told_by.store(faults::MESSAGE, Relaxed);
        let by_messages = Slots::read(&segment).now;
        assert_eq!(now.done, 5_000_000);
        assert_eq!(now.lost, 5_000_000);
        assert_eq!((by_messages.done, now.ours), (0, 0));
        assert!(by_messages.ours > 0 && by_messages.lost != now.lost);
        // What was for moving out among it is told apart.
        slot.process.told_by.store(faults::GUARD, Relaxed);
        slot.set(Counter::ReclaimNs, 2_000_000);
        let now = Slots::read(&segment).now;
        assert_eq!((now.lost, now.moving_out), (3_000_000, 2_000_000));
    }

    /// A fault may be under way while the program is stopped for hours.
    #[test]
    fn nobody_loses_more_than_what_has_passed() {
        let segment = crate::example::example();
        let slot = &segment.slots[0];
        slot.process.told_by.store(faults::IN_THREAD, Relaxed);
        slot.set(Counter::PagesOut, 0);
        slot.set(Counter::InlineNs, 1_000_000);
        let mut signal = Signal::default();
        let root = std::process::id();
        // (What we ourselves run is another matter.)
        let mut look = |millis| {
            signal.sample(&segment, root, Duration::from_millis(millis));
            Duration::from_nanos(signal.lost.total)
        };
        let first = look(100);
        assert_eq!(first, Duration::from_millis(1));
        // The program alone was stopped, and then who looks as well.
        let hour = 3_600_000_000_000;
        slot.set(Counter::InlineNs, hour);
        let threads = u32::try_from(zfolio_host::machine::cpus() + 64).unwrap();
        let second = look(200);
        assert!(second - first <= Duration::from_millis(100) * threads);
        slot.set(Counter::InlineNs, 2 * hour);
        let third = look(7_200_000);
        assert!(third - second <= Duration::from_secs(1) * threads);
        // What is lost after it counts as before.
        slot.set(Counter::InlineNs, 2 * hour + 1_000_000);
        let fourth = look(7_200_100);
        assert_eq!(fourth - third, Duration::from_millis(1));
    }

    #[test]
    fn what_is_resident_is_seen() {
        assert!(resident_of(std::process::id()).unwrap() > 0);
    }
}
