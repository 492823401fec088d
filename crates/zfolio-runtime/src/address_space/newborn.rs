//! Children of forks whose memory is still ours to serve: their descriptors, and what those told.

use crate::address_space::told::Told;
use crate::events::event::Event;
use crate::kernel::Uffd;
use alloc::vec::Vec;
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::Errno;
use zfolio_sys::uffd::RawMessage;

/// Between two looks for a moment without an event in flight, ns. Asleep: the
/// program's threads, with a lower priority than ours, must run to end theirs.
pub(crate) const QUIET_NS: u64 = 20_000;

/// A child whose ranges are still ours.
pub(crate) struct Child {
    pub(crate) uffd: Uffd,
    /// The FORK event's: marks its place among those parked.
    pub(crate) mark: i32,
    /// So many of the parked events had been read when first none was in flight after the
    /// fork: the rest came after it. `None`: there was no such moment yet.
    pub(crate) read_by_then: Option<usize>,
    /// What it did to its address space since.
    pub(crate) since: Vec<Event>,
    /// Its own children, not answered for yet.
    pub(crate) forks: Vec<Uffd>,
}

impl Child {
    pub(crate) fn new(uffd: Uffd, mark: i32) -> Self {
        Self {
            uffd,
            mark,
            read_by_then: None,
            since: Vec::new(),
            forks: Vec::new(),
        }
    }

    /// Reads what waits: hands out the addresses of faults, keeps events and
    /// the child's own children.
    pub(crate) fn pump(&mut self, mut fault: impl FnMut(usize)) {
        let mut messages = [RawMessage::default(); 8];
        while let Ok(count @ 1..) = self.uffd.read(&mut messages) {
            for message in messages[..count].iter().filter_map(Told::of) {
                match message {
                    Told::Fault { address, .. } => fault(address),
                    Told::Child(uffd) => self.forks.push(uffd),
                    Told::Event(event) => self.since.push(event),
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
