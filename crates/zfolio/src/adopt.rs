//! Forks: the child's side.
//!
//! The image is a copy of a frozen manager: no operation was under way, so
//! every structure is whole; only locks may look held by threads that do not
//! exist here.

use crate::control::state;
use crate::manager::{Core, Manager};
use crate::ranges::Ranges;
use crate::start::{PROGRAM_FEATURES, SOURCE_FEATURES};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::lock::{futex_wake, reset_in_fork_child};
use zfolio_sys::procfs::{File, Pagemap, for_each_mapping};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread;
use zfolio_sys::uffd::Uffd;

impl Manager {
    /// Runs in the child's first manager thread: takes over, lets the program
    /// go on, and becomes its control thread.
    pub(crate) fn adopt(&'static self) -> ! {
        let parent = self.pid.load(Ordering::Relaxed);
        let ready = thread::own_descriptors().and_then(|()| {
            // Still the parent's: faults of this process go to it until then.
            self.fork_words()
                .ask_for_release(|| thread::parent_pid() == parent);
            self.reset_locks();
            self.take_over()
        });
        if let Err(errno) = ready {
            self.fail(format_args!(
                "the child of a fork could not take over its moved-out memory (errno {})",
                errno.0
            ));
        }
        self.child_ready.store(1, Ordering::Release);
        futex_wake(&self.child_ready, u32::MAX);
        self.control_thread()
    }

    fn reset_locks(&self) {
        reset_in_fork_child(&self.core);
        reset_in_fork_child(&self.reclaim);
        for worker in &self.workers {
            reset_in_fork_child(worker);
        }
        self.zswap.reset_in_fork_child();
        self.inflight.store(0, Ordering::Relaxed);
        self.frame_waiters.store(0, Ordering::Relaxed);
    }

    fn take_over(&'static self) -> Result<(), Errno> {
        let frames = Uffd::open(SOURCE_FEATURES)?;
        let program = Uffd::open(PROGRAM_FEATURES)?;
        let maps = File::open(c"/proc/self/maps")?;
        self.maps.store(maps.fd(), Ordering::Relaxed);
        self.fds
            .adopt(program, File::open(c"/proc/self/statm")?, Pagemap::open()?);
        self.arena().adopt(frames);
        self.renew_fork_words()?;
        self.register_own()?;
        self.pid.store(thread::pid(), Ordering::Relaxed);
        self.renew_statistics();
        {
            let mut reclaim = self.reclaim.lock();
            reclaim.vmas.adopt(maps);
        }
        let mut core = self.core.lock();
        core.forget_parents_work();
        let live = mappings(maps)?;
        let ranges: Vec<Range<usize>> = core.registered.iter().collect();
        core.registered = Ranges::default();
        for range in ranges {
            for mapping in &live {
                let part = range.start.max(mapping.start)..range.end.min(mapping.end);
                if !part.is_empty() {
                    program.register(part.start, part.len())?;
                    core.registered.insert(part);
                }
            }
        }
        self.settle(&mut core);
        self.reconcile(&mut core);
        drop(core);
        self.start_fault_threads()
    }

    fn renew_statistics(&self) {
        let slot = self.segment.claim(thread::pid());
        self.statistics.store(slot, Ordering::Relaxed);
        self.describe_process();
        self.stats().state.store(state::MANAGING, Ordering::Release);
    }
}

impl Core {
    /// What the parent's threads were about to do is theirs alone. (Parked
    /// events are kept: they came before the fork, and are applied next.)
    fn forget_parents_work(&mut self) {
        self.fork_freeze = 0;
        self.raw_fork = false;
        self.children.clear();
        self.pending.clear();
        self.deferred.clear();
        self.reader = false;
        self.sleepers = 0;
    }
}

/// Every mapping of this process.
fn mappings(maps: File) -> Result<Vec<Range<usize>>, Errno> {
    let mut list = Vec::with_capacity(256);
    let mut buffer = alloc::vec![0; 32 << 10];
    for_each_mapping(maps, &mut buffer, |mapping| {
        list.push(mapping.start..mapping.end)
    })?;
    Ok(list)
}
