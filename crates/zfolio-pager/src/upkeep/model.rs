//! A ring is given on: every order of the steps of two threads of the pager, of the one that buries, and
//! of the next member. One cell, in which the member that has ended left a request.
//!
//! The steps are those of `Pager::take_new`, `Pager::read`, `Pager::answer` and `Pager::bury`.

use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Whose {
    Old,
    Next,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Cell {
    Free,
    Posted(Whose),
    Taken(Whose),
    Done(Whose),
}

/// A thread that serves: what it does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Serving {
    Idle,
    Count,
    Take,
    /// Looks whether the member has ended, having taken a request.
    Look,
    Answer(Whose),
    CountNoMore,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Burying {
    Ended,
    First,
    ClearCell,
    ClearPosted,
    Second,
    NotEnded,
    Give,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Joining {
    Join,
    Post,
    Note,
    Wait,
    Answered,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    cell: Cell,
    posted: bool,
    under_way: u8,
    ended: bool,
    free: bool,
    serving: [Serving; 2],
    burying: Burying,
    joining: Joining,
}

/// What is done otherwise than in the code, to see that the model finds it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The member has not ended any more before its requests are cleared.
    NotEndedFirst,
    /// Nobody looks again whether a request is under way.
    NoSecondLook,
}

impl State {
    fn begin() -> Self {
        Self {
            cell: Cell::Posted(Whose::Old),
            posted: true,
            under_way: 0,
            ended: false,
            free: false,
            serving: [Serving::Idle; 2],
            burying: Burying::Ended,
            joining: Joining::Join,
        }
    }

    /// The state after a step of thread `index`; `None` where it has none.
    fn serve(mut self, index: usize) -> Option<Result<Self, &'static str>> {
        let next = match self.serving[index] {
            Serving::Idle if self.posted => {
                self.posted = false;
                Serving::Count
            }
            Serving::Idle => return None,
            Serving::Count => {
                self.under_way += 1;
                Serving::Take
            }
            Serving::Take => match self.cell {
                Cell::Posted(whose) => {
                    self.cell = Cell::Taken(whose);
                    Serving::Look
                }
                _ => Serving::CountNoMore,
            },
            Serving::Look if self.ended => Serving::CountNoMore,
            // (Here it reads what is asked for.)
            Serving::Look => match self.cell {
                Cell::Taken(whose) => Serving::Answer(whose),
                _ => return Some(Err("a request is read that is not there")),
            },
            Serving::Answer(whose) => {
                match self.cell {
                    Cell::Taken(of) if of == whose => self.cell = Cell::Done(whose),
                    Cell::Taken(_) => return Some(Err("another's request is answered")),
                    _ => {}
                }
                Serving::CountNoMore
            }
            Serving::CountNoMore => {
                self.under_way -= 1;
                Serving::Idle
            }
        };
        self.serving[index] = next;
        Some(Ok(self))
    }

    fn bury(mut self, fault: Fault) -> Option<Self> {
        let is_busy = self.under_way != 0;
        self.burying = match self.burying {
            Burying::Ended => {
                self.ended = true;
                Burying::First
            }
            Burying::First if is_busy => return None,
            Burying::First => {
                if fault == Fault::NotEndedFirst {
                    self.ended = false;
                }
                Burying::ClearCell
            }
            Burying::ClearCell => {
                self.cell = Cell::Free;
                Burying::ClearPosted
            }
            Burying::ClearPosted => {
                self.posted = false;
                Burying::Second
            }
            // (The next time it begins again.)
            Burying::Second if is_busy && fault != Fault::NoSecondLook => Burying::First,
            Burying::Second => Burying::NotEnded,
            Burying::NotEnded => {
                self.ended = false;
                Burying::Give
            }
            Burying::Give => {
                self.free = true;
                Burying::Done
            }
            Burying::Done => return None,
        };
        Some(self)
    }

    fn join(mut self) -> Option<Self> {
        self.joining = match self.joining {
            Joining::Join if self.free => Joining::Post,
            Joining::Join | Joining::Answered => return None,
            Joining::Post => {
                self.cell = Cell::Posted(Whose::Next);
                Joining::Note
            }
            Joining::Note => {
                self.posted = true;
                Joining::Wait
            }
            Joining::Wait if self.cell == Cell::Done(Whose::Next) => Joining::Answered,
            Joining::Wait => return None,
        };
        Some(self)
    }
}

/// Goes through all orders; what goes wrong, or how many states there are.
fn all(fault: Fault) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut left = vec![State::begin()];
    while let Some(state) = left.pop() {
        if !seen.insert(state) {
            continue;
        }
        let mut next = Vec::new();
        for index in [0, 1] {
            match state.serve(index) {
                Some(Ok(after)) => next.push(after),
                Some(Err(what)) => return Err(format!("{what}: {state:?}")),
                None => {}
            }
        }
        next.extend(state.bury(fault));
        next.extend(state.join());
        if next.is_empty() && state.joining != Joining::Answered {
            return Err(format!("the next member waits for ever: {state:?}"));
        }
        left.extend(next);
    }
    Ok(seen.len())
}

#[test]
fn what_who_has_ended_left_is_never_the_next_ones() {
    let states = all(Fault::None).unwrap();
    assert!(states > 100, "{states}");
}

#[test]
fn the_model_finds_what_the_order_of_steps_is_for() {
    for fault in [Fault::NotEndedFirst, Fault::NoSecondLook] {
        let found = all(fault).unwrap_err();
        assert!(
            found.contains("another's")
                || found.contains("not there")
                || found.contains("for ever"),
            "{found}"
        );
    }
}
