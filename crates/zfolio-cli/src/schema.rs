//! `zfolio schema NAME`: what the JSON that zfolio writes looks like, as JSON Schema.
//!
//! Made of the types that are written, so that neither can have what the other has not.

use crate::options::args::{Schema, Written};
use crate::report::json::StatsFile;
use std::io::{self, Write};
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::schema::of;

/// Prints a schema.
///
/// # Errors
/// [`Status::CannotCreate`] when it cannot be written.
pub(crate) fn schema(args: &Schema) -> Result<ExitCode, Failure> {
    let schema = match args.name {
        Written::Stats => of::<StatsFile<'_>>(),
        Written::Stat => zfolio_views::schema::stat(),
        Written::Record => zfolio_views::schema::record(),
        Written::Sample => zfolio_views::schema::sample(),
        Written::Bench => zfolio_bench::schema(),
    };
    let written = writeln!(io::stdout(), "{:#}", schema.as_value());
    let mend = "send it where there is room";
    written
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| Failure::new(Status::CannotCreate, "standard output", error, mend))
}
