//! Reading the descriptor: events are applied, faults queued.
//!
//! Every event that has left the kernel's queue is applied, or parked, under the core lock
//! under which it was read.

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::address_space::newborn::Child;
use crate::address_space::told::Told;
use crate::events::event::Event;
use crate::kernel::Uffd;
use crate::page_fault::Fault;
use crate::pager::Access;
use zfolio_mm::PAGE_SHIFT;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_sys::uffd::RawMessage;

/// Messages read at once.
const MESSAGES: usize = 16;

impl Space {
    /// [`Self::pump`] for a thread that will not serve what it finds at once:
    /// the one waiting on the descriptor would not learn of it.
    pub(crate) fn pump_for_others(&self, core: &mut Core) {
        self.pump(core);
        if !core.inbox.pending.is_empty() {
            self.wakeups.wake_sibling();
        }
    }

    /// Reads what waits on the descriptor: events are applied, faults queued.
    pub(crate) fn pump(&self, core: &mut Core) {
        self.read_messages(core, &mut [RawMessage::default(); MESSAGES]);
    }

    /// [`Self::pump`], unless events had better stay unread for now. (Who reads for others
    /// goes on at once with something else: it must not wait for a hold.)
    pub(crate) fn pump_or_leave(&self, core: &mut Core) {
        if !self.has_read_enough(core) {
            self.pump(core);
        }
    }

    /// Reads one message, if one waits, as [`Self::pump`] reads all.
    pub(crate) fn pump_one(&self, core: &mut Core) {
        self.read_messages(core, &mut [RawMessage::default()]);
    }

    pub(crate) fn read_messages(&self, core: &mut Core, messages: &mut [RawMessage]) {
        self.take_back_what_was_left();
        let mut now = 0;
        while core.has_room(messages.len()) {
            let count = match self.fds.program().read(messages) {
                Ok(0) => return,
                Ok(count) => count,
                Err(Errno::MFILE) => self.fail(format_args!(
                    "the child of a fork cannot be followed: no descriptor is free (RLIMIT_NOFILE)"
                )),
                Err(errno) => self.fail(format_args!(
                    "the userfaultfd descriptor is lost (errno {})",
                    errno.0
                )),
            };
            self.note_read();
            if now == 0 {
                now = now_ns(Clock::Monotonic);
            }
            for message in &messages[..count] {
                self.take_message(core, message, now);
            }
            if count < messages.len() || messages.len() == 1 {
                return;
            }
        }
    }

    /// Takes one message from the descriptor.
    pub(crate) fn take_message(&self, core: &mut Core, message: &RawMessage, now: u64) {
        let Some(told) = Told::of(message) else {
            self.fail(format_args!(
                "an event of unknown kind came from the kernel: {message:?}"
            ));
        };
        match told {
            Told::Fault {
                address,
                write,
                thread,
            } => {
                let vpn = address >> PAGE_SHIFT;
                core.inbox.pending.push_back(Fault {
                    vpn,
                    access: if write { Access::Write } else { Access::Read },
                    thread,
                    read_ns: now,
                    waits: 0,
                });
            }
            Told::Child(uffd) => self.note_fork(core, uffd),
            Told::Event(event) => self.take_event(core, event),
        }
    }

    /// Takes an event, by whomever it was told: applies it, or parks it.
    fn take_event(&self, core: &mut Core, event: Event) {
        // (It was refused, which the kernel found out after it had begun to tell.)
        if let Event::Unmap { start, end } = event
            && (self.rules.is_sealed)(&(start..end))
        {
            return;
        }
        let waits = matches!(event, Event::Remap { .. } | Event::Fork { .. });
        if waits || !core.is_open() {
            core.inbox.parked.push(event);
        } else {
            self.apply(core, event);
        }
    }

    /// A FORK event was read, under the core lock.
    pub(crate) fn note_fork(&self, core: &mut Core, child: Uffd) {
        core.inbox.children.push(Child::new(child, child.fd()));
        core.inbox.parked.push(Event::Fork { mark: child.fd() });
        if !core.freeze.is_frozen() {
            core.freeze.begin_raw();
            self.wakeups.wake_control();
        }
    }
}
