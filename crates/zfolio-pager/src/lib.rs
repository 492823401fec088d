//! The pager: a process beside a run that keeps sealed values in a Redis or Valkey store, for
//! the run's processes.
//!
//! The processes hand it values through shared memory ([`zfolio_sys::exchange`]); it alone has
//! the store's password and connections, and it never sees anything that is not sealed.
//!
//! | module, bottom to top | concept |
//! |---|---|
//! | [`spec`] | the URL, and what may be asked for behind it |
//! | `said` | lines on standard error that nobody waits for |
//! | `key` | what a value is called in the store, and which slot that is |
//! | `fail` | why a command failed |
//! | `wire` | a connection, every wait of which has an end |
//! | `allowance` | how much writes may put on the wire |
//! | `links` | which node has which slot, who answers and who does not |
//! | `records` | which values there are, so that they can be kept from expiring and deleted |
//! | `jobs` | requests as they go: copies, tries, answers |
//! | [`serve`], `upkeep` | the process: threads that serve; what it does once in a while |
//! | [`keeper`] | the other end: who starts it, starts it again, and lets it end |
//! | [`probe`] | what a store is like, and what would be lost when |
#![forbid(unsafe_code)]

mod allowance;
mod fail;
mod jobs;
pub mod keeper;
mod key;
mod links;
pub mod probe;
mod records;
mod said;
pub mod serve;
pub mod spec;
mod upkeep;
mod wire;
