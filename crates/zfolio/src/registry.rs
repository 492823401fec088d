//! What the process's lock guards: its groups, and engines that wait for the next group.
//!
//! Types alone, below the lock ([`process`](crate::process)); what is done with groups is
//! [`group`](crate::group)'s, above it.

use crate::table::Engine;
use core::sync::atomic::AtomicUsize;
use std::sync::Arc;
use zfolio_runtime::options::Options;
use zfolio_runtime::scope::Serving;

/// Regions that share a target for the memory they use.
///
/// A handle: clones are of the same group. Its threads live as long as the
/// process; a group that nobody has any more is used again by the next one
/// like it.
#[derive(Clone)]
pub struct Group(pub(crate) Arc<Inner>);

/// A group's engine.
pub(crate) struct Inner {
    /// `None` inside `zfolio run`.
    pub(crate) engine: Option<Engine>,
    pub(crate) high: AtomicUsize,
    pub(crate) kind: Kind,
    pub(crate) generation: u32,
}

/// What makes one group's engine fit for the next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    /// All but `high`, which is 0.
    pub(crate) options: Options,
    pub(crate) serving: Serving,
}

/// Every group the process knows of.
pub(crate) struct Groups {
    /// The one that regions have which name none.
    pub(crate) process: Option<Group>,
    /// Engines of groups that nobody has any more.
    pub(crate) idle: Vec<(Kind, Engine)>,
}

impl Groups {
    pub(crate) const fn new() -> Self {
        Self {
            process: None,
            idle: Vec::new(),
        }
    }
}
