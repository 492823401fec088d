//! Sealing: what leaves memory is readable to nobody but this process.
//!
//! ChaCha20-Poly1305 (RFC 8439) by the `chacha20poly1305` crate, with a random
//! key of this process and no other (`KeyPage`). A *record* is the sealed bytes
//! of an object and behind them the tag.
//!
//! # Nonces
//! A cluster gets a number each time it is begun, never the same twice under
//! one key. The nonce of a record is that number (8 bytes) and the granule of
//! the cluster at which the record begins (4 bytes); no granule is given out
//! twice under one number, whether the write went well or not. So no nonce is
//! ever used twice. The numbers are kept in memory: an older content put back
//! into the file does not pass, nor does a record moved elsewhere. The slot is
//! authenticated too, so that a mistake of ours in the tables is found.

use crate::slot::Slot;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Tag};
use zfolio_sys::secret::KeyPage;

/// Bytes of a tag.
pub(crate) const TAG: usize = 16;

/// What a record is sealed under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nonce {
    /// The cluster's number.
    pub(crate) number: u64,
    /// The first granule within the cluster.
    pub(crate) granule: u32,
}

impl Nonce {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.granule.to_le_bytes());
        bytes
    }
}

/// Seals `record`, whose last [`TAG`] bytes become the tag; false if there is
/// no key (any more).
pub(crate) fn seal(key: &KeyPage, nonce: Nonce, slot: Slot, record: &mut [u8]) -> bool {
    let Some((bytes, place)) = record.split_last_chunk_mut::<TAG>() else {
        return false;
    };
    let slot = slot.as_u32().to_le_bytes();
    let sealed = key.with(|key| {
        ChaCha20Poly1305::new(key.into())
            .encrypt_inout_detached(&nonce.bytes().into(), &slot, bytes.into())
            .ok()
    });
    let Some(Some(tag)) = sealed else {
        return false;
    };
    place.copy_from_slice(&tag);
    true
}

/// Opens `record` in place; the object's bytes, or `None` if they are not what
/// was sealed.
pub(crate) fn open<'a>(
    key: &KeyPage,
    nonce: Nonce,
    slot: Slot,
    record: &'a mut [u8],
) -> Option<&'a mut [u8]> {
    let (bytes, tag) = record.split_last_chunk_mut::<TAG>()?;
    let tag = Tag::from(*tag);
    let slot = slot.as_u32().to_le_bytes();
    key.with(|key| {
        ChaCha20Poly1305::new(key.into())
            .decrypt_inout_detached(&nonce.bytes().into(), &slot, (&mut *bytes).into(), &tag)
            .ok()
    })??;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const NONCE: Nonce = Nonce {
        number: 3,
        granule: 17,
    };

    fn sealed(key: &KeyPage) -> Vec<u8> {
        let mut record = std::vec![7; 100 + TAG];
        assert!(seal(key, NONCE, Slot::from_u32(9), &mut record));
        record
    }

    #[test]
    fn only_what_was_sealed_opens() {
        let key = KeyPage::random().unwrap();
        let slot = Slot::from_u32(9);
        let record = sealed(&key);
        assert!(!record.windows(4).any(|window| window == [7; 4]));
        assert_eq!(
            open(&key, NONCE, slot, &mut record.clone()).unwrap(),
            [7; 100]
        );
        for at in [0, 50, 99, 100, 115] {
            let mut changed = record.clone();
            changed[at] ^= 1;
            assert!(open(&key, NONCE, slot, &mut changed).is_none(), "byte {at}");
        }
        let later = Nonce { number: 4, ..NONCE };
        let moved = Nonce {
            granule: 18,
            ..NONCE
        };
        for nonce in [later, moved] {
            assert!(open(&key, nonce, slot, &mut record.clone()).is_none());
        }
        assert!(open(&key, NONCE, Slot::from_u32(8), &mut record.clone()).is_none());
        assert!(open(&key, NONCE, slot, &mut record[..115].to_vec()).is_none());
        assert!(open(&key, NONCE, slot, &mut [0; 3]).is_none());
        let other = KeyPage::random().unwrap();
        assert!(open(&other, NONCE, slot, &mut record.clone()).is_none());
    }
}
