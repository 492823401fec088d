//! Every order in which parent and child can come, over the words themselves.
//!
//! The thread that forks, the parent's control thread and the child are scripts of steps; each step
//! is one access of the words, as `control/atfork.rs`, `fork/parent.rs` and `fork/child.rs` make it.
//! In between the child may be stopped for ever, either process killed, and the lease may end. All
//! interleavings are tried from the start, up to the end of all. What must hold at the end of each:
//!
//! - the parent goes on, unless it was killed, whatever the child does: both of its threads;
//! - the thread that forks goes on only when every event from before the fork has been read;
//! - a child that is not stopped or killed goes on, unless nobody has its memory;
//! - a child goes on with a list only if the list is its own and its parent has let go of it,
//!   and is filled if its parent answered without having been asked.

extern crate std;
use super::*;
use std::boxed::Box;
use std::vec::Vec;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// The thread that forks.
    Forker,
    /// The parent's control thread looks, and does what there is to do.
    Parent,
    Child,
    LeaseEnds,
    KillParent,
    KillChild,
    StopChild,
}

const TURNS: [Turn; 7] = [
    Turn::Forker,
    Turn::Parent,
    Turn::Child,
    Turn::LeaseEnds,
    Turn::KillParent,
    Turn::KillChild,
    Turn::StopChild,
];

/// Where the thread that forks is. (The child may run before fork has returned in its parent.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forker {
    Forks,
    Waits,
    GoesOn,
}

/// Where the parent's control thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parent {
    Looks,
    ReadsAllEvents,
    Fills { expired: bool },
    Leaves { filled: bool, expired: bool },
    Closes { expired: bool },
    Grants { expired: bool },
    AwaitsTaken,
    GoesOn { taken: bool },
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Child {
    Asks,
    Waits,
    Reads,
    GoesOn { filled: bool },
    Stopped,
    Dead,
}

struct World {
    words: ForkWords,
    forker: Forker,
    parent: Parent,
    child: Child,
    /// Every event from before the fork has been read.
    all_read: bool,
    lease_is_over: bool,
    /// The parent has its descriptor of the child.
    open: bool,
    /// The child was given all its memory.
    full: bool,
    /// The child cannot open descriptors.
    asks_to_be_filled: bool,
}

impl World {
    fn new(words: &'static Words, asks_to_be_filled: bool) -> Self {
        for word in &words[..2 * LIST] {
            word.store(0, Ordering::Relaxed);
        }
        let words = ForkWords::new(words);
        words.renew();
        Self {
            words,
            forker: Forker::Forks,
            parent: Parent::Looks,
            child: Child::Asks,
            all_read: false,
            lease_is_over: false,
            open: true,
            full: false,
            asks_to_be_filled,
        }
    }

    fn state(&self) -> u32 {
        self.words.adopt().load(Ordering::Acquire)
    }

    /// Makes a step; false if there is none to make, or it changes nothing.
    fn make(&mut self, step: Turn) -> bool {
        match step {
            Turn::Forker => self.forker(),
            Turn::Parent => self.parent(),
            Turn::Child => self.child(),
            Turn::LeaseEnds => !core::mem::replace(&mut self.lease_is_over, true),
            Turn::KillParent => {
                let lives = !matches!(self.parent, Parent::Dead | Parent::GoesOn { .. });
                if lives {
                    self.parent = Parent::Dead;
                    self.open = false;
                }
                lives
            }
            Turn::KillChild | Turn::StopChild => {
                let runs = matches!(self.child, Child::Asks | Child::Waits | Child::Reads);
                if runs {
                    self.child = if step == Turn::KillChild {
                        Child::Dead
                    } else {
                        Child::Stopped
                    };
                }
                runs
            }
        }
    }

    fn settled(&self) -> bool {
        self.words.settled().load(Ordering::Acquire) == 1
    }

    fn parent_done(&self) -> bool {
        self.words.request().load(Ordering::Acquire) == request::PARENT_DONE
    }

    fn forker(&mut self) -> bool {
        if self.parent == Parent::Dead {
            return false; // (a thread of the same process)
        }
        self.forker = match self.forker {
            Forker::Forks => {
                self.words.set(self.words.request(), request::PARENT_DONE);
                Forker::Waits
            }
            Forker::Waits if self.settled() => {
                assert!(self.all_read, "an event may be taken for one from before");
                Forker::GoesOn
            }
            Forker::Waits | Forker::GoesOn => return false,
        };
        true
    }

    fn parent(&mut self) -> bool {
        self.parent = match self.parent {
            Parent::Looks if !self.settled() => {
                if !self.parent_done() && self.state() == adopt::NONE {
                    return false;
                }
                Parent::ReadsAllEvents
            }
            Parent::ReadsAllEvents => {
                self.all_read = true;
                self.words.set(self.words.settled(), 1);
                Parent::Looks
            }
            Parent::Looks => match self.state() {
                adopt::ASKED => Parent::Leaves {
                    filled: false,
                    expired: false,
                },
                adopt::ASKED_FILL => Parent::Fills { expired: false },
                _ if !self.parent_done() => return false,
                _ if self.child == Child::Dead => Parent::GoesOn { taken: true },
                _ if self.lease_is_over && self.words.expire() => Parent::Fills { expired: true },
                _ => return false,
            },
            Parent::Fills { expired } => {
                self.full = true;
                Parent::Leaves {
                    filled: true,
                    expired,
                }
            }
            Parent::Leaves { filled, expired } => {
                if filled {
                    self.words.leave_filled();
                } else {
                    assert!(self.words.leave([[2, 0, 4096, 0]].into_iter()));
                }
                self.words.set(self.words.adopt(), adopt::LEFT);
                Parent::Closes { expired }
            }
            Parent::Closes { expired } => {
                self.open = false;
                Parent::Grants { expired }
            }
            Parent::Grants { expired } => {
                self.words.set(self.words.adopt(), adopt::GRANTED);
                if expired {
                    Parent::GoesOn { taken: false }
                } else {
                    Parent::AwaitsTaken
                }
            }
            Parent::AwaitsTaken if self.state() == adopt::TAKEN => Parent::GoesOn { taken: true },
            // (It has waited long enough: the child may be stopped, or dead.)
            Parent::AwaitsTaken if self.lease_is_over => Parent::GoesOn { taken: false },
            Parent::AwaitsTaken | Parent::GoesOn { .. } | Parent::Dead => return false,
        };
        true
    }

    /// Whether the child would find that its parent lives.
    fn child_sees_parent(&self) -> bool {
        if self.asks_to_be_filled {
            self.parent != Parent::Dead
        } else {
            self.open
        }
    }

    fn child(&mut self) -> bool {
        self.child = match self.child {
            Child::Asks => {
                let how = if self.asks_to_be_filled {
                    adopt::ASKED_FILL
                } else {
                    adopt::ASKED
                };
                self.words.leave_none(how);
                Child::Waits
            }
            Child::Waits => {
                let state = self.state();
                let waits = state == adopt::LEFT || adopt::waits(state);
                if waits && self.child_sees_parent() {
                    return false;
                }
                if adopt::waits(state) && self.asks_to_be_filled {
                    Child::Dead // it ends: nobody has its memory
                } else {
                    Child::Reads
                }
            }
            Child::Reads => {
                assert!(!self.open, "its parent still has its ranges");
                let filled = self.words.is_filled();
                assert!(!filled || self.full, "told that it has all, and has not");
                let answered = !adopt::waits(self.state());
                let list = self.words.left().count();
                assert!(filled || !answered || list == 1, "the list is another's");
                self.words.taken(1);
                Child::GoesOn { filled }
            }
            Child::GoesOn { .. } | Child::Stopped | Child::Dead => return false,
        };
        true
    }

    /// At the end: nobody can make a step of its own any more.
    fn check(&self, steps: &[Turn]) {
        let parent_is_done = matches!(self.parent, Parent::GoesOn { .. } | Parent::Dead);
        assert!(parent_is_done, "the parent waits for ever: {steps:?}");
        let forker_is_done = self.forker == Forker::GoesOn || self.parent == Parent::Dead;
        assert!(forker_is_done, "fork does not return: {steps:?}");
        let child_is_done = !matches!(self.child, Child::Asks | Child::Waits | Child::Reads);
        assert!(child_is_done, "the child waits for ever: {steps:?}");
        if self.asks_to_be_filled && matches!(self.child, Child::GoesOn { .. }) {
            assert!(
                self.full,
                "an unmanaged child without its memory: {steps:?}"
            );
        }
        if self.parent == (Parent::GoesOn { taken: true }) {
            // (The next fork uses the same words.)
            let reads = matches!(self.child, Child::Asks | Child::Waits | Child::Reads);
            assert!(!reads && self.child != Child::Stopped || self.state() == adopt::TAKEN);
        }
    }
}

/// Tries every step after `steps`, each from the start.
fn explore(words: &'static Words, fill: bool, steps: &mut Vec<Turn>, ends: &mut usize) {
    let mut moved = false;
    for step in TURNS {
        let mut world = World::new(words, fill);
        for step in steps.iter() {
            assert!(world.make(*step));
        }
        if world.make(step) {
            // (The end of the lease always comes; being killed or stopped need not.)
            moved |= matches!(
                step,
                Turn::Forker | Turn::Parent | Turn::Child | Turn::LeaseEnds
            );
            steps.push(step);
            explore(words, fill, steps, ends);
            steps.pop();
        }
    }
    if !moved {
        let mut world = World::new(words, fill);
        for step in steps.iter() {
            world.make(*step);
        }
        world.check(steps);
        *ends += 1;
    }
}

#[test]
fn nobody_waits_for_ever_and_no_child_has_anothers_list() {
    let words: &'static Words = Box::leak(Box::new([const { AtomicU32::new(0) }; 16 << 10]));
    for fill in [false, true] {
        let mut ends = 0;
        explore(words, fill, &mut Vec::new(), &mut ends);
        assert!(ends > 300, "{ends} orders");
    }
}
