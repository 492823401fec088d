//! What happens to threads and to the process: signals, forks, new threads, exec, the end.

pub(crate) mod actions;
mod begin;
pub(crate) mod descriptors;
pub(crate) mod handlers;
pub(crate) mod leave;
pub(crate) mod masks;
pub(crate) mod process;
pub(crate) mod sent;
pub(crate) mod signals;
