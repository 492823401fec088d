//! A fault of the program's: what is known of it, and what became of it.

use crate::page::Vpn;
use crate::segment::FaultKind;

/// What a thread did that faulted, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Access {
    /// It read.
    Read,
    /// It wrote, or may have.
    #[default]
    Write,
}

/// A fault read from the descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) vpn: Vpn,
    pub(crate) access: Access,
    /// The thread that waits for it.
    pub(crate) thread: u32,
    /// CLOCK_MONOTONIC when it was read, ns.
    pub(crate) read_ns: u64,
    /// Times it waited for frames.
    pub(crate) waits: u32,
}

/// What became of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The page is in place.
    Served(FaultKind),
    /// An event is in flight, or the world is frozen: later.
    Defer,
    /// Frames are short: wait for reclaim, then try again.
    NeedFrames,
}
