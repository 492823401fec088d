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

use crate::control::{Counter, FaultKind};
use crate::events::Resolved;
use crate::fault::Outcome;
use crate::manager::{Core, Fault, Manager, STACK, Worker};
use crate::movein::Landed;
use crate::word::Place;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::arena::Words;
use zfolio_sys::lock::{futex_wait, futex_wake};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::yield_now;
use zfolio_sys::uffd::Message;

/// A page of zeros to copy from.
pub(crate) static ZERO_PAGE: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

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
    /// I have read what was left for me.
    pub(super) const TAKEN: u32 = 4;
}

/// Where the list of events lies among the words: its length, its start, and
/// the words of one event.
const COUNT: usize = 8;
const GENERATION: usize = 9;
const LIST: usize = 16;
const EVENT: usize = 7;
/// In place of a length: the child was filled.
const FILLED: u32 = u32::MAX;

/// Words that parent and child share during a fork.
#[derive(Clone, Copy)]
pub(crate) struct ForkWords(&'static Words);

impl ForkWords {
    pub(crate) fn new(words: &'static Words) -> Self {
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

    /// Leaves a list of events for the child; false if they do not fit.
    pub(crate) fn leave(&self, events: &[Message]) -> bool {
        let room = self.0[LIST..].chunks_exact(EVENT);
        if events.len() > room.len() {
            return false;
        }
        for (event, words) in events.iter().zip(room) {
            let (kind, [a, b, c]) = match *event {
                Message::Remove { start, end } => (1, [start, end, 0]),
                Message::Unmap { start, end } => (2, [start, end, 0]),
                Message::Remap { from, to, len } => (3, [from, to, len]),
                Message::Fault { .. } | Message::Fork { .. } => (0, [0; 3]),
            };
            let halves = [a, b, c]
                .into_iter()
                .flat_map(|word| [word as u64 & 0xffff_ffff, word as u64 >> 32]);
            for (word, half) in words.iter().zip(core::iter::once(kind).chain(halves)) {
                word.store(u32::try_from(half).unwrap_or(0), Ordering::Relaxed);
            }
        }
        self.0[COUNT].store(u32::try_from(events.len()).unwrap_or(0), Ordering::Release);
        true
    }

    /// Tells the child that it was given everything.
    pub(crate) fn leave_filled(&self) {
        self.0[COUNT].store(FILLED, Ordering::Release);
    }

    /// Whether the parent gave the child everything.
    pub(crate) fn is_filled(&self) -> bool {
        self.0[COUNT].load(Ordering::Acquire) == FILLED
    }

    /// The events left by the parent.
    pub(crate) fn left(&self) -> impl Iterator<Item = Message> + use<> {
        let count = self.0[COUNT].load(Ordering::Acquire);
        let count = if count == FILLED { 0 } else { count as usize };
        self.0[LIST..]
            .chunks_exact(EVENT)
            .take(count)
            .filter_map(|words| {
                let half = |at: usize| words[at].load(Ordering::Relaxed) as usize;
                let word = |at: usize| half(at) | half(at + 1) << 32;
                match half(0) {
                    1 => Some(Message::Remove {
                        start: word(1),
                        end: word(3),
                    }),
                    2 => Some(Message::Unmap {
                        start: word(1),
                        end: word(3),
                    }),
                    3 => Some(Message::Remap {
                        from: word(1),
                        to: word(3),
                        len: word(5),
                    }),
                    _ => None,
                }
            })
    }

    fn set(&self, word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
        futex_wake(word, u32::MAX);
        self.bell().fetch_add(1, Ordering::Release);
        futex_wake(self.bell(), u32::MAX);
    }

    /// Waits while `word` has `value`; calls `idle` every 10 ms, and gives up
    /// (false) when that says so.
    fn wait_while(word: &AtomicU32, value: u32, mut idle: impl FnMut() -> bool) -> bool {
        while word.load(Ordering::Acquire) == value {
            futex_wait(word, value, Some(10_000_000));
            if word.load(Ordering::Acquire) == value && !idle() {
                return false;
            }
        }
        true
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
        Self::wait_while(
            self.adopt(),
            if fill {
                adopt::ASKED_FILL
            } else {
                adopt::ASKED
            },
            &mut parent_lives,
        )
    }

    /// The child has read what was left for it; false if that was of a later
    /// fork already.
    pub(crate) fn taken(&self, generation: u32) -> bool {
        let mine = self.0[GENERATION].load(Ordering::Acquire) == generation;
        if mine {
            self.set(self.adopt(), adopt::TAKEN);
        }
        mine
    }

    /// The parent gives the child time to read before the next fork: it takes
    /// less than a millisecond, unless the child died.
    fn await_taken(&self) {
        let mut turns = 0;
        Self::wait_while(self.adopt(), adopt::GRANTED, || {
            turns += 1;
            turns < 100
        });
    }
}

impl Manager {
    /// atfork `prepare`: returns once the image is fit to be copied.
    pub fn before_fork(&self) {
        let words = self.fork_words();
        ForkWords::wait(words.request(), request::NONE, || true);
        words.adopt().store(adopt::NONE, Ordering::Release);
        words.0[COUNT].store(0, Ordering::Release);
        let generation = words.0[GENERATION].fetch_add(1, Ordering::AcqRel) + 1;
        self.fork_generation.store(generation, Ordering::Release);
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

    /// The control thread's part in forks.
    pub(crate) fn follow_forks(&self, worker: &mut Worker) {
        let words = self.fork_words();
        if self.core.lock().raw_fork {
            self.await_quiet();
            self.release_children(worker, true, None);
            self.thaw(worker);
        }
        if self.fork_asked() {
            {
                let mut core = self.core.lock();
                core.fork_freeze = true;
                core.being_copied = true;
            }
            self.await_quiet();
            words.set(words.request(), request::FROZEN);
            self.fork_window(words, worker);
            self.count(Counter::Forks, 1);
            self.thaw(worker);
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

    /// Ends a freeze, once every child that came meanwhile has been let go:
    /// one left behind would miss what changes from now on.
    fn thaw(&self, worker: &mut Worker) {
        loop {
            let mut core = self.core.lock();
            if core.children.is_empty() {
                core.raw_fork = false;
                core.fork_freeze = false;
                self.drop_superseded(&mut core);
                self.settle(&mut core);
                return;
            }
            drop(core);
            self.release_children(worker, true, None);
        }
    }

    /// From the freeze until the child stands on its own.
    fn fork_window(&self, words: ForkWords, worker: &mut Worker) {
        let mut granted = false;
        loop {
            let rung = words.bell().load(Ordering::Acquire);
            let parent_done = words.request().load(Ordering::Acquire) == request::PARENT_DONE;
            let asked = words.adopt().load(Ordering::Acquire);
            if !parent_done && asked == adopt::NONE {
                // The image may be being copied just now: nothing here may
                // change it, the heap and its lock least of all.
                futex_wait(words.bell(), rung, Some(200_000));
                continue;
            }
            self.core.lock().being_copied = false;
            let children = self.serve_children(worker);
            if matches!(asked, adopt::ASKED | adopt::ASKED_FILL) {
                self.release_children(worker, asked == adopt::ASKED_FILL, Some(words));
                words.set(words.adopt(), adopt::GRANTED);
                words.await_taken();
                granted = true;
            }
            // Done; or the fork failed; or the child died before it asked.
            if parent_done && (granted || children == 0 || !self.any_child_lives()) {
                return;
            }
            futex_wait(words.bell(), rung, Some(200_000));
        }
    }

    /// Serves a fault of the program while words must stay: by a copy, and at
    /// once. (libc's fork waits for whoever is inside malloc, and that one may
    /// wait for a page: no fault may wait for the end of a fork.) The page is
    /// noted, and its word dropped at the thaw: what the program has
    /// is newer from now on. (Its word, by the page it is under: events that
    /// would move it are parked.)
    pub(crate) fn serve_frozen(
        &self,
        core: &mut Core,
        worker: &mut Worker,
        fault: Fault,
    ) -> Outcome {
        let page = core.parked.resolve(fault.vpn);
        let from = self.page_before(core, worker, page);
        match self.copy_in(fault.vpn, from) {
            Landed::Refused(errno) => self.refused(fault.vpn, errno),
            Landed::AlreadyThere => Outcome::Served(FaultKind::Stale),
            _ => {
                if let Resolved::At(vpn) = page {
                    core.note_superseded(vpn);
                }
                Outcome::Served(FaultKind::Page)
            }
        }
    }

    /// Address of a copy of what a page was before events it was traced
    /// through.
    pub(crate) fn page_before(&self, core: &Core, worker: &mut Worker, page: Resolved) -> usize {
        match page {
            Resolved::Discarded => ZERO_PAGE.as_ptr() as usize,
            Resolved::At(vpn) => self.bytes_of(worker, core.extents.place(vpn)),
        }
    }

    pub(crate) fn bytes_of(&self, worker: &mut Worker, place: Place) -> usize {
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    #[test]
    fn a_list_of_events_survives_the_shared_words() {
        let words: &'static Words = Box::leak(Box::new([const { AtomicU32::new(0) }; 16 << 10]));
        let words = ForkWords::new(words);
        let big = 0x7fff_1234_5000;
        let events = [
            Message::Remove {
                start: big,
                end: big + 4096,
            },
            Message::Remap {
                from: big,
                to: 4096,
                len: 1 << 40,
            },
            Message::Unmap { start: 0, end: big },
        ];
        assert!(words.leave(&events));
        assert_eq!(words.left().collect::<Vec<_>>(), events);
        assert!(!words.leave(&[events[0]; 5000]), "more than fits");
    }
}
