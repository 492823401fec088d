//! How much may be resident: of this process, and of all of its run or group.
//!
//! - [`usage`]: what is resident.
//! - [`pressure`]: how short memory is, and how long a fault waits.
//! - [`fair_share`]: a part of `high` for every process, by what each needs.
//! - [`hard_limit`]: what is done at `--max`.
//!
//! State: this process's membership of its run and its group, and its part of `high`.
//!
//! Lock: none. The parts are words of the segment, taken by compare and exchange.
//!
//! Below: the segment, `health`.

pub mod fair_share;
pub(crate) mod hard_limit;
pub(crate) mod pressure;
pub(crate) mod usage;
