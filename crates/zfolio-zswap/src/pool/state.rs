//! What the pool lock guards.

use crate::backing::clusters::Clusters;
use crate::backing::kinds::Backing;
use crate::backing::writeback_order::Lru;
use crate::entry::multi_page::Units;
use crate::entry::table::Entries;
use crate::pool::charge::Charge;
use crate::pool::shrinker::Shrinker;
use alloc::sync::Arc;
use core::fmt;
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

/// What is behind the pool.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) door: Door,
    pub(crate) clusters: Clusters,
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
