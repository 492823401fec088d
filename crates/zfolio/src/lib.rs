//! Memory that is compressed when it is not used, for programs that ask.
//!
//! ```no_run
//! # fn main() -> Result<(), zfolio::Error> {
//! zfolio::limit(2 << 30)?; // of memory, for all regions together
//! let mut region = zfolio::Region::reserve(16 << 30)?; // of address space
//! region[12 << 30] = 1; // used like any other memory
//! # Ok(())
//! # }
//! ```
//!
//! A [`Region`] is a range of addresses. Touched pages stay as they are as long
//! as all regions of a [`Group`] fit in its `high`; then pages that are not
//! used are compressed, and come back when they are touched. What `zfolio run`
//! does for a whole program that knows nothing of it, this does for the
//! memory a program chooses, and faster: a missing page is served in the thread
//! that touches it, in a signal handler, without privilege.
//!
//! What has to be known (more in `docs/regions.md`):
//!
//! - A system call given memory that is out returns `EFAULT`: hold a [`Pin`]
//!   for it ([`Region::pin`]), or choose [`Serving::Threads`], which needs
//!   privilege.
//! - The child of a fork does not have its parent's regions: touching one ends
//!   it with a line that says so.
//! - Where userfaultfd is refused regions work all the same, by page protection,
//!   slower: [`Serving::Protected`].
//! - SIGBUS, or SIGSEGV in the last case, must not be blocked in a thread that
//!   touches a region.
//! - Inside `zfolio run` a region is plain memory, which the run manages like
//!   all the rest.

mod chaining;
mod error;
mod group;
mod heap;
mod memory;
mod options;
mod pin;
mod process;
mod region;
mod registry;
mod signals;
mod statistics;
mod table;

pub use error::Error;
pub use group::{Compacted, Group, GroupBuilder, Stats, limit, stats};
pub use heap::Heap;
pub use pin::{Pin, PinMut};
#[doc(hidden)]
pub use process::hold_over_forks;
pub use region::Region;
pub use signals::handle_fault;
pub use zfolio_runtime::options::Codec;
pub use zfolio_runtime::scope::Serving;
