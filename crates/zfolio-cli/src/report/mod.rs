//! How a finished run is reported.
//!
//! | module | concept |
//! |---|---|
//! | `finished` | a run that has ended |
//! | `summary` | lines for people |
//! | `bought` | what `--slowdown` bought |
//! | `json` | an object for tools |

mod bought;
mod finished;
pub(crate) mod json;
mod summary;
#[cfg(test)]
mod tests;

pub(crate) use finished::{Finished, Usage};
