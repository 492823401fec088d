//! What every experiment takes: files for its results, and names to choose by.

use clap::Args;
use std::path::PathBuf;
use zfolio_host::exit::{Failure, Status};

/// Files every experiment writes.
#[derive(Args, Debug)]
pub struct BenchFiles {
    /// Write all figures to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw them into FILE as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Those of `offered` that were asked for by name, all if none was.
///
/// # Errors
/// A name that none has; `option` is how it was asked for.
pub(crate) fn chosen<'a, T>(
    option: &str,
    asked: &[String],
    offered: &'a [T],
    name: impl Fn(&T) -> &'static str,
) -> Result<Vec<&'a T>, Failure> {
    if asked.is_empty() {
        return Ok(offered.iter().collect());
    }
    let found = asked.iter().map(|asked| {
        let found = offered.iter().find(|one| name(one) == asked);
        found.ok_or_else(|| {
            let names: Vec<&str> = offered.iter().map(&name).collect();
            let why = format!("none is called {asked}");
            let mend = format!("choose of {}", names.join(", "));
            Failure::new(Status::Usage, option, why, mend)
        })
    });
    found.collect()
}
