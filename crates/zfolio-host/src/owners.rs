//! Whether the process that a place of the segment belongs to is over.
//!
//! What stands in the segment says only whom to look for; whether it is there the kernel
//! says:
//!
//! - In our own pid namespace a pidfd is opened for the process id. There is none, or it tells of
//!   the end: over. A zombie is over too, unless threads of it go on.
//! - The number of a pidfd (Linux 6.9) is a process's and never another's. It is noted when
//!   the place is first seen; another number later: the id is used again.
//! - A process in another pid namespace (a sandbox below us) is looked for among all in
//!   /proc, by its id there, and by the namespace where that may be read. It is over when it
//!   was not found twice. Where /proc is not ours, or hides processes, nothing is said of it.
//! - A process that called exec is the same process. Its new image claims anew, which tells
//!   that the old one is over: of places of one process id in one namespace the last lives.

use crate::slots::ByTurn;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Timespec, fstat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use zfolio_runtime::segment::Owned;

/// Times a process was not found in /proc before it is over.
const TIMES: u32 = 2;
/// Stands for a pidfd's number that could not be had: it may be any process's.
const UNKNOWN: u64 = u64::MAX;

/// What is known of the process of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Known {
    /// Its id in our namespace, and the number of its pidfd; none while it was not found.
    here: Option<(u32, u64)>,
    /// How often it was not found in /proc.
    missed: u32,
}

/// Says who is over; one for each kind of places.
#[derive(Debug, Default)]
pub struct Owners {
    known: ByTurn<Known>,
    /// By namespace and process id, the last turn.
    last: HashMap<(u64, u32), u64>,
    /// All processes of other namespaces, if somebody had to be looked for in this look.
    elsewhere: Option<Vec<Elsewhere>>,
}

/// A process of another pid namespace.
#[derive(Debug)]
struct Elsewhere {
    /// Its id in ours.
    here: u32,
    /// Its id in its own.
    there: u32,
    /// Its namespace; none where that may not be read.
    namespace: Option<u64>,
}

/// Whether processes of other namespaces can be looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sight {
    /// Our own pid namespace; 0: not known.
    namespace: u64,
    /// /proc shows all processes of it.
    whole: bool,
}

impl Sight {
    /// Of this process.
    pub fn is_ours() -> Self {
        let hides = fs::read_to_string("/proc/self/mountinfo").map_or(true, |mounts| {
            let mut proc = mounts
                .lines()
                .filter(|line| line.split(' ').nth(4) == Some("/proc"));
            proc.next_back()
                .is_none_or(|line| line.contains("hidepid=") && !line.contains("hidepid=0"))
        });
        Self {
            namespace: zfolio_sys::process::pid_namespace(),
            whole: own_id_in_proc() == Some(std::process::id()) && !hides,
        }
    }
}

/// Which process we are in /proc, which may be of another pid namespace.
pub fn own_id_in_proc() -> Option<u32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

impl Owners {
    /// Begins a look at all places, which `owned` are whose.
    pub fn begin(&mut self, owned: impl Iterator<Item = Owned>) {
        self.elsewhere = None;
        self.last.clear();
        for Owned { who, turn } in owned.filter(|owned| owned.who.namespace != 0) {
            let last = self.last.entry((who.namespace, who.pid)).or_insert(turn);
            *last = turn.max(*last);
        }
    }

    /// Whether the process of the place at `index` is over.
    pub fn is_over(&mut self, index: usize, owned: Owned, sight: Sight) -> bool {
        let Owned { who, turn } = owned;
        let last = self.last.get(&(who.namespace, who.pid));
        if last.is_some_and(|last| *last > turn) {
            return true;
        }
        let known = self.known.of(index, turn);
        if let Some((here, number)) = known.here {
            let now = alive(here);
            return now.is_none_or(|now| now != number && now != UNKNOWN && number != UNKNOWN);
        }
        if sight.namespace != 0 && who.namespace == sight.namespace {
            known.here = alive(who.pid).map(|number| (who.pid, number));
            return known.here.is_none();
        }
        if !sight.whole {
            return false;
        }
        let elsewhere = self.elsewhere.get_or_insert_with(elsewhere);
        let mut same = elsewhere.iter().filter(|process| {
            let one = process.namespace;
            process.there == who.pid
                && (who.namespace == 0 || one.is_none_or(|one| one == who.namespace))
        });
        let here = same.find_map(|process| Some((process.here, alive(process.here)?)));
        known.here = here;
        known.missed = if here.is_some() { 0 } else { known.missed + 1 };
        known.missed >= TIMES
    }
}

/// The number of the pidfd of a process that is there and not over.
fn alive(pid: u32) -> Option<u64> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    let process = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(process) => process,
        // (It is the id of a thread, or of nothing at all.)
        Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return None,
        // We cannot look: it may be there.
        Err(_) => return Some(UNKNOWN),
    };
    let mut ends = [PollFd::new(&process, PollFlags::IN)];
    match poll(
        &mut ends,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    ) {
        Ok(1) => None,
        _ => Some(fstat(&process).map_or(UNKNOWN, |stat| stat.st_ino)),
    }
}

/// All processes, as /proc has them. Those of our own namespace too: whoever has no /proc cannot
/// say which it is in.
fn elsewhere() -> Vec<Elsewhere> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let here: u32 = entry.file_name().to_str()?.parse().ok()?;
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let ids = status
                .lines()
                .find_map(|line| line.strip_prefix("NSpid:"))?;
            let there = ids.split_whitespace().last()?.parse().ok()?;
            let namespace = fs::metadata(entry.path().join("ns/pid"));
            Some(Elsewhere {
                here,
                there,
                namespace: namespace.ok().map(|of| of.ino()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use zfolio_runtime::segment::Who;

    const ELSEWHERE: u64 = 12;

    fn owned(turn: u64, pid: u32, namespace: u64) -> Owned {
        let who = Who {
            word: turn + 100,
            namespace,
            pid,
        };
        Owned { who, turn }
    }

    /// A child, as a place has it.
    fn child(turn: u64, sight: Sight) -> (Child, Owned) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let owned = owned(turn, child.id(), sight.namespace);
        (child, owned)
    }

    fn look(owners: &mut Owners, sight: Sight, all: &[Owned]) -> Vec<bool> {
        owners.begin(all.iter().copied());
        let judge = |(index, owned): (usize, &Owned)| owners.is_over(index, *owned, sight);
        all.iter().enumerate().map(judge).collect()
    }

    #[test]
    fn who_lives_is_not_over_and_a_zombie_is() {
        let (sight, mut owners) = (Sight::is_ours(), Owners::default());
        assert!(sight.whole && sight.namespace != 0, "{sight:?}");
        let (mut one, first) = child(1, sight);
        let (mut two, second) = child(2, sight);
        let mut look = || look(&mut owners, sight, &[first, second]);
        for _ in 0..5 {
            assert_eq!(look(), [false, false]);
        }
        one.kill().unwrap();
        rustix::process::waitid(
            rustix::process::WaitId::Pid(Pid::from_child(&one)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .unwrap();
        assert_eq!(look(), [true, false], "a zombie, and its brother");
        one.wait().unwrap();
        assert_eq!(look(), [true, false]);
        two.kill().unwrap();
        two.wait().unwrap();
        assert_eq!(look(), [true, true]);
    }

    /// The id is another process's by now.
    #[test]
    fn an_id_that_is_used_again_keeps_nothing() {
        let (sight, mut owners) = (Sight::is_ours(), Owners::default());
        let (mut one, first) = child(1, sight);
        assert_eq!(look(&mut owners, sight, &[first]), [false]);
        let known = owners.known.of(0, 1);
        let (_, number) = known.here.unwrap();
        known.here = Some((one.id(), number + 1));
        assert_eq!(look(&mut owners, sight, &[first]), [true]);
        one.kill().unwrap();
        one.wait().unwrap();
    }

    #[test]
    fn after_exec_the_last_claim_is_the_one_that_lives() {
        let (sight, mut owners) = (Sight::is_ours(), Owners::default());
        let (mut one, first) = child(1, sight);
        let again = owned(5, one.id(), sight.namespace);
        assert_eq!(look(&mut owners, sight, &[first]), [false]);
        assert_eq!(look(&mut owners, sight, &[first, again]), [true, false]);
        // In another namespace it is another process.
        let other = owned(6, one.id(), ELSEWHERE);
        owners.begin([again, other].into_iter());
        assert!(!owners.is_over(1, again, sight));
        one.kill().unwrap();
        one.wait().unwrap();
    }

    #[test]
    fn who_is_in_a_namespace_of_its_own_is_found_by_its_id_there() {
        let (sight, mut owners) = (Sight::is_ours(), Owners::default());
        // Nobody is in that namespace; of whom it is not known, any of that id will do.
        let gone = owned(1, std::process::id(), ELSEWHERE);
        let (me, nobody) = (owned(2, std::process::id(), 0), owned(3, u32::MAX >> 1, 0));
        let mut look = |sight| look(&mut owners, sight, &[gone, me, nobody]);
        assert_eq!(look(sight), [false; 3]);
        assert_eq!(look(sight), [true, false, true]);
        let blind = Sight {
            whole: false,
            ..sight
        };
        let mut owners = Owners::default();
        for _ in 0..5 {
            owners.begin([gone, nobody].into_iter());
            for (index, one) in [gone, nobody].into_iter().enumerate() {
                assert!(!owners.is_over(index, one, blind));
            }
        }
    }
}
