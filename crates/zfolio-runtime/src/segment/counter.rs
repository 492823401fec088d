//! What is counted, and the kinds of faults.

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
    /// Pages of one repeated word stored now.
    SameFilled = "same_filled_pages",
    /// Compressed bytes of all objects now.
    CompressedBytes = "compressed_bytes",
    /// Pages moved out and not compressed yet.
    StandbyPages = "standby_pages",
    /// Backed frames with nothing in them.
    FreeFrames = "free_frames",
    /// Heap of the manager in use now: tables and buffers. Bytes.
    ManagerHeap = "manager_heap_bytes",
    /// Highest `ManagerHeap` there was. Bytes.
    ManagerHeapPeak = "manager_heap_peak_bytes",
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
    /// Of those written, to a store on other machines.
    PswpoutStore = "pswpout_store",
    /// Of those read, from one.
    PswpinStore = "pswpin_store",
    /// Zero pages stored without an object.
    SwpoutZero = "swpout_zero",
    /// Pages that left as they had come, and were in the pool still.
    SwpoutClean = "swpout_clean",
    /// Zero pages brought back.
    SwpinZero = "swpin_zero",
    /// Pages brought in ahead of their fault.
    SwapRa = "swap_ra",
    /// Of these, pages that are known to have been touched then.
    SwapRaHit = "swap_ra_hit",
    /// Pages loaded so soon after they were stored that they are spared.
    WorkingsetActivate = "workingset_activate",
    /// Pages that came back from standby: a wrong guess, made cheap.
    StandbyRefault = "standby_refault",
    /// Whole THPs moved out in one piece.
    ThpSwpout = "thp_swpout",
    /// THPs that had to be moved out in smaller pieces.
    ThpSwpoutFallback = "thp_swpout_fallback",
    /// Whole THPs moved in in one piece.
    ThpSwpin = "thp_swpin",
    /// THPs made of pages that had come back in pieces.
    ThpCollapseAlloc = "thp_collapse_alloc",
    /// Times that the kernel made none of them.
    ThpCollapseAllocFailed = "thp_collapse_alloc_failed",
    /// Faults served, of all kinds.
    FaultsServed = "faults_served",
    /// Of these, with a page that was loaded from the pool or the backing.
    Pgmajfault = "pgmajfault",
    /// Of these, served by the control thread while it stayed awake for several threads.
    ControlFaults = "control_faults",
    /// Never-touched pages filled in registered ranges.
    HolePages = "hole_pages_filled",
    /// Children of forks that did not ask in time and were filled: stopped ones, say.
    ForkLeasesExpired = "fork_leases_expired",
    /// Mappings that were unmapped without an event and forgotten when that was found.
    RegistrationsLost = "registrations_lost",
    /// Pages that could not be moved and were left alone.
    Unmovable = "unmovable_pages",
    /// Places now where a mapping of the program's is cut, by guard and protect.
    CutMappings = "cut_mappings",
    /// Of these, that were mended because few mappings were left.
    CutsMended = "cut_mappings_mended",
    // Resident memory that cannot leave, at the look that found most. Bytes.
    /// Of shared mappings.
    StaysShared = "stays_shared_bytes",
    /// Of private mappings of files.
    StaysFile = "stays_file_bytes",
    /// Of executable anonymous memory.
    StaysExecutable = "stays_executable_bytes",
    /// Of anonymous memory that may only be read.
    StaysReadOnly = "stays_read_only_bytes",
    /// Of anonymous memory that nobody may touch.
    StaysNoAccess = "stays_no_access_bytes",
    /// Of the main stack, the variables of libraries, and small mappings.
    StaysApart = "stays_apart_bytes",
    // Movement again.
    /// Frames given back to the system. Pages.
    Released = "released_frames",
    /// Frames taken from the system. Pages.
    Populated = "populated_frames",
    /// Times an allocation had to wait for reclaim at `high`.
    HighEvents = "high",
    /// Nanoseconds faults waited for reclaim at `high`.
    StallNs = "high_stall_ns",
    /// Under `--slowdown`, without threads of ours: nanoseconds that the program's threads
    /// spent on faults, with the kernel's part of them, on what calls brought, and on making
    /// room. Processor time in a process of one thread, else time passed.
    InlineNs = "inline_ns",
    /// Nanoseconds spent on moving pages out and on compressing them again: processor time of the
    /// control thread and of engines; under `--slowdown` without threads of ours a part of `inline_ns`.
    ReclaimNs = "reclaim_ns",
    /// Without threads of ours: system calls of the program that were seen, as they are made (those that take no
    /// pointer are not counted). What a thread has made is added every 50 ms that it ran, and at its end, once memory of the process has been out.
    CallsSeen = "calls_seen",
    /// Times that a thread of the program, which made no calls, was stopped as it ran and closed
    /// pages because `high` had sunk.
    HighTicks = "high_ticks",
    /// Pages closed by a thread of ours that reclaims beside the program's, without privilege.
    PgstealKswapd = "pgsteal_kswapd",
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
    /// Of those, in a store on other machines.
    BackingStorePages = "backing_store_pages",
    /// Bytes of the backing in use, gaps included.
    BackingBytes = "backing_bytes",
    /// Of those, of a store on other machines.
    BackingStoreBytes = "backing_store_bytes",
    /// Writes to the backing that failed.
    BackingWriteFail = "backing_write_fail",
    /// Times that the backing had no room left.
    BackingFull = "backing_full",
    /// Pages that could not be read from the backing as they were written.
    BackingReadFail = "backing_read_fail",
    /// Errno with which the backing could not be opened; 0: it could.
    BackingRefused = "backing_refused",
    /// Pages stored raw, those that have gone since included.
    HugePagesSince = "huge_pages_since",
    /// Objects moved by zspage compaction.
    ObjsMoved = "objs_moved",
    /// Of these, by a run because it was time.
    ObjsMovedPeriod = "objs_moved_period",
    /// Of these, by a run because frames were short.
    ObjsMovedPressure = "objs_moved_pressure",
    /// Of these, by a run that was asked for.
    ObjsMovedRequest = "objs_moved_request",
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
    /// Folios of several pages moved.
    ThpMigrationSuccess = "thp_migration_success",
    /// Folios of several pages that were to be moved and were not.
    ThpMigrationFail = "thp_migration_fail",
    /// Folios of several pages cut into single ones to be moved.
    ThpMigrationSplit = "thp_migration_split",
    /// Slots of the arena looked at by the migrate scanner.
    CompactMigrateScanned = "compact_migrate_scanned",
    /// Slots looked at by the free scanner.
    CompactFreeScanned = "compact_free_scanned",
    /// Pages isolated: of folios to be moved, and free ones to take them.
    CompactIsolated = "compact_isolated",
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
    /// Pages left to the kernel, for threads that waited for them within mremap.
    LeftToTheKernel = "left_to_the_kernel",
    /// Times that the address space was held still, so that no event is in flight.
    AddressSpaceHolds = "address_space_holds",
    /// Times that it was held for an inspector: everything brought back, and nothing moved out.
    InspectHolds = "inspect_holds",
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
    /// Times that an engine came or went.
    EngineRebalanced = "engine_rebalanced",
    /// Batches to be decompressed that were handed to engines.
    EngineDecompBatches = "engine_decomp_batches",
    /// Batches of many pages that whoever loads decompressed, since that takes less.
    EngineSwDecompBatches = "engine_sw_decomp_batches",
    /// Units that engines decompressed.
    EngineDecompUnits = "engine_decomp_units",
    /// Times that `--engines auto` let them rest.
    EngineRests = "engine_rests",
    /// How long they rested. ns.
    EngineRestNs = "engine_rest_ns",
    /// Units that came back when they were verified.
    EngineVerified = "engine_verified",
    /// Units that did not.
    EngineMismatched = "engine_mismatched",
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
    /// Moved out, not compressed yet; in-thread, a write to a clean page.
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

impl FaultKind {
    /// Whether the kernel would call it major: the page had to be loaded. (A page in standby
    /// is the kernel's page in the swap cache, a first touch a minor fault.)
    #[must_use]
    pub const fn is_major(self) -> bool {
        matches!(self, Self::Page | Self::Batch | Self::Folio | Self::Thp)
    }
}
