//! Forks: the parent's side.
//!
//! A child has a copy-on-write image of the arena, the pool and our tables,
//! so it can serve itself, if that image is consistent. For libc's fork the
//! atfork handlers (`control/atfork.rs`) see to that: `prepare` has the control thread
//! *freeze* the manager (no operation under way; only words change; faults are served
//! by copying, `swapin/frozen.rs`), and the child's handler starts threads of its own
//! before user code runs (`control/threads.rs`). Until it has, the parent serves the
//! child's faults through the descriptor that came with the FORK event.
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
//! after_fork_parent ->  reads all events          code after the fork
//!     goes on  <------  settled
//!                       closes its descriptor <-- asks (adopt = ASKED)
//!                       thaw                  --> registers, starts threads
//! ```

use crate::fork::Forks;
use crate::fork_handshake::{ForkWords, adopt, request};
use crate::segment::Counter;
use crate::transfer::worker::Worker;
use core::sync::atomic::Ordering;
use zfolio_sys::arena::unmap;
use zfolio_sys::heap;
use zfolio_sys::lock::{futex_wait, pause};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns, yield_now};

/// Between two looks whether parked events could be applied, ns, and looks at
/// most: a second or so. Asleep, since the program's threads, with a lower
/// priority than ours, must run to end their events.
const SETTLE_NS: u64 = 20_000;
const SETTLE_TURNS: u32 = 20_000;

/// How long a child may take to ask, once its parent's fork has returned, ns. It asks within
/// a millisecond, unless it is stopped, or the machine has far more to do than it can; and
/// as long the parent cannot move a page.
const LEASE_NS: u64 = 1_000_000_000;

impl Forks {
    /// The control thread's part in forks.
    pub(crate) fn follow_forks(&self, worker: &mut Worker) {
        let words = self.fork_words();
        if self.core.lock().freeze.is_raw_fork() {
            self.await_quiet();
            self.release_children(worker, true, None);
            self.thaw(worker);
        }
        if self.fork_asked() {
            self.give_up_old_words();
            self.freeze();
            words.set(words.request(), request::FROZEN);
            let taken = self.fork_window(words, worker);
            self.count(Counter::Forks, 1);
            self.thaw(worker);
            // The next fork has words of its own then, if they can be had (else
            // the child finds another fork's number there, and ends).
            if !taken {
                let _ = self.renew_fork_words();
            }
            words.set(words.request(), request::NONE);
        }
    }

    /// No operation starts from here on, and none is under way at the end.
    ///
    /// First what is parked is applied: the events of the thread that forks are
    /// all read, so they are in the image then, and need not be told apart
    /// from those of others. (They can always be applied in the end: while any
    /// is parked no operation starts.)
    fn freeze(&self) {
        for turn in 0.. {
            {
                let mut core = self.core.lock();
                self.apply_parked(&mut core);
                // (A raw fork freezes by itself, and is answered for with this one.)
                if core.inbox.parked().is_empty() || core.freeze.is_frozen() || turn == SETTLE_TURNS
                {
                    core.freeze.begin();
                    break;
                }
            }
            self.control_goes_on();
            pause(SETTLE_NS);
            self.pump_for_others(&mut self.core.lock());
        }
        self.await_quiet();
        heap::usage::freeze(true);
    }

    fn await_quiet(&self) {
        while self.is_under_way() {
            yield_now();
        }
    }

    /// Ends a freeze, once every child that came meanwhile has been let go:
    /// one left behind would miss what changes from now on.
    fn thaw(&self, worker: &mut Worker) {
        loop {
            let mut core = self.core.lock();
            if core.inbox.children().is_empty() {
                core.freeze.thaw();
                self.drop_superseded(&mut core);
                self.apply_parked(&mut core);
                return;
            }
            drop(core);
            self.release_children(worker, true, None);
        }
    }

    /// From the freeze until the child stands on its own. False: it has not read
    /// what the words have for it.
    fn fork_window(&self, words: ForkWords, worker: &mut Worker) -> bool {
        let (mut granted, mut taken) = (false, true);
        let mut lease_ends = None;
        loop {
            self.control_goes_on();
            words.beat();
            let wake_seq = words.bell().load(Ordering::Acquire);
            let parent_done = words.request().load(Ordering::Acquire) == request::PARENT_DONE;
            let asked = words.adopt().load(Ordering::Acquire);
            if !parent_done && asked == adopt::NONE {
                // The image may be being copied just now: nothing here may
                // change it, the heap and its lock least of all.
                futex_wait(words.bell(), wake_seq, Some(200_000));
                continue;
            }
            self.core.lock().freeze.note_copied();
            heap::usage::freeze(false);
            // (Whether fork has returned, or its child runs: its event has been read.)
            if words.settled().load(Ordering::Acquire) == 0 {
                self.read_all_events();
                words.set(words.settled(), 1);
            }
            let children = self.serve_children(worker);
            let now = now_ns(Clock::Monotonic);
            if parent_done && children > 0 && asked == adopt::NONE {
                let ends = *lease_ends.get_or_insert(now + LEASE_NS);
                if now > ends && words.expire() {
                    self.release_children(worker, true, Some(words));
                    words.set(words.adopt(), adopt::GRANTED);
                    self.count(Counter::ForkLeasesExpired, 1);
                    return false;
                }
            }
            if matches!(asked, adopt::ASKED | adopt::ASKED_FILL) {
                self.release_children(worker, asked == adopt::ASKED_FILL, Some(words));
                words.set(words.adopt(), adopt::GRANTED);
                taken = words.await_taken();
                granted = true;
            }
            // Done; or the fork failed; or the child died before it asked.
            if parent_done && (granted || children == 0 || !self.any_child_lives()) {
                return taken;
            }
            futex_wait(words.bell(), wake_seq, Some(200_000));
        }
    }

    /// Makes new words for the next fork. The old ones may be looked at until that
    /// begins, when [`Self::give_up_old_words`] is called.
    pub(crate) fn renew_fork_words(&self) -> Result<(), Errno> {
        let old = self.words.range();
        self.words.renew()?;
        self.hand.lock().vmas.keep_private(self.words.range());
        *self.old_words.lock() = Some(old);
        Ok(())
    }

    /// No thread of this process uses the words of the last fork any more.
    pub(crate) fn give_up_old_words(&self) {
        if let Some(old) = self.old_words.lock().take() {
            self.hand.lock().vmas.give_up_private(&old);
            unmap(old);
        }
    }
}
