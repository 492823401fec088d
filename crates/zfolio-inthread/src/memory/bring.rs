//! Swap-in: a closed page is opened, with some of its neighbours, and room is made for them.

use super::Vpn;
use super::core::MemoryCore;
use super::read_ahead::{RestOfWindow, count_out, is_out};
use super::way::{Kind, STAGE};
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{PAGE, SHIFT};
use crate::threads::Record;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::FaultKind;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::Slot;

/// Most pages opened at a time where nobody has been yet.
const FRESH: usize = 64;
/// Pages of a folio of the usual size (64 KiB): how loads are told apart.
pub(super) const FOLIO: usize = 16;
/// Pages looked at to each side when the kernel has no mapping left for a hole in a run.
const WIDE: usize = 4096;

/// What a page is brought for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    /// Or it is not known.
    Write,
}

/// What became of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Brought {
    /// The page is open: the access can be repeated. What it had been is told.
    Open(FaultKind),
    /// The page was open, and is managed.
    WasOpen,
    /// It is none of ours.
    NotOurs,
}

/// Opens the page at `address`, which `access` is about, if it is closed. The core lock is
/// held, and nothing is in transit.
pub(crate) fn bring(
    state: &MemoryState,
    core: &mut MemoryCore,
    record: Option<&Record>,
    address: usize,
    access: Access,
) -> Brought {
    bring_run(state, core, record, address, access, None)
}

/// The same; with `run`, where the page is stored: these pages with it, and the rest of a window.
pub(super) fn bring_run(
    state: &MemoryState,
    core: &mut MemoryCore,
    record: Option<&Record>,
    address: usize,
    access: Access,
    run: Option<(Range<Vpn>, RestOfWindow)>,
) -> Brought {
    let page = address >> SHIFT;
    if state.words.get(page).is_closed() {
        core.mend_cuts(state);
    }
    match state.words.get(page) {
        Word::Clean(_) if access == Access::Write => {
            core.figures.faults += 1;
            core.write_to_clean(state, page);
            Brought::Open(FaultKind::Standby)
        }
        Word::Open { .. } | Word::Clean(_) | Word::Kept => match was_open(state, core, page) {
            Brought::NotOurs if core.way.show_nothing(address) => Brought::Open(FaultKind::Hole),
            brought => brought,
        },
        Word::Untouched => {
            core.figures.faults += 1;
            let most = fresh(core, record, page);
            let run = alike(state, core, page, most, |word| word == Word::Untouched);
            let run = page..run.end;
            if let Some(record) = record {
                record.faults.row[0].store(run.end, Ordering::Relaxed);
            }
            core.make_room(state, run.len());
            open_fresh(state, core, &run);
            Brought::Open(FaultKind::Hole)
        }
        Word::Standby => {
            core.figures.faults += 1;
            // (No room is made: they are in memory, and reclaim might take them meanwhile.)
            let run = alike(state, core, page, STAGE, |word| word == Word::Standby);
            let addresses = run.start << SHIFT..run.end << SHIFT;
            if core.way.open_written(&addresses).is_err() {
                open_wide(state, core, page);
            } else {
                set_open(state, core, run, 1);
            }
            Brought::Open(FaultKind::Standby)
        }
        Word::Transit(_) => core.fail(format_args!(
            "the page at {address:#x} is in transit, and nothing is"
        )),
        Word::Zero | Word::Stored(_) => {
            core.figures.faults += 1;
            core.figures.major += 1;
            let (run, asked, rest) = match run {
                Some((run, rest)) => (run.clone(), rest.end().max(run.end) - page, rest),
                None => {
                    let ahead = core.ahead(state, record, page);
                    let run = stored_run(state, core, page, ahead.side_by_side());
                    let is_alone = record.is_some() && ahead.pages == 1;
                    let run = core.with_group(state, run, page, is_alone);
                    let rest = core.rest(state, page, &run, ahead);
                    (run, ahead.pages, rest)
                }
            };
            core.note_window(state, record, page, (&run, &rest));
            core.make_room(state, run.len() + count_out(state, &rest));
            // (What is read in order is read once, as a rule.)
            core.note_came(&run, (asked == 1).then_some(page));
            load(state, core, &run, Some(page), access);
            load_rest(state, core, rest, access);
            Brought::Open(match run.len() {
                1 => FaultKind::Page,
                FOLIO.. => FaultKind::Folio,
                _ => FaultKind::Batch,
            })
        }
    }
}

/// The pages that come from the pool with `page`: `ahead` at most, and all of its group; or, where
/// read-ahead is fixed (`--page-cluster`), what is stored around it of its window.
pub(super) fn stored_run(
    state: &MemoryState,
    core: &MemoryCore,
    page: Vpn,
    ahead: usize,
) -> Range<Vpn> {
    let is_one = is_out;
    let group = core.group(state);
    if let Some(order) = state.options.folios.page_cluster {
        let pages = order.pages().clamp(group, STAGE);
        let first = page - page % pages;
        let run = alike(state, core, page, pages, is_one);
        return run.start.max(first)..run.end.min(first + pages);
    }
    if group == 1 {
        return page..alike(state, core, page, ahead, is_one).end;
    }
    let first = page & !(group - 1);
    let run = alike(state, core, page, ahead.max(group), is_one);
    run.start.max(first)..run.end.min((page + ahead).next_multiple_of(group))
}

/// A fault on a page that is open by our words: absent, where absence faults; or somebody
/// else was faster.
pub(super) fn was_open(state: &MemoryState, core: &mut MemoryCore, page: Vpn) -> Brought {
    let address = page << SHIFT;
    match core.ranges.at(address) {
        Some((range, kind)) if kind.managed => {
            if core.way.kind == Kind::InThread && kind.registered {
                let run = alike(state, core, page, FRESH, |word| !word.is_closed());
                let end = (run.end << SHIFT).min(range.end);
                core.figures.filled += ((end - address) >> SHIFT) as u64;
                if let Err(errno) = core.way.open_untouched(&(address..end)) {
                    core.fail(format_args!(
                        "a page of zeros could not be put at {address:#x} (errno {})",
                        errno.0
                    ));
                }
                return Brought::Open(FaultKind::Hole);
            }
            Brought::WasOpen
        }
        _ => Brought::NotOurs,
    }
}

/// How many pages to open at once where nobody has been: many where they are touched in a row,
/// few where they are not; what nobody touches then is memory for nothing.
pub(super) fn fresh(core: &MemoryCore, record: Option<&Record>, page: Vpn) -> usize {
    let least = match core.way.kind {
        Kind::InThread => 1,
        Kind::Guard | Kind::Protect => 4,
    };
    let Some(record) = record else { return least };
    let len = if record.faults.row[0].load(Ordering::Relaxed) == page {
        (record.faults.row[1].load(Ordering::Relaxed) * 4).clamp(least, FRESH)
    } else {
        least
    };
    record.faults.row[1].store(len, Ordering::Relaxed);
    len
}

/// The pages around `page`, `most` to each side at most, of the same range and with a word
/// that is alike.
pub(super) fn alike(
    state: &MemoryState,
    core: &MemoryCore,
    page: Vpn,
    most: usize,
    is_one: impl Fn(Word) -> bool,
) -> Range<Vpn> {
    let range = core
        .ranges
        .at(page << SHIFT)
        .map_or(page..page + 1, |(range, _)| {
            range.start >> SHIFT..range.end >> SHIFT
        });
    let mut start = page;
    while start > range.start && page - start < most && is_one(state.words.get(start - 1)) {
        start -= 1;
    }
    let mut end = page + 1;
    while end < range.end && end - page < most && is_one(state.words.get(end)) {
        end += 1;
    }
    start..end
}

pub(super) fn set_open(state: &MemoryState, core: &MemoryCore, pages: Range<Vpn>, heat: u8) {
    for page in pages {
        set(state, core, page, Word::Open { heat });
    }
}

/// Sets a word, where there is a leaf for it or the process ends. A clean page that is to be
/// something else loses what the pool has of it, unless that is what it is to be. (Its protection
/// is the caller's: [`clean`](super::clean).)
pub(crate) fn set(state: &MemoryState, core: &MemoryCore, page: Vpn, word: Word) {
    if let Word::Clean(slot) = state.words.get(page)
        && word.slot() != Some(slot)
    {
        drop_slots(core, &[slot]);
    }
    if !state.words.set(page, word) {
        core.fail(format_args!("there is no room for another page's word"));
    }
}

/// Opens pages where nobody has been.
fn open_fresh(state: &MemoryState, core: &mut MemoryCore, run: &Range<Vpn>) {
    let addresses = run.start << SHIFT..run.end << SHIFT;
    core.figures.filled += run.len() as u64;
    if core.way.open_untouched(&addresses).is_ok() {
        set_open(state, core, run.clone(), 0);
        return;
    }
    core.mend_after_refusal(state);
    // (Mended pages are closed otherwise by now: the next fault finds them so.)
    let is_untouched = |word| word == Word::Untouched;
    if !run.clone().all(|page| is_untouched(state.words.get(page)))
        || core.open_untouched(state, run.clone())
    {
        return;
    }
    if core.way.kind != Kind::Guard {
        open_wide(state, core, run.start);
        return;
    }
    let wide = alike(state, core, run.start, WIDE, is_untouched);
    if !core.open_untouched(state, wide) {
        fail_to_open(core, addresses.start, Errno::NOMEM);
    }
}

fn fail_to_open(core: &MemoryCore, address: usize, errno: Errno) -> ! {
    core.fail(format_args!(
        "the memory at {address:#x} could not be opened (errno {}): the limit of mappings (vm.max_map_count) is reached",
        errno.0
    ))
}

/// Loads and opens what is out of `rest`, for which there is room: the rest of a window.
fn load_rest(state: &MemoryState, core: &mut MemoryCore, mut rest: RestOfWindow, access: Access) {
    while let Some(page) = core.next_piece(state, &mut rest) {
        let run = stored_run(state, core, page, rest.side_by_side());
        let run = core.at_once(state, run, page);
        core.note_came(&run, None);
        load(state, core, &run, None, access);
        rest.came(&run);
    }
}

/// Loads and opens `run`, in which `wanted` faulted.
fn load(
    state: &MemoryState,
    core: &mut MemoryCore,
    run: &Range<Vpn>,
    wanted: Option<Vpn>,
    access: Access,
) {
    let ahead = run.len() as u64 - u64::from(wanted.is_some());
    let before = core.loaded_from_behind();
    let slots = fill_incoming(state, core, run);
    let addresses = run.start << SHIFT..run.end << SHIFT;
    if core.comes_clean(run, &slots[..run.len()], access) && core.way.fill_clean(&addresses).is_ok()
    {
        core.figures.pages_in += run.len() as u64;
        core.figures.ahead += ahead;
        core.count_loaded(run.len(), before);
        core.note_clean(state, run, &slots);
        return;
    }
    let several = state.is_several();
    let protection = core.ranges.protection(addresses.start);
    let mut filled = core.way.fill(&addresses, several, protection);
    if filled.is_err() && core.way.kind == Kind::Protect {
        core.mend_after_refusal(state);
        // (Of what comes nothing was open, so it is as it was.)
        fill_incoming(state, core, run);
        filled = core.way.fill(&addresses, several, protection);
    }
    match filled {
        Ok(()) => {
            for page in run.clone() {
                let heat = u8::from(Some(page) == wanted);
                set(state, core, page, Word::Open { heat });
            }
            core.figures.pages_in += run.len() as u64;
            core.figures.ahead += ahead;
            core.count_loaded(run.len(), before);
            drop_slots(core, &slots[..run.len()]);
        }
        Err(_) if core.way.kind == Kind::Protect => {
            // (Else they are as they were, and nobody waits for them.)
            if let Some(wanted) = wanted {
                open_wide(state, core, wanted);
            }
        }
        Err(errno) => core.fail(format_args!(
            "a page could not be brought back to {:#x} (errno {})",
            addresses.start, errno.0
        )),
    }
}

fn drop_slots(core: &MemoryCore, slots: &[Slot]) {
    if let Some(pool) = &core.pool {
        pool.zswap.invalidate(slots);
    }
}

/// Makes the bytes of closed pages in the place that pages are filled from; returns their
/// slots, zero pages' as well.
pub(crate) fn fill_incoming(
    state: &MemoryState,
    core: &mut MemoryCore,
    run: &Range<Vpn>,
) -> [Slot; STAGE] {
    let mut slots = [Slot::ZERO; STAGE];
    for (index, page) in run.clone().enumerate() {
        if let Word::Stored(slot) = state.words.get(page) {
            slots[index] = slot;
        }
    }
    if core.fill_from_behind(run.start, &slots[..run.len()]) {
        return slots;
    }
    for (index, page) in run.clone().enumerate() {
        let into = core.way.incoming_page(index);
        if slots[index] == Slot::ZERO {
            into.fill(0);
            continue;
        }
        let loaded = core
            .pool
            .as_mut()
            .map(|pool| pool.zswap.load_into(&mut pool.context, slots[index], into));
        match loaded {
            Some(Ok(())) => {}
            Some(Err(error)) => core.fail_to_load(page, error),
            None => core.fail(format_args!("there is no pool to bring a page back from")),
        }
    }
    slots
}

/// Opens the whole closed run around `page`, so that no mapping is cut in two: where the kernel
/// has none left.
fn open_wide(state: &MemoryState, core: &mut MemoryCore, page: Vpn) {
    let run = alike(state, core, page, WIDE, Word::is_closed);
    let mut at = run.start;
    while at < run.end {
        let part = at..(at + STAGE).min(run.end);
        if state.words.get(at) == Word::Untouched || state.words.get(at) == Word::Standby {
            at += 1;
            continue;
        }
        let end = part
            .clone()
            .find(|page| !matches!(state.words.get(*page), Word::Zero | Word::Stored(_)))
            .unwrap_or(part.end);
        let part = at..end;
        let slots = fill_incoming(state, core, &part);
        if let Err(errno) = core
            .way
            .write_through(&(part.start << SHIFT..part.end << SHIFT))
        {
            core.fail(format_args!(
                "a page could not be brought back to {:#x} (errno {})",
                at << SHIFT,
                errno.0
            ));
        }
        for page in part.clone() {
            set(state, core, page, Word::Standby);
        }
        drop_slots(core, &slots[..part.len()]);
        core.figures.pages_in += part.len() as u64;
        at = part.end;
    }
    let addresses = run.start << SHIFT..run.end << SHIFT;
    let protection = core.ranges.protection(addresses.start);
    if let Err(errno) = core.way.open_filled(&addresses, protection) {
        fail_to_open(core, addresses.start, errno);
    }
    set_open(state, core, run, 0);
}

/// Opens every closed page of `range` and ends every protection of ours, so that it can be left to
/// the kernel. Where faults end with a registration what holds nothing is left as it is: absent.
pub(crate) fn bring_all(state: &MemoryState, core: &mut MemoryCore, range: &Range<usize>) {
    bring_each(state, core, range, |word| word != Word::Untouched);
    if core.way.kind != Kind::InThread {
        core.open_all_untouched(state, range);
        // (What the kernel would not open: it has no mapping left.)
        bring_each(state, core, range, |_| true);
    }
}

/// Opens every page of `range` that is not ready and whose word is `wanted`.
pub(crate) fn bring_each(
    state: &MemoryState,
    core: &mut MemoryCore,
    range: &Range<usize>,
    wanted: impl Fn(Word) -> bool,
) {
    let end = range.end.div_ceil(PAGE);
    let mut page = range.start >> SHIFT;
    core.closing.held = range.clone();
    // (What may not be closed for that long raises the limit no longer than that.)
    let overdraft = core.closing.overdraft;
    let is_one = |word: Word| !word.is_ready() && wanted(word);
    while let Some(closed) = state.words.next(page, end, is_one) {
        page = closed;
        // (Each call opens one at least, and none of them is closed meanwhile.)
        bring(state, core, None, closed << SHIFT, Access::Write);
    }
    core.closing.held = 0..0;
    core.closing.overdraft = core.closing.overdraft.min(overdraft);
}

/// Forgets what the pool has of `range`; its words are the caller's to set.
pub(crate) fn drop_stored(state: &MemoryState, core: &MemoryCore, range: &Range<usize>) {
    let end = range.end >> SHIFT;
    let mut page = range.start >> SHIFT;
    let mut slots = [Slot::ZERO; STAGE];
    let mut count = 0;
    while let Some(found) = state.words.next(page, end, |word| word.slot().is_some()) {
        if let Some(slot) = state.words.get(found).slot() {
            slots[count] = slot;
            count += 1;
        }
        if count == slots.len() {
            drop_slots(core, &slots);
            count = 0;
        }
        page = found + 1;
    }
    drop_slots(core, &slots[..count]);
}
