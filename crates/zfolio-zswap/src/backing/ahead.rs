//! Parts of values that are asked for before they are wanted: where a reader goes in order, and
//! where several are wanted at once.
//!
//! Each is a request in a cell as any other, which nobody waits for yet. Who wants the bytes finds
//! it here, waits if need be, and copies them out of the cell, which is free when all of it has been
//! taken, or when it is needed for something else. A value never changes and its number is not used
//! again, so that nothing here can be old; and what is copied is opened as what is read is.

use crate::backing::cells::{Asked, Cells, Request, now};
use zfolio_sys::exchange::take_bytes;
use zfolio_sys::lock::Mutex;
use zfolio_sys::syscall::Errno;

/// Requests at most.
const AHEAD: usize = 6;
/// As long as that one is kept for its reader, whoever else asks ahead, ns.
const KEPT_NS: u64 = 20_000_000;

/// A request.
#[derive(Clone, Copy, Debug)]
struct Early {
    id: u64,
    from: usize,
    len: usize,
    asked: Asked,
    since: u64,
    /// Who waits for it or copies from it: its cell is not given away meanwhile.
    users: u32,
    /// Bytes that have been copied.
    taken: usize,
}

impl Early {
    /// Where in it a part of a value begins, if all of that is there.
    fn start_of(&self, id: u64, from: usize, len: usize) -> Option<usize> {
        let start = from.checked_sub(self.from).filter(|_| self.id == id)?;
        (start + len <= self.len && start.is_multiple_of(8)).then_some(start)
    }
}

type All = [Option<Early>; AHEAD];

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    all: Mutex<All>,
}

impl Ahead {
    /// Asks for a part of a value, unless that was done, or there is no room for it now. The pager
    /// is still to be told; whether it is.
    pub(crate) fn ask(&self, cells: &Cells, request: &Request) -> bool {
        let mut all = self.all.lock();
        let is_there = find(&all, request.id, request.from, request.len).is_some();
        if is_there || all.iter().all(Option::is_some) && !give_way(&mut all, cells, KEPT_NS) {
            return false;
        }
        let Some(place) = all.iter_mut().find(|of| of.is_none()) else {
            return false;
        };
        let Some(cell) = cells.claim_ahead() else {
            return false;
        };
        *place = Some(Early {
            id: request.id,
            from: request.from,
            len: request.len,
            asked: cells.post(cell, request),
            since: now(),
            users: 0,
            taken: 0,
        });
        true
    }

    /// Whether a part of a value has been asked for.
    pub(crate) fn has(&self, id: u64, from: usize, len: usize) -> bool {
        find(&self.all.lock(), id, from, len).is_some()
    }

    /// Copies a part of a value that has been asked for, once it is there, or until `goes_on` has
    /// an error. `None`: it has not been, or in vain, and is to be asked for by who wants it.
    pub(crate) fn take(
        &self,
        cells: &Cells,
        (id, from): (u64, usize),
        into: &mut [u8],
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Option<Result<(), Errno>> {
        let mut all = self.all.lock();
        let (index, start) = find(&all, id, from, into.len())?;
        let early = all[index].as_mut()?;
        early.users += 1;
        let asked = early.asked;
        drop(all);
        let answer = cells.wait(&asked, goes_on);
        if answer == Ok(None) {
            take_bytes(&cells.data_of(&asked)[start / 8..], into);
        }
        let mut all = self.all.lock();
        let early = all[index].as_mut()?;
        early.users -= 1;
        early.taken += match answer {
            Ok(None) => into.len(),
            // (Nothing more will come of it.)
            Ok(Some(_)) => early.len,
            Err(_) => 0,
        };
        if early.users == 0 && early.taken >= early.len {
            cells.abandon(&asked);
            all[index] = None;
        }
        match answer {
            Ok(None) => Some(Ok(())),
            Ok(Some(_)) => None,
            Err(errno) => Some(Err(errno)),
        }
    }

    /// Gives a cell up that nobody is at, for who needs one.
    pub(crate) fn give_way(&self, cells: &Cells) {
        give_way(&mut self.all.lock(), cells, 0);
    }
}

fn find(all: &All, id: u64, from: usize, len: usize) -> Option<(usize, usize)> {
    let starts = all.iter().enumerate();
    let mut starts = starts.filter_map(|(index, of)| Some((index, of.as_ref()?)));
    starts.find_map(|(index, of)| Some((index, of.start_of(id, from, len)?)))
}

/// Gives the oldest up that nobody is at, if it is as old as that.
fn give_way(all: &mut All, cells: &Cells, age_ns: u64) -> bool {
    let unused = |of: &&mut Option<Early>| of.is_some_and(|early| early.users == 0);
    let oldest = all.iter_mut().filter(unused);
    let oldest = oldest.min_by_key(|of| of.map(|early| early.since));
    let Some(place) = oldest else { return false };
    let Some(early) = place.filter(|early| now().saturating_sub(early.since) >= age_ns) else {
        return false;
    };
    cells.abandon(&early.asked);
    *place = None;
    true
}
