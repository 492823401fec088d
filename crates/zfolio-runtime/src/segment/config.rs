//! What a run was asked for.

use super::inspection::{LEASES, Lease};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_compress::engine::Attributes;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::ByDistance;

/// Codec choices of [`CompressionAsked::codec`].
pub mod codec {
    /// lz4.
    pub const LZ4: u32 = 0;
    /// zstd, at `CompressionAsked::level`.
    pub const ZSTD: u32 = 1;
    /// Stored as they are.
    pub const NONE: u32 = 2;
    /// lz4, and zstd when the pool has grown large.
    pub const AUTO: u32 = 3;
    /// deflate-iaa; `CompressionAsked::level` is the number of its tables.
    pub const DEFLATE: u32 = 4;
}

/// How a program's faults are told: choices of [`Config::faults`], and what a process
/// says of itself in `told_by` of its slot.
pub mod faults {
    /// In the thread that faults, by the first of the next but one that works here.
    pub const AUTO: u32 = 0;
    /// By messages to a thread of the manager's: userfaultfd with privilege.
    pub const MESSAGE: u32 = 1;
    /// In the thread that faults, by userfaultfd's SIGBUS: Linux 6.8, no privilege.
    pub const IN_THREAD: u32 = 2;
    /// In the thread that faults, by guard markers: Linux 6.13.
    pub const GUARD: u32 = 3;
    /// In the thread that faults, by page protection.
    pub const PROTECT: u32 = 4;
    /// Their names, by number.
    pub const NAMES: [&str; 5] = ["auto", "message", "in-thread", "guard", "protect"];
}

/// Choices of [`Config::background_reclaim`].
pub mod background_reclaim {
    /// While memory runs short.
    pub const AUTO: u32 = 0;
    /// Never.
    pub const OFF: u32 = 1;
    /// From the first page that leaves.
    pub const EAGER: u32 = 2;
}

/// What becomes of a process without privilege that has the kernel keep addresses (io_uring, io_setup,
/// vmsplice): choices of [`Config::io_uring`].
pub mod io_uring {
    /// The call is refused, as by a kernel without it.
    pub const REFUSE: u32 = 0;
    /// It is made, and the process is managed no longer.
    pub const UNMANAGED: u32 = 1;
    /// Their names, by number.
    pub const NAMES: [&str; 2] = ["refuse", "unmanaged"];
}

/// What `zfolio run` was asked for.
///
/// Processes read most of it once, when they begin. `max`, `on_max`, `changes`, `pool`, `rest` of the
/// engines, `compactions` and `leases` are read again and again: `zfolio run`, which alone can
/// write here, changes them on request (`zfolio set`, `zfolio compact`, `zfolio inspect`).
#[repr(C)]
pub struct Config {
    /// What may be resident.
    pub limits: LimitsAsked,
    /// How pages are compressed.
    pub compression: CompressionAsked,
    /// In which pieces they go.
    pub folios: FoliosAsked,
    /// Threads that compress for reclaim.
    pub engines: EnginesAsked,
    /// How large the pool may be.
    pub pool: PoolAsked,
    /// What is behind it.
    pub backing: BackingAsked,
    /// What processes know of `zfolio run`.
    pub runner: Runner,
    /// How faults are told: one of [`faults`].
    pub faults: AtomicU32,
    /// The way that `zfolio run` found to work where it is: with `auto` each process looks for itself, but
    /// this is to be expected. One of [`faults`]; `AUTO` where none works.
    pub faults_found: AtomicU32,
    /// Whether a thread of ours reclaims beside the program's: one of [`background_reclaim`].
    pub background_reclaim: AtomicU32,
    /// What a process may have the kernel do with its addresses: one of [`io_uring`].
    pub io_uring: AtomicU32,
    /// Processes that are held for an inspector.
    pub leases: [Lease; LEASES],
}

/// What may be resident.
#[repr(C)]
pub struct LimitsAsked {
    /// `high` in bytes that the run began with: of the tree, or of each process. Tables are
    /// sized by it. What holds now is that of [`super::RunGroup`] 0, if it is not 0.
    pub high: AtomicU64,
    /// `max` in bytes, of the tree or of each process as `high` is; 0: none.
    pub max: AtomicU64,
    /// One of [`on_max`].
    pub on_max: AtomicU32,
    /// 1: `high` is the whole tree's.
    pub shared: AtomicU32,
    /// Slowdown asked for, millionths: `zfolio run` sets `high` of the run as it goes; 0: none.
    pub slowdown: AtomicU32,
    /// How often `zfolio set` has changed something: a process that finds another number than it had
    /// looks anew at what it may have.
    pub changes: AtomicU32,
}

/// How pages are compressed.
#[repr(C)]
pub struct CompressionAsked {
    /// One of [`codec`].
    pub codec: AtomicU32,
    /// zstd level, lz4 acceleration or number of deflate's tables, as `i32` bits.
    pub level: AtomicU32,
    /// 1: what stays in the pool is compressed again, denser.
    pub tier: AtomicU32,
}

/// In which pieces memory goes.
#[repr(C)]
pub struct FoliosAsked {
    /// Order of the folios moved out where no THP is found, 0..=9.
    pub order: AtomicU32,
    /// 1: huge pages are split when they leave, and go in folios of that order too.
    pub split_huge_pages: AtomicU32,
    /// 1: huge pages that came back in pieces are made one again.
    pub huge_page_assembly: AtomicU32,
    /// Order of the pages that a fault brings, plus one, 1..=10; 0: that is judged.
    pub page_cluster: AtomicU32,
    /// 1: no folio compaction. For experiments.
    pub no_compaction: AtomicU32,
    /// How often somebody has asked for compaction: a process that finds more than it has done
    /// compacts once.
    pub compactions: AtomicU32,
}

/// Threads that compress for reclaim.
#[repr(C)]
pub struct EnginesAsked {
    /// How many; 0: none.
    pub count: AtomicU32,
    /// 1: they work while processors are idle, and rest while `rest` says so.
    pub auto: AtomicU32,
    /// 1: no processor is idle. `zfolio run` sees to it.
    pub rest: AtomicU32,
    /// Their attributes: [`zfolio_compress::engine::Attributes::numbers`].
    pub attributes: [AtomicU64; ENGINE_ATTRIBUTES],
}

/// How large the pool may be.
#[repr(C)]
pub struct PoolAsked {
    /// Its maximum, percent of `high`; 0: none.
    pub percent: AtomicU32,
    /// A pool that was full takes pages again at this percentage of its maximum.
    pub accept_percent: AtomicU32,
    /// 1: nothing is written back because memory is short.
    pub no_shrinker: AtomicU32,
}

/// What is behind the pool: near a file of each process's, far a store.
#[repr(C)]
pub struct BackingAsked {
    /// Most bytes of the backings: of all together, or of each process's; 0: there is none.
    pub size: ByDistance<AtomicU64>,
    /// The directory that the files lie in; the exchange with the pager of the store.
    pub path: ByDistance<PathAsked>,
    /// Of a store: how long a read may take, ns; 0: for ever.
    pub deadline_ns: AtomicU64,
}

/// A path of less than [`PATH`] bytes, NUL-padded, eight bytes a word.
#[repr(C)]
pub struct PathAsked([AtomicU64; PATH / 8]);

/// What processes know of `zfolio run`.
#[repr(C)]
pub struct Runner {
    /// Filters of system calls that it has itself.
    pub filters: AtomicU32,
    /// 1: print nothing on the program's stderr.
    pub quiet: AtomicU32,
    /// Device and inode of its standard error.
    pub standard_error: [AtomicU64; 2],
}

/// What is allowed while a run lasts: `high` up to so many times what it began with. The tables
/// of a process and the addresses of its arena are made for that.
pub const MOST_TIMES: u64 = 4;

/// Attributes of engines.
pub const ENGINE_ATTRIBUTES: usize = Attributes::NAMES.len();

/// Bytes kept of a path, NUL included.
pub const PATH: usize = 512;

/// What happens at `max`: choices of [`LimitsAsked::on_max`].
pub mod on_max {
    /// The process is ended.
    pub const KILL: u32 = 0;
    /// Whoever wants memory waits.
    pub const WAIT: u32 = 1;
    /// It is counted.
    pub const ALLOW: u32 = 2;
}

impl BackingAsked {
    /// The sizes.
    #[must_use]
    pub fn sizes(&self) -> ByDistance<u64> {
        self.size.as_ref().map(|size| size.load(Ordering::Relaxed))
    }
}

impl PathAsked {
    /// Keeps a path; false if it is too long.
    #[must_use]
    pub fn set(&self, path: &[u8]) -> bool {
        let fits = path.len() < PATH && !path.contains(&0);
        if fits {
            for (word, bytes) in self.0.iter().zip(path.chunks(8)) {
                let mut raw = [0; 8];
                raw[..bytes.len()].copy_from_slice(bytes);
                word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
            }
        }
        fits
    }

    /// Calls `with` on the path.
    ///
    /// # Errors
    /// `INVAL` if there is none, or what `with` says.
    pub fn with<R>(&self, with: impl FnOnce(&CStr) -> Result<R, Errno>) -> Result<R, Errno> {
        let mut path = [0; PATH];
        for (bytes, word) in path.chunks_mut(8).zip(&self.0) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
        with(path)
    }
}
