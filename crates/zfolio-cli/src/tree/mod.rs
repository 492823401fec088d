//! The processes of a run while it lasts.
//!
//! | module | concept |
//! |---|---|
//! | `members` | slots of those that ended are given back |
//! | `ended` | what is kept of processes whose slots are others' now |
//! | `compressed_peak` | when most was compressed |
//! | `orphaned` | processes that nobody serves any more are ended |
//! | `too_little_memory` | processes for which `high` is too little are told of |
//! | `unreached` | programs that never loaded the library |

pub(crate) mod compressed_peak;
pub(crate) mod ended;
pub(crate) mod members;
pub(crate) mod orphaned;
pub(crate) mod too_little_memory;
pub(crate) mod unreached;
