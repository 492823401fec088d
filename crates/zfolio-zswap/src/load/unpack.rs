//! Bytes of objects become pages, checked.

use super::error::LoadFault;
use crate::MAX_BATCH;
use crate::entry::held::Object;
use zfolio_compress::checksum::checksum;
use zfolio_compress::{CodecError, Context, DecompressUnit};

/// What a load must know of an object's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    pub(super) checksum: u32,
    pub(super) raw: bool,
}

impl Expected {
    pub(crate) fn of(object: &Object) -> Self {
        Self {
            checksum: object.checksum,
            raw: object.raw,
        }
    }
}

/// Checks the bytes of objects and makes pages of them; a page that cannot be
/// made is zeroed and its fault set.
pub(crate) fn unpack(
    codec: &mut dyn Context,
    expected: &[Expected],
    sources: &[&[u8]],
    pages: &mut [&mut [u8]],
    faults: &mut [Option<LoadFault>],
) {
    {
        let mut units: [DecompressUnit<'_>; MAX_BATCH] =
            core::array::from_fn(|_| DecompressUnit::default());
        // Which page each unit is.
        let mut which = [0; MAX_BATCH];
        let mut count = 0;
        for (index, ((expected, source), page)) in expected
            .iter()
            .zip(sources)
            .zip(pages.iter_mut())
            .enumerate()
        {
            if checksum(source) != expected.checksum {
                faults[index] = Some(LoadFault::Checksum);
            } else if expected.raw {
                page.copy_from_slice(source);
            } else {
                units[count] = DecompressUnit::new(source, page);
                which[count] = index;
                count += 1;
            }
        }
        let _ = codec.decompress_batch(&mut units[..count]);
        for (unit, index) in units[..count].iter().zip(which) {
            faults[index] = match unit.result {
                Ok(len) if len == unit.dst.len() => continue,
                Ok(_) => Some(LoadFault::Codec(CodecError::Corrupt)),
                Err(error) => Some(LoadFault::Codec(error)),
            };
        }
    }
    for (page, fault) in pages.iter_mut().zip(faults) {
        if fault.is_some() {
            page.fill(0);
        }
    }
}
