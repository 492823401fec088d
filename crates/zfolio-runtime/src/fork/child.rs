//! Forks: the child's side.
//!
//! The image is a copy of a frozen manager: no operation was under way, so
//! every structure is whole; only locks may look held by threads that do not
//! exist here.

use crate::address_space::core::Core;
use crate::descriptors::{PROGRAM_FEATURES, SOURCE_FEATURES};
use crate::events::event::Event;
use crate::fork::Forks;
use crate::fork_handshake::ForkWords;
use crate::health::fatal::{EXIT_FAILED, Line};
use crate::kernel::{File, Pagemap, Uffd};
use crate::page::pages_within;
use crate::segment::{describe, state};
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::arena::unmap;
use zfolio_sys::limits::reserve_descriptors;
use zfolio_sys::procfs::for_each_mapping;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread;

/// The child's own descriptors.
pub(crate) struct Opened {
    pub(crate) frames: Uffd,
    pub(crate) program: Uffd,
    pub(crate) statm: File,
    pub(crate) maps: File,
    pub(crate) pagemap: Pagemap,
}

impl Opened {
    pub(crate) fn open() -> Result<Self, Errno> {
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

impl Forks {
    /// The child may not manage itself (it gave up its privileges before it
    /// forked, say): the parent gives it all its memory back.
    pub(crate) fn go_unmanaged(&self, what: &str, errno: Errno) {
        let words = self.fork_words();
        let slot = &self.segment().slots[self.segment().claim(thread::pid())];
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
        words.taken(self.generation());
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

    pub(crate) fn take_over(
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
        self.fds.adopt(program, statm, pagemap, maps);
        self.arena().adopt(frames, pagemap);
        self.give_up_parents_stacks(stack);
        let private = {
            let mut hand = self.hand.lock();
            hand.vmas.adopt(maps);
            hand.vmas.private().to_vec()
        };
        self.renew_fork_words()?;
        self.register_own()?;
        self.is_this_process();
        self.renew_statistics();
        let mut core = self.core.lock();
        core.inbox.forget_parents_work();
        core.freeze.end();
        // Before anything is registered: what happened to our address space
        // before the fork, as far as the parent read it later.
        let past = words.left().filter_map(Event::from_words);
        core.inbox.replace_parked(past);
        let filled = words.is_filled();
        if !words.taken(self.generation()) {
            return Err(Errno::TIMEDOUT);
        }
        self.drop_superseded(&mut core);
        self.apply_parked(&mut core);
        if filled {
            self.drop_everything(&mut core);
        }
        self.restart();
        // This thread's stack may lie where a mapping was that is still on our
        // list: nobody would serve its faults.
        for own in private {
            core.pages.registered.remove(own);
        }
        self.register_again(&mut core, program, &private_mappings(maps)?)?;
        self.reconcile(&mut core);
        drop(core);
        self.give_up_old_words();
        Ok(())
    }

    /// Registers what is recorded where it is still mapped; what is not is forgotten.
    /// `live`: in address order.
    fn register_again(
        &self,
        core: &mut Core,
        program: Uffd,
        live: &[Range<usize>],
    ) -> Result<(), Errno> {
        let recorded = core::mem::take(&mut core.pages.registered);
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
                core.pages.registered.insert(part);
            }
            self.drop_contents(core, pages_within(at, range.end));
        }
        Ok(())
    }

    fn renew_statistics(&self) {
        self.claim_slot();
        self.forget_cpu_time();
        self.describe_process();
        self.stats().state.store(state::MANAGING, Ordering::Release);
    }

    /// A thread of ours has this stack.
    pub(crate) fn note_stack(&self, stack: Range<usize>) {
        self.hand.lock().vmas.keep_private(stack.clone());
        self.stacks.lock().push(stack);
    }

    /// In the child of a fork: gives back the stacks of the parent's threads, of which it
    /// has no thread. `own`: the calling thread's.
    pub(crate) fn give_up_parents_stacks(&self, own: Range<usize>) {
        let stacks = core::mem::replace(&mut *self.stacks.lock(), alloc::vec![own.clone()]);
        let mut hand = self.hand.lock();
        for stack in stacks {
            hand.vmas.give_up_private(&stack);
            unmap(stack);
        }
        hand.vmas.keep_private(own);
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
