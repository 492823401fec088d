//! What may become of a run with a store: each scenario once, for whatever way of telling faults.

pub(crate) mod both;
pub(crate) mod content;
pub(crate) mod ends;
pub(crate) mod place;
pub(crate) mod programs;
pub(crate) mod servers_end;
