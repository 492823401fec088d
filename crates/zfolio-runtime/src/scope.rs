//! Whose memory is moved: all that a process has, or regions that it asked for.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize};
use zfolio_sys::lock::Mutex;
use zfolio_sys::thread::CallStack;

/// Whose memory a manager moves.
pub(crate) enum Scope {
    /// All that the process has, and it is not asked.
    Process,
    /// Regions.
    Regions(Regions),
}

impl Scope {
    pub(crate) const fn is_process(&self) -> bool {
        matches!(self, Self::Process)
    }
}

/// What the scope of regions needs besides.
pub(crate) struct Regions {
    pub(crate) serving: Serving,
    /// Whether pages can be write-protected: see [`crate::transfer::clean_pages`].
    pub(crate) protects: bool,
    /// The target now, pages.
    pub(crate) high: AtomicUsize,
    /// A stack for each worker that serves in the thread that touches.
    pub(crate) stacks: Vec<CallStack>,
    /// Frames that regions have and that did not come out of the arena, less
    /// those that went with a region.
    pub(crate) charged: AtomicUsize,
    /// Called before something is moved out.
    pub(crate) before_moving: fn(),
    /// 2 MiB of addresses where the kernel makes huge pages, for one at a time.
    pub(crate) nursery: Mutex<usize>,
    /// First touches to go before the kernel is asked for one again.
    pub(crate) no_huge: AtomicU32,
    /// Changes with every region that comes or goes.
    pub(crate) generation: AtomicU32,
}

/// Who serves the faults of regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serving {
    /// The thread that touches, in a signal handler. A missing page is EFAULT
    /// to a system call. Needs no privilege.
    InThread,
    /// Threads of their own: system calls see nothing unusual. Needs what
    /// `zfolio run` needs.
    Threads,
    /// The thread that touches, as in [`Self::InThread`], but by page protection
    /// and SIGSEGV instead of userfaultfd: slower, and works where that is
    /// refused. Memory that a direct read writes to (`O_DIRECT`, io_uring, a device)
    /// must be pinned from before the call until it has ended, or bytes may be lost.
    Protected,
}
