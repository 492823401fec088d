//! What the JSON of the views looks like, as JSON Schema.

use crate::document::Document;
use crate::record::Header;
use crate::sample::Sample;
use zfolio_host::schema::{Schema, of};

/// An object of `zfolio stat --json`.
pub fn stat() -> Schema {
    of::<Document<'_>>()
}

/// The first line that `zfolio run --record` writes.
pub fn record() -> Schema {
    of::<Header<'_>>()
}

/// Each other line of it.
pub fn sample() -> Schema {
    of::<Sample>()
}
