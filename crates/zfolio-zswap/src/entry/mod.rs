//! The table of entries: what a slot means.
//!
//! - [`held`]: what an entry holds, and how that is packed into 12 bytes.
//! - [`table`]: all entries, in chunks that never move.
//! - [`multi_page`]: units, objects that hold several pages.
//!
//! State: `Entries` and `Units`, which the pool owns.
//!
//! Lock: the pool lock.
//!
//! Below: the backing, for the positions of records.

pub(crate) mod held;
pub(crate) mod multi_page;
pub(crate) mod table;
