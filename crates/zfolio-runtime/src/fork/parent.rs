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

use crate::address_space::place::Place;
use crate::events::parked::Resolved;
use crate::faces::manager::{Core, Fault, Manager, STACK, Worker};
use crate::faults::by_message::Outcome;
use crate::fork_handshake::{ForkWords, adopt, request};
use crate::segment::{Counter, FaultKind};
use crate::transfer::move_in::Landed;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::heap;
use zfolio_sys::identity;
use zfolio_sys::lock::{futex_wait, pause};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, Life, now_ns, spawn_with, yield_now};

/// Between two looks whether parked events could be applied, ns, and looks at
/// most: a second or so. Asleep, since the program's threads, with a lower
/// priority than ours, must run to end their events.
const SETTLE_NS: u64 = 20_000;
const SETTLE_TURNS: u32 = 20_000;

/// How long a child may take to ask, once its parent's fork has returned, ns. It asks within
/// a millisecond, unless it is stopped, or the machine has far more to do than it can; and
/// as long the parent cannot move a page.
const LEASE_NS: u64 = 1_000_000_000;

/// A page of zeros to copy from.
pub(crate) static ZERO_PAGE: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

impl Manager {
    /// atfork `prepare`: returns once the image is fit to be copied.
    pub fn before_fork(&self) {
        ForkWords::wait(self.fork_words().request(), request::NONE, || true);
        // (Renewed, perhaps, before that was said.)
        let words = self.fork_words();
        self.fork_generation.store(words.renew(), Ordering::Release);
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
        // Who forks to end (a daemon) would take with it what its child is still
        // to be given.
        if self.zswap.backing_pages() > 0 {
            ForkWords::wait(words.request(), request::NONE, || true);
        }
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

    /// A program thread waits to fork.
    pub(crate) fn fork_asked(&self) -> bool {
        self.fork_words().request().load(Ordering::Acquire) == request::PREPARE
    }

    /// In the child of a fork, on the program's thread: starts the thread that
    /// takes over, and returns when faults are served again, or need not be.
    /// `fit`: whether this child may have such a thread.
    pub fn after_fork_child(&'static self, fit: bool) {
        heap::usage::freeze(false);
        self.child_ready.store(0, Ordering::Release);
        let adopt: Life<Self> = |manager, _, stack| manager.adopt(stack);
        let refused = if fit {
            spawn_with(STACK, self, 0, adopt).err()
        } else {
            Some(Errno::PERM)
        };
        if let Some(errno) = refused {
            self.go_unmanaged("starting a thread", errno);
            return;
        }
        while self.child_ready.load(Ordering::Acquire) == 0 {
            futex_wait(&self.child_ready, 0, None);
        }
    }

    /// Whether this process is the one the manager's threads run in (a raw
    /// fork's child has the tables and no threads).
    pub fn is_ours(&self) -> bool {
        self.identity.load(Ordering::Relaxed) == identity::of_process()
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
                self.settle(&mut core);
                // (A raw fork freezes by itself, and is answered for with this one.)
                if core.parked.is_empty() || core.fork_freeze || turn == SETTLE_TURNS {
                    core.fork_freeze = true;
                    core.being_copied = true;
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

    /// From the freeze until the child stands on its own. False: it has not read
    /// what the words have for it.
    fn fork_window(&self, words: ForkWords, worker: &mut Worker) -> bool {
        let (mut granted, mut taken) = (false, true);
        let mut lease_ends = None;
        loop {
            self.control_goes_on();
            words.beat();
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
            heap::usage::freeze(false);
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
        if !self.order_parked(core) {
            return Outcome::Defer;
        }
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
            // (In regions alone pages are clean, and no child has those.)
            Place::Present | Place::Gone | Place::Clean(_) => ZERO_PAGE.as_ptr() as usize,
            Place::Standby(at) | Place::Storing(at) => self.address(at),
            Place::Stored(slot) | Place::Loading(slot) => {
                let Worker { context, page, .. } = &mut *worker;
                let loaded =
                    self.during_io(|| self.zswap.load_into(context, slot, Worker::room(page, 1)));
                if let Err(error) = loaded {
                    self.fail(format_args!(
                        "a stored page failed its check during a fork ({error})"
                    ));
                }
                worker.page.as_ptr() as usize
            }
        }
    }
}
