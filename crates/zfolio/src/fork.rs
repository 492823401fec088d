//! Forks: the parent's side.
//!
//! A child has a copy-on-write image of the arena, the pool and our tables,
//! so it can serve itself, if that image is consistent. For libc's fork the
//! atfork handlers see to that: `prepare` has the control thread *freeze*
//! the manager (no operation under way; only words change; faults are served
//! by copying, see [`Manager::serve_frozen`]), and the child's handler starts
//! threads of its own before user code runs (`adopt`). Until it has, the
//! parent serves the child's faults through the descriptor that came with the
//! FORK event.
//!
//! A raw fork runs no handlers. The FORK event itself freezes the manager:
//! until it was read, moves into the program were refused, so the words still
//! describe what the child lacks. The control thread copies all of that into
//! the child and lets go of it.
//!
//! ```text
//! program thread        control thread            child
//! before_fork  ------>  freeze, ack
//! fork()                serves the child      <-- faults of libc's own
//! after_fork_parent ->                            code after the fork
//!                       closes its descriptor <-- asks (adopt = ASKED)
//!                       thaw                  --> registers, starts threads
//! ```

use crate::control::Counter;
use crate::events::Resolved;
use crate::extent::Vpn;
use crate::fault::Outcome;
use crate::manager::{Core, Fault, Manager, STACK, Worker, address_of, pages_within};
use crate::movein::Landed;
use crate::word::Place;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::lock::{futex_wait, futex_wake};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::yield_now;
use zfolio_sys::uffd::{Message, RawMessage, Uffd};

/// A page of zeros to copy from.
static ZERO_PAGE: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// States of [`ForkWords::request`].
mod request {
    pub(super) const NONE: u32 = 0;
    pub(super) const PREPARE: u32 = 1;
    pub(super) const FROZEN: u32 = 2;
    pub(super) const PARENT_DONE: u32 = 3;
}

/// States of [`ForkWords::adopt`].
mod adopt {
    pub(super) const NONE: u32 = 0;
    /// Let go of my ranges: I serve them from now on.
    pub(super) const ASKED: u32 = 1;
    pub(super) const GRANTED: u32 = 2;
    /// I cannot: give me everything, then let go.
    pub(super) const ASKED_FILL: u32 = 3;
}

/// Words that parent and child share during a fork.
#[derive(Clone, Copy)]
pub(crate) struct ForkWords(&'static [AtomicU32; 1024]);

impl ForkWords {
    pub(crate) fn new(words: &'static [AtomicU32; 1024]) -> Self {
        Self(words)
    }

    fn request(&self) -> &AtomicU32 {
        &self.0[0]
    }

    fn adopt(&self) -> &AtomicU32 {
        &self.0[1]
    }

    /// Rung when one of the others changed.
    fn bell(&self) -> &AtomicU32 {
        &self.0[2]
    }

    fn set(&self, word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
        futex_wake(word, u32::MAX);
        self.bell().fetch_add(1, Ordering::Release);
        futex_wake(self.bell(), u32::MAX);
    }

    /// Waits until `word` has `value`; calls `idle` every 10 ms.
    fn wait(word: &AtomicU32, value: u32, mut idle: impl FnMut() -> bool) -> bool {
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == value {
                return true;
            }
            futex_wait(word, seen, Some(10_000_000));
            if word.load(Ordering::Acquire) != value && !idle() {
                return false;
            }
        }
    }

    /// The child asks its parent to let go of its ranges; `fill`: after
    /// copying in all that is missing. False if the parent is gone, which let
    /// go of them too.
    pub(crate) fn ask_for_release(
        &self,
        fill: bool,
        mut parent_lives: impl FnMut() -> bool,
    ) -> bool {
        self.set(
            self.adopt(),
            if fill {
                adopt::ASKED_FILL
            } else {
                adopt::ASKED
            },
        );
        Self::wait(self.adopt(), adopt::GRANTED, &mut parent_lives)
    }
}

impl Manager {
    /// atfork `prepare`: returns once the image is fit to be copied.
    pub fn before_fork(&self) {
        let words = self.fork_words();
        ForkWords::wait(words.request(), request::NONE, || true);
        words.adopt().store(adopt::NONE, Ordering::Release);
        words.set(words.request(), request::PREPARE);
        self.wake_control();
        ForkWords::wait(words.request(), request::FROZEN, || {
            self.wake_control();
            true
        });
    }

    /// atfork `parent`.
    pub fn after_fork_parent(&self) {
        let words = self.fork_words();
        words.set(words.request(), request::PARENT_DONE);
    }

    /// A FORK event was read, under the core lock.
    pub(crate) fn note_fork(&self, core: &mut Core, child: Uffd) {
        core.children.push(child);
        if core.fork_freeze == 0 {
            core.fork_freeze = 1;
            core.raw_fork = true;
            self.wake_control();
        }
    }

    /// The control thread's part in forks.
    pub(crate) fn follow_forks(&self, worker: &mut Worker) {
        if self.core.lock().raw_fork {
            self.await_quiet();
            self.release_children(worker, true);
            let mut core = self.core.lock();
            core.raw_fork = false;
            self.thaw(&mut core);
        }
        let words = self.fork_words();
        if words.request().load(Ordering::Acquire) == request::PREPARE {
            self.core.lock().fork_freeze += 1;
            self.await_quiet();
            words.set(words.request(), request::FROZEN);
            self.fork_window(words, worker);
            self.count(Counter::Forks, 1);
            let mut core = self.core.lock();
            self.thaw(&mut core);
            drop(core);
            words.set(words.request(), request::NONE);
        }
    }

    /// A program thread waits to fork.
    pub(crate) fn fork_asked(&self) -> bool {
        self.fork_words().request().load(Ordering::Acquire) == request::PREPARE
    }

    /// In the child of a fork, on the program's thread: starts the thread that
    /// takes over, and returns when faults are served again.
    ///
    /// # Errors
    /// What starting a thread returned.
    pub fn after_fork_child(&'static self) -> Result<(), Errno> {
        self.child_ready.store(0, Ordering::Release);
        zfolio_sys::thread::spawn_with(STACK, self, 0, |manager, _, stack| manager.adopt(stack))?;
        while self.child_ready.load(Ordering::Acquire) == 0 {
            futex_wait(&self.child_ready, 0, None);
        }
        Ok(())
    }

    /// Whether this process is the one the manager's threads run in (a raw
    /// fork's child has the tables and no threads).
    pub fn is_ours(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == zfolio_sys::thread::pid()
    }

    fn await_quiet(&self) {
        while self.inflight.load(Ordering::Acquire) > 0 {
            yield_now();
        }
    }

    fn thaw(&self, core: &mut Core) {
        core.fork_freeze -= 1;
        self.settle(core);
        self.reconcile(core);
    }

    /// From the freeze until the child stands on its own.
    fn fork_window(&self, words: ForkWords, worker: &mut Worker) {
        loop {
            let rung = words.bell().load(Ordering::Acquire);
            let parent_done = words.request().load(Ordering::Acquire) == request::PARENT_DONE;
            let children = self.serve_children(worker);
            let asked = words.adopt().load(Ordering::Acquire);
            if matches!(asked, adopt::ASKED | adopt::ASKED_FILL) {
                // Two children at once: one came by a raw fork in another
                // thread, and which is which cannot be told. Both are filled.
                self.release_children(worker, children > 1 || asked == adopt::ASKED_FILL);
                words.set(words.adopt(), adopt::GRANTED);
                if parent_done {
                    return;
                }
            } else if parent_done {
                if children == 0 {
                    return; // the fork failed, or the child is on its own
                }
                if !self.any_child_lives() {
                    self.release_children(worker, false);
                    return;
                }
            }
            futex_wait(words.bell(), rung, Some(200_000));
        }
    }

    fn any_child_lives(&self) -> bool {
        // The arena is not registered with a child's descriptor: a live child
        // answers ENOENT, a dead one ESRCH.
        let core = self.core.lock();
        let probe = self.address(zfolio_mm::Pfn(0));
        let zeros = ZERO_PAGE.as_ptr() as usize;
        core.children
            .iter()
            .any(|child| child.copy_pages(probe, zeros, PAGE_SIZE).stopped != Some(Errno::SRCH))
    }

    /// Serves faults of children that are not on their own yet; returns how
    /// many children there are.
    fn serve_children(&self, worker: &mut Worker) -> usize {
        let core = self.core.lock();
        let mut messages = [RawMessage::default(); 8];
        for child in &core.children {
            let count = child.read(&mut messages).unwrap_or(0);
            for message in messages[..count].iter().filter_map(RawMessage::decode) {
                if let Message::Fault { address, .. } = message {
                    let from = self.frozen_page(&core, worker, address >> PAGE_SHIFT);
                    let progress = child.copy_pages(address, from, PAGE_SIZE);
                    if progress.done == 0 {
                        child.wake(address, PAGE_SIZE);
                    }
                }
            }
        }
        core.children.len()
    }

    /// Closes the children's descriptors, which unregisters their ranges;
    /// `fill`: after copying in all that they lack.
    fn release_children(&self, worker: &mut Worker, fill: bool) {
        loop {
            let Some(child) = self.core.lock().children.pop() else {
                return;
            };
            if fill {
                self.fill_child(worker, child);
                self.count(Counter::RawForks, 1);
            }
            child.close();
        }
    }

    /// Copies every page kept for the program into a child of a raw fork.
    fn fill_child(&self, worker: &mut Worker, child: Uffd) {
        let tracked: Vec<(Vpn, Place)> = self
            .core
            .lock()
            .extents
            .tracked(0..usize::MAX >> PAGE_SHIFT)
            .collect();
        let mut since: Vec<Message> = Vec::new();
        for (vpn, place) in tracked {
            if matches!(place, Place::Present | Place::Gone) {
                continue;
            }
            loop {
                self.child_events(child, &mut since);
                let Some(to) = forward(&since, vpn) else {
                    break;
                };
                let from = {
                    let core = self.core.lock();
                    self.bytes_of(worker, core.extents.place(vpn))
                };
                match child.copy_pages(address_of(to), from, PAGE_SIZE).stopped {
                    Some(Errno::AGAIN) => yield_now(),
                    _ => break,
                }
            }
        }
    }

    /// What the child did to its address space while it is being filled.
    fn child_events(&self, child: Uffd, since: &mut Vec<Message>) {
        let mut messages = [RawMessage::default(); 8];
        while let Ok(count @ 1..) = child.read(&mut messages) {
            for message in messages[..count].iter().filter_map(RawMessage::decode) {
                match message {
                    Message::Fault { .. } => {} // the copy or the close wakes it
                    Message::Fork { fd } => self.core.lock().children.push(Uffd::from_fd(fd)),
                    event => since.push(event),
                }
            }
        }
    }

    /// Serves a fault of the program while only words may change: by a copy.
    /// The word stays; `reconcile` drops it later, since what is present is
    /// newer than what is kept.
    pub(crate) fn serve_frozen(&self, core: &Core, worker: &mut Worker, fault: Fault) -> Outcome {
        let from = self.frozen_page(core, worker, fault.vpn);
        match self.copy_in(fault.vpn, from) {
            Landed::Refused(errno) => self.refused(fault.vpn, errno),
            _ => Outcome::Served(crate::control::FaultKind::Page),
        }
    }

    /// Address of a copy of page `vpn` as the program must see it.
    fn frozen_page(&self, core: &Core, worker: &mut Worker, vpn: Vpn) -> usize {
        match core.parked.resolve(vpn) {
            Resolved::Discarded => ZERO_PAGE.as_ptr() as usize,
            Resolved::At(vpn) => self.bytes_of(worker, core.extents.place(vpn)),
        }
    }

    fn bytes_of(&self, worker: &mut Worker, place: Place) -> usize {
        match place {
            Place::Present | Place::Gone => ZERO_PAGE.as_ptr() as usize,
            Place::Standby(at) | Place::Storing(at) => self.address(at),
            Place::Stored(slot) | Place::Loading(slot) => {
                if let Err(error) =
                    self.zswap
                        .load_into(&mut worker.context, slot, &mut worker.page)
                {
                    self.fail(format_args!(
                        "a stored page failed its check during a fork ({error})"
                    ));
                }
                worker.page.as_ptr() as usize
            }
        }
    }
}

/// Where page `vpn` is after `events`; `None` if it was discarded.
fn forward(events: &[Message], vpn: Vpn) -> Option<Vpn> {
    events.iter().try_fold(vpn, |vpn, event| match *event {
        Message::Remove { start, end } | Message::Unmap { start, end } => {
            (!pages_within(start, end).contains(&vpn)).then_some(vpn)
        }
        Message::Remap { from, to, len } if pages_within(from, from + len).contains(&vpn) => {
            Some(vpn - (from >> PAGE_SHIFT) + (to >> PAGE_SHIFT))
        }
        _ => Some(vpn),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_a_childs_events() {
        const PAGE: usize = PAGE_SIZE;
        let events = [
            Message::Remap {
                from: 0x10 * PAGE,
                to: 0x50 * PAGE,
                len: 4 * PAGE,
            },
            Message::Remove {
                start: 0x51 * PAGE,
                end: 0x52 * PAGE,
            },
        ];
        assert_eq!(forward(&events, 0x10), Some(0x50));
        assert_eq!(forward(&events, 0x11), None);
        assert_eq!(forward(&events, 0x20), Some(0x20));
    }
}
