//! Writes that are begun and settled later, so that nobody waits for a store.
//!
//! An entry of a go that is under way keeps its object, which is pinned; it can be loaded and
//! freed as any other. Who writes back, or waits for room, settles what has been answered.

use super::Shrunk;
use crate::arena::Arena;
use crate::pool::context::WorkContext;
use crate::pool::state::{Begun, Door, List, Posted};
use crate::pool::zswap::Zswap;
use core::mem::take;
use zfolio_sys::syscall::Errno;

impl<A: Arena> Zswap<A> {
    /// Whether nobody waits for what is written back.
    pub fn writes_ahead(&self) -> bool {
        self.door().is_some_and(|door| door.backing.writes_ahead())
    }

    /// Goes whose writes are under way.
    pub fn writes_under_way(&self) -> usize {
        let pool = self.pool.lock();
        pool.behind.as_ref().map_or(0, |behind| behind.begun.len())
    }

    /// Settles writes that have been answered.
    pub fn settle_writes(&self) -> Shrunk {
        self.settle_begun(None)
    }

    /// Settles all writes under way, as failed where they were not answered: before a fork, whose
    /// child has none of them.
    pub fn give_up_writes(&self) {
        self.settle_begun(Some(Errno::INTR));
    }

    /// Whether another go can be begun now.
    pub(super) fn is_ready(&self) -> bool {
        let Some(door) = self.door() else { return true };
        let is_near = || {
            let pool = self.pool.lock();
            let behind = pool.behind.as_ref();
            behind.is_some_and(|behind| behind.logs.is_near_next())
        };
        door.backing.is_ready() || is_near()
    }

    /// Begins the writes of what was chosen.
    pub(super) fn begin(
        &self,
        context: &mut WorkContext,
        door: &Door,
        mut list: List,
        shrunk: &mut Shrunk,
    ) {
        let mut runs = [const { None }; 2];
        let mut failed = None;
        self.seal_runs(context, door, &mut list, |start, bytes, entries| {
            let place = runs.iter_mut().find(|run| run.is_none());
            let begun = match place.is_some() {
                true => door.backing.begin(start.offset(), bytes),
                false => Err(Errno::BUSY),
            };
            match (begun, place) {
                (Ok(write), Some(place)) => {
                    *place = Some(Posted {
                        start,
                        entries,
                        write,
                    });
                    true
                }
                (begun, _) => {
                    self.note_failed(shrunk, begun.err().unwrap_or(Errno::BUSY), start);
                    failed = Some(start);
                    false
                }
            }
        });
        let begun = Begun { list, runs, failed };
        let mut runs = begun.runs.iter().flatten();
        let Some(start) = runs.next().map(|run| run.start) else {
            self.settle_written(&begun.list, failed);
            return;
        };
        let mut pool = self.pool.lock();
        let Some(behind) = &mut pool.behind else {
            return;
        };
        behind.begun.push(begun);
        let is_near = !behind.logs.is_far(start);
        drop(pool);
        if is_near {
            // (It has ended already.)
            let settled = self.settle_begun(None);
            shrunk.written += settled.written;
            shrunk.errno = shrunk.errno.or(settled.errno);
        }
    }

    /// Settles writes that have been answered; with `give_up` all of them.
    pub(super) fn settle_begun(&self, give_up: Option<Errno>) -> Shrunk {
        let mut shrunk = Shrunk::default();
        let Some(door) = self.door() else {
            return shrunk;
        };
        let taken = |zswap: &Self| {
            let mut pool = zswap.pool.lock();
            let behind = pool.behind.as_mut();
            behind
                .map(|behind| take(&mut behind.begun))
                .unwrap_or_default()
        };
        let mut all = taken(self);
        if all.is_empty() {
            return shrunk;
        }
        all.retain_mut(|begun| {
            let Begun { list, runs, failed } = begun;
            for place in runs.iter_mut() {
                let Some(run) = place else { continue };
                let Some(result) = door.backing.poll(run.write, give_up) else {
                    continue;
                };
                if let Err(errno) = result {
                    // (What was given up is no failure of the backing's.)
                    if give_up.is_none() {
                        self.note_failed(&mut shrunk, errno, run.start);
                    }
                    *failed = Some(run.start);
                    for going in list[run.entries.clone()].iter_mut().flatten() {
                        going.written = false;
                    }
                }
                *place = None;
            }
            if runs.iter().flatten().next().is_some() {
                return true;
            }
            shrunk.written += self.settle_written(list, *failed);
            false
        });
        if let Some(behind) = &mut self.pool.lock().behind {
            behind.begun.append(&mut all);
        }
        shrunk
    }
}
