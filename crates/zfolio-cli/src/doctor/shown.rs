//! The object that `zfolio doctor --json` writes.

use super::check::Check;
use schemars::JsonSchema;
use serde::Serialize;

/// What `zfolio doctor --json` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "zfolio doctor --json")]
pub(crate) struct DoctorShown<'a> {
    /// Programs can be managed; the status is 0.
    pub(super) usable: bool,
    /// The way that faults would be served: what `--faults` takes; null where there is none.
    pub(super) faults: Option<&'a str>,
    pub(super) regions: RegionsShown,
    pub(super) checks: &'a [Check],
    /// Where this is: a machine, a kind of container, a job.
    pub(super) place: String,
    /// The one command to type next.
    pub(super) next: &'a str,
}

/// How the regions of a program that asks for them work.
#[derive(Serialize, JsonSchema)]
pub(super) struct RegionsShown {
    /// `userfaultfd`, `protection` or `none`.
    pub(super) way: &'static str,
    pub(super) why: String,
}
