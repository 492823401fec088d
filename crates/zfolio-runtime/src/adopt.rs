//! Forks: the child's side.
//!
//! The image is a copy of a frozen manager: no operation was under way, so
//! every structure is whole; only locks may look held by threads that do not
//! exist here.

use crate::control::state;
use crate::fatal::{EXIT_FAILED, Line};
use crate::forkwords::ForkWords;
use crate::manager::{Core, Manager, pages_within};
use crate::start::{PROGRAM_FEATURES, SOURCE_FEATURES, describe};
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::identity;
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

/// Looks, 10 ms apart, at a parent that does nothing for its child before it is taken for
/// dead: its process id may say nothing (0, from within a pid namespace).
const SILENT_LOOKS: u32 = 3000;

impl Manager {
    /// Runs in the child's first manager thread: takes over, lets the program
    /// go on, and becomes its control thread.
    pub(crate) fn adopt(&'static self, stack: Range<usize>) -> ! {
        let words = self.fork_words();
        // Still the parent's: faults of this process go to it until it is asked.
        let opened = match with_descriptors(Opened::open) {
            Ok(opened) => opened,
            Err(errno) => {
                self.go_unmanaged("opening its descriptors", errno);
                self.let_program_go();
                thread::exit_thread()
            }
        };
        // (While the parent has its descriptor of this process, no other can be registered.)
        let airlock = self.airlocks.small..self.airlocks.small + PAGE_SIZE;
        words.ask_for_release(false, || {
            opened
                .program
                .register(airlock.start, airlock.len())
                .is_err()
        });
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
    pub(crate) fn go_unmanaged(&self, what: &str, errno: Errno) {
        let words = self.fork_words();
        let slot = &self.segment.slots[self.segment.claim(thread::pid())];
        describe(slot);
        let mut line = Line::default();
        let parent = thread::parent_pid();
        let mut silent = (words.beats(), 0);
        let filled = words.ask_for_release(true, || {
            let beats = words.beats();
            silent = if beats == silent.0 {
                (beats, silent.1 + 1)
            } else {
                (beats, 0)
            };
            thread::parent_pid() == parent && silent.1 < SILENT_LOOKS
        });
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
        reset_in_fork_child(&self.stacks);
        reset_in_fork_child(&self.old_words);
        for worker in &self.workers {
            reset_in_fork_child(worker);
        }
        self.zswap.reset_in_fork_child();
        if let Some(engines) = &self.engines {
            engines.reset_in_fork_child();
        }
        self.inflight.store(0, Ordering::Relaxed);
        self.quiet.restart();
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
        self.give_up_parents_stacks(stack);
        let private = {
            let mut reclaim = self.reclaim.lock();
            reclaim.vmas.adopt(maps);
            reclaim.vmas.private().to_vec()
        };
        self.renew_fork_words()?;
        self.register_own()?;
        self.pid.store(thread::pid(), Ordering::Relaxed);
        self.identity
            .store(identity::of_process(), Ordering::Relaxed);
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
        self.register_again(&mut core, program, &private_mappings(maps)?)?;
        self.reconcile(&mut core);
        drop(core);
        self.give_up_old_words();
        self.start_threads()
    }

    /// Registers what is recorded where it is still mapped; what is not is forgotten.
    /// `live`: in address order.
    fn register_again(
        &self,
        core: &mut Core,
        program: Uffd,
        live: &[Range<usize>],
    ) -> Result<(), Errno> {
        let recorded = core::mem::take(&mut core.registered);
        let mut live = live;
        for range in recorded.iter() {
            let passed = live.partition_point(|mapping| mapping.end <= range.start);
            live = &live[passed..];
            let mut at = range.start;
            for mapping in live.iter().take_while(|mapping| mapping.start < range.end) {
                let part = range.start.max(mapping.start)..range.end.min(mapping.end);
                self.drop_contents(core, pages_within(at, part.start));
                program.register(part.start, part.len())?;
                at = part.end;
                core.registered.insert(part);
            }
            self.drop_contents(core, pages_within(at, range.end));
        }
        Ok(())
    }

    fn renew_statistics(&self) {
        let slot = self.segment.claim(thread::pid());
        self.statistics.store(slot, Ordering::Relaxed);
        // (The parent's threads are not the child's.)
        for thread in &self.cpu_ns {
            thread.store(0, Ordering::Relaxed);
        }
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

/// The private mappings of this process that are of no file, in address order.
fn private_mappings(maps: File) -> Result<Vec<Range<usize>>, Errno> {
    let mut list = Vec::with_capacity(256);
    let mut buffer = alloc::vec![0; 32 << 10];
    for_each_mapping(maps, &mut buffer, |mapping| {
        if mapping.inode == 0 && mapping.perms.last() == Some(&b'p') {
            list.push(mapping.start..mapping.end);
        }
    })?;
    Ok(list)
}
