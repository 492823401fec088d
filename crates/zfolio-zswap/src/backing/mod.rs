//! What is behind the pool, and where in it things are.
//!
//! - `kinds`: the trait, and a file, memory and nothing as its siblings.
//! - `network`: their sibling beyond this machine, through the pager.
//! - `cells`: what it asks the pager for, each in a cell of the exchange.
//! - `values`: which of the store's values has which bytes.
//! - `ahead`: what is asked for before it is wanted; `waits`: who waits long.
//! - `in_order`: a near one and a far one as one.
//! - `clusters`: a backing is a log in clusters; where each record lies. `logs`: near or far.
//! - `encryption`: nobody else can read a record there, nor put another in its place.
//! - `writeback_order`: the list of entries that may be written back, oldest first.
//!
//! State: `Logs` and `Lru`, which the pool owns; the key, in a page of its own.
//!
//! Lock: the pool lock for both. A backing is read and written without it.
//!
//! Below: the slots. Who decides what goes out is `writeback`, above the pool.

pub(crate) mod ahead;
pub(crate) mod cells;
pub(crate) mod clusters;
pub(crate) mod encryption;
pub(crate) mod in_order;
pub(crate) mod kinds;
pub(crate) mod logs;
pub(crate) mod network;
pub(crate) mod values;
pub(crate) mod waits;
pub(crate) mod writeback_order;

pub use in_order::InOrder;
pub use kinds::{Backing, CLUSTER, Call, FileBacking, MemoryBacking, NullBacking};
pub use network::NetworkBacking;
pub use waits::backing_is_waited_for;
