//! A backing beyond this machine: values in a store, reached through the pager.
//!
//! A write becomes one value of up to 64 KiB, or two or three, each under a number that is
//! never used again; a read asks for the part of it that is wanted. So a value is written once
//! and never changed, and a put whose answer never came has done no harm. Which value has which
//! bytes of the backing is in this process's memory alone ([`Values`]), as the nonces are: an
//! older value, another's or a changed one does not open (`encryption`).
//!
//! Nothing of the program leaves this process unsealed: what goes into the exchange was
//! sealed before ([`crate::writeback`]).
//!
//! # Waiting
//! A write is given up after [`WRITE_NS`]: the page is still in the pool. A read goes on until
//! its deadline, whatever becomes of the pager meanwhile: the page is nowhere else. Nobody who
//! waits here holds a lock of the manager's.

use crate::backing::clusters::GRANULE;
use crate::backing::kinds::{Backing, CLUSTER};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_sys::exchange::{BUCKETS, CELLS, Exchange, VALUE, op, put_bytes, state, take_bytes};
use zfolio_sys::lock::{Mutex, futex_wait, pause};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};

/// Time for a write, ns: more than the pager takes to give it up itself.
const WRITE_NS: u64 = 3_500_000_000;
/// Between two looks whether there is still a pager, ns.
const LOOK_NS: u64 = 100_000_000;
/// Values that are dropped together, at most and usually.
const DROPPED: usize = VALUE / 16;
const DROPPED_USUALLY: usize = 32;

/// A read that takes longer than this is one that the watchdog is to know of, ns.
const LONG_NS: u64 = 500_000_000;

/// Reads of this process that have taken longer than that and go on.
static LONG_READS: AtomicU32 = AtomicU32::new(0);

/// Whether a store is being waited for at length, which is no hang: a read has a deadline of
/// its own, or none because that was asked for.
#[must_use]
pub fn store_is_waited_for() -> bool {
    LONG_READS.load(Ordering::Relaxed) > 0
}

/// In the child of a fork, where nobody reads yet.
pub(crate) fn forget_reads() {
    LONG_READS.store(0, Ordering::Relaxed);
}

/// Counted in [`LONG_READS`] from the moment it has taken long.
struct Waiting {
    since: u64,
    is_long: bool,
}

impl Waiting {
    fn look(&mut self) {
        if !self.is_long && now_ns(Clock::Monotonic).saturating_sub(self.since) > LONG_NS {
            self.is_long = true;
            LONG_READS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_long {
            LONG_READS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A value: where in its cluster it begins, and what it is called.
#[derive(Clone, Copy, Debug)]
struct Value {
    /// Bytes from the beginning of the cluster, in granules.
    start: u16,
    /// Granules.
    len: u16,
    /// Where its copies are; the pager's word, which it is handed back.
    salts: u32,
    id: u64,
}

impl Value {
    /// Its bytes within the cluster.
    fn range(&self) -> core::ops::Range<usize> {
        let start = usize::from(self.start) * GRANULE;
        start..start + usize::from(self.len) * GRANULE
    }
}

/// Which values have which bytes, by cluster; each cluster's in order.
type Values = BTreeMap<u64, Vec<Value>>;

/// A store behind the pager.
pub struct NetworkBacking {
    exchange: Exchange,
    capacity: u64,
    /// How long a read may take, ns; `None`: for ever.
    deadline_ns: Option<u64>,
    values: Mutex<Values>,
    /// What is to be dropped: number and salts.
    dropped: Mutex<Vec<(u64, u32)>>,
    next: AtomicU64,
}

/// A cell of ours, with a request in it.
struct Asked {
    cell: usize,
}

impl NetworkBacking {
    /// One of `capacity` bytes behind the pager of `exchange`.
    #[must_use]
    pub fn new(exchange: Exchange, capacity: u64, deadline_ns: Option<u64>) -> Self {
        Self {
            exchange,
            capacity,
            deadline_ns,
            values: Mutex::default(),
            dropped: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// A free cell, waited for until `until`.
    fn claim(&self, until: Option<u64>, mut wait: impl FnMut()) -> Option<usize> {
        let cells = &self.exchange.ring().cells;
        loop {
            let claimed = cells.iter().position(|cell| {
                let (from, to) = (state::FREE, state::CLAIMED);
                let ordering = (Ordering::Acquire, Ordering::Relaxed);
                let changed = cell
                    .state
                    .compare_exchange(from, to, ordering.0, ordering.1);
                changed.is_ok()
            });
            if claimed.is_some() || until.is_some_and(|until| now_ns(Clock::Monotonic) >= until) {
                return claimed;
            }
            wait();
            pause(100_000);
        }
    }

    fn post(&self, cell: usize) {
        let word = &self.exchange.ring().cells[cell].state;
        word.store(state::POSTED, Ordering::Release);
        self.exchange.ring_the_bell(cell);
    }

    /// Asks for something of a value, in a cell that was claimed.
    fn ask(&self, cell: usize, what: u32, value: &Value, from: usize, len: usize) -> Asked {
        let of = &self.exchange.ring().cells[cell];
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        of.op.store(what, Ordering::Relaxed);
        of.id.store(value.id, Ordering::Relaxed);
        of.salts.store(value.salts, Ordering::Relaxed);
        of.from.store(word(from), Ordering::Relaxed);
        of.len.store(word(len), Ordering::Relaxed);
        self.post(cell);
        Asked { cell }
    }

    /// Waits for the answer: the salts. Given up at `until` with `TIMEDOUT`, and by a write with
    /// `PIPE` where there is no pager; a read waits for the next one.
    fn answer(
        &self,
        asked: &Asked,
        until: Option<u64>,
        mut read: Option<&mut Waiting>,
    ) -> Result<u32, Errno> {
        let of = &self.exchange.ring().cells[asked.cell];
        loop {
            let now = of.state.load(Ordering::Acquire);
            if now == state::DONE {
                break;
            }
            futex_wait(&of.state, now, Some(LOOK_NS));
            if of.state.load(Ordering::Acquire) == state::DONE {
                break;
            }
            if let Some(read) = &mut read {
                read.look();
            }
            let late = until.is_some_and(|until| now_ns(Clock::Monotonic) >= until);
            let errno = match late {
                true => Errno::TIMEDOUT,
                false if read.is_none() && !self.exchange.has_pager() => Errno::PIPE,
                false => continue,
            };
            if self.abandon(asked) {
                return Err(errno);
            }
        }
        match of.errno.load(Ordering::Relaxed) {
            0 => Ok(of.salts.load(Ordering::Relaxed)),
            errno => Err(Errno(i32::try_from(errno).unwrap_or(Errno::IO.0))),
        }
    }

    /// Gives a request up; false if it was answered this moment.
    fn abandon(&self, asked: &Asked) -> bool {
        let word = &self.exchange.ring().cells[asked.cell].state;
        let change = |from, to| {
            word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        change(state::POSTED, state::FREE)
            || change(state::TAKEN, state::ABANDONED)
            || word.load(Ordering::Acquire) != state::DONE
    }

    fn free(&self, asked: &Asked) {
        let word = &self.exchange.ring().cells[asked.cell].state;
        // (One that was given up is the pager's.)
        let _ = word.compare_exchange(
            state::DONE,
            state::FREE,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// Hands over what is to be dropped, if it is much or `all` of it is to go, and a cell is
    /// free now.
    fn drop_values(&self, all: bool) {
        let mut dropped = self.dropped.lock();
        if dropped.is_empty() || !all && dropped.len() < DROPPED_USUALLY {
            return;
        }
        let Some(cell) = self.claim(Some(0), || {}) else {
            return;
        };
        let count = dropped.len().min(DROPPED);
        let rest = dropped.len() - count;
        let data = &self.exchange.ring().data[cell];
        for (index, (id, salts)) in dropped.drain(rest..).enumerate() {
            data[2 * index].store(id, Ordering::Relaxed);
            data[2 * index + 1].store(u64::from(salts), Ordering::Relaxed);
        }
        drop(dropped);
        let nothing = Value {
            start: 0,
            len: 0,
            salts: 0,
            id: 0,
        };
        self.ask(cell, op::DELETE, &nothing, 0, count * 16);
    }

    fn note_wait(&self, since: u64) {
        let us = now_ns(Clock::Monotonic).saturating_sub(since) / 1000;
        let bucket = (64 - us.leading_zeros()) as usize;
        let head = self.exchange.head();
        head.waits[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        head.counts.waits_sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The parts of values that make up `range` of a cluster: the value, its first byte that
    /// is wanted, how many, and where they go.
    fn parts(
        &self,
        cluster: u64,
        range: core::ops::Range<usize>,
        each: &mut [Option<(Value, usize, usize, usize)>],
    ) -> Result<usize, Errno> {
        let values = self.values.lock();
        let all = values.get(&cluster).map_or(&[][..], |all| &all[..]);
        let first = all.partition_point(|value| value.range().end <= range.start);
        let mut count = 0;
        let mut at = range.start;
        for value in &all[first..] {
            let of = value.range();
            if of.start >= range.end {
                break;
            }
            if of.start > at {
                return Err(Errno::NOENT);
            }
            let end = of.end.min(range.end);
            let slot = each.get_mut(count).ok_or(Errno::INVAL)?;
            *slot = Some((*value, at - of.start, end - at, at - range.start));
            count += 1;
            at = end;
        }
        if at < range.end {
            return Err(Errno::NOENT);
        }
        Ok(count)
    }
}

/// Where in which cluster.
fn place(offset: u64) -> (u64, usize) {
    let cluster = offset / CLUSTER as u64;
    let inside = offset % CLUSTER as u64;
    (cluster, usize::try_from(inside).unwrap_or(0))
}

impl Backing for NetworkBacking {
    fn name(&self) -> &'static str {
        "network"
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.drop_values(true);
        let until = Some(now_ns(Clock::Monotonic) + WRITE_NS);
        let (cluster, inside) = place(offset);
        let mut asked: [Option<(Asked, Value)>; CELLS] = [const { None }; CELLS];
        let mut result = Ok(());
        for (index, part) in bytes.chunks(VALUE).enumerate() {
            let granule = |bytes: usize| u16::try_from(bytes / GRANULE).map_err(|_| Errno::INVAL);
            let value = Value {
                start: granule(inside + index * VALUE)?,
                len: granule(part.len())?,
                salts: 0,
                id: self.next.fetch_add(1, Ordering::Relaxed),
            };
            let (Some(slot), Some(cell)) = (asked.get_mut(index), self.claim(until, || {})) else {
                result = Err(Errno::BUSY);
                break;
            };
            put_bytes(&self.exchange.ring().data[cell], part);
            *slot = Some((self.ask(cell, op::PUT, &value, 0, part.len()), value));
        }
        let mut kept = Vec::new();
        for (asked, value) in asked.iter().flatten() {
            match self.answer(asked, until, None) {
                Ok(salts) => kept.push(Value { salts, ..*value }),
                Err(errno) => result = result.and(Err(errno)),
            }
            self.free(asked);
        }
        if result.is_ok() {
            let mut values = self.values.lock();
            let all = values.entry(cluster).or_default();
            all.extend(kept);
            all.sort_unstable_by_key(|value| value.start);
        } else {
            let mut dropped = self.dropped.lock();
            dropped.extend(kept.iter().map(|value| (value.id, value.salts)));
        }
        result
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        let since = now_ns(Clock::Monotonic);
        let until = self.deadline_ns.map(|ns| since.saturating_add(ns));
        let mut waiting = Waiting {
            since,
            is_long: false,
        };
        let (cluster, inside) = place(offset);
        let mut parts = [None; 2 + CLUSTER / (8 << 10)];
        let count = self.parts(cluster, inside..inside + into.len(), &mut parts)?;
        let mut result = Ok(());
        let mut rest = &parts[..count];
        while let Some(Some((first, from, len, _))) = rest.first() {
            let Some(cell) = self.claim(until, || waiting.look()) else {
                result = Err(Errno::TIMEDOUT);
                break;
            };
            let mut asked: [Option<Asked>; CELLS / 2] = [const { None }; CELLS / 2];
            asked[0] = Some(self.ask(cell, op::GET, first, *from, *len));
            // As many more as there are cells for now: who waits for a cell holds none.
            for (part, asked) in rest.iter().flatten().zip(&mut asked).skip(1) {
                let (value, from, len, _) = part;
                let Some(cell) = self.claim(Some(0), || {}) else {
                    break;
                };
                *asked = Some(self.ask(cell, op::GET, value, *from, *len));
            }
            let posted = asked.iter().flatten().count();
            let (these, others) = rest.split_at(posted);
            rest = others;
            for ((_, _, len, to), asked) in these.iter().flatten().zip(asked.iter().flatten()) {
                match self.answer(asked, until, Some(&mut waiting)) {
                    Ok(_) => {
                        let data = &self.exchange.ring().data[asked.cell];
                        take_bytes(data, &mut into[*to..to + len]);
                    }
                    Err(errno) => result = result.and(Err(errno)),
                }
                self.free(asked);
            }
        }
        self.note_wait(since);
        result
    }

    fn discard(&self, offset: u64, _len: u64) {
        let (cluster, _) = place(offset);
        if let Some(gone) = self.values.lock().remove(&cluster) {
            let gone = gone.iter().map(|value| (value.id, value.salts));
            self.dropped.lock().extend(gone);
        }
        self.drop_values(false);
    }
}

impl fmt::Debug for NetworkBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkBacking")
            .field("clusters", &self.values.lock().len())
            .finish_non_exhaustive()
    }
}
