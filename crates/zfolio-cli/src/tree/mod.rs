//! The processes of a run while it lasts.
//!
//! | module | concept |
//! |---|---|
//! | `owners` | whether who a slot is of is still alive |
//! | `members` | slots of those that ended are given back |
//! | `ended` | what is kept of processes whose slots are others' now |
//! | `compressed_peak` | when most was compressed |
//! | `orphaned` | processes that nobody serves any more are ended |
//! | `too_little_memory` | processes for which `high` is too little are told of |
//! | `unreached` | programs that never loaded the library |
//! | `staying` | memory that cannot leave, and why |

pub(crate) mod compressed_peak;
pub(crate) mod ended;
pub(crate) mod members;
pub(crate) mod orphaned;
pub(crate) mod owners;
pub(crate) mod staying;
pub(crate) mod too_little_memory;
pub(crate) mod unreached;
