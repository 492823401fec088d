//! The control segment: one file of shared memory for a whole process tree.
//!
//! `zfolio run` creates it, writes the configuration, and names it in the
//! environment ([`ENV_CONTROL`]). Every process that becomes worth managing
//! maps it and claims a [`ProcessSlot`], in which all of that process's
//! statistics live while they change. So nothing is lost when a process is
//! killed, and `zfolio run` and `zfolio stat` read what the kernel would show
//! in vmstat without asking anybody.
//!
//! Everything is a plain atomic word: any bit pattern is valid. A reader sees
//! counters that are each right; those of one instant are read by
//! [`ProcessSlot::at_once`].

use crate::manager::MAX_FAULT_THREADS;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::Errno;

/// Environment variable: path of the control segment.
pub const ENV_CONTROL: &str = "ZFOLIO_CONTROL";
/// Environment variable: name of the group, within the run, of a process and those it starts.
pub const ENV_GROUP: &str = "ZFOLIO_GROUP";
/// First word of a segment: "zfolio01".
pub const MAGIC: u64 = u64::from_le_bytes(*b"zfolio01");
/// Layout version: both sides must agree.
pub const VERSION: u32 = 9;
/// Process slots in a segment. Later processes are managed but share the last.
pub const SLOTS: usize = 1024;
/// Most threads of a manager: the watchdog, those that serve faults, the control
/// thread.
pub const THREADS: usize = 2 + MAX_FAULT_THREADS;
/// Buckets of a latency histogram: four per power of two.
pub const BUCKETS: usize = 128;
/// Bytes kept of a message or a name.
pub const MESSAGE: usize = 248;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Everything counted for a process. Names are the kernel's where it has one.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        impl Counter {
            /// Every counter, in layout order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name shown to people and in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

counters! {
    // Gauges, in bytes.
    /// Program memory now: resident plus moved out. Bytes.
    ProgramBytes = "program_bytes",
    /// Highest `ProgramBytes` seen. Bytes.
    ProgramPeak = "program_peak_bytes",
    /// Resident set from /proc (program, pool and frames together). Bytes.
    ResidentBytes = "resident_bytes",
    /// Highest `ResidentBytes` seen. Bytes.
    ResidentPeak = "resident_peak_bytes",
    /// Highest resident set seen once the first second was over. Bytes.
    ResidentPeakSteady = "resident_peak_steady_bytes",
    /// Frames of zspages. Bytes.
    PoolBytes = "pool_total_size",
    /// Highest `PoolBytes` seen. Bytes.
    PoolPeak = "pool_peak_bytes",
    /// Pages stored now.
    StoredPages = "stored_pages",
    /// Pages stored raw now, because they did not compress.
    StoredIncompressible = "stored_incompressible_pages",
    /// Compressed bytes of all objects now.
    CompressedBytes = "compressed_bytes",
    /// Pages moved out and not compressed yet.
    StandbyPages = "standby_pages",
    /// Backed frames with nothing in them.
    FreeFrames = "free_frames",
    // Movement, in pages unless said otherwise.
    /// Pages moved out of the program.
    PagesOut = "pages_out",
    /// Pages brought back, from anywhere.
    PagesIn = "pages_in",
    /// Pages stored in the pool (or found zero or same-filled).
    Zswpout = "zswpout",
    /// Pages loaded from the pool.
    Zswpin = "zswpin",
    /// Pages written back to a backing.
    Zswpwb = "zswpwb",
    /// Pages written to a backing.
    Pswpout = "pswpout",
    /// Pages read from a backing.
    Pswpin = "pswpin",
    /// Zero pages stored without an object.
    SwpoutZero = "swpout_zero",
    /// Zero pages brought back.
    SwpinZero = "swpin_zero",
    /// Pages brought in ahead of their fault.
    SwapRa = "swap_ra",
    /// Pages that came back from standby: a wrong guess, made cheap.
    StandbyRefault = "standby_refault",
    /// Whole THPs moved out in one piece.
    ThpSwpout = "thp_swpout",
    /// THPs that had to be moved out in smaller pieces.
    ThpSwpoutFallback = "thp_swpout_fallback",
    /// Whole THPs moved in in one piece.
    ThpSwpin = "thp_swpin",
    /// Faults served, of all kinds.
    Pgmajfault = "pgmajfault",
    /// Never-touched pages filled in registered ranges.
    HolePages = "hole_pages_filled",
    /// Pages that could not be moved and were left alone.
    Unmovable = "unmovable_pages",
    /// Frames given back to the system. Pages.
    Released = "released_frames",
    /// Frames taken from the system. Pages.
    Populated = "populated_frames",
    /// Times an allocation had to wait for reclaim at `high`.
    HighEvents = "high",
    /// Nanoseconds faults waited for reclaim at `high`.
    StallNs = "high_stall_ns",
    /// Times memory was wanted beyond `max`.
    MaxEvents = "max",
    /// Nanoseconds of CPU spent by the manager's threads.
    ManagerCpuNs = "manager_cpu_ns",
    // The kernel's zswap debugfs names.
    /// Stores refused because the pool was full.
    PoolLimitHit = "pool_limit_hit",
    /// Stores refused because nothing could be written back.
    RejectReclaimFail = "reject_reclaim_fail",
    /// Stores refused because no frame was free.
    RejectAllocFail = "reject_alloc_fail",
    /// Stores refused because the codec failed.
    RejectCompressFail = "reject_compress_fail",
    /// Stores refused because the data did not compress.
    RejectCompressPoor = "reject_compress_poor",
    /// Loads that failed their check.
    DecompressFail = "decompress_fail",
    /// Pages written back.
    WrittenBack = "written_back_pages",
    /// Pages in the backing now.
    BackingPages = "backing_pages",
    /// Bytes of the backing in use, gaps included.
    BackingBytes = "backing_bytes",
    /// Writes to the backing that failed.
    BackingWriteFail = "backing_write_fail",
    /// Times that the backing had no room left.
    BackingFull = "backing_full",
    /// Pages that could not be read from the backing as they were written.
    BackingReadFail = "backing_read_fail",
    /// Errno with which the backing could not be opened; 0: it could.
    BackingRefused = "backing_refused",
    /// Objects moved by zspage compaction.
    ObjsMoved = "objs_moved",
    /// Pages freed by it.
    PagesCompacted = "pages_compacted",
    // The second tier; the first as zram's algorithms have it.
    /// Pages compressed again into less room.
    RecompressedPages = "recompressed_pages",
    /// Bytes by which they became shorter.
    RecompressSaved = "recompress_saved_bytes",
    /// Pages that would not have become shorter by enough.
    RecompressPoor = "recompress_poor",
    /// Nanoseconds of CPU spent on it, part of `manager_cpu_ns`.
    RecompressCpuNs = "recompress_cpu_ns",
    /// Units of several pages made.
    UnitsMade = "units_made",
    /// Pages taken out of units because few of their pages were left.
    UnitSplitPages = "unit_split_pages",
    /// Units there are now.
    Units = "units",
    /// Pages in them.
    UnitPages = "unit_pages",
    /// Dictionaries trained.
    DictionaryTrainings = "dictionary_trainings",
    /// Of those, that were installed.
    DictionaryInstalled = "dictionary_installed",
    /// Of those, that new pages do without since.
    DictionaryRetired = "dictionary_retired",
    /// Pages compressed with one, of `recompressed_pages`.
    DictionaryPages = "dictionary_pages",
    /// Bytes by which those of them that are compressed alone are shorter than without, as
    /// far as samples tell.
    DictionarySaved = "dictionary_saved_bytes",
    /// Pages compressed again to be rid of a dictionary that few need.
    DictionaryDrained = "dictionary_drained_pages",
    /// Bytes they became longer by.
    DictionaryDrainedBytes = "dictionary_drained_bytes",
    /// Objects that need a dictionary now.
    DictionaryUnits = "dictionary_units",
    /// Bytes of memory of all dictionaries.
    DictionaryBytes = "dictionary_bytes",
    /// Nanoseconds of CPU spent on training and judging, part of `recompress_cpu_ns`.
    DictionaryCpuNs = "dictionary_cpu_ns",
    // Folio compaction, by vmstat's names.
    /// Runs for a huge page on its way out that found no block.
    CompactStall = "compact_stall",
    /// Of these, without a block in the end.
    CompactFail = "compact_fail",
    /// Of these, with one.
    CompactSuccess = "compact_success",
    /// Runs because the free slots are scattered.
    CompactDaemonWake = "compact_daemon_wake",
    /// Pages moved.
    PgmigrateSuccess = "pgmigrate_success",
    /// Pages that were to be moved and were not.
    PgmigrateFail = "pgmigrate_fail",
    /// Free blocks of 2 MiB in the arena now.
    FreeHugeBlocks = "free_huge_blocks",
    /// Of the arena, mapped by huge pages (the kernel's AnonHugePages); looked at
    /// once a second at most. Bytes.
    ArenaAnonThp = "arena_anon_thp",
    // Events followed.
    /// Forks followed (libc).
    Forks = "forks",
    /// Forks that ran no handlers and were filled.
    RawForks = "raw_forks",
    /// mremap events.
    Remaps = "remaps",
    /// Discarded ranges (madvise).
    Removes = "removes",
    /// Unmapped ranges.
    Unmaps = "unmaps",
    /// Moves put off because an event was in flight.
    MoveRetries = "move_retries",
    // Engines, all queues of a process together; units are pages.
    /// Units handed to an engine.
    EngineSubmitted = "engine_submitted",
    /// Of these, done by it in time.
    EngineCompleted = "engine_completed",
    /// Of these, taken back before it began.
    EngineTakenBack = "engine_taken_back",
    /// Of these, given up while it worked on them.
    EngineTimeouts = "engine_timeouts",
    /// Of those given up, finished later for nobody.
    EngineLate = "engine_late",
    /// Times that no descriptor was free.
    EngineBusy = "engine_busy",
    /// Units that whoever stores did itself.
    EngineInline = "engine_inline",
    /// What completed units were. Bytes.
    EngineInput = "engine_input_bytes",
    /// What they became. Bytes.
    EngineOutput = "engine_output_bytes",
}

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What a fault found.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum FaultKind { $($(#[$doc])* $variant,)* }

        impl FaultKind {
            /// Every kind, in layout order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name shown to people and in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

faults! {
    /// A page never touched before.
    Hole = "hole",
    /// Moved out, not compressed yet.
    Standby = "standby",
    /// One page decompressed.
    Page = "page",
    /// Several pages decompressed, less than the folio.
    Batch = "batch",
    /// The whole folio (64 KiB) or more.
    Folio = "folio",
    /// A whole 2 MiB.
    Thp = "thp",
    /// Found served already, or put off and served later.
    Stale = "stale",
}

/// State of a [`ProcessSlot`].
pub mod state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// Claimed; watching, nothing managed.
    pub const WATCHING: u32 = 1;
    /// Managing memory.
    pub const MANAGING: u32 = 2;
    /// Could not start: runs unmanaged; see the message.
    pub const UNMANAGED: u32 = 3;
    /// Unmanaged, and nobody watched whether it was worth managing.
    pub const UNWATCHED: u32 = 5;
    /// Ended itself rather than hand out a wrong byte; see the message.
    pub const FAILED: u32 = 4;
}

/// Codec choices of [`Config::codec`].
pub mod codec {
    /// lz4.
    pub const LZ4: u32 = 0;
    /// zstd, at `Config::level`.
    pub const ZSTD: u32 = 1;
    /// Stored as they are.
    pub const NONE: u32 = 2;
    /// lz4, and zstd when the pool has grown large.
    pub const AUTO: u32 = 3;
    /// deflate-iaa; `Config::level` is the number of its tables.
    pub const DEFLATE: u32 = 4;
}

/// What `zfolio run` was asked for.
#[repr(C)]
pub struct Config {
    /// `high` in bytes: of the tree, or of each process.
    pub high: AtomicU64,
    /// One of [`codec`].
    pub codec: AtomicU32,
    /// zstd level, lz4 acceleration or number of deflate's tables, as `i32` bits.
    pub level: AtomicU32,
    /// Order of the folios moved out where no THP is found, 0..=9.
    pub folio_order: AtomicU32,
    /// 1: print nothing on the program's stderr.
    pub quiet: AtomicU32,
    /// Threads that compress for reclaim; 0: none.
    pub engines: AtomicU32,
    /// 1: no folio compaction. For experiments.
    pub no_folio_compaction: AtomicU32,
    /// 1: what stays in the pool is compressed again, denser.
    pub tier: AtomicU32,
    /// Filters of system calls that `zfolio run` itself has.
    pub filters: AtomicU32,
    /// Device and inode of its standard error.
    pub standard_error: [AtomicU64; 2],
    /// 1: `high` is the whole tree's.
    pub shared: AtomicU32,
    /// `max` in bytes, of the tree or of each process as `high` is; 0: none.
    pub max: AtomicU64,
    /// One of [`on_max`].
    pub on_max: AtomicU32,
    /// With a backing: the pool's maximum, percent of `high`.
    pub pool_percent: AtomicU32,
    /// Most bytes of the backings: of all together, or of each process's; 0: no
    /// backing.
    pub backing_size: AtomicU64,
    /// The directory it lies in: a path of less than [`PATH`] bytes, NUL-padded,
    /// eight bytes a word.
    pub backing_dir: [AtomicU64; PATH / 8],
}

/// Bytes kept of a path, NUL included.
pub const PATH: usize = 512;

/// What happens at `max`: choices of [`Config::on_max`].
pub mod on_max {
    /// The process is ended.
    pub const KILL: u32 = 0;
    /// Whoever wants memory waits.
    pub const WAIT: u32 = 1;
    /// It is counted.
    pub const ALLOW: u32 = 2;
}

impl Config {
    /// Keeps the path of the backing's directory; false if it is too long.
    #[must_use]
    pub fn set_backing_dir(&self, path: &[u8]) -> bool {
        let fits = path.len() < PATH && !path.contains(&0);
        if fits {
            for (word, bytes) in self.backing_dir.iter().zip(path.chunks(8)) {
                let mut raw = [0; 8];
                raw[..bytes.len()].copy_from_slice(bytes);
                word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
            }
        }
        fits
    }

    /// Calls `with` on that path.
    ///
    /// # Errors
    /// `INVAL` if there is none, or what `with` says.
    pub fn with_backing_dir<R>(
        &self,
        with: impl FnOnce(&CStr) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut path = [0; PATH];
        for (bytes, word) in path.chunks_mut(8).zip(&self.backing_dir) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let dir = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?;
        with(dir)
    }
}

/// A latency histogram in nanoseconds.
#[repr(C)]
pub struct Histogram {
    /// Counts by [`Histogram::bucket`].
    pub buckets: [AtomicU32; BUCKETS],
    /// Largest value seen, ns.
    pub max: AtomicU64,
    /// Sum of all values, ns.
    pub sum: AtomicU64,
}

impl Histogram {
    /// Bucket of a value: four per power of two, so a bound is within 25 %.
    #[must_use]
    pub const fn bucket(ns: u64) -> usize {
        let ns = if ns < 16 { 16 } else { ns };
        let log = ns.ilog2();
        let quarter = ((ns >> (log - 2)) & 3) as usize;
        let index = (log as usize - 4) * 4 + quarter;
        if index < BUCKETS { index } else { BUCKETS - 1 }
    }

    /// Smallest value above everything in bucket `index`, ns.
    #[must_use]
    pub const fn upper_bound(index: usize) -> u64 {
        let log = index / 4 + 4;
        let quarter = (index % 4) as u64;
        (1 << log) + ((quarter + 1) << (log - 2))
    }

    /// Counts one value.
    pub fn record(&self, ns: u64) {
        self.buckets[Self::bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(ns, Ordering::Relaxed);
        self.max.fetch_max(ns, Ordering::Relaxed);
    }
}

/// One process's statistics.
#[repr(C)]
pub struct ProcessSlot {
    /// Process id; 0 while nobody's.
    pub pid: AtomicU32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// CLOCK_MONOTONIC when management began, ns; 0 before.
    pub started_ns: AtomicU64,
    /// CLOCK_MONOTONIC of the last update, ns.
    pub updated_ns: AtomicU64,
    /// Times an update was begun or ended: odd during one.
    pub updates: AtomicU64,
    /// Ids of the manager's threads, the watchdog first; 0 for none.
    pub threads: [AtomicU32; THREADS],
    /// Address of the arena, by which one program image is told from the next.
    pub arena: AtomicU64,
    /// Command name (comm), NUL-padded bytes.
    pub comm: [AtomicU64; 2],
    /// By [`Counter`].
    pub counters: [AtomicU64; Counter::COUNT],
    /// Folios stored whole, by order.
    pub zswpout_order: [AtomicU64; 10],
    /// Folios loaded whole, by order.
    pub zswpin_order: [AtomicU64; 10],
    /// Folios whose store failed, by order.
    pub fallback_order: [AtomicU64; 10],
    /// Service time by [`FaultKind`], from the message read to the page in place.
    pub faults: [Histogram; FaultKind::COUNT],
    /// 1: the process said the message itself, on standard error.
    pub told: AtomicU64,
    /// Length of the message.
    pub message_len: AtomicU64,
    /// Why it is unmanaged or failed, UTF-8, eight bytes a word.
    pub message: [AtomicU64; MESSAGE / 8],
}

/// Looks at a slot before a reader takes what it finds there, and the time
/// between two, ns: a writer may have lost its CPU.
const MOST_LOOKS: usize = 200;
const LOOK_NS: u64 = 200_000;

impl ProcessSlot {
    /// Sets gauges so that a reader gets all of them or none. One writer.
    pub fn update<R>(&self, set: impl FnOnce() -> R) -> R {
        self.updates.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        let result = set();
        self.updates.fetch_add(1, Ordering::Release);
        result
    }

    /// Reads gauges of one and the same [`update`](Self::update). If the writer
    /// died in one, or goes on making them, as they are.
    pub fn at_once<R>(&self, read: impl Fn() -> R) -> R {
        for _ in 0..MOST_LOOKS {
            let before = self.updates.load(Ordering::Acquire);
            let seen = read();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.updates.load(Ordering::Relaxed) == before {
                return seen;
            }
            pause(LOOK_NS);
        }
        read()
    }

    /// The word of a counter.
    #[must_use]
    pub fn counter(&self, which: Counter) -> &AtomicU64 {
        &self.counters[which as usize]
    }

    /// Adds to a counter.
    pub fn add(&self, which: Counter, amount: u64) {
        self.counter(which).fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, which: Counter, value: u64) {
        self.counter(which).store(value, Ordering::Relaxed);
    }

    /// Keeps `text` (cut to [`MESSAGE`] bytes) as the reason.
    pub fn set_message(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(MESSAGE)];
        for (word, chunk) in self.message.iter().zip(bytes.chunks(8)) {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
        }
        self.message_len
            .store(bytes.len() as u64, Ordering::Release);
    }
}

/// A process among those that share `high`.
#[repr(C)]
pub struct Member {
    /// Process id; 0 for nobody.
    pub pid: AtomicU32,
    /// CLOCK_MONOTONIC of the last update, ns.
    pub updated_ns: AtomicU64,
    /// What it has resident.
    pub resident_bytes: AtomicU64,
    /// What it would have, could it have all it needs.
    pub needed_bytes: AtomicU64,
    /// Compressed bytes in its pool.
    pub zswap_bytes: AtomicU64,
    /// Pages it has out, in bytes.
    pub swap_bytes: AtomicU64,
    /// What its backing takes.
    pub backing_bytes: AtomicU64,
    /// Index of its group.
    pub group: AtomicU32,
}

/// Most groups of a run, itself included.
pub const GROUPS: usize = 64;
/// Most bytes of a group's name.
pub const GROUP_NAME: usize = 56;

/// A named part of a run; the first, without a name, is the run itself. Limits
/// are in bytes, as the kernel means them; 0: none.
#[repr(C)]
pub struct RunGroup {
    /// 0: free; 1: being named; 2: named.
    pub state: AtomicU32,
    /// Index of the group above it.
    pub parent: AtomicU32,
    /// UTF-8, NUL-padded, eight bytes a word.
    pub name: [AtomicU64; GROUP_NAME / 8],
    /// What its processes share; of the run: see [`Config::high`].
    pub high: AtomicU64,
    /// `zswap.max` plus one, so that 0 can be said.
    pub zswap_max: AtomicU64,
    /// `swap.max` plus one.
    pub swap_max: AtomicU64,
    /// 1: `zswap.writeback` is 0.
    pub no_writeback: AtomicU32,
    /// What its processes have resident, as last added up, and at most.
    pub resident_bytes: AtomicU64,
    /// The highest of those.
    pub resident_peak: AtomicU64,
}

/// Most members at a time.
pub const MEMBERS: usize = 1024;

/// The whole segment.
#[repr(C)]
pub struct Segment {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Slots claimed so far; may exceed [`SLOTS`].
    pub claimed: AtomicU32,
    /// Processes that loaded the preload library.
    pub processes: AtomicU64,
    /// What was asked for.
    pub config: Config,
    /// The run, and its named parts.
    pub groups: [RunGroup; GROUPS],
    /// Most that all backings took together, as added up; bytes.
    pub backing_peak: AtomicU64,
    /// When a process was last ended because of what all have together, ns.
    pub max_ended_ns: AtomicU64,
    /// Members after which all are free.
    pub members_used: AtomicU32,
    /// Who shares `high`.
    pub members: [Member; MEMBERS],
    /// One per process.
    pub slots: [ProcessSlot; SLOTS],
}

impl Segment {
    /// Bytes of a segment.
    pub const BYTES: usize = size_of::<Self>();

    /// Claims a slot for `pid`; once all are taken, the last is shared.
    /// Returns its index.
    #[must_use]
    pub fn claim(&self, pid: u32) -> usize {
        let taken = self.claimed.fetch_add(1, Ordering::Relaxed) as usize;
        let index = taken.min(SLOTS - 1);
        let slot = &self.slots[index];
        slot.pid.store(pid, Ordering::Relaxed);
        slot.state.store(state::WATCHING, Ordering::Release);
        index
    }
}
