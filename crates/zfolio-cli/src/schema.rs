//! `zfolio schema NAME`: what the JSON that zfolio writes looks like, as JSON Schema.
//!
//! Made of the types that are written, so that neither can have what the other has not.

use crate::doctor::shown::DoctorShown;
use crate::options::args::{Schema, Written};
use crate::report::json::StatsFile;
use std::process::ExitCode;
use zfolio_host::exit::Failure;
use zfolio_host::schema::of;
use zfolio_host::standard_output::print;

/// Prints a schema.
///
/// # Errors
/// It cannot be written.
pub(crate) fn schema(args: &Schema) -> Result<ExitCode, Failure> {
    let schema = match args.name {
        Written::Stats => of::<StatsFile<'_>>(),
        Written::Stat => zfolio_views::schema::stat(),
        Written::Record => zfolio_views::schema::record(),
        Written::Sample => zfolio_views::schema::sample(),
        Written::Doctor => of::<DoctorShown<'_>>(),
        Written::Bench => zfolio_bench::schema(),
    };
    print(&format!("{:#}\n", schema.as_value())).map(|_| ExitCode::SUCCESS)
}
