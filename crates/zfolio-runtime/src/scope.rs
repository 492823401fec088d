//! Whose memory is moved: all that a process has, or regions that it asked for.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
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

    /// The target now, pages, of which `asked` was asked for at first.
    pub(crate) fn high(&self, asked: usize) -> usize {
        match self {
            Self::Process => asked,
            Self::Regions(regions) => regions.high.load(Ordering::Relaxed),
        }
    }

    /// Changes the target; false where it is not the program's to change.
    pub(crate) fn set_high(&self, pages: usize) -> bool {
        match self {
            Self::Process => false,
            Self::Regions(regions) => {
                regions.high.store(pages, Ordering::Relaxed);
                true
            }
        }
    }

    /// Frames that the program has and that did not come out of the arena, where they are
    /// counted: see [`Self::counts_frames`].
    pub(crate) fn charged(&self) -> Option<usize> {
        match self {
            Self::Process => None,
            Self::Regions(regions) => Some(regions.charged.load(Ordering::Relaxed)),
        }
    }

    /// Counts such frames, where they are counted.
    pub(crate) fn charge(&self, pages: usize) {
        if let Self::Regions(regions) = self {
            regions.charged.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// The opposite.
    pub(crate) fn uncharge(&self, pages: usize) {
        if let Self::Regions(regions) = self {
            regions.charged.fetch_sub(pages, Ordering::Relaxed);
        }
    }

    /// What changes with the list of mappings, where they change by calls of ours alone.
    /// `None`: whoever wants to know them asks the kernel.
    pub(crate) fn generation(&self) -> Option<u32> {
        match self {
            Self::Process => None,
            Self::Regions(regions) => Some(regions.generation.load(Ordering::Acquire)),
        }
    }

    /// A range was added or removed.
    pub(crate) fn changed(&self) {
        if let Self::Regions(regions) = self {
            regions.generation.fetch_add(1, Ordering::Release);
        }
    }

    /// Tells the face that something is about to be moved out.
    pub(crate) fn before_moving(&self) {
        if let Self::Regions(regions) = self {
            (regions.before_moving)();
        }
    }

    /// Whether `max` and the pool's part are what it was made with. Without: they are in the
    /// control segment, and are followed while a run lasts.
    pub(crate) const fn has_own_limits(&self) -> bool {
        match self {
            Self::Process => false,
            Self::Regions(_) => true,
        }
    }

    /// Whether the program that we are guests of may close a descriptor of ours. (A process's
    /// threads have tables of their own, whatever it is.)
    pub(crate) const fn is_guest(&self) -> bool {
        match self {
            Self::Process => false,
            Self::Regions(_) => true,
        }
    }

    /// Notes the descriptor of the backing's file for threads with tables of their own.
    pub(crate) fn note_backing(&self, fd: usize) {
        if let Self::Regions(regions) = self {
            regions.backing_fd.store(fd, Ordering::Relaxed);
        }
    }

    /// That descriptor, where one was noted.
    pub(crate) fn backing(&self) -> Option<usize> {
        match self {
            Self::Process => None,
            Self::Regions(regions) => {
                let fd = regions.backing_fd.load(Ordering::Relaxed);
                (fd != usize::MAX).then_some(fd)
            }
        }
    }

    /// The stack on which worker `index`, of those that serve faults, works in the thread that
    /// touches; `None` where faults are not served there.
    pub(crate) fn stack_of(&self, index: usize) -> Option<&CallStack> {
        match self {
            Self::Process => None,
            Self::Regions(regions) => regions.stacks.get(index.checked_sub(1)?),
        }
    }

    /// Where huge pages for first touches are made; `None` where the kernel serves those
    /// itself, as long as a range is not registered.
    pub(crate) fn first_touches(&self) -> Option<&FirstTouches> {
        match self {
            Self::Process => None,
            Self::Regions(regions) => Some(&regions.first_touches),
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
    pub(crate) first_touches: FirstTouches,
    /// The backing's file; `usize::MAX`: there is none.
    pub(crate) backing_fd: AtomicUsize,
    /// Changes with every region that comes or goes.
    pub(crate) generation: AtomicU32,
}

/// Huge pages for what is touched first.
pub(crate) struct FirstTouches {
    /// 2 MiB of addresses where the kernel makes huge pages, for one at a time.
    pub(crate) nursery: Mutex<usize>,
    /// First touches to go before the kernel is asked for one again.
    pub(crate) no_huge: AtomicU32,
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
