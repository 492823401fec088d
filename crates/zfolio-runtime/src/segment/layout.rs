//! What lies where in the segment.

use super::config::Config;
use super::owner::Owner;
use super::process_slot::ProcessSlot;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_zswap::ByDistance;

/// First word of a segment: "zfolio01".
pub const MAGIC: u64 = u64::from_le_bytes(*b"zfolio01");
/// Layout version: both sides must agree.
pub const VERSION: u32 = 27;
/// Process slots in a segment.
pub const SLOTS: usize = 1024;
/// The slot of those who find none that is free: the last, nobody's own.
pub const SHARED: usize = SLOTS - 1;
/// A process among those that share `high`.
#[repr(C)]
pub struct Member {
    /// Its process.
    pub owner: Owner,
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
    pub backing_bytes: ByDistance<AtomicU64>,
    /// Index of its group.
    pub group: AtomicU32,
    /// Its part of the run's `high` beside others that need more than they get, in
    /// [`WEIGHT`]ths; 0: one. `zfolio run` writes it, for the process whose `weighed` this is.
    pub weight: AtomicU32,
    /// The [turn](Owner::turn) of whom it was written for.
    pub weighed: AtomicU64,
}

impl Member {
    /// Its weight in the run: that of every process, or what `zfolio run` has found to be better.
    #[must_use]
    pub fn weight_now(&self) -> u32 {
        let is_its =
            self.weighed.load(Ordering::Acquire) == self.owner.turn.load(Ordering::Acquire);
        match self.weight.load(Ordering::Relaxed) {
            0 => WEIGHT,
            _ if !is_its => WEIGHT,
            weight => weight.clamp(WEIGHT / MOST_WEIGHT, WEIGHT * MOST_WEIGHT),
        }
    }

    /// Gives the process that took the place by `turn` this weight.
    pub fn weigh(&self, turn: u64, weight: u32) {
        self.weighed.store(0, Ordering::Release);
        self.weight.store(weight, Ordering::Release);
        self.weighed.store(turn, Ordering::Release);
    }
}

/// The weight of a process of which nothing is known.
pub const WEIGHT: u32 = 1000;
/// So many times as much is the most, and the least so many times as little.
pub const MOST_WEIGHT: u32 = 16;

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
    /// What its processes share. Of the run: what holds now, of the tree or of each process;
    /// 0: what it began with ([`super::LimitsAsked::high`]).
    pub high: AtomicU64,
    /// `zswap.max` plus one, so that 0 can be said.
    pub zswap_max: AtomicU64,
    /// `swap.max` plus one.
    pub swap_max: AtomicU64,
    /// `swap.high` plus one.
    pub swap_high: AtomicU64,
    /// `max`, where the group has one of its own; of the run: see [`super::LimitsAsked::max`].
    pub max: AtomicU64,
    /// 1: `zswap.writeback` is 0.
    pub no_writeback: AtomicU32,
    /// What its processes have.
    pub usage: Usage,
    /// What happened in it and in the groups below it, by [`GroupEvent`].
    pub events: [AtomicU64; GroupEvent::ALL.len()],
}

/// What the processes of a group have, as last added up.
#[repr(C)]
pub struct Usage {
    /// Resident.
    pub resident_bytes: AtomicU64,
    /// The most that was.
    pub resident_peak: AtomicU64,
    /// `zswap.current`.
    pub zswap_bytes: AtomicU64,
    /// `swap.current`.
    pub swap_bytes: AtomicU64,
}

/// What is counted for a group and those above it: `memory.events` and `swap.events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupEvent {
    /// Memory was wanted at `high`.
    High,
    /// Memory was wanted beyond `max`.
    Max,
    /// More was out than `swap.high`.
    SwapHigh,
    /// A page was not taken out because of `swap.max`.
    SwapMax,
    /// A page was not taken out because there was no room for it.
    SwapFail,
}

impl GroupEvent {
    /// Every one, in the order of [`RunGroup::events`].
    pub const ALL: [Self; 5] = [
        Self::High,
        Self::Max,
        Self::SwapHigh,
        Self::SwapMax,
        Self::SwapFail,
    ];

    /// The name shown in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Max => "max",
            Self::SwapHigh => "swap_high",
            Self::SwapMax => "swap_max",
            Self::SwapFail => "swap_fail",
        }
    }
}

/// What `zfolio run --slowdown` says while it goes, for who looks from outside.
#[repr(C)]
pub struct Slowdown {
    /// Time lost, as estimated: millionths of the time run.
    pub estimated: AtomicU64,
    /// What the run needed since memory was first taken, the mean over time; bytes. 0: none was.
    pub needed_bytes: AtomicU64,
    /// What it had, likewise.
    pub resident_bytes: AtomicU64,
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

/// Who shares `high`.
#[repr(C)]
pub struct Sharing {
    /// Members after which all are free.
    pub members_used: AtomicU32,
    /// Those up to there, and free ones among them.
    pub members: [Member; MEMBERS],
}

/// The whole segment.
#[repr(C)]
pub struct Segment {
    /// Read only but for its creator.
    pub head: Head,
    /// Slots that were ever claimed, the shared one apart. The memory of these is there, and
    /// that of the first and of the shared one; nobody may look at the others, which would be
    /// a SIGBUS once the file system is full.
    pub claimed: AtomicU32,
    /// Claims for which there was none left, or no memory for one: in the shared slot.
    pub crowded: AtomicU32,
    /// Turns given out.
    pub turns: AtomicU64,
    /// Processes that loaded the preload library.
    pub processes: AtomicU64,
    /// The run, and its named parts.
    pub groups: [RunGroup; GROUPS],
    /// Most that all backings took together, as added up; bytes.
    pub backing_peak: AtomicU64,
    /// When a process was last ended because of what all have together, ns.
    pub max_ended_ns: AtomicU64,
    /// What `--slowdown` has come to.
    pub slowdown: Slowdown,
    /// Who shares `high`.
    pub sharing: Sharing,
    /// Whose each slot is.
    pub owners: [Owner; SLOTS],
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
}
