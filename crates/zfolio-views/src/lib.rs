//! What the `zfolio` command shows of a run while it lasts.
//!
//! Bottom to top; a module knows those above it in this table only
//! (`crates/zfolio-cli/tests/rooms.rs` checks it):
//!
//! | module | concept |
//! |---|---|
//! | `args` | command lines |
//! | `config` | what a run was asked for, from its control segment |
//! | `look` | looking at a run, and who of it lives |
//! | `document` | a look as JSON |
//! | `stat` | `zfolio stat` |
#![forbid(unsafe_code)]

pub mod args;
pub mod config;
mod document;
#[cfg(test)]
#[path = "../../zfolio-host/src/example.rs"]
mod example;
pub mod look;
mod stat;

pub use stat::stat;
