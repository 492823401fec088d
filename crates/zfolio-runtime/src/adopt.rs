//! Forks: the child's side.
//!
//! The image is a copy of a frozen manager: no operation was under way, so
//! every structure is whole; only locks may look held by threads that do not
//! exist here.

use crate::control::state;
use crate::fatal::{EXIT_FAILED, Line};
use crate::forkwords::ForkWords;
use crate::manager::{Core, Manager};
use crate::ranges::Ranges;
use crate::start::{PROGRAM_FEATURES, SOURCE_FEATURES, describe};
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::limits::{reserve_descriptors, with_descriptors};
use zfolio_sys::lock::{futex_wake, reset_in_fork_child};
use zfolio_sys::procfs::{File, Pagemap, for_each_mapping};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread;
use zfolio_sys::uffd::Uffd;

/// The child's own descriptors.
struct Opened {
    frames: Uffd,
    program: Uffd,
    statm: File,
    maps: File,
    pagemap: Pagemap,
}

impl Opened {
    fn open() -> Result<Self, Errno> {
        thread::own_descriptors()?;
        reserve_descriptors();
        Ok(Self {
            frames: Uffd::open(SOURCE_FEATURES)?,
            program: Uffd::open(PROGRAM_FEATURES)?,
            statm: File::open(c"/proc/thread-self/statm")?,
            maps: File::open(c"/proc/thread-self/maps")?,
            pagemap: Pagemap::open()?,
        })
    }
}

impl Manager {
    /// Runs in the child's first manager thread: takes over, lets the program
    /// go on, and becomes its control thread.
    pub(crate) fn adopt(&'static self, stack: Range<usize>) -> ! {
        let parent = self.pid.load(Ordering::Relaxed);
        let words = self.fork_words();
        // Still the parent's: faults of this process go to it until it is asked.
        let opened = match with_descriptors(Opened::open) {
            Ok(opened) => opened,
            Err(errno) => {
                self.go_unmanaged(parent, "opening its descriptors", errno);
                self.let_program_go();
                thread::exit_thread()
            }
        };
        words.ask_for_release(false, || thread::parent_pid() == parent);
        self.reset_locks();
        if let Err(errno) = self.take_over(&opened, words, stack) {
            self.fail(format_args!(
                "the child of a fork could not take over its moved-out memory (errno {})",
                errno.0
            ));
        }
        self.let_program_go();
        self.control_thread()
    }

    fn let_program_go(&self) {
        self.child_ready.store(1, Ordering::Release);
        futex_wake(&self.child_ready, u32::MAX);
    }

    /// The child may not manage itself (it gave up its privileges before it
    /// forked, say): the parent gives it all its memory back.
    pub(crate) fn go_unmanaged(&self, parent: u32, what: &str, errno: Errno) {
        let words = self.fork_words();
        let slot = &self.segment.slots[self.segment.claim(thread::pid())];
        describe(slot);
        let mut line = Line::default();
        let filled = words.ask_for_release(true, || thread::parent_pid() == parent);
        words.taken(self.fork_generation.load(Ordering::Acquire));
        let _ = write!(
            line,
            "it is the child of a fork, and {what} failed (errno {}){}",
            errno.0,
            if filled {
                ""
            } else {
                "; its parent is gone, and with it its memory"
            }
        );
        slot.set_message(line.as_str());
        let state = if filled {
            state::UNMANAGED
        } else {
            state::FAILED
        };
        slot.state.store(state, Ordering::Release);
        if !filled {
            zfolio_sys::process::exit_now(EXIT_FAILED);
        }
    }

    fn reset_locks(&self) {
        reset_in_fork_child(&self.core);
        reset_in_fork_child(&self.reclaim);
        reset_in_fork_child(&self.compacting);
        reset_in_fork_child(&self.tier);
        for worker in &self.workers {
            reset_in_fork_child(worker);
        }
        self.zswap.reset_in_fork_child();
        if let Some(engines) = &self.engines {
            engines.reset_in_fork_child();
        }
        self.inflight.store(0, Ordering::Relaxed);
        self.frame_waiters.store(0, Ordering::Relaxed);
        self.max_waiters.store(0, Ordering::Relaxed);
        self.max_since_ns.store(0, Ordering::Relaxed);
        self.io_under_way.store(0, Ordering::Relaxed);
        for since in &self.serving_since {
            since.store(0, Ordering::Relaxed);
        }
    }

    fn take_over(
        &'static self,
        opened: &Opened,
        words: ForkWords,
        stack: Range<usize>,
    ) -> Result<(), Errno> {
        let Opened {
            frames,
            program,
            statm,
            maps,
            pagemap,
        } = *opened;
        self.fds.adopt(program, statm, pagemap);
        self.maps.store(maps.fd(), Ordering::Relaxed);
        self.arena().adopt(frames, pagemap);
        let private = {
            let mut reclaim = self.reclaim.lock();
            reclaim.vmas.keep_private(stack);
            reclaim.vmas.adopt(maps);
            reclaim.vmas.private().to_vec()
        };
        self.renew_fork_words()?;
        self.register_own()?;
        self.pid.store(thread::pid(), Ordering::Relaxed);
        self.renew_statistics();
        let mut core = self.core.lock();
        core.forget_parents_work();
        // Before anything is registered: what happened to our address space
        // before the fork, as far as the parent read it later.
        core.parked.replace(words.left());
        let filled = words.is_filled();
        if !words.taken(self.fork_generation.load(Ordering::Acquire)) {
            return Err(Errno::TIMEDOUT);
        }
        self.drop_superseded(&mut core);
        self.settle(&mut core);
        if filled {
            self.drop_everything(&mut core);
        }
        self.zswap.stats().restart();
        self.tier.lock().restart();
        self.membership.forget();
        self.backing_retry_ns.store(0, Ordering::Relaxed);
        with_descriptors(|| self.open_backing());
        // This thread's stack may lie where a mapping was that is still on our
        // list: nobody would serve its faults.
        for own in private {
            core.registered.remove(own);
        }
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
        self.reconcile(&mut core);
        drop(core);
        self.start_threads()
    }

    fn renew_statistics(&self) {
        let slot = self.segment.claim(thread::pid());
        self.statistics.store(slot, Ordering::Relaxed);
        self.describe_process();
        self.stats().state.store(state::MANAGING, Ordering::Release);
    }
}

impl Core {
    /// What the parent's threads were about to do is theirs alone.
    fn forget_parents_work(&mut self) {
        self.fork_freeze = false;
        self.being_copied = false;
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
