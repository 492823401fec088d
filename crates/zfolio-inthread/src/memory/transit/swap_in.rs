//! Swap-in beside other threads: as [`bring`](mod@crate::memory::bring), which says what comes
//! with a page, but for the work, which is done while the pages are in transit.

use super::relief::{Whom, make_room};
use super::stage::{Stage, Taken};
use crate::memory::Vpn;
use crate::memory::bring::{
    Access, Brought, FOLIO, alike, bring, fresh, set, set_open, stored_run, was_open,
};
use crate::memory::core::MemoryCore;
use crate::memory::layer::MemoryState;
use crate::memory::outgoing;
use crate::memory::ranges::Protection;
use crate::memory::read_ahead::{RestOfWindow, count_out, is_out};
use crate::memory::readers::WantedPages;
use crate::memory::way::{Kind, STAGE, Way};
use crate::memory::words::Word;
use crate::raw::{Blocked, SHIFT};
use crate::threads::{Record, on_service_stack};
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::FaultKind;
use zfolio_zswap::{LoadError, Slot};

/// What is to be done about a touch, as the lock is let go.
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
enum Next {
    Done(Brought),
    /// Wait for this stage's bell, and look again.
    Await {
        stage: usize,
        heard: u32,
    },
    /// Make room for so many pages, and look again.
    MakeRoom(usize),
    Load(Incoming),
    /// As threads that are alone do it, with nothing in transit.
    Alone,
}

/// Pages on their way in.
struct Incoming {
    run: Range<Vpn>,
    /// What of the window comes after them.
    rest: RestOfWindow,
    /// What the pool has of them.
    slots: [Slot; STAGE],
    /// Nobody has been there: nothing is loaded.
    untouched: bool,
    /// They are to be clean.
    clean: bool,
    several: bool,
    /// Of their mapping.
    protection: Protection,
    way: Way,
}

/// How they came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Open,
    Clean,
    /// The kernel has no mapping left for it: nothing has changed.
    Not,
}

/// A touch that is being served.
struct Touch<'a> {
    state: &'a MemoryState,
    record: Option<&'a Record>,
    page: Vpn,
    access: Access,
    /// What it asks for, once that is known.
    most: Option<WantedPages>,
    /// Nobody waits for it: it comes with another.
    is_ahead: bool,
    /// Room has been made for it.
    has_room: bool,
    /// Another thread has brought it, or was about to.
    has_waited: bool,
}

/// Opens the page at `address`, which `access` is about, if it is closed. `is_other` looks at
/// each turn whether the touch is about something else than a closed page. All signals are
/// blocked, no lock is held, there is more than one thread.
pub(crate) fn bring_beside(
    state: &MemoryState,
    record: Option<&Record>,
    address: usize,
    access: Access,
    is_other: &mut dyn FnMut(&MemoryCore) -> bool,
) -> Brought {
    let mut touch = Touch {
        state,
        record,
        page: address >> SHIFT,
        access,
        most: None,
        is_ahead: false,
        has_room: false,
        has_waited: false,
    };
    loop {
        let mut taken = state.stages.take();
        match touch.next(&mut taken, is_other) {
            Next::Done(brought) => return brought,
            Next::Await { stage, heard } => {
                drop(taken);
                if !state.stages.bell(stage).wait(heard) {
                    state.fail_if_lost();
                }
                touch.has_waited = true;
            }
            Next::MakeRoom(pages) => {
                make_room(state, &mut taken, Whom::Caller(pages));
                touch.has_room = true;
            }
            Next::Load(incoming) => {
                if let Some(brought) = touch.load(&mut taken, &incoming) {
                    touch.bring_rest(&mut taken, &incoming);
                    return brought;
                }
                drop(taken);
                return touch.alone();
            }
            Next::Alone => {
                drop(taken);
                return touch.alone();
            }
        }
    }
}

impl MemoryState {
    /// Opens the page at `address` for a system call, if it is closed.
    pub(crate) fn bring(&self, record: &Record, address: usize) {
        let work = self.begin_work();
        loop {
            let blocked = Blocked::new();
            let mask = blocked.mask();
            let brought = on_service_stack(&blocked, || {
                let (record, access) = (Some(record), Access::Write);
                if self.is_beside() {
                    let brought = bring_beside(self, record, address, access, &mut |_| false);
                    return Some(brought);
                }
                self.bring_or_fetch(self.exclusive(), record, address, access, mask)
            });
            // (Between two tries signals come.)
            drop(blocked);
            if brought.is_some() {
                break;
            }
        }
        self.end_work(work, 0);
    }
}

impl Touch<'_> {
    fn alone(&self) -> Brought {
        let mut core = self.state.exclusive();
        bring(
            self.state,
            &mut core,
            self.record,
            self.page << SHIFT,
            self.access,
        )
    }

    /// Under the core lock: what is to be done.
    fn next(
        &mut self,
        taken: &mut Taken<'_>,
        is_other: &mut dyn FnMut(&MemoryCore) -> bool,
    ) -> Next {
        let (state, page) = (self.state, self.page);
        let mut guard = state.at_gate();
        let core = &mut *guard;
        if let Some(stage) = core.transit.frozen.stage_of(&(page..page + 1)) {
            // (It may be a page that is open, and protected with the span.)
            let heard = state.stages.bell(stage).listen();
            return Next::Await { stage, heard };
        }
        if is_other(core) {
            return Next::Done(Brought::WasOpen);
        }
        let word = state.words.get(page);
        if self.is_ahead && !is_out(word) {
            return Next::Done(Brought::WasOpen);
        }
        match word {
            Word::Clean(_) if self.access == Access::Write => {
                core.figures.faults += 1;
                core.write_to_clean(state, page);
                return Next::Done(Brought::Open(FaultKind::Standby));
            }
            Word::Transit(stage) => {
                let stage = stage as usize;
                let heard = state.stages.bell(stage).listen();
                return Next::Await { stage, heard };
            }
            // (What another has brought is tried before anything is thought of it.)
            Word::Open { .. } | Word::Clean(_) | Word::Kept if self.has_waited => {
                return Next::Done(Brought::Open(FaultKind::Page));
            }
            Word::Open { .. } | Word::Clean(_) | Word::Kept => {
                return match was_open(state, core, page) {
                    Brought::NotOurs if outgoing::is_one(page << SHIFT) => Next::Alone,
                    brought => Next::Done(brought),
                };
            }
            Word::Standby => return Next::Alone,
            Word::Untouched | Word::Zero | Word::Stored(_) => {}
        }
        // (Cuts are mended with nothing in transit.)
        let is_mended_first = word == Word::Untouched && core.lacks_mappings(state);
        if is_mended_first || core.closes_nothing() || taken.made(core).is_none() {
            return Next::Alone;
        }
        // (A limit has come while the touch was on its way.)
        if !state.is_beside() {
            return Next::Alone;
        }
        let (run, rest) = self.run(core, word);
        let pages = run.len() + count_out(state, &rest);
        if !self.has_room && core.lacks_room(state, pages) {
            return Next::MakeRoom(pages);
        }
        let Some(stage) = taken.get() else {
            return Next::Alone;
        };
        let untouched = word == Word::Untouched;
        if !self.is_ahead {
            core.figures.faults += 1;
            core.figures.major += u64::from(!untouched);
        }
        if untouched {
            if let Some(record) = self.record {
                record.faults.row[0].store(run.end, Ordering::Relaxed);
            }
        } else {
            if !self.is_ahead {
                core.note_window(state, self.record, page, (&run, &rest));
            }
            let alone = self.most.is_none_or(|most| most.pages == 1);
            let asked = !self.is_ahead && alone;
            core.note_came(&run, asked.then_some(page));
        }
        let slots = core::array::from_fn(|at| {
            let page = run.start + at;
            if page < run.end
                && let Word::Stored(slot) = state.words.get(page)
            {
                slot
            } else {
                Slot::ZERO
            }
        });
        let incoming = Incoming {
            untouched,
            clean: !untouched && core.comes_clean(&run, &slots[..run.len()], self.access),
            slots,
            several: state.is_several(),
            protection: core.ranges.protection(run.start << SHIFT),
            way: stage.way(core),
            rest,
            run,
        };
        for page in incoming.run.clone() {
            set(state, core, page, Word::Transit(taken.mark()));
        }
        core.begin_transit(self.record);
        state.stages.note_thread(taken.number, self.record);
        Next::Load(incoming)
    }

    /// Which pages come, as alone: the run that the page is in, and the rest of its window.
    fn run(&mut self, core: &mut MemoryCore, word: Word) -> (Range<Vpn>, RestOfWindow) {
        let (state, page, record) = (self.state, self.page, self.record);
        if word == Word::Untouched {
            let fresh = || WantedPages::in_order(fresh(core, record, page));
            let most = self.most.get_or_insert_with(fresh).pages;
            let run = alike(state, core, page, most, |word| word == Word::Untouched);
            return (page..run.end, RestOfWindow::nothing(run.end));
        }
        let ahead = *self
            .most
            .get_or_insert_with(|| core.ahead(state, record, page));
        let run = stored_run(state, core, page, ahead.side_by_side());
        let rest = match self.is_ahead {
            true => RestOfWindow::nothing(run.end),
            false => core.rest(state, page, &run, ahead),
        };
        (run, rest)
    }

    /// Brings the rest of a window, for which there is room, piece by piece, up to one that would have to
    /// be waited for.
    fn bring_rest(&self, taken: &mut Taken<'_>, first: &Incoming) {
        let mut rest = first.rest;
        // (A hint without the lock: it is looked at again under it. Nothing is behind the pool here.)
        while let Some(page) = rest.next_out(self.state) {
            let mut piece = Touch {
                page,
                most: Some(WantedPages::in_order(rest.side_by_side())),
                is_ahead: true,
                has_room: true,
                ..*self
            };
            match piece.next(taken, &mut |_| false) {
                Next::Load(incoming) if piece.load(taken, &incoming).is_some() => {
                    rest.came(&incoming.run);
                }
                _ => break,
            }
        }
    }

    /// The work, and what has become of the pages; `None` where they are as they were.
    fn load(&self, taken: &mut Taken<'_>, incoming: &Incoming) -> Option<Brought> {
        let (state, run) = (self.state, &incoming.run);
        let stage = taken.get()?;
        let came = match incoming.bring(stage) {
            Ok(came) => came,
            Err(why) => state.core.lock().fail(format_args!(
                "the memory at {:#x} did not come back from the pool as it went ({why:?})",
                run.start << SHIFT
            )),
        };
        let mut guard = state.core.lock();
        let core = &mut *guard;
        let count = run.len() as u64;
        match came {
            Came::Open if incoming.untouched => {
                core.figures.filled += count;
                set_open(state, core, run.clone(), 0);
            }
            Came::Open => {
                for page in run.clone() {
                    let heat = u8::from(page == self.page && !self.is_ahead);
                    set(state, core, page, Word::Open { heat });
                }
            }
            Came::Clean => core.note_clean(state, run, &incoming.slots),
            Came::Not => incoming.leave(state, core),
        }
        if came != Came::Not && !incoming.untouched {
            core.figures.pages_in += count;
            core.figures.ahead += count - u64::from(!self.is_ahead);
            // (There is nothing behind the pool where pages come so.)
            core.count_loaded(run.len(), core.loaded_from_behind());
        }
        state.end_transit(guard, taken.number);
        (came != Came::Not).then_some(Brought::Open(match run.len() {
            _ if incoming.untouched => FaultKind::Hole,
            1 => FaultKind::Page,
            FOLIO.. => FaultKind::Folio,
            _ => FaultKind::Batch,
        }))
    }
}

/// Why pages could not be brought: the process ends.
#[derive(Debug)]
#[allow(dead_code, reason = "told by its Debug form")]
enum Why {
    Pool(LoadError),
    /// The error number of what should have filled them.
    Fill(i32),
}

impl Incoming {
    /// Loads and opens them. What the pool has of them goes, unless they are clean.
    fn bring(&self, stage: &mut Stage) -> Result<Came, Why> {
        let mut way = self.way.clone();
        let addresses = self.run.start << SHIFT..self.run.end << SHIFT;
        if self.untouched {
            return Ok(match way.open_untouched(&addresses) {
                Ok(()) => Came::Open,
                Err(_) => Came::Not,
            });
        }
        let slots = &self.slots[..self.run.len()];
        for (index, slot) in slots.iter().enumerate() {
            let into = way.incoming_page(index);
            if *slot == Slot::ZERO {
                into.fill(0);
            } else {
                let loaded = stage.zswap.load_into(&mut stage.context, *slot, into);
                loaded.map_err(Why::Pool)?;
            }
        }
        if self.clean && way.fill_clean(&addresses).is_ok() {
            return Ok(Came::Clean);
        }
        match way.fill(&addresses, self.several, self.protection) {
            Ok(()) => {
                stage.zswap.invalidate(slots);
                Ok(Came::Open)
            }
            // (Done again from the beginning, by whoever is alone.)
            Err(_) if way.kind != Kind::InThread => Ok(Came::Not),
            Err(errno) => Err(Why::Fill(errno.0)),
        }
    }

    /// They are what they were.
    fn leave(&self, state: &MemoryState, core: &MemoryCore) {
        for (page, slot) in self.run.clone().zip(&self.slots) {
            let word = match *slot {
                _ if self.untouched => Word::Untouched,
                Slot::ZERO => Word::Zero,
                slot => Word::Stored(slot),
            };
            set(state, core, page, word);
        }
    }
}
