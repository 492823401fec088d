//! What the pool lock guards.

use crate::backing::clusters::{GO, Position};
use crate::backing::encryption::Nonce;
use crate::backing::kinds::Backing;
use crate::backing::logs::Logs;
use crate::backing::writeback_order::Lru;
use crate::entry::held::Object;
use crate::entry::multi_page::Units;
use crate::entry::table::Entries;
use crate::pool::charge::Charge;
use crate::pool::shrinker::Shrinker;
use crate::slot::Slot;
use crate::spans::Span;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use zfolio_sys::secret::KeyPage;
use zfolio_zsmalloc::ZsPool;

/// What the pool lock guards.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) zs: ZsPool,
    pub(crate) entries: Entries,
    pub(crate) units: Units,
    pub(crate) charge: Charge,
    pub(crate) shrinker: Shrinker,
    /// Empty without a backing.
    pub(crate) lru: Lru,
    pub(crate) behind: Option<Behind>,
}

impl Pool {
    /// Whether an entry goes to the far part of the backing.
    pub(crate) fn is_far(&self, going: &Going) -> bool {
        let logs = self.behind.as_ref().map(|behind| &behind.logs);
        going
            .to
            .zip(logs)
            .is_some_and(|((at, _), logs)| logs.is_far(at))
    }
}

/// What is behind the pool.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) door: Door,
    pub(crate) logs: Logs,
    /// Goes whose writes are under way.
    pub(crate) begun: Vec<Begun>,
}

/// An entry on its way out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) slot: Slot,
    /// Pinned.
    pub(crate) object: Object,
    pub(crate) span: Span,
    /// Where it goes; pinned. `None`: there was no room.
    pub(crate) to: Option<(Position, Nonce)>,
    /// Its record is in the backing.
    pub(crate) written: bool,
}

/// What goes together.
pub(crate) type List = [Option<Going>; GO];

/// A go whose writes are under way.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) list: List,
    /// A go comes to lie in two clusters at most.
    pub(crate) runs: [Option<Posted>; 2],
    /// The cluster of a write that failed.
    pub(crate) failed: Option<Position>,
}

/// A write of a go: where it goes, which entries, and its number.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) start: Position,
    pub(crate) entries: Range<usize>,
    pub(crate) write: usize,
}

/// What is needed to read and write without the lock.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) key: Arc<KeyPage>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backing.name())
    }
}
