//! Several neighbouring pages as one unit: the form of a second, denser tier.
//!
//! A unit of [`PAGES`] pages compresses better than its pages one by one, since
//! they refer to each other; a page of it costs decoding the unit. What compresses
//! them is [`Compressor::dense_units`](crate::Compressor::dense_units); whoever keeps
//! units keeps, per page, which unit it is in and its place there.

/// Pages of a unit: 16 KiB.
pub const PAGES: usize = 4;
/// Bytes of a unit.
pub const UNIT: usize = PAGES * crate::PAGE_UNIT;
/// zstd's level for units without a dictionary: what time allows that nobody waits for.
pub const LEVEL: i32 = 3;
