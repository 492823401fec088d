//! The figures of a run as OpenMetrics text, printed or served over HTTP.
//!
//! | module | concept |
//! |---|---|
//! | `families` | which metrics there are |
//! | `store` | what went to a store behind the pool |
//! | `collect` | a look as text |
//! | `http` | one request and its answer |
//! | `serve` | who listens, within bounds |

mod collect;
mod families;
mod http;
pub mod serve;
mod store;

use crate::args::Which;
use crate::look::Look;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::standard_output::print;

/// `zfolio metrics`: prints them once.
///
/// # Errors
/// When there is no such run, or nothing can be written.
pub fn metrics(args: &Which) -> Result<ExitCode, Failure> {
    let mut look = Look::find(args.which.as_deref())?;
    let text = collect::text(look.look())
        .map_err(|error| Failure::new(Status::Internal, "metrics", error, "please report this"))?;
    print(&text).map(|_| ExitCode::SUCCESS)
}
