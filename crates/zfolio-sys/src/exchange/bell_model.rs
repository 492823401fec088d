//! Every order of steps of two members that ring the bell and two threads of the pager that hear it: no request
//! is left behind while all threads sleep.

extern crate std;
use std::collections::HashSet;
use std::vec::Vec;

const MEMBERS: usize = 2;
const THREADS: usize = 2;

/// Where a member is in [`Exchange::ring_the_bell`](super::Exchange::ring_the_bell).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Member {
    Posts,
    Rings,
    Looks,
    Wakes,
    Done,
}

/// Where a thread is in its loop and in [`Hall::hear`](super::Hall::hear), with the bell that it has seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Thread {
    Begins,
    Takes(u8),
    BecomesAwake(u8),
    IsAwake(u8),
    StopsLooking(u8),
    LooksOnce(u8),
    Sleeps(u8),
    IsAsleep,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    bell: u8,
    awake: bool,
    posted: u8,
    members: [Member; MEMBERS],
    threads: [Thread; THREADS],
}

impl State {
    /// What a step of a member can come to.
    fn member(&self, which: usize) -> Vec<Self> {
        let mut next = self.clone();
        next.members[which] = match self.members[which] {
            Member::Posts => {
                next.posted += 1;
                Member::Rings
            }
            Member::Rings => {
                next.bell += 1;
                Member::Looks
            }
            Member::Looks if self.awake => Member::Done,
            Member::Looks => Member::Wakes,
            Member::Wakes => {
                next.members[which] = Member::Done;
                let asleep = |of: &usize| self.threads[*of] == Thread::IsAsleep;
                let woken: Vec<_> = (0..THREADS).filter(asleep).collect();
                if woken.is_empty() {
                    return std::vec![next];
                }
                let with = |of: usize| {
                    let mut woke = next.clone();
                    woke.threads[of] = Thread::Begins;
                    woke
                };
                return woken.into_iter().map(with).collect();
            }
            Member::Done => return Vec::new(),
        };
        std::vec![next]
    }

    /// What a step of a thread can come to. Nobody stays awake for ever, and the time that a sleep takes at
    /// most is not relied on.
    fn thread(&self, which: usize) -> Vec<Self> {
        let mut next = self.clone();
        let mut all = Vec::new();
        next.threads[which] = match self.threads[which] {
            Thread::Begins => Thread::Takes(self.bell),
            Thread::Takes(_) if self.posted > 0 => {
                next.posted = 0;
                Thread::Begins
            }
            Thread::Takes(seen) => Thread::BecomesAwake(seen),
            Thread::BecomesAwake(seen) if self.awake => Thread::LooksOnce(seen),
            Thread::BecomesAwake(seen) => {
                next.awake = true;
                Thread::IsAwake(seen)
            }
            Thread::IsAwake(seen) => Thread::StopsLooking(seen),
            Thread::StopsLooking(seen) => {
                next.awake = false;
                Thread::LooksOnce(seen)
            }
            Thread::LooksOnce(seen) if self.bell != seen => Thread::Begins,
            Thread::LooksOnce(seen) => Thread::Sleeps(seen),
            // (As the kernel does it: it looks at the word as it puts the thread to sleep.)
            Thread::Sleeps(seen) if self.bell != seen => Thread::Begins,
            Thread::Sleeps(_) => Thread::IsAsleep,
            Thread::IsAsleep => return all,
        };
        all.push(next);
        all
    }
}

#[test]
fn no_request_is_left_while_all_sleep() {
    let mut seen = HashSet::new();
    let mut left = std::vec![State {
        bell: 0,
        awake: false,
        posted: 0,
        members: [Member::Posts; MEMBERS],
        threads: [Thread::Begins; THREADS],
    }];
    let mut ends = 0;
    while let Some(state) = left.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let members = (0..MEMBERS).flat_map(|which| state.member(which));
        let threads = (0..THREADS).flat_map(|which| state.thread(which));
        let next: Vec<_> = members.chain(threads).collect();
        if next.is_empty() {
            ends += 1;
            assert_eq!(state.posted, 0, "{state:?}");
            assert!(!state.awake, "{state:?}");
        }
        left.extend(next);
    }
    assert!(ends > 0 && seen.len() > 1000, "{ends} of {}", seen.len());
}
