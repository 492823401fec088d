//! The manager's open files.

use crate::kernel::{File, Moves, Pagemap, Uffd};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use zfolio_sys::uffd;

/// Features of the descriptor for the program's ranges.
pub(crate) const PROGRAM_FEATURES: u64 = uffd::FEATURE_MOVE
    | uffd::FEATURE_THREAD_ID
    | uffd::FEATURE_EVENT_FORK
    | uffd::FEATURE_EVENT_REMAP
    | uffd::FEATURE_EVENT_REMOVE
    | uffd::FEATURE_EVENT_UNMAP;

/// Features of the descriptor for the arena: a bug that touches an absent
/// slot crashes instead of hanging.
pub(crate) const SOURCE_FEATURES: u64 = uffd::FEATURE_MOVE | uffd::FEATURE_SIGBUS;

/// The descriptors, in the manager's own table. They change in the child of
/// a fork.
pub(crate) struct Descriptors {
    program: AtomicI32,
    statm: AtomicUsize,
    pagemap: AtomicUsize,
    /// The list of mappings, to ask about one mapping.
    maps: AtomicUsize,
}

impl Descriptors {
    pub(crate) fn new(program: Uffd, statm: File, pagemap: Pagemap, maps: File) -> Self {
        Self {
            program: AtomicI32::new(program.fd()),
            statm: AtomicUsize::new(statm.fd()),
            pagemap: AtomicUsize::new(pagemap.file().fd()),
            maps: AtomicUsize::new(maps.fd()),
        }
    }

    /// For the child of a fork: descriptors of its own.
    pub(crate) fn adopt(&self, program: Uffd, statm: File, pagemap: Pagemap, maps: File) {
        self.program.store(program.fd(), Ordering::Relaxed);
        self.statm.store(statm.fd(), Ordering::Relaxed);
        self.pagemap.store(pagemap.file().fd(), Ordering::Relaxed);
        self.maps.store(maps.fd(), Ordering::Relaxed);
    }

    pub(crate) fn statm(&self) -> File {
        File::from_fd(self.statm.load(Ordering::Relaxed))
    }

    pub(crate) fn pagemap(&self) -> Pagemap {
        Pagemap::from_file(File::from_fd(self.pagemap.load(Ordering::Relaxed)))
    }

    pub(crate) fn maps(&self) -> File {
        File::from_fd(self.maps.load(Ordering::Relaxed))
    }

    /// The program's ranges, with events.
    pub(crate) fn program(&self) -> Uffd {
        Uffd::from_fd(self.program.load(Ordering::Relaxed))
    }

    /// What moves pages into those.
    pub(crate) fn moves(&self) -> Moves {
        Moves {
            uffd: self.program(),
            pagemap: self.pagemap(),
        }
    }
}
