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

mod config;
mod counter;
mod describe;
mod process_slot;
pub mod run_group;
mod threads;

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::arena::populate;

pub use config::{Config, PATH, codec, faults, on_max};
pub use counter::{Counter, FaultKind};
pub use describe::describe;
pub use process_slot::{BUCKETS, Histogram, MESSAGE, ProcessSlot, state};
pub(crate) use threads::{MAX_FAULT_THREADS, MIN_FAULT_THREADS};

/// Environment variable: path of the control segment.
pub const ENV_CONTROL: &str = "ZFOLIO_CONTROL";
/// Environment variable: name of the group, within the run, of a process and those it starts.
pub const ENV_GROUP: &str = "ZFOLIO_GROUP";
/// Name of the thread that looks whether the others go on: what shows from outside that
/// a manager lives.
pub const WATCHDOG_NAME: &str = "zfolio-watchdog";
/// First word of a segment: "zfolio01".
pub const MAGIC: u64 = u64::from_le_bytes(*b"zfolio01");
/// Layout version: both sides must agree.
pub const VERSION: u32 = 13;
/// Process slots in a segment. Later processes are managed but share the last.
pub const SLOTS: usize = 1024;
/// Most threads of a manager: the watchdog, those that serve faults, the control
/// thread.
pub const THREADS: usize = 2 + MAX_FAULT_THREADS;

/// A process among those that share `high`.
#[repr(C)]
pub struct Member {
    /// The number of its process (`zfolio_sys::identity`); 0 for nobody.
    pub owner: AtomicU64,
    /// CLOCK_REALTIME of the last update, ns: the one clock that is the same in every
    /// time namespace. [`LIVES`] for one that has no thread to say it again and again.
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
    /// Process id, of one that [`LIVES`].
    pub pid: AtomicU32,
}

/// [`Member::updated_ns`] of one that is a member as long as its process is there.
pub const LIVES: u64 = u64::MAX;

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

/// What `zfolio run` writes before anybody else sees the segment, on pages of its own:
/// processes map them so that nobody can write there, whatever it becomes.
#[repr(C, align(4096))]
pub struct Head {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// What was asked for.
    pub config: Config,
}

/// The whole segment.
#[repr(C)]
pub struct Segment {
    /// Read only but for its creator.
    pub head: Head,
    /// Slots claimed so far. The memory of these is there, and that of the first; nobody
    /// may look at the others, which would be a SIGBUS once the file system is full.
    pub claimed: AtomicU32,
    /// Claims for which there was none left, or no memory for one.
    pub crowded: AtomicU32,
    /// Processes that loaded the preload library.
    pub processes: AtomicU64,
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

    /// Bytes that no process may write.
    pub const READ_ONLY_BYTES: usize = size_of::<Head>();

    /// What was asked for.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.head.config
    }

    /// Bytes a new segment needs memory for: all but the slots after the first.
    pub const FIRST_BYTES: usize = offset_of!(Self, slots) + size_of::<ProcessSlot>();

    /// Claims a slot for `pid` and makes its memory; once all are taken, or where there
    /// is no memory for another, the last is shared. Returns its index.
    #[must_use]
    pub fn claim(&self, pid: u32) -> usize {
        let index = loop {
            let taken = self.claimed.load(Ordering::Acquire);
            let next = taken as usize;
            if !(next == 0 || self.slots.get(next).is_some_and(is_there)) {
                self.crowded.fetch_add(1, Ordering::Relaxed);
                break next.min(SLOTS) - 1;
            }
            // Told only now that it can be looked at. Who loses has made it for the other.
            let told = self.claimed.compare_exchange(
                taken,
                taken + 1,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if told.is_ok() {
                break next;
            }
        };
        let slot = &self.slots[index];
        slot.pid.store(pid, Ordering::Relaxed);
        slot.state.store(state::WATCHING, Ordering::Release);
        index
    }
}

/// Makes the memory of `slot`, and says whether it could.
fn is_there(slot: &ProcessSlot) -> bool {
    let start = ptr::from_ref(slot) as usize;
    let first = start & !(PAGE_SIZE - 1);
    let end = (start + size_of::<ProcessSlot>()).next_multiple_of(PAGE_SIZE);
    populate(first, end - first).is_ok()
}
