//! A store behind the pool, reached through the pager: no descriptor of it is in the program's
//! table, and what is read from it is read before the core lock is taken, as far as that can be.

use alloc::sync::Arc;
use core::ops::Range;
use zfolio_runtime::protect::pool_arena::PoolArena;
use zfolio_runtime::segment::Config;
use zfolio_sys::exchange::Exchange;
use zfolio_sys::identity;
use zfolio_sys::lock::Mutex;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::{Backing, NetworkBacking, Parts, Slot, Zswap};

use crate::program_memory;

/// The store.
pub(super) struct OwnStore {
    inner: NetworkBacking,
    /// What has been read already, for who holds the core lock.
    offered: Mutex<Option<Offered>>,
}

/// Parts of the store that have been read.
#[derive(Clone, Copy)]
pub(super) struct Offered {
    pub(super) parts: Parts,
    /// Where their bytes are, one part after the other.
    pub(super) at: usize,
    pub(super) result: Result<(), Errno>,
}

impl OwnStore {
    /// Takes a ring of the exchange whose path the run was given.
    pub(super) fn join(
        config: &Config,
        capacity: u64,
        deadline_ns: Option<u64>,
    ) -> Result<Arc<Self>, Errno> {
        let join = |path: &core::ffi::CStr| Exchange::join(path, identity::of_process());
        let exchange = config.backing.path.far.with(join)?.without_descriptor();
        Ok(Arc::new(Self {
            inner: NetworkBacking::new(exchange, capacity, deadline_ns).ahead(),
            offered: Mutex::new(None),
        }))
    }

    /// Reads now, waiting since `since`. No lock is held.
    pub(super) fn fetch(
        &self,
        offset: u64,
        into: &mut [u8],
        since: u64,
        goes_on: &mut dyn FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.inner.read_while(offset, into, since, goes_on)
    }

    /// Asks for what is fetched `now`, where it is more than one part, and for what may be `next`.
    pub(super) fn will_fetch(&self, now: &Parts, next: &Parts) {
        if now.iter().count() > 1 || !next.is_empty() {
            let parts = now.iter().chain(next.iter());
            let mut parts = parts.map(|part| (part.offset, part.len));
            self.inner.will_read(&mut parts);
        }
    }

    /// What reads find from here on, under the core lock. No write ends meanwhile.
    pub(super) fn offer(&self, offered: Option<Offered>) {
        *self.offered.lock() = offered;
    }
}

impl OwnStore {
    fn is_offering(&self) -> bool {
        self.offered.lock().is_some()
    }

    /// Whether a page has been read, for who holds the core lock.
    pub(super) fn has_read(&self, zswap: &Zswap<PoolArena>, slot: Slot) -> bool {
        let offered = *self.offered.lock();
        offered.is_some_and(|of| of.result.is_ok() && zswap.is_covered(&[slot], &of.parts))
    }
}

impl Offered {
    /// Copies a part, if all of it is there.
    fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        let wanted = offset..offset + into.len() as u64;
        let (mut at, mut found) = (self.at, 0);
        for part in self.parts.iter() {
            let has = part.offset..part.offset + part.len as u64;
            let both = has.start.max(wanted.start)..has.end.min(wanted.end);
            if both.start < both.end {
                let from = at + distance(has.start, both.start);
                let to: Range<usize> = distance(offset, both.start)..distance(offset, both.end);
                // SAFETY: a buffer of ours, which who offers it holds.
                into[to.clone()].copy_from_slice(unsafe { program_memory::bytes(from, to.len()) });
                found += to.len();
            }
            at += part.len;
        }
        found == into.len()
    }
}

fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to - from).unwrap_or(usize::MAX)
}

impl Backing for OwnStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn far_from(&self) -> u64 {
        self.inner.far_from()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.inner.write(offset, bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        let offered = *self.offered.lock();
        if let Some(offered) = offered
            && offered.copy(offset, into)
        {
            return offered.result;
        }
        self.inner.read(offset, into)
    }

    fn discard(&self, offset: u64, len: u64) {
        self.inner.discard(offset, len);
    }

    fn writes_ahead(&self) -> bool {
        self.inner.writes_ahead()
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    fn begin(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.inner.begin(offset, bytes)
    }

    fn poll(&self, write: usize, give_up: Option<Errno>) -> Option<Result<(), Errno>> {
        // (A page that was in the pool when the parts were looked up must not be in the store by
        // the time it is loaded: nobody has read it there.)
        if give_up.is_none() && self.is_offering() {
            return None;
        }
        self.inner.poll(write, give_up)
    }
}
