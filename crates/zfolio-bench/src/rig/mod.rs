//! One run of a program in a given memory: bare, under `zfolio run`, or in a
//! control group whose cold pages go to the kernel's zram, zswap or swap file.
//!
//! Everything the kernel needs for a run is set up before it and undone after,
//! by the [`Keeper`](crate::keeper::Keeper), so that no run sees another's pool.
//!
//! | module | concept |
//! |---|---|
//! | `job` | what is run, and what came of it |
//! | `set_up` | setting up for a run, and undoing it |
//! | `group` | memory control groups, version 1 and 2 |
//! | `search` | the limit for a total |
//! | `beside` | two runs at once, of which one has no limit |
//! | `halves` | the processors that these have in turn |
//! | `program` | starting it, and its end |
//! | `counters` | what the kernel counted meanwhile |

mod beside;
mod counters;
mod group;
mod halves;
mod job;
mod program;
mod search;
mod set_up;

pub(crate) use job::{Job, Ran, Side};
pub use program::child;
pub(crate) use program::{ENDED, LOOK, end, ended, is_installed};
pub(crate) use search::Unfound;
pub(crate) use set_up::Rig;

use crate::keeper::wait_until;
use std::time::Duration;

/// Waits a moment for what the last run left to be freed.
pub(crate) fn settle() {
    wait_until(Duration::from_millis(100), || false);
}
