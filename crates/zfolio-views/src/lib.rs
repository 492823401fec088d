//! What the `zfolio` command shows of a run while it lasts.
//!
//! Bottom to top; a module knows those above it in this table only
//! (`crates/zfolio-cli/tests/rooms.rs` checks it):
//!
//! | module | concept |
//! |---|---|
//! | `address`, `args` | command lines |
//! | `config` | what a run was asked for, from its control segment |
//! | `look` | looking at a run, and who of it lives |
//! | `slowdown` | what `--slowdown` has come to |
//! | `document`, `sample` | a look as JSON; what is shown over time |
//! | `help` | what figures mean, from docs/statistics.md |
//! | `stat`, `metrics`, `record`, `plot`, `top` | what people and tools are shown |
//! | `schema` | what the JSON looks like |
#![forbid(unsafe_code)]

pub mod address;
pub mod args;
pub mod config;
mod document;
#[cfg(test)]
#[path = "../../zfolio-host/src/example.rs"]
mod example;
mod help;
pub mod look;
pub mod metrics;
mod plot;
pub mod record;
pub mod sample;
pub mod schema;
mod slowdown;
mod stat;
mod top;

pub use metrics::metrics;
pub use plot::plot;
pub use stat::stat;
pub use top::top;
