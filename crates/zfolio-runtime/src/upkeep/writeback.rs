//! What is behind the pool, at work: when the pool is written back, and what
//! is done when the backing does not take it.
//!
//! Only the control thread writes back, in turns of 32 pages, as an operation
//! like any other: a fork waits for the turn under way. While the backing
//! refuses, the pool may be larger than its part of `high`: nothing is lost and
//! nobody waits for a device that does not work; once a second it is tried again.

use crate::options::{BackingOptions, PoolOptions};
use crate::segment::Counter;
use crate::transfer::worker::Worker;
use crate::upkeep::Upkeep;
use alloc::sync::Arc;
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use zfolio_sys::exchange::Exchange;
use zfolio_sys::identity;
use zfolio_sys::secret::KeyPage;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::{Backing, FileBacking, InOrder, Limits, NetworkBacking, Shrunk};

/// Between two tries of a backing that refused, ns.
const RETRY_NS: u64 = 1_000_000_000;
/// Pages of a turn of the shrinker.
const TURN: usize = 256;

impl Upkeep {
    /// Opens this process's own file behind the pool, or takes its ring of the exchange with
    /// the pager, if that is asked for; without it the process is managed all the same, and it
    /// is counted.
    pub(crate) fn open_backing(&self) {
        let Some(backing) = &self.options.backing else {
            return;
        };
        let opened = self.open(backing);
        match opened.and_then(|opened| Ok((opened, KeyPage::random()?))) {
            Ok((opened, key)) => {
                self.hand.lock().vmas.keep_private(key.range());
                self.zswap.attach(opened, key);
                self.limit_pool();
            }
            Err(errno) => {
                let errno = u64::from(errno.0.unsigned_abs());
                self.stats().set(Counter::BackingRefused, errno);
            }
        }
    }

    /// The file, the store, or both, the file before the store.
    fn open(&self, backing: &BackingOptions) -> Result<Arc<dyn Backing>, Errno> {
        let asked = &self.segment().config().backing;
        let create = |path: &CStr| -> Result<Arc<dyn Backing>, Errno> {
            let file = FileBacking::create(path, backing.size.near)?;
            Ok(Arc::new(self.keep_descriptor(file)))
        };
        let join = |path: &CStr| -> Result<Arc<dyn Backing>, Errno> {
            let exchange = Exchange::join(path, identity::of_process())?;
            let (size, deadline) = (backing.size.far, backing.deadline_ns);
            Ok(Arc::new(NetworkBacking::new(exchange, size, deadline)))
        };
        // (A ring of the exchange is not given back: it is taken last.)
        let file = (backing.size.near > 0).then(|| match &backing.directory {
            Some(directory) => create(directory.path()),
            None => asked.path.near.with(create),
        });
        let file = file.transpose()?;
        let store = backing.has_store().then(|| asked.path.far.with(join));
        match (file, store.transpose()?) {
            (Some(file), Some(store)) => Ok(Arc::new(InOrder::new(file, store))),
            (file, store) => file.or(store).ok_or(Errno::INVAL),
        }
    }

    /// In a program that has regions: puts a backing's descriptor where the program is not
    /// likely to close it, and notes it for the threads that have tables of their own.
    fn keep_descriptor(&self, file: FileBacking) -> FileBacking {
        if !self.scope.is_guest() {
            return file;
        }
        let file = file.lifted();
        self.scope.note_backing(file.fd());
        file
    }

    /// How large the pool of this process, or of its regions, may be now.
    fn pool_options(&self) -> PoolOptions {
        if self.scope.has_own_limits() {
            self.options.pool
        } else {
            PoolOptions::of(self.segment().config())
        }
    }

    /// Sets the pool's limits by what this process, or its regions, may have now. Where a
    /// backing was asked for and is not there, there is none.
    pub(crate) fn limit_pool(&self) {
        let limits = if self.options.backing.is_some() && !self.zswap.is_backed() {
            Limits::default()
        } else {
            self.pool_options().limits(self.watermarks().high)
        };
        if self.zswap.limits() != limits {
            self.zswap.set_limits(limits);
        }
    }

    /// Gives room in the backing back, and tries it again if it refused.
    pub(crate) fn tend_backing(&self) {
        if !self.zswap.is_backed() {
            return self.limit_pool();
        }
        self.zswap.tend_backing();
        let retry = self.backing_retry_ns.load(Ordering::Relaxed);
        if retry == 0 || now_ns(Clock::Monotonic) >= retry {
            self.backing_retry_ns.store(0, Ordering::Relaxed);
            self.limit_pool();
        }
    }

    /// Writes back until the pool has come down to its threshold, or somebody
    /// wants quiet. A backing that refuses is left alone for a while.
    pub(crate) fn write_back(&self, worker: &mut Worker) {
        let mut last = Shrunk::default();
        let begun = self.as_operation(|| {
            last = self.zswap.shrink(&mut worker.context, || {
                self.control_goes_on();
                self.share_backing();
                self.should_yield()
            });
        });
        if begun && last.is_stuck() && self.zswap.wants_shrinking() {
            let until = now_ns(Clock::Monotonic) + RETRY_NS;
            self.backing_retry_ns.store(until, Ordering::Relaxed);
            self.zswap.set_limits(Limits::default());
        }
        self.wakeups.frames_freed();
    }

    /// Memory is short and nothing more can be moved out: a part of the pool
    /// goes instead. Whether any did.
    pub(crate) fn shrink_pool(&self, worker: &mut Worker) -> bool {
        let refused = self.backing_retry_ns.load(Ordering::Relaxed) != 0;
        if refused || !self.pool_options().shrinker || !self.zswap.is_backed() {
            return false;
        }
        let mut written = 0;
        self.as_operation(|| {
            self.share_backing();
            written = self.zswap.shrinker_call(&mut worker.context, TURN).written;
        });
        self.wakeups.frames_freed();
        written > 0
    }
}
