//! What the command and the experiments need of the machine.
//!
//! Bottom to top; a module knows those above it in this table only
//! (`crates/zfolio-cli/tests/rooms.rs` checks it):
//!
//! | module | concept |
//! |---|---|
//! | `size`, `compressor`, `engine_attributes` | sizes and codecs as people write them; attributes as JSON |
//! | `controller` | the least memory at which a program loses no more time than asked for |
//! | `exit` | exit statuses, and failures told in one line |
//! | `outfile`, `histogram` | files for results; service times |
//! | `standard_output` | what a command prints |
//! | `cgroup_limits`, `machine` | memory, its limits, processors, the kernel |
//! | `uffd_probe` | what of userfaultfd(2) is permitted |
//! | `process_time` | what a process has run, from /proc |
//! | `process_tree` | a tree of processes and its memory, from /proc |
//! | `elf`, `target` | what kind of file a program is, and whether it can be managed |
//! | `segment_file`, `find_run` | the control segment of a run as a file (the only unsafe here) |
//! | `schema` | schemas of the JSON |
//! | `slots`, `held`, `group_state`, `engine_queues`, `class_table`, `statistics` | what a control segment says |
//! | `owners` | whether who a slot is of is still alive |
//! | `shown`, `staying` | figures as JSON; memory that cannot leave, and why |
//! | `store_totals` | what went to a store behind the pool, and how long reads took |
#![deny(unsafe_code)]

#[cfg(test)]
extern crate self as zfolio_host;

/// The variable that names the configuration, and the value with which `zfolio run` takes options
/// of its command line alone: for those who start it to measure.
pub const PLAIN: (&str, &str) = ("ZFOLIO_CONFIG", "none");

pub mod cgroup_limits;
pub mod class_table;
pub mod compressor;
pub mod controller;
pub mod elf;
pub mod engine_attributes;
mod engine_queues;
#[cfg(test)]
mod example;
pub mod exit;
pub mod find_run;
pub mod group_state;
pub mod held;
pub mod histogram;
pub mod machine;
pub mod outfile;
pub mod owners;
pub mod process_time;
pub mod process_tree;
pub mod schema;
#[allow(unsafe_code, reason = "maps the control segment")]
pub mod segment_file;
pub mod shown;
pub mod size;
pub mod slots;
pub mod standard_output;
pub mod statistics;
pub mod staying;
pub mod store_totals;
pub mod target;
pub mod uffd_probe;
