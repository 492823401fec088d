//! What a finished run is told as.
//!
//! | module | concept |
//! |---|---|
//! | `finished` | a run that has ended |
//! | `summary` | lines for people |
//! | `json` | an object for tools |

mod finished;
mod json;
mod summary;
#[cfg(test)]
mod tests;

pub(crate) use finished::{Finished, Usage};
