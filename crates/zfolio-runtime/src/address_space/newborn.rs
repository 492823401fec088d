//! Children of forks whose memory is still ours to serve: their descriptors, and what those told.

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::address_space::inbox::Inbox;
use alloc::vec::Vec;
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::Errno;
use zfolio_sys::uffd::{Message, RawMessage, Uffd};

/// Between two looks for a moment without an event in flight, ns. Asleep: the
/// program's threads, with a lower priority than ours, must run to end theirs.
pub(crate) const QUIET_NS: u64 = 20_000;

/// A child whose ranges are still ours.
pub(crate) struct Child {
    pub(crate) uffd: Uffd,
    /// The FORK event's: marks its place among those parked.
    pub(crate) mark: i32,
    /// What it did to its address space since.
    pub(crate) since: Vec<Message>,
    /// Its own children, not answered for yet.
    pub(crate) forks: Vec<Uffd>,
}

impl Child {
    fn new(uffd: Uffd, mark: i32) -> Self {
        Self {
            uffd,
            mark,
            since: Vec::new(),
            forks: Vec::new(),
        }
    }

    /// Reads what waits: hands out the addresses of faults, keeps events and
    /// the child's own children.
    pub(crate) fn pump(&mut self, mut fault: impl FnMut(usize)) {
        let mut messages = [RawMessage::default(); 8];
        while let Ok(count @ 1..) = self.uffd.read(&mut messages) {
            for message in messages[..count].iter().filter_map(RawMessage::decode) {
                match message {
                    Message::Fault { address, .. } => fault(address),
                    Message::Fork { fd } => self.forks.push(Uffd::from_fd(fd)),
                    event => self.since.push(event),
                }
            }
        }
    }

    pub(crate) fn is_registered(&mut self, address: usize) -> bool {
        loop {
            match self.uffd.is_registered(address) {
                Ok(answer) => return answer,
                Err(Errno::AGAIN) => {
                    self.pump(drop);
                    pause(QUIET_NS);
                }
                Err(_) => return false,
            }
        }
    }
}

impl Space {
    /// A FORK event was read, under the core lock.
    pub(crate) fn note_fork(&self, core: &mut Core, child: Uffd) {
        core.inbox.children.push(Child::new(child, child.fd()));
        core.inbox.parked.push(Message::Fork { fd: child.fd() });
        if !core.freeze.frozen {
            core.freeze.frozen = true;
            core.freeze.raw_fork = true;
            self.wakeups.wake_control();
        }
    }
}

impl Inbox {
    /// A child forked in its turn: its children lack what it lacks, and have
    /// its past.
    pub(crate) fn answer_for_forks_of(&mut self, child: &mut Child) {
        let (mark, since) = (child.mark, &child.since);
        let young = child.forks.drain(..).map(|uffd| Child {
            since: since.clone(),
            ..Child::new(uffd, mark)
        });
        self.children.extend(young);
    }
}
