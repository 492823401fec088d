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

/// What the scopes differ in. Everybody else asks for one of these, and never which scope it
/// is: another scope answers here.
impl Scope {
    /// Whether what happens to the addresses is told by events, and is not ours to prevent: a
    /// range may be gone, or be somebody else's, before we know. Without: a range is ours from
    /// when it is added until it is removed.
    pub(crate) const fn has_events(&self) -> bool {
        match self {
            Self::Process => true,
            Self::Regions(_) => false,
        }
    }

    /// Whether usage is what is counted of the frames given out, and frames come from the
    /// system as long as that leaves room. Without: usage is what the kernel says is resident.
    pub(crate) const fn counts_frames(&self) -> bool {
        match self {
            Self::Process => false,
            Self::Regions(_) => true,
        }
    }

    /// Whether the control thread looks at usage by itself. Without: whoever takes a frame
    /// rings for it.
    pub(crate) const fn polls_usage(&self) -> bool {
        match self {
            Self::Process => true,
            Self::Regions(_) => false,
        }
    }

    /// Whether pages leave by way of an airlock, because the arena is registered with another
    /// descriptor than the program.
    pub(crate) const fn uses_airlock(&self) -> bool {
        match self {
            Self::Process => true,
            Self::Regions(_) => false,
        }
    }

    /// Whether all of the process is counted: `high` may be a share of a run's, and it is told
    /// what cannot leave.
    pub(crate) const fn is_whole(&self) -> bool {
        match self {
            Self::Process => true,
            Self::Regions(_) => false,
        }
    }

    /// Whether many threads store at once, so that more pages are stored together.
    pub(crate) const fn stores_in_batches(&self) -> bool {
        match self {
            Self::Process => false,
            Self::Regions(_) => true,
        }
    }

    /// Whether faults are served in the thread that touches: no thread of ours reads events
    /// or returns frames for it.
    pub(crate) fn serves_in_thread(&self) -> bool {
        match self {
            Self::Process => false,
            Self::Regions(regions) => regions.serving == Serving::InThread,
        }
    }

    /// Whether pages can be write-protected: see [`crate::transfer::clean_pages`].
    pub(crate) const fn protects(&self) -> bool {
        match self {
            Self::Process => false,
            Self::Regions(regions) => regions.protects,
        }
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
    /// The backing's file; `usize::MAX`: there is none.
    pub(crate) backing_fd: AtomicUsize,
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
