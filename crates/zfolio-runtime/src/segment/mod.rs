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
pub mod inspection;
mod layout;
mod owner;
mod process_slot;
pub mod run_group;
mod slots;
mod stamp;
mod staying;
mod threads;

pub use config::{
    BackingAsked, CompressionAsked, Config, ENGINE_ATTRIBUTES, EnginesAsked, FoliosAsked,
    LimitsAsked, MOST_TIMES, PATH, PathAsked, PoolAsked, Runner, background_reclaim, codec, faults,
    io_uring, on_max,
};
pub use counter::{Counter, FaultKind};
pub use describe::describe;
pub use layout::{
    GROUP_NAME, GROUPS, GroupEvent, Head, LIVES, MAGIC, MEMBERS, MOST_WEIGHT, Member, RunGroup,
    SHARED, SLOTS, Segment, Sharing, Slowdown, Usage, VERSION, WEIGHT,
};
pub use owner::{Owned, Owner, Who};
pub use process_slot::{
    BUCKETS, ByOrder, CLASS_ROWS, ClassRows, ENGINE_QUEUES, Histogram, MESSAGE, ManagedProcess,
    ProcessSlot, Said, class_row, engine_queue, state,
};
pub use slots::Used;
pub use stamp::Stamp;
pub use staying::{Looks, Staying, Why};
pub use threads::THREADS;
pub(crate) use threads::{MAX_FAULT_THREADS, MIN_FAULT_THREADS};

/// Environment variable: path of the control segment.
pub const ENV_CONTROL: &str = "ZFOLIO_CONTROL";
/// Environment variable: name of the group, within the run, of a process and those it starts.
pub const ENV_GROUP: &str = "ZFOLIO_GROUP";
/// Name of the thread that looks whether the others go on: what shows from outside that
/// a manager lives.
pub const WATCHDOG_NAME: &str = "zfolio-watchdog";
