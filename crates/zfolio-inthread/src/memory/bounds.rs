//! How the process stands to its limits: what [`super::limits`] remembers.

use zfolio_runtime::hard_limit::HardLimit;

/// Windows that a batch looks at after the pool has refused pages: what holds nothing can be
/// closed still.
const WINDOWS: u32 = 64;

/// Limits, and how the process stands to them.
pub(super) struct Bounds {
    pub(super) max: HardLimit,
    /// The pool has refused pages in this batch, or the one before where none is under way.
    refused: bool,
    /// Windows that are looked at after that.
    windows: u32,
    /// There is no room for whoever wants memory: it would be beyond `max`.
    pub(super) waits: bool,
}

impl Bounds {
    pub(super) const fn new() -> Self {
        Self {
            max: HardLimit::new(),
            refused: false,
            windows: 0,
            waits: false,
        }
    }

    /// A batch begins; whether pages were refused in the one before.
    pub(super) fn begin(&mut self) -> bool {
        core::mem::take(&mut self.refused)
    }

    /// The pool has refused a page.
    pub(super) fn note_refused(&mut self) {
        self.refused = true;
        self.windows = WINDOWS;
    }

    /// Whether nothing more is to be stored in this batch.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether a batch may look at another window.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.refused {
            self.windows = self.windows.saturating_sub(1);
        }
        !self.refused || self.windows > 0
    }
}
