//! The units of a batch: where from, where to, and how it went.

use core::fmt;

/// Why one unit failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodecError {
    /// The result is longer than `dst`: a poor unit when compressing, a wrong
    /// length when decompressing.
    DoesNotFit,
    /// The compressed bytes are not something this codec wrote.
    Corrupt,
    /// No memory for the codec's workspace.
    Workspace,
    /// The unit is empty or larger than [`MAX_UNIT`](crate::MAX_UNIT).
    Length,
    /// The unit has not been through a context yet.
    NotRun,
    /// Verification made other bytes of it than it had been: do not use it.
    Mismatch,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DoesNotFit => "the result does not fit its buffer",
            Self::Corrupt => "the compressed bytes are corrupt",
            Self::Workspace => "no memory for the codec's workspace",
            Self::Length => "the unit is empty or too large",
            Self::NotRun => "the unit has not been processed",
            Self::Mismatch => "what was compressed does not come back",
        })
    }
}

impl core::error::Error for CodecError {}

/// One unit to compress.
#[derive(Debug)]
pub struct CompressUnit<'a> {
    /// The plain bytes: 1 ..= [`MAX_UNIT`](crate::MAX_UNIT).
    pub src: &'a [u8],
    /// Where the compressed bytes go; its length is the most they may take.
    pub dst: &'a mut [u8],
    /// Compressed length in bytes once run.
    pub result: Result<usize, CodecError>,
}

/// One unit to decompress.
#[derive(Debug)]
pub struct DecompressUnit<'a> {
    /// Exactly the compressed bytes.
    pub src: &'a [u8],
    /// Where the plain bytes go: as long as the unit was.
    pub dst: &'a mut [u8],
    /// Plain length in bytes once run.
    pub result: Result<usize, CodecError>,
}

impl<'a> CompressUnit<'a> {
    /// A unit not yet run.
    #[must_use]
    pub fn new(src: &'a [u8], dst: &'a mut [u8]) -> Self {
        Self {
            src,
            dst,
            result: Err(CodecError::NotRun),
        }
    }
}

impl Default for CompressUnit<'_> {
    /// An empty unit, to fill arrays with.
    fn default() -> Self {
        Self::new(&[], &mut [])
    }
}

impl<'a> DecompressUnit<'a> {
    /// A unit not yet run.
    #[must_use]
    pub fn new(src: &'a [u8], dst: &'a mut [u8]) -> Self {
        Self {
            src,
            dst,
            result: Err(CodecError::NotRun),
        }
    }
}

impl Default for DecompressUnit<'_> {
    /// An empty unit, to fill arrays with.
    fn default() -> Self {
        Self::new(&[], &mut [])
    }
}

/// What a batch call came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct BatchOutcome {
    /// Units whose result is an error.
    pub failed: usize,
}

impl BatchOutcome {
    /// Whether every unit succeeded.
    #[must_use]
    pub fn all_ok(self) -> bool {
        self.failed == 0
    }

    /// The call as a whole: it fails if and only if a unit did. What to do about
    /// those that did, each unit's own result says; the others are good.
    ///
    /// # Errors
    /// Itself.
    pub fn into_result(self) -> Result<(), Self> {
        if self.all_ok() { Ok(()) } else { Err(self) }
    }
}

/// Runs a one-unit function over a batch to compress, in order: what a
/// software codec's batch is.
pub(crate) fn compress_each(
    units: &mut [CompressUnit<'_>],
    mut one: impl FnMut(&[u8], &mut [u8]) -> Result<usize, CodecError>,
) -> BatchOutcome {
    let mut failed = 0;
    for unit in units {
        unit.result = checked_len(unit.src.len()).and_then(|()| one(unit.src, unit.dst));
        failed += usize::from(unit.result.is_err());
    }
    BatchOutcome { failed }
}

/// The same for a batch to decompress.
pub(crate) fn decompress_each(
    units: &mut [DecompressUnit<'_>],
    mut one: impl FnMut(&[u8], &mut [u8]) -> Result<usize, CodecError>,
) -> BatchOutcome {
    let mut failed = 0;
    for unit in units {
        unit.result = checked_len(unit.dst.len()).and_then(|()| one(unit.src, unit.dst));
        failed += usize::from(unit.result.is_err());
    }
    BatchOutcome { failed }
}

/// A unit's plain length must be one the codecs' C types and workspaces hold.
fn checked_len(plain: usize) -> Result<(), CodecError> {
    if plain == 0 || plain > crate::MAX_UNIT {
        Err(CodecError::Length)
    } else {
        Ok(())
    }
}
