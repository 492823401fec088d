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
//! A write is given up after [`WRITE_NS`]: the page is still in the pool. One that is begun and
//! asked after ([`Backing::begin`]) is not waited for at all. A read goes on until
//! its deadline, whatever becomes of the pager meanwhile: the page is nowhere else. Nobody who
//! waits here holds a lock of the manager's, and a read takes no memory from the heap.

use crate::backing::ahead::Ahead;
use crate::backing::cells::{Asked, Cells, Request, Use, now};
use crate::backing::clusters::{GRANULE, IO};
use crate::backing::kinds::{Backing, CLUSTER};
use crate::backing::values::{Part, Piece, Value, Values};
use crate::backing::waits::Waiting;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use zfolio_sys::exchange::{BUCKETS, CELLS, Exchange, VALUE, op, put_bytes, take_bytes};
use zfolio_sys::lock::{Mutex, pause};
use zfolio_sys::syscall::Errno;

/// Time for a write, ns: more than the pager takes to give it up itself.
const WRITE_NS: u64 = 3_500_000_000;
/// Values of a write, at most.
const PUTS: usize = IO.div_ceil(VALUE);
/// Writes under way, at most.
const WRITES: usize = 4;
/// Cells that the writes of a go may need: it may come to lie in two clusters.
const NEEDED: usize = PUTS + 1;
/// Requests of a read at once.
const GETS: usize = CELLS / 2;
/// Values that are dropped together, at most and usually.
const DROPPED: usize = VALUE / 16;
const DROPPED_USUALLY: usize = 32;

/// A store behind the pager.
pub struct NetworkBacking {
    cells: Cells,
    capacity: u64,
    /// How long a read may take, ns; `None`: for ever.
    deadline_ns: Option<u64>,
    /// Nobody waits for a write.
    ahead: bool,
    values: Mutex<Values>,
    /// What is to be dropped: number and salts.
    dropped: Mutex<Vec<(u64, u32)>>,
    next: AtomicU64,
    under_way: Mutex<[Option<Write>; WRITES]>,
    early: Ahead,
}

/// A write under way.
struct Write {
    cluster: u64,
    /// When it is given up.
    until: u64,
    puts: [Option<Put>; PUTS],
}

/// A value of it: the request, and what came of it.
struct Put {
    asked: Asked,
    value: Value,
    result: Option<Result<u32, Errno>>,
}

impl NetworkBacking {
    /// One of `capacity` bytes behind the pager of `exchange`.
    #[must_use]
    pub fn new(exchange: Exchange, capacity: u64, deadline_ns: Option<u64>) -> Self {
        Self {
            cells: Cells::of(exchange),
            capacity,
            deadline_ns,
            ahead: false,
            values: Mutex::default(),
            dropped: Mutex::default(),
            next: AtomicU64::new(1),
            under_way: Mutex::default(),
            early: Ahead::default(),
        }
    }

    /// The same, but that nobody waits for a write.
    #[must_use]
    pub fn ahead(self) -> Self {
        Self {
            ahead: true,
            ..self
        }
    }

    /// How long a read may take, ns; `None`: for ever.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Hands over what is to be dropped, if it is much or `all` of it is to go, and a cell is
    /// free now.
    fn drop_values(&self, all: bool) {
        let mut dropped = self.dropped.lock();
        if dropped.is_empty() || !all && dropped.len() < DROPPED_USUALLY {
            return;
        }
        let Some(cell) = self.cells.claim_now(Use::Write) else {
            return;
        };
        let count = dropped.len().min(DROPPED);
        let rest = dropped.len() - count;
        let data = self.cells.data(cell);
        for (index, (id, salts)) in dropped.drain(rest..).enumerate() {
            data[2 * index].store(id, Ordering::Relaxed);
            data[2 * index + 1].store(u64::from(salts), Ordering::Relaxed);
        }
        drop(dropped);
        let request = Request {
            op: op::DELETE,
            id: 0,
            salts: 0,
            from: 0,
            len: count * 16,
        };
        self.cells.post(cell, &request);
        self.cells.exchange.ring_the_bell();
    }

    /// Sleeps until there is news of a write, or a while.
    fn sleep(&self, write: usize) {
        let under_way = self.under_way.lock();
        let puts = under_way[write].iter().flat_map(|of| &of.puts).flatten();
        let mut asked = puts.filter(|put| put.result.is_none()).map(|put| put.asked);
        let first = asked.next();
        drop(asked);
        drop(under_way);
        if let Some(asked) = first {
            self.cells.sleep(&asked);
        }
    }

    fn note_wait(&self, since: u64) {
        let us = now().saturating_sub(since) / 1000;
        let bucket = (64 - us.leading_zeros()) as usize;
        let head = self.cells.exchange.head();
        head.waits[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        head.counts.waits_sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Reads what was written, having begun to wait at `since` (CLOCK_MONOTONIC, ns); `goes_on`
    /// is asked now and then, and the read given up for what it says.
    ///
    /// # Errors
    /// `TIMEDOUT` at the deadline, `NOENT` where the store does not have it any more, and what
    /// `goes_on` says. What is in `into` is anything then.
    pub fn read_while(
        &self,
        offset: u64,
        into: &mut [u8],
        since: u64,
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let until = self.deadline_ns.map(|ns| since.saturating_add(ns));
        let mut waiting = Waiting::new(since);
        let mut goes_on = || {
            waiting.look();
            if until.is_some_and(|until| now() >= until) {
                return Err(Errno::TIMEDOUT);
            }
            goes_on()
        };
        let (cluster, inside) = place(offset);
        let mut left = inside..inside + into.len();
        let mut result = Ok(());
        while result.is_ok() && !left.is_empty() {
            let piece = Piece::of(&self.values.lock(), cluster, left.clone())?;
            let into = &mut into[left.start - inside..];
            result = self.read_parts(piece.parts(), into, &mut goes_on);
            left = piece.rest;
        }
        if result != Err(Errno::INTR) {
            self.note_wait(since);
        }
        result
    }

    /// Reads parts of values, until `goes_on` has an error.
    fn read_parts(
        &self,
        parts: &[Option<Part>],
        into: &mut [u8],
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut result = Ok(());
        let mut rest = parts;
        while let Some(Some((first, from, len, to))) = rest.first() {
            if result.is_err() {
                break;
            }
            let part = (first.id, *from);
            let into_part = &mut into[*to..to + len];
            let taken = self.early.take(&self.cells, part, into_part, goes_on);
            if let Some(of) = taken {
                result = of;
                rest = &rest[1..];
                continue;
            }
            let cell = self.claim_for_read(goes_on)?;
            let mut asked: [Option<Asked>; GETS] = [const { None }; GETS];
            asked[0] = Some(self.cells.post(cell, &first.request(*from, *len)));
            // As many more as there are cells for now: who waits for a cell holds none.
            for (part, asked) in rest.iter().flatten().zip(&mut asked).skip(1) {
                let (value, from, len, _) = part;
                if self.early.has(value.id, *from, *len) {
                    break;
                }
                let Some(cell) = self.cells.claim_now(Use::Read) else {
                    break;
                };
                *asked = Some(self.cells.post(cell, &value.request(*from, *len)));
            }
            self.cells.exchange.ring_the_bell();
            let posted = asked.iter().flatten().count();
            let (these, others) = rest.split_at(posted);
            rest = others;
            for ((_, _, len, to), asked) in these.iter().flatten().zip(asked.iter().flatten()) {
                let answer = match result {
                    Ok(()) => self.cells.answer(asked, goes_on),
                    // (What has been waited for in vain is not waited for again.)
                    Err(errno) => self.cells.give_up(asked, errno),
                };
                match answer {
                    Ok(_) => {
                        take_bytes(self.cells.data_of(asked), &mut into[*to..to + len]);
                        self.cells.free(asked);
                    }
                    Err(errno) => result = result.and(Err(errno)),
                }
            }
        }
        result
    }

    fn claim_for_read(
        &self,
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        if let Some(cell) = self.cells.claim_now(Use::Read) {
            return Ok(cell);
        }
        self.early.give_way(&self.cells);
        self.cells.claim(Use::Read, goes_on)
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

    fn far_from(&self) -> u64 {
        0
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let until = now() + WRITE_NS;
        let write = loop {
            match self.begin(offset, bytes) {
                Err(Errno::BUSY) if now() < until => pause(100_000),
                begun => break begun?,
            }
        };
        loop {
            if let Some(result) = self.poll(write, None) {
                return result;
            }
            self.sleep(write);
            // (At once where there is no pager: it is tried again.)
            if !self.cells.exchange.has_pager() {
                let ended = self.poll(write, Some(Errno::PIPE));
                return ended.unwrap_or(Err(Errno::PIPE));
            }
        }
    }

    fn writes_ahead(&self) -> bool {
        self.ahead
    }

    fn is_ready(&self) -> bool {
        let under_way = self.under_way.lock();
        let places = under_way.iter().filter(|of| of.is_none()).count();
        places >= 2 && self.cells.has_free(NEEDED)
    }

    fn begin(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.drop_values(true);
        let (cluster, inside) = place(offset);
        let granule = |bytes: usize| u16::try_from(bytes / GRANULE).map_err(|_| Errno::INVAL);
        granule(inside + bytes.len())?;
        let count = bytes.len().div_ceil(VALUE);
        let mut under_way = self.under_way.lock();
        let free = under_way
            .iter_mut()
            .enumerate()
            .find(|(_, of)| of.is_none());
        let (number, write) = free.ok_or(Errno::BUSY)?;
        let mut claimed = [None; PUTS];
        for claimed in claimed.get_mut(..count).ok_or(Errno::INVAL)? {
            *claimed = self.cells.claim_now(Use::Write);
        }
        if claimed.iter().flatten().count() < count {
            let claimed = claimed.into_iter().flatten();
            claimed.for_each(|cell| self.cells.unclaim(cell));
            return Err(Errno::BUSY);
        }
        let mut puts = [const { None }; PUTS];
        for (index, (part, cell)) in bytes
            .chunks(VALUE)
            .zip(claimed.iter().flatten())
            .enumerate()
        {
            let value = Value {
                start: granule(inside + index * VALUE)?,
                len: granule(part.len())?,
                salts: 0,
                id: self.next.fetch_add(1, Ordering::Relaxed),
            };
            put_bytes(self.cells.data(*cell), part);
            let request = Request {
                op: op::PUT,
                id: value.id,
                salts: 0,
                from: 0,
                len: part.len(),
            };
            puts[index] = Some(Put {
                asked: self.cells.post(*cell, &request),
                value,
                result: None,
            });
        }
        self.cells.exchange.ring_the_bell();
        *write = Some(Write {
            cluster,
            until: now() + WRITE_NS,
            puts,
        });
        Ok(number)
    }

    fn poll(&self, write: usize, give_up: Option<Errno>) -> Option<Result<(), Errno>> {
        let mut under_way = self.under_way.lock();
        let Some(Some(of)) = under_way.get_mut(write) else {
            return Some(Err(Errno::INVAL));
        };
        let late = now() >= of.until;
        let give_up = give_up.or(late.then_some(Errno::TIMEDOUT));
        for put in of
            .puts
            .iter_mut()
            .flatten()
            .filter(|put| put.result.is_none())
        {
            put.result = self.cells.answer_now(&put.asked);
            if let (None, Some(errno)) = (put.result, give_up) {
                put.result = Some(self.cells.give_up(&put.asked, errno));
            }
            if let Some(Ok(_)) = put.result {
                self.cells.free(&put.asked);
            }
        }
        if of.puts.iter().flatten().any(|put| put.result.is_none()) {
            return None;
        }
        let of = under_way[write].take()?;
        drop(under_way);
        let puts = || of.puts.iter().flatten();
        let failed = puts().find_map(|put| put.result?.err());
        let kept = puts().filter_map(|put| {
            let salts = put.result?.ok()?;
            Some(Value { salts, ..put.value })
        });
        if let Some(errno) = failed {
            let kept = kept.map(|value| (value.id, value.salts));
            self.dropped.lock().extend(kept);
            return Some(Err(errno));
        }
        let mut values = self.values.lock();
        let all = values.entry(of.cluster).or_default();
        all.extend(kept);
        all.sort_unstable_by_key(|value| value.start);
        Some(Ok(()))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.read_while(offset, into, now(), &mut || Ok(()))
    }

    fn reads_ahead(&self) -> bool {
        true
    }

    fn will_read(&self, parts: &mut dyn Iterator<Item = (u64, usize)>) {
        let mut is_any = false;
        for (offset, len) in parts {
            let (cluster, inside) = place(offset);
            let piece = Piece::of(&self.values.lock(), cluster, inside..inside + len);
            // (What is not there any more is nobody's to read.)
            let Ok(piece) = piece else { continue };
            for (value, from, len, _) in piece.parts().iter().flatten() {
                is_any |= self.early.ask(&self.cells, &value.request(*from, *len));
            }
        }
        if is_any {
            self.cells.exchange.ring_the_bell();
        }
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
