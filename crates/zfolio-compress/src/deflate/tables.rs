//! What both directions know of the format: the window, and which tables there are.

/// Farthest a repeat refers back, bytes: the accelerator's history.
pub const WINDOW: usize = 4096;

/// Which tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// Made for each block, where that is shortest.
    Dynamic,
    /// Those of RFC 1951.
    Fixed,
    /// Preset; no headers.
    Canned,
}

impl Tables {
    /// Every mode, by what follows the codec's name.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("dynamic", Self::Dynamic),
        ("fixed", Self::Fixed),
        ("canned", Self::Canned),
    ];
}
