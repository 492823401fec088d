//! The one loop that serves a fault, whoever tells of it and whoever has the pages.
//!
//! Two axes. *Who has the pages* ([`Pager`]): pages that move, or groups that close. *Who tells*
//! ([`Teller`]): a message, or the thread that faulted, in its signal handler. A teller decides
//! how its thread waits; the pager, what there is to wait for. Another teller, or another
//! pager, is another implementation: the loop does not ask which it is.
//!
//! All of it is resolved when it is compiled: a fault makes no indirect call here.

/// How one try to serve a fault ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tried<S, R> {
    /// The access can be repeated.
    Served(S),
    /// No page of ours, or nothing that this could mend.
    NotOurs,
    /// Not now, with no fault of memory: somebody has the page, an event is in flight, or the
    /// world is frozen. The number is the pager's: what to wait for.
    Later(u32),
    /// Memory is short.
    NoRoom,
    /// The kernel refused for want of something that others have.
    Refused(R),
}

/// Who has the pages.
pub(crate) trait Pager {
    /// A fault, as this pager is told of it.
    type Fault: Copy;
    /// What one thread works with.
    type PerThread;
    /// What is known of a fault that was served.
    type Served;
    /// What the kernel may refuse; a type without values where it is nothing.
    type Refusal;

    /// Tries once.
    fn try_fault(
        &self,
        worker: &mut Self::PerThread,
        fault: &mut Self::Fault,
    ) -> Tried<Self::Served, Self::Refusal>;

    /// Makes room for a fault that found none, or waits until somebody has.
    fn make_room(&self, worker: &mut Self::PerThread, fault: &mut Self::Fault);

    /// Has others give up what the kernel refused it for.
    fn make_way(&self, fault: &mut Self::Fault, refusal: Self::Refusal);
}

/// Whether the loop goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// With the same fault.
    Again,
    /// The fault was left for somebody else, or for later.
    Left,
}

/// How a fault ended for the thread that went round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It was served.
    Served,
    /// It is none of ours.
    NotOurs,
    /// The teller left it for later.
    Left,
}

/// Who tells, and how whoever serves waits.
pub(crate) trait Teller<P: Pager> {
    /// A fault was served.
    fn served(&mut self, pager: &P, served: P::Served, fault: P::Fault);

    /// It cannot be served now; `what` is what [`Tried::Later`] said.
    fn put_off(&mut self, pager: &P, fault: P::Fault, what: u32) -> Next;

    /// Memory is short.
    fn short(&mut self, pager: &P, worker: &mut P::PerThread, fault: &mut P::Fault) -> Next {
        pager.make_room(worker, fault);
        Next::Again
    }
}

/// Serves a fault, or leaves it as the teller says.
#[inline]
pub(crate) fn serve_fault<P: Pager, T: Teller<P>>(
    pager: &P,
    teller: &mut T,
    worker: &mut P::PerThread,
    mut fault: P::Fault,
) -> Ended {
    loop {
        let next = match pager.try_fault(worker, &mut fault) {
            Tried::Served(served) => {
                teller.served(pager, served, fault);
                return Ended::Served;
            }
            Tried::NotOurs => return Ended::NotOurs,
            Tried::Later(what) => teller.put_off(pager, fault, what),
            Tried::NoRoom => teller.short(pager, worker, &mut fault),
            Tried::Refused(refusal) => {
                pager.make_way(&mut fault, refusal);
                Next::Again
            }
        };
        if next == Next::Left {
            return Ended::Left;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::cell::RefCell;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Ends tries as it is told to, and writes down what it is asked for.
    struct Script {
        tries: RefCell<Vec<Tried<u8, char>>>,
        asked: RefCell<Vec<&'static str>>,
    }

    impl Pager for Script {
        type Fault = u32;
        type PerThread = ();
        type Served = u8;
        type Refusal = char;

        fn try_fault(&self, (): &mut (), _: &mut u32) -> Tried<u8, char> {
            self.asked.borrow_mut().push("try");
            self.tries.borrow_mut().pop().expect("one more try")
        }

        fn make_room(&self, (): &mut (), fault: &mut u32) {
            *fault += 1;
            self.asked.borrow_mut().push("room");
        }

        fn make_way(&self, _: &mut u32, refusal: char) {
            assert_eq!(refusal, 'n', "what was tried");
            self.asked.borrow_mut().push("way");
        }
    }

    /// Waits so many times, then leaves the fault.
    struct Patient {
        patience: usize,
        served: Vec<(u8, u32)>,
    }

    impl Teller<Script> for Patient {
        fn served(&mut self, _: &Script, served: u8, fault: u32) {
            self.served.push((served, fault));
        }

        fn put_off(&mut self, pager: &Script, _: u32, what: u32) -> Next {
            assert_eq!(what, 7, "what the pager said");
            pager.asked.borrow_mut().push("wait");
            if self.patience == 0 {
                return Next::Left;
            }
            self.patience -= 1;
            Next::Again
        }
    }

    fn tried() -> impl Strategy<Value = Tried<u8, char>> {
        prop_oneof![
            any::<u8>().prop_map(Tried::Served),
            Just(Tried::NotOurs),
            Just(Tried::Later(7)),
            Just(Tried::NoRoom),
            Just(Tried::Refused('n')),
        ]
    }

    proptest! {
        /// Every try is answered by what it asks for, and by nothing else, until one ends it.
        #[test]
        fn each_try_has_its_answer(
            mut tries in prop::collection::vec(tried(), 0..20),
            patience in 0..4_usize,
        ) {
            tries.push(Tried::Served(1));
            let (mut asked, mut times_made, mut left, mut ended) = (Vec::new(), 0, patience, None);
            for tried in &tries {
                asked.push("try");
                match tried {
                    Tried::Served(served) => ended = Some((Ended::Served, Some(*served))),
                    Tried::NotOurs => ended = Some((Ended::NotOurs, None)),
                    Tried::Later(_) => {
                        asked.push("wait");
                        match left.checked_sub(1) {
                            Some(less) => left = less,
                            None => ended = Some((Ended::Left, None)),
                        }
                    }
                    Tried::NoRoom => {
                        asked.push("room");
                        times_made += 1;
                    }
                    Tried::Refused(_) => asked.push("way"),
                }
                if ended.is_some() {
                    break;
                }
            }
            let (ended, served) = ended.expect("the last one is served");
            tries.reverse();
            let script = Script { tries: RefCell::new(tries), asked: RefCell::default() };
            let mut teller = Patient { patience, served: Vec::new() };
            prop_assert_eq!(serve_fault(&script, &mut teller, &mut (), 0), ended);
            prop_assert_eq!(script.asked.into_inner(), asked);
            let told: Vec<(u8, u32)> = served.map(|kind| (kind, times_made)).into_iter().collect();
            prop_assert_eq!(teller.served, told);
        }
    }
}
