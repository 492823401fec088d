//! Pages out of the backing.

use super::error::LoadFault;
use super::found::{Found, What};
use super::unpack::{Expected, unpack};
use crate::MAX_BATCH;
use crate::arena::Arena;
use crate::backing::clusters::{GRANULE, Position};
use crate::backing::encryption::{Nonce, TAG, open};
use crate::entry::held::Record;
use crate::pool::context::WorkContext;
use crate::pool::state::Door;
use crate::pool::zswap::Zswap;
use crate::slot::Slot;
use zfolio_compress::Context;
use zfolio_mm::{PAGE_SIZE, Pfn};
use zfolio_sys::syscall::Errno;

impl<A: Arena> Zswap<A> {
    /// Brings what is in the backing into frames, without the lock: what lies
    /// close together is read together.
    pub(super) fn load_backed(
        &self,
        context: &mut WorkContext,
        door: &Door,
        slots: &[Slot],
        found: &mut [Found],
        dst: &[Pfn],
    ) {
        // The records in the order of the backing, and which page each is.
        let mut records = [None; MAX_BATCH];
        let mut count = 0;
        for (index, found) in found.iter().enumerate() {
            if let What::Backed(record, nonce) = found.what {
                records[count] = Some((record.at, index, record, nonce));
                count += 1;
            }
        }
        records[..count].sort_unstable_by_key(|record| record.map(|(at, ..)| at));
        let most = context.io.len() as u64;
        let all = &records[..count];
        if run_of(all, most).is_some_and(|(run, _)| run < count) {
            // (What one of these reads waits for is on its way when the next begins.)
            let mut rest = all;
            let mut parts = core::iter::from_fn(|| {
                let (run, len) = run_of(rest, most)?;
                let first = rest[0].map(|(at, ..)| at.offset())?;
                rest = &rest[run..];
                Some((first, len))
            });
            door.backing.will_read(&mut parts);
        }
        let mut rest = all;
        let mut late = false;
        while let (Some((run, len)), Some(Some((first, ..)))) = (run_of(rest, most), rest.first()) {
            let (these, others) = rest.split_at(run);
            rest = others;
            let read = match context.io.get_mut(..len) {
                // (What has been waited for in vain is not waited for again.)
                _ if late => Err(Errno::TIMEDOUT),
                Some(io) => door.backing.read(first.offset(), io),
                None => Err(Errno::NOMEM),
            };
            late |= read == Err(Errno::TIMEDOUT);
            for &(at, index, record, nonce) in these.iter().flatten() {
                let fault = self.arena.with_mut(dst[index], 0, PAGE_SIZE, |page| {
                    let fault = if late {
                        Some(LoadFault::Backing(Errno::TIMEDOUT))
                    } else if read.is_ok() {
                        let from = byte(at.offset() - first.offset());
                        let sealed = &mut context.io[from..from + record_len(&record)];
                        unseal(
                            &mut *context.codec,
                            door,
                            slots[index],
                            &record,
                            nonce,
                            sealed,
                            page,
                        )
                    } else {
                        // One bad place must not be every record's.
                        read_alone(context, door, slots[index], &record, nonce, page)
                    };
                    if fault.is_some() {
                        page.fill(0);
                    }
                    fault
                });
                found[index].fault = fault;
            }
        }
    }
}

/// A record in the order of the backing: where, which page of the caller's, and what it is.
type Placed = Option<(Position, usize, Record, Nonce)>;

/// How many of these records are read together, first to last `most` bytes, and how many bytes
/// that is.
fn run_of(records: &[Placed], most: u64) -> Option<(usize, usize)> {
    let (first, ..) = records.first().copied().flatten()?;
    let fits = |record: &&Placed| {
        record.is_some_and(|(at, _, record, _)| {
            let len = at.offset() - first.offset() + record_len(&record) as u64;
            at.cluster() == first.cluster() && len <= most
        })
    };
    let run = records.iter().take_while(fits).count().max(1);
    let ends = records[..run].iter().flatten();
    let ends =
        ends.map(|(at, _, record, _)| byte(at.offset() - first.offset()) + record_len(record));
    Some((run, ends.max()?))
}

/// Bytes of a record.
const fn record_len(record: &Record) -> usize {
    record.len as usize + TAG
}

/// A distance within the context's buffer.
fn byte(distance: u64) -> usize {
    usize::try_from(distance).unwrap_or(usize::MAX)
}

/// Reads one record and makes its page.
pub(super) fn read_alone(
    context: &mut WorkContext,
    door: &Door,
    slot: Slot,
    record: &Record,
    nonce: Nonce,
    page: &mut [u8],
) -> Option<LoadFault> {
    let mut short = [0; PAGE_SIZE + GRANULE];
    // (A context made before there was a backing has no room of its own.)
    let sealed = match context.io.get_mut(..record_len(record)) {
        Some(buffer) => buffer,
        None => &mut short[..record_len(record)],
    };
    match door.backing.read(record.at.offset(), sealed) {
        Ok(()) => unseal(&mut *context.codec, door, slot, record, nonce, sealed, page),
        Err(errno) => Some(LoadFault::Backing(errno)),
    }
}

/// Opens a record and makes its page.
fn unseal(
    codec: &mut dyn Context,
    door: &Door,
    slot: Slot,
    record: &Record,
    nonce: Nonce,
    sealed: &mut [u8],
    page: &mut [u8],
) -> Option<LoadFault> {
    let Some(bytes) = open(&door.key, nonce, slot, sealed) else {
        return Some(LoadFault::Seal);
    };
    let expected = Expected {
        checksum: record.checksum,
        raw: record.raw,
    };
    let mut fault = [None];
    unpack(codec, &[expected], &[bytes], &mut [page], &mut fault);
    fault[0]
}
