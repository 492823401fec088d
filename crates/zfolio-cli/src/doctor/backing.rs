//! What is to be behind the pool: in which order, files, and a store.

use super::check::{Check, Level};
use super::store;
use crate::options::backings::{Backings, check_files, in_order};
use zfolio_host::exit::Failure;
use zfolio_host::size::human;

/// What is to be said of it.
pub(super) fn checks(asked: &[Backings]) -> Vec<Check> {
    let (files, store) = match in_order(asked) {
        Ok(found) => found,
        Err(wrong) => return vec![failed("backing", &wrong)],
    };
    let mut checks = Vec::new();
    if let Some((dir, size)) = files {
        let then = if store.is_some() {
            ", then to the store"
        } else {
            ""
        };
        checks.push(match check_files(dir, size) {
            Ok(files) => {
                let (dir, most) = (files.dir.display(), human(files.size));
                let found = format!("{most} at most in {dir}{then}");
                Check::new("backing file", Level::Ok, found, "")
            }
            Err(wrong) => failed("backing file", &wrong),
        });
    }
    checks.extend(store.into_iter().flat_map(|(spec, _)| store::checks(spec)));
    checks
}

/// What `zfolio run` would refuse with.
fn failed(name: &'static str, wrong: &Failure) -> Check {
    let line = wrong.to_string();
    let line = line.strip_prefix("zfolio: ").unwrap_or(&line);
    let (found, mend) = line.rsplit_once("; ").unwrap_or((line, ""));
    Check::new(name, Level::Fail, found, mend)
}
