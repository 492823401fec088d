//! Messages of userfaultfd become events and faults of ours: the one place that reads them.

use crate::events::event::Event;
use crate::kernel::Uffd;
use zfolio_sys::uffd::{Message, RawMessage};

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A thread waits for the page at `address`.
    Fault {
        /// Address touched, page-aligned.
        address: usize,
        /// The access was a write.
        write: bool,
        /// Which thread.
        thread: u32,
    },
    /// The program forked; this descriptor serves the child.
    Child(Uffd),
    /// It changed its address space.
    Event(Event),
}

impl Told {
    /// What a message says; `None` for a kind that is not known.
    pub(crate) fn of(message: &RawMessage) -> Option<Self> {
        Some(match message.decode()? {
            Message::Fault {
                address,
                write,
                thread,
            } => Self::Fault {
                address,
                write,
                thread,
            },
            Message::Fork { fd } => Self::Child(Uffd::from_fd(fd)),
            Message::Remap { from, to, len } => Self::Event(Event::Remap { from, to, len }),
            Message::Remove { start, end } => Self::Event(Event::Remove { start, end }),
            Message::Unmap { start, end } => Self::Event(Event::Unmap { start, end }),
        })
    }
}
