//! How an experiment shows itself.
//!
//! | module | concept |
//! |---|---|
//! | `ministat` | mean, spread, Student's t |
//! | `table` | columns for people |
//! | `plot` | lines as SVG |
//! | `progress` | how far it is, on the terminal |
//! | `results` | text, JSON and plot, where they were asked for |
//! | `workload_report` | what a workload told on its standard output |

pub(crate) mod ministat;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod results;
pub(crate) mod table;
pub(crate) mod workload_report;
