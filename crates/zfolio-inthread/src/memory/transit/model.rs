//! Every order of the steps of a few threads. What is done under the core lock is one step; so
//! is what comes between two holds of it, and falling asleep. Nobody wakes but by a bell: so a
//! bell that is missed is a thread that never ends.
//!
//! What must hold:
//! - who has the lock for itself finds nothing in transit;
//! - what a page in transit has in the pool is there until its thread has loaded it, and its
//!   word is the thread's alone;
//! - a page that a system call has pinned and found open is open until it returns;
//! - a page inside a span that is write-protected is not open by its word: calls trust it;
//! - a touch ends with an open page, each page is in one place at the end, and all threads end.

extern crate std;
use super::waits::{Ring, Transits, listened, rung};
use core::ops::Range;
use std::collections::HashSet;
use std::vec::Vec;

const STAGES: usize = 2;
const PAGES: usize = 3;
/// Names of what the pool holds.
const SLOTS: u8 = 6;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Word {
    Open,
    Stored(u8),
    Transit(usize),
}

/// What a thread is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Task {
    /// Touches a page.
    Touch(usize),
    /// Has a page stored and closed, if it may be.
    Close(usize),
    /// Has the first and the last page that are open closed where they are, with what lies
    /// between them protected meanwhile: against writing, and by guard against any touch for a part of
    /// it. (All that touch it wait either way.)
    CloseSpan,
    /// Pins a page for a call, which touches it.
    Call(usize),
    /// Empties all pages: a change of the address space, with the lock for itself.
    Change,
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Begins,
    /// With a stage: looks under the lock.
    Looks {
        stage: usize,
    },
    Gate {
        stage: usize,
        heard: u32,
    },
    AwaitsPage {
        of: usize,
        heard: u32,
    },
    /// Its page is in transit; what the pool has of it, or gets.
    Works {
        stage: usize,
        slot: u8,
    },
    Publishes {
        stage: usize,
        slot: u8,
    },
    /// Has a span, which is protected; stores what goes.
    StoresSpan {
        stage: usize,
    },
    /// What goes is discarded, and the span is to be opened.
    OpensSpan {
        stage: usize,
    },
    PublishesSpan {
        stage: usize,
    },
    /// Wants the lock for itself.
    Wants {
        heard: u32,
    },
    /// Has pinned its page.
    Pinned,
    Calls,
    Ended,
}

/// What becomes of a page of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum InSpan {
    /// It is none of the span's own: not there, or outside.
    Other,
    Goes,
    /// What the pool has of one that goes.
    Gone(u8),
    /// It was open, and will be.
    Stays,
}

/// A span: what is protected, and what becomes of it.
type Span = [InSpan; PAGES];

fn pages_of(span: &Span) -> Range<usize> {
    let goes = |at: &InSpan| matches!(at, InSpan::Goes | InSpan::Gone(_));
    let first = span.iter().position(goes).unwrap_or(0);
    first..span.iter().rposition(goes).map_or(first, |last| last + 1)
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    transits: Transits,
    quiet: u32,
    gate: u32,
    bells: [u32; STAGES],
    stages: [bool; STAGES],
    words: [Word; PAGES],
    /// What the pool holds.
    pool: [bool; SLOTS as usize],
    pinned: [usize; PAGES],
    /// By stage: whose pages wait for it, whatever they are.
    spans: [Option<Span>; STAGES],
    /// By page: the kernel refuses writes.
    protected: [bool; PAGES],
    /// Spans run over pages that others bring in. (The model must find what that does.)
    careless: bool,
    threads: Vec<(Task, At)>,
}

impl World {
    fn new(tasks: &[Task], stored: bool) -> Self {
        let mut world = Self {
            transits: Transits::default(),
            quiet: 0,
            gate: 0,
            bells: [0; STAGES],
            stages: [false; STAGES],
            words: [Word::Open; PAGES],
            pool: [false; SLOTS as usize],
            pinned: [0; PAGES],
            spans: [None; STAGES],
            protected: [false; PAGES],
            careless: false,
            threads: tasks.iter().map(|task| (*task, At::Begins)).collect(),
        };
        if stored {
            for page in 0..PAGES {
                world.words[page] = Word::Stored(world.take_slot());
            }
        }
        world
    }

    /// The first that is free: one that was freed is used again at once.
    fn take_slot(&mut self) -> u8 {
        let slot = (0..SLOTS)
            .find(|slot| !self.pool[usize::from(*slot)])
            .expect("room");
        self.pool[usize::from(slot)] = true;
        slot
    }

    fn free_slot(&mut self, slot: u8) {
        let was = core::mem::take(&mut self.pool[usize::from(slot)]);
        assert!(was, "freed twice");
    }

    fn ring(bell: &mut u32) {
        *bell = rung(*bell);
    }

    fn listen(bell: &mut u32) -> u32 {
        *bell = listened(*bell);
        *bell
    }

    /// The world after a step of thread `index`; `None` if it cannot make one.
    fn after(&self, index: usize) -> Option<Self> {
        let mut world = self.clone();
        let (task, at) = world.threads[index];
        let next = match task {
            Task::Touch(page) => world.touch(page, at)?,
            Task::Close(page) => world.close(page, at)?,
            Task::CloseSpan => world.close_span(at)?,
            Task::Call(page) => world.call(page, at)?,
            Task::Change => world.change(at)?,
        };
        world.threads[index].1 = next;
        for (page, word) in world.words.iter().enumerate() {
            let open = *word == Word::Open;
            assert!(
                !open || !world.protected[page],
                "open, and refused: {world:?}"
            );
        }
        Some(world)
    }

    /// The stage that has a page in its span.
    fn span_over(&self, page: usize) -> Option<usize> {
        let over = |span: &Option<Span>| span.is_some_and(|span| pages_of(&span).contains(&page));
        self.spans.iter().position(over)
    }

    /// Taking a stage, and waiting: the same for all that use one.
    fn prepare(&mut self, at: At) -> Option<At> {
        match at {
            At::Begins => {
                let stage = self.stages.iter().position(|taken| !taken)?;
                self.stages[stage] = true;
                Some(At::Looks { stage })
            }
            At::Looks { stage } if !self.transits.may_begin() => Some(At::Gate {
                stage,
                heard: Self::listen(&mut self.gate),
            }),
            At::Gate { stage, heard } if self.gate != heard => Some(At::Looks { stage }),
            At::AwaitsPage { of, heard } if self.bells[of] != heard => Some(At::Begins),
            _ => None,
        }
    }

    fn end(&mut self, stage: usize) {
        if self.transits.end() == Ring::Quiet {
            Self::ring(&mut self.quiet);
        }
        Self::ring(&mut self.bells[stage]);
        self.stages[stage] = false;
    }

    fn touch(&mut self, page: usize, at: At) -> Option<At> {
        if let Some(next) = self.prepare(at) {
            return Some(next);
        }
        if let At::Looks { stage } = at
            && let Some(of) = self.span_over(page)
        {
            self.stages[stage] = false;
            let heard = Self::listen(&mut self.bells[of]);
            return Some(At::AwaitsPage { of, heard });
        }
        Some(match at {
            At::Looks { stage } => match self.words[page] {
                Word::Open => {
                    self.stages[stage] = false;
                    At::Ended
                }
                Word::Transit(of) => {
                    self.stages[stage] = false;
                    let heard = Self::listen(&mut self.bells[of]);
                    At::AwaitsPage { of, heard }
                }
                Word::Stored(slot) => {
                    self.words[page] = Word::Transit(stage);
                    self.transits.begin();
                    At::Works { stage, slot }
                }
            },
            At::Works { stage, slot } => {
                assert_eq!(self.words[page], Word::Transit(stage));
                self.free_slot(slot);
                At::Publishes { stage, slot }
            }
            At::Publishes { stage, .. } => {
                assert_eq!(self.words[page], Word::Transit(stage));
                self.words[page] = Word::Open;
                self.end(stage);
                At::Ended
            }
            _ => return None,
        })
    }

    fn close(&mut self, page: usize, at: At) -> Option<At> {
        if let Some(next) = self.prepare(at) {
            return Some(next);
        }
        Some(match at {
            At::Looks { stage } if self.words[page] == Word::Open && self.pinned[page] == 0 => {
                self.words[page] = Word::Transit(stage);
                self.transits.begin();
                At::Works { stage, slot: 0 }
            }
            At::Looks { stage } => {
                self.stages[stage] = false;
                At::Ended
            }
            At::Works { stage, .. } => {
                assert_eq!(self.words[page], Word::Transit(stage));
                let slot = self.take_slot();
                At::Publishes { stage, slot }
            }
            At::Publishes { stage, slot } => {
                assert_eq!(self.words[page], Word::Transit(stage));
                self.words[page] = Word::Stored(slot);
                self.end(stage);
                At::Ended
            }
            _ => return None,
        })
    }

    /// Chooses a span, as [`choose_span`](MemoryCore::choose_span) does; in one hold of the lock.
    fn choose_span(&self) -> Span {
        let mut span = [InSpan::Other; PAGES];
        let mut begun = false;
        for (page, is) in span.iter_mut().enumerate() {
            match self.words[page] {
                Word::Open if self.pinned[page] > 0 && begun => break,
                Word::Open if self.pinned[page] > 0 => {}
                // (One between others is warm.)
                Word::Open if begun && page + 1 < PAGES => *is = InSpan::Stays,
                Word::Open => {
                    *is = InSpan::Goes;
                    begun = true;
                }
                Word::Stored(_) => {}
                Word::Transit(_) if begun && !self.careless => break,
                Word::Transit(_) => {}
            }
        }
        let end = pages_of(&span).end;
        span[end..].fill(InSpan::Other);
        span
    }

    fn close_span(&mut self, at: At) -> Option<At> {
        if let Some(next) = self.prepare(at) {
            return Some(next);
        }
        Some(match at {
            At::Looks { stage } => {
                let span = self.choose_span();
                let over = (0..PAGES).any(|page| self.span_over(page).is_some());
                if over || pages_of(&span).is_empty() {
                    self.stages[stage] = false;
                    return Some(At::Ended);
                }
                for (page, is) in span.iter().enumerate() {
                    if *is != InSpan::Other {
                        self.words[page] = Word::Transit(stage);
                    }
                }
                self.spans[stage] = Some(span);
                self.transits.begin();
                At::Works { stage, slot: 0 }
            }
            At::Works { stage, .. } => {
                self.protected[pages_of(&self.spans[stage]?)].fill(true);
                At::StoresSpan { stage }
            }
            At::StoresSpan { stage } => {
                let mut span = self.spans[stage]?;
                for (page, is) in span.iter_mut().enumerate() {
                    if *is == InSpan::Goes {
                        assert_eq!(self.words[page], Word::Transit(stage));
                        *is = InSpan::Gone(self.take_slot());
                    }
                }
                self.spans[stage] = Some(span);
                At::OpensSpan { stage }
            }
            At::OpensSpan { stage } => {
                self.protected[pages_of(&self.spans[stage]?)].fill(false);
                At::PublishesSpan { stage }
            }
            At::PublishesSpan { stage } => {
                for (page, is) in self.spans[stage].take()?.into_iter().enumerate() {
                    if is == InSpan::Other {
                        continue;
                    }
                    assert_eq!(self.words[page], Word::Transit(stage));
                    self.words[page] = match is {
                        InSpan::Gone(slot) => Word::Stored(slot),
                        _ => Word::Open,
                    };
                }
                self.end(stage);
                At::Ended
            }
            _ => return None,
        })
    }

    fn call(&mut self, page: usize, at: At) -> Option<At> {
        Some(match at {
            // (Reclaim reads pins and marks pages in one hold of the lock, for which a call waits.)
            At::Begins if self.pinned[page] == 0 => {
                self.pinned[page] += 1;
                At::Pinned
            }
            At::Pinned if self.words[page] == Word::Open => At::Calls,
            At::Pinned => self.touch(page, At::Begins)?,
            At::Calls => {
                assert_eq!(self.words[page], Word::Open, "under a call");
                self.pinned[page] -= 1;
                At::Ended
            }
            at => match self.touch(page, at)? {
                At::Ended | At::Begins => At::Pinned,
                next => next,
            },
        })
    }

    fn change(&mut self, at: At) -> Option<At> {
        match at {
            At::Begins if self.transits.is_quiet() => {}
            At::Begins => {
                self.transits.want();
                let heard = Self::listen(&mut self.quiet);
                return Some(At::Wants { heard });
            }
            At::Wants { heard } if self.quiet == heard => return None,
            At::Wants { .. } if !self.transits.is_quiet() => {
                let heard = Self::listen(&mut self.quiet);
                return Some(At::Wants { heard });
            }
            At::Wants { .. } => {
                if self.transits.have() == Ring::Gate {
                    Self::ring(&mut self.gate);
                }
            }
            _ => return None,
        }
        for page in 0..PAGES {
            match self.words[page] {
                Word::Open => {}
                Word::Stored(slot) => self.free_slot(slot),
                Word::Transit(_) => panic!("in transit, and the lock is held for itself"),
            }
            // (Discarded: the kernel has zeros there.)
            self.words[page] = Word::Open;
        }
        Some(At::Ended)
    }

    fn check_end(&self) {
        assert!(
            self.threads.iter().all(|(_, at)| *at == At::Ended),
            "asleep for ever: {self:?}"
        );
        assert!(self.transits == Transits::default() && self.stages == [false; STAGES]);
        assert!(self.spans == [None; STAGES] && self.protected == [false; PAGES]);
        let stored = self
            .words
            .iter()
            .filter(|word| matches!(word, Word::Stored(_)))
            .count();
        assert_eq!(
            self.pool.iter().filter(|held| **held).count(),
            stored,
            "{self:?}"
        );
    }
}

/// Goes through all orders; returns how many moments there were.
fn explore(tasks: &[Task], begin: World) -> usize {
    let mut seen = HashSet::new();
    let mut next = std::vec![begin];
    while let Some(world) = next.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let before = next.len();
        next.extend((0..tasks.len()).filter_map(|index| world.after(index)));
        if next.len() == before {
            world.check_end();
        }
    }
    seen.len()
}

#[test]
fn no_order_of_touches_changes_and_closings_goes_wrong() {
    use Task::{Call, Change, Close, CloseSpan, Touch};
    let mut moments = 0;
    for stored in [true, false] {
        for tasks in [
            &[Touch(0), Touch(0), Touch(0), Change][..],
            &[Touch(0), Touch(1), Close(0), Change, Change],
            &[Touch(0), Close(0), Close(1), Change, Touch(1)],
            &[Call(0), Close(0), Touch(0), Change],
            &[Call(0), Close(0), Close(1), Call(1), Change],
            &[Close(0), Close(0), Touch(0), Touch(0), Change],
            &[CloseSpan, Close(1), Call(1), Touch(1)],
            &[CloseSpan, CloseSpan, Call(0), Touch(1)],
            &[CloseSpan, Close(1), Touch(1), Touch(2), Change],
        ] {
            moments += explore(tasks, World::new(tasks, stored));
        }
    }
    assert!(moments > 10_000, "{moments}");
}

/// So it was once, and calls were refused.
#[test]
#[should_panic(expected = "open, and refused")]
fn a_span_over_a_page_on_its_way_in_is_found() {
    let tasks = &[Task::Close(1), Task::Touch(1), Task::CloseSpan];
    let careless = World {
        careless: true,
        ..World::new(tasks, false)
    };
    explore(tasks, careless);
}
