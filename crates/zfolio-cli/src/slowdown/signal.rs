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
//! | the thread asleep before and woken after | 5 us each |
//! | calls that discard, unmap or move memory: they wait until they were seen | 15 us each |
//! | the interrupt when pages are taken out | 10 us for each call, of 16 pages |
//! | processor time of our threads that move pages out, and of `zfolio run`, as far as no processor was idle | `reclaim_ns` of the slots, our own time; [`Spare`] |
//!
//! Without privilege what is done is done by the program's threads:
//!
//! | what | from |
//! |---|---|
//! | faults, what calls brought, room made | `inline_ns` of the slots, of that `reclaim_ns` for moving out, and a half more for caches that are cold after it |
//! | the interrupt when pages are taken out | as above |
//! | calls, which are seen before they are made | 0.1 us each (`calls_seen` of the slots) |
//! | processor time of a thread that reclaims beside them, and of `zfolio run`, as far as no processor was idle | what `manager_cpu_ns` has beyond `high_stall_ns`; as above |
//!
//! (By messages: where no processor is idle a fault takes longer because those threads run, whose time counts already.
//! So as far as it is not idle the processor time of the threads that serve faults counts, and not the time that faults took.)
//!
//! Nobody can lose more time than there is: between two looks each thread loses at most what has
//! passed, and that is taken for a second at most. So a fault that was under way while the program, or all of the
//! tree, was stopped (a signal, a frozen control group, a suspended job) is not a loss of hours.
//!
//! What nothing tells: caches and page-table entries that are cold after a page came back, and
//! huge pages that came back as small ones. docs/slowdown.md has what the estimate was
//! measured against.

use super::slots::{Has, Kept, Slots, Work};
use super::spare::Spare;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fs;
use std::time::Duration;
use zfolio_host::controller::Sample;
use zfolio_host::controller::division::Part;
use zfolio_host::process_time::ProcessTime;
use zfolio_host::process_tree::descendants;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::Segment;

/// So much that ours ran tells what part of it they took from others. ns.
const TOLD: u64 = 200_000;
/// Between two looks no more than this is taken to have passed: who looks was stopped itself. ns.
const LONGEST: u64 = 1_000_000_000;

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
        self.total = self.total.saturating_add(more);
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
    waited: Growing,
    served: Growing,
    lost: Growing,
    moving_out: Growing,
    calls: Growing,
    pages_in: Growing,
    pages_out: Growing,
    /// When it was looked at last.
    looked: Duration,
    spare: Spare,
    /// Processor time that ours took from others, ns.
    taken: u64,
    /// What faults by messages cost, ns.
    faults: u64,
    /// The part of what ours ran lately that they took from others.
    busy: f64,
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
        let (mut cpu, mut work) = (0, slots.work);
        let (mut needed, mut resident, mut out) = (0, 0, 0);
        // (What has ended since the last look had some as well: a processor's worth.)
        let mut threads = self.spare.at_once();
        let pids = descendants(root);
        for &pid in &pids {
            let ran = ProcessTime::of(pid).unwrap_or_default();
            cpu += u64::try_from(ran.total().as_nanos()).unwrap_or(u64::MAX);
            threads += ran.threads;
            let has = match slots.by_pid.get(&pid) {
                Some(Kept::Managed(has)) => *has,
                Some(Kept::No) => continue,
                None => Has::unmanaged(resident_of(pid).unwrap_or(0)),
            };
            // (What a process says of itself may be anything.)
            needed = u64::saturating_add(needed, has.needed);
            resident = u64::saturating_add(resident, has.resident);
            out = u64::saturating_add(out, has.out);
        }
        work.beside = work.beside.saturating_add(own_time());
        let passed = at.saturating_sub(self.looked);
        self.looked = at;
        self.spare.look(&pids, passed);
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(LONGEST);
        self.add(cpu, &work, passed.min(LONGEST) * threads);
        let ours = self.ours.total.saturating_add(self.done.total);
        let run = self.cpu.total.saturating_sub(ours);
        let moving_out = self.moving_out.total.saturating_add(self.taken);
        let calls = self.calls.total;
        let stall = [self.lost.total, self.faults, moving_out, calls];
        let stall = stall.into_iter().fold(0, u64::saturating_add);
        let sample = Sample {
            at,
            run: Duration::from_nanos(run),
            stall: Duration::from_nanos(stall),
            moving_out: Duration::from_nanos(moving_out),
            calls: Duration::from_nanos(calls),
            needed,
            resident,
            out,
            pages_in: self.pages_in.total,
            pages_out: self.pages_out.total,
        };
        (sample, parts)
    }

    /// Adds what has come since; of what threads wait for at most `most`, ns.
    fn add(&mut self, cpu: u64, now: &Work, most: u64) {
        let cpu = self.cpu.take(cpu);
        self.ours.take(now.ours);
        self.done.take_at_most(now.done, most);
        let most = most - self.moving_out.take_at_most(now.moving_out, most);
        let most = most - self.lost.take_at_most(now.lost, most);
        let most = most - self.calls.take_at_most(now.calls, most);
        self.pages_in.take(now.pages_in);
        self.pages_out.take(now.pages_out);
        // What was idle at the time was nobody's loss.
        let beside = self.beside.take(now.beside);
        let taken = self.spare.beyond(beside, cpu);
        self.taken = self.taken.saturating_add(taken);
        if beside >= TOLD {
            self.busy = part(taken, beside);
        }
        let waited = self.waited.take_at_most(now.waited, most);
        let served = self.served.take_at_most(now.served, most);
        self.faults += scaled(waited, 1.0 - self.busy) + scaled(served, self.busy);
    }
}

#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a look")]
fn part(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds of a look, and a part from 0 to 1"
)]
fn scaled(of: u64, by: f64) -> u64 {
    (of as f64 * by) as u64
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
    use crate::slowdown::slots::{CALL, PAGES_A_CALL};
    use std::process::Command;
    use std::sync::atomic::Ordering::Relaxed;
    use zfolio_runtime::segment::{Counter, faults};

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

    /// A process may write there what it likes, and something else the next moment.
    #[test]
    fn nothing_that_a_process_says_is_too_much() {
        let segment = crate::example::example();
        let slot = &segment.slots[0];
        let mut signal = Signal::default();
        let root = std::process::id();
        for millis in [100, 200, 300, 400] {
            let told = if millis % 200 == 0 { 0 } else { u64::MAX };
            for told_by in [faults::MESSAGE, faults::GUARD] {
                slot.process.told_by.store(told_by, Relaxed);
                for &which in Counter::ALL {
                    slot.set(which, told);
                }
                let (sample, _) = signal.sample(&segment, root, Duration::from_millis(millis));
                assert!(sample.stall >= sample.calls + sample.moving_out);
            }
        }
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
        assert_eq!(first, Duration::from_micros(1_500));
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
        assert_eq!(fourth - third, Duration::from_micros(1_500));
    }

    /// The same of all kinds together: faults by messages, and what calls lost.
    #[test]
    fn all_kinds_together_lose_no_more_than_what_has_passed() {
        let mut signal = Signal::default();
        let hour = 3_600_000_000_000;
        let now = Work {
            waited: hour,
            served: hour,
            lost: hour,
            ..Work::default()
        };
        for busy in [0.0, 0.5, 1.0] {
            let before = signal.lost.total + signal.moving_out.total + signal.faults;
            signal.busy = busy;
            signal.add(0, &now, 1_000);
            let after = signal.lost.total + signal.moving_out.total + signal.faults;
            assert!(after - before <= 1_000, "{busy}: {}", after - before);
            for of in [&mut signal.waited, &mut signal.served, &mut signal.lost] {
                of.last = 0;
            }
        }
    }

    #[test]
    fn what_is_resident_is_seen() {
        assert!(resident_of(std::process::id()).unwrap() > 0);
    }
}
