//! What a run is asked for.
//!
//! | module | concept |
//! |---|---|
//! | `backings` | what may be behind the pool |
//! | `backing_options` | the backing and `max` |
//! | `engines` | threads that help to compress, and their attributes |
//! | `groups` | named parts of a run |
//! | `slowdown` | what may be paid for memory |
//! | `asking` | the command lines of `set`, `compact` and `inspect` |
//! | `run_args` | the command line of `run` |
//! | `mistake` | what is wrong with a command line, and what mends it |
//! | `args` | the command line |
//! | `config_file`, `layers` | options in files and variables, and which of them hold |
//! | `fault_ways` | who is told of faults, and which options go with that |
//! | `shown` | what was asked for as JSON |
//! | `settings` | all of it as the processes of a run read it |

pub(crate) mod args;
pub(crate) mod asking;
pub(crate) mod backing_options;
pub(crate) mod backings;
pub(crate) mod config_file;
pub(crate) mod engines;
pub(crate) mod fault_ways;
pub(crate) mod groups;
pub(crate) mod layers;
pub(crate) mod mistake;
pub(crate) mod run_args;
pub(crate) mod settings;
pub(crate) mod shown;
pub(crate) mod slowdown;
