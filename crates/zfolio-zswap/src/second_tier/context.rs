//! What one thread recompresses with.

use super::joiner::Joiner;
use super::learner::Learner;
use alloc::boxed::Box;
use core::fmt;
use zfolio_compress::Context;

/// What one thread recompresses with, made once by
/// [`Zswap::tier_context`](crate::Zswap::tier_context).
pub struct TierContext {
    pub(super) codec: Box<dyn Context + Send>,
    /// A page per unit of a step: decompressed.
    pub(super) plain: Box<[u8]>,
    /// The same: compressed again.
    pub(super) packed: Box<[u8]>,
    /// `None`: there are no units.
    pub(super) joiner: Option<Joiner>,
    pub(super) learner: Learner,
}

impl fmt::Debug for TierContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierContext").finish_non_exhaustive()
    }
}
