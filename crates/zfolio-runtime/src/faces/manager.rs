//! Everything a managed process has: one `Manager`, never freed.

use crate::address_space::core::Core;
use crate::address_space::quiet::Quiet;
use crate::budget::fair_share::Membership;
use crate::descriptors::Descriptors;
use crate::frames::arena::FrameArena;
use crate::frames::huge_reserve::HugeFrames;
use crate::options::Options;
use crate::scope::Scope;
use crate::segment::{MAX_FAULT_THREADS, Segment};
use crate::swapout::clock_hand::Reclaim;
use crate::swapout::compress_threads::EngineThreads;
use crate::transfer::move_out::Airlocks;
use crate::transfer::worker::Worker;
use crate::upkeep::recompress::Tier;
use crate::upkeep::zspage_compaction::Compacting;
use crate::wakeups::Wakeups;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use zfolio_compress::adaptive::Density;
use zfolio_sys::arena::SharedWords;
use zfolio_sys::lock::Mutex;
use zfolio_zswap::Zswap;

/// One process's manager.
pub struct Manager {
    pub(crate) options: Options,
    /// Its place among those that share `high`.
    pub(crate) membership: Membership,
    /// Pages this process may have of `high`: all, or its share.
    pub(crate) allowance: AtomicUsize,
    /// Of `max` likewise, and since when it is exceeded (0: it is not), ns.
    pub(crate) max_part: AtomicUsize,
    pub(crate) max_since_ns: AtomicU64,
    pub(crate) zswap: Zswap<FrameArena>,
    /// Threads that compress for reclaim, if there are any.
    pub(crate) engines: Option<EngineThreads>,
    /// Which codec `auto` uses.
    pub(crate) density: Density,
    pub(crate) core: Mutex<Core>,
    pub(crate) reclaim: Mutex<Reclaim>,
    pub(crate) fds: Descriptors,
    /// Where pages pass on their way out; see `moveout`.
    pub(crate) airlocks: Airlocks,
    pub(crate) huge_frames: HugeFrames,
    /// A huge page on its way out found no block of holes.
    pub(crate) block_wanted: AtomicBool,
    /// Whether any of a range must stay where it is.
    pub(crate) left_alone: fn(&Range<usize>) -> bool,
    /// The control thread's; a child's takes its parent's over.
    pub(crate) compacting: Mutex<Compacting>,
    /// As `compacting`.
    pub(crate) tier: Mutex<Tier>,
    /// Worker 0 is the control thread's.
    pub(crate) workers: Vec<Mutex<Worker>>,
    /// Processors that its threads may run on.
    pub(crate) processors: usize,
    /// Operations under way outside the core lock.
    pub(crate) inflight: AtomicU32,
    /// See [`crate::address_space::quiet`].
    pub(crate) quiet: Quiet,
    pub(crate) wakeups: Wakeups,
    pub(crate) segment: &'static Segment,
    /// Index of this process's slot in the segment.
    pub(crate) statistics: AtomicUsize,
    pub(crate) words: SharedWords,
    /// Ranges left behind that were moved out since the hand last moved.
    pub(crate) behind_steps: AtomicU32,
    /// Counts forks, to tell what is left for one child from the next.
    pub(crate) fork_generation: AtomicU32,
    /// Set once the child of a fork serves itself.
    pub(crate) child_ready: AtomicU32,
    /// Frames of ours to give back to the system for copies that it made.
    pub(crate) owed: AtomicUsize,
    /// Pages beyond `high` granted because nothing more could be moved out.
    pub(crate) room: AtomicUsize,
    /// When a fault was last given memory beyond `high`, ns.
    pub(crate) urgent_ns: AtomicU64,
    /// Errno of the last range that could not be registered; 0: none.
    pub(crate) refused: AtomicI32,
    /// When the fault that each worker serves was read, ns; 0: none.
    pub(crate) serving_since: [AtomicU64; 1 + MAX_FAULT_THREADS],
    /// Bumped by the control thread as it goes on.
    pub(crate) control_turns: AtomicU64,
    /// Times that messages were read.
    pub(crate) reads: AtomicU64,
    /// CPU time of each worker's thread, ns.
    pub(crate) cpu_ns: [AtomicU64; 1 + MAX_FAULT_THREADS],
    pub(crate) pid: AtomicU32,
    /// Which process its threads run in.
    pub(crate) identity: AtomicU64,
    /// Stacks of its threads, and words that a fork before the last one used: the child of
    /// a fork has copies of them that nobody uses.
    pub(crate) stacks: Mutex<Vec<Range<usize>>>,
    pub(crate) old_words: Mutex<Option<Range<usize>>>,
    /// Resident pages at the last sample.
    pub(crate) resident: AtomicUsize,
    /// When a backing that refused is tried again, ns; 0: it does not refuse.
    pub(crate) backing_retry_ns: AtomicU64,
    /// When the arena's huge pages are counted next, ns.
    pub(crate) huge_count_ns: AtomicU64,
    /// When what cannot leave is counted next, ns.
    pub(crate) stays_count_ns: AtomicU64,
    /// Calls of the backing under way, and how many there were.
    pub(crate) io_under_way: AtomicU32,
    pub(crate) io_done: AtomicU64,
    /// Faults that wait at `max`, as they were told to.
    pub(crate) max_waiters: AtomicU32,
    /// Whose memory it moves.
    pub(crate) scope: Scope,
}
