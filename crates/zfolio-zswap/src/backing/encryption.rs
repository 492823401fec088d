//! Sealing: what leaves memory is readable to nobody but this process.
//!
//! AES-256-GCM (NIST SP 800-38D) by the `aes-gcm` crate where the processor has instructions for it, else
//! ChaCha20-Poly1305 (RFC 8439) by the `chacha20poly1305` crate, with a random
//! key of this process and no other (`KeyPage`). A *record* is the sealed bytes
//! of an object and behind them the tag. The crates use registers that a system call of
//! the program's must not change ([`keeping`]).
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
use aes_gcm::Aes256Gcm;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use core::sync::atomic::{AtomicU8, Ordering};
use zfolio_sys::secret::{KEY, KeyPage};
use zfolio_sys::wide_registers::keeping;

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

/// What seals: the same for all records of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cipher {
    /// Where the processor has instructions for it, and is faster by it.
    AesGcm = 1,
    ChaChaPoly = 2,
}

impl Cipher {
    fn of_processor() -> Self {
        // (Asking is slow where processors are a virtual machine's.)
        static FOUND: AtomicU8 = AtomicU8::new(0);
        match FOUND.load(Ordering::Relaxed) {
            1 => Self::AesGcm,
            2 => Self::ChaChaPoly,
            _ => {
                let found = if has_aes() {
                    Self::AesGcm
                } else {
                    Self::ChaChaPoly
                };
                FOUND.store(found as u8, Ordering::Relaxed);
                found
            }
        }
    }

    /// Encrypts `bytes` in place; their tag.
    fn seal(
        self,
        key: &[u8; KEY],
        nonce: Nonce,
        slot: Slot,
        bytes: &mut [u8],
    ) -> Option<[u8; TAG]> {
        let (nonce, slot) = (nonce.bytes().into(), slot.as_u32().to_le_bytes());
        let tag = match self {
            Self::AesGcm => {
                Aes256Gcm::new(key.into()).encrypt_inout_detached(&nonce, &slot, bytes.into())
            }
            Self::ChaChaPoly => ChaCha20Poly1305::new(key.into()).encrypt_inout_detached(
                &nonce,
                &slot,
                bytes.into(),
            ),
        };
        tag.ok().map(Into::into)
    }

    /// Decrypts `bytes` in place, if the tag is theirs.
    fn open(
        self,
        key: &[u8; KEY],
        nonce: Nonce,
        slot: Slot,
        bytes: &mut [u8],
        tag: [u8; TAG],
    ) -> Option<()> {
        let (nonce, slot) = (nonce.bytes().into(), slot.as_u32().to_le_bytes());
        let tag = tag.into();
        let opened = match self {
            Self::AesGcm => {
                Aes256Gcm::new(key.into()).decrypt_inout_detached(&nonce, &slot, bytes.into(), &tag)
            }
            Self::ChaChaPoly => ChaCha20Poly1305::new(key.into()).decrypt_inout_detached(
                &nonce,
                &slot,
                bytes.into(),
                &tag,
            ),
        };
        opened.ok()
    }
}

/// Whether the processor has instructions for AES and for GCM's multiplication.
fn has_aes() -> bool {
    const AES_AND_PCLMULQDQ: u32 = 1 << 25 | 1 << 1;
    core::arch::x86_64::__cpuid(1).ecx & AES_AND_PCLMULQDQ == AES_AND_PCLMULQDQ && !cfg!(miri)
}

/// Seals `record`, whose last [`TAG`] bytes become the tag; false if there is
/// no key (any more).
pub(crate) fn seal(key: &KeyPage, nonce: Nonce, slot: Slot, record: &mut [u8]) -> bool {
    seal_by(Cipher::of_processor(), key, nonce, slot, record)
}

fn seal_by(cipher: Cipher, key: &KeyPage, nonce: Nonce, slot: Slot, record: &mut [u8]) -> bool {
    let Some((bytes, place)) = record.split_last_chunk_mut::<TAG>() else {
        return false;
    };
    let sealed = key.with(|key| keeping(|| cipher.seal(key, nonce, slot, bytes)));
    let Some(Some(tag)) = sealed else {
        return false;
    };
    *place = tag;
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
    open_by(Cipher::of_processor(), key, nonce, slot, record)
}

fn open_by<'a>(
    cipher: Cipher,
    key: &KeyPage,
    nonce: Nonce,
    slot: Slot,
    record: &'a mut [u8],
) -> Option<&'a mut [u8]> {
    let (bytes, tag) = record.split_last_chunk_mut::<TAG>()?;
    key.with(|key| keeping(|| cipher.open(key, nonce, slot, bytes, *tag)))??;
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

    const CIPHERS: [Cipher; 2] = [Cipher::AesGcm, Cipher::ChaChaPoly];

    fn sealed(cipher: Cipher, key: &KeyPage) -> Vec<u8> {
        let mut record = std::vec![7; 100 + TAG];
        let slot = Slot::from_u32(9);
        assert!(seal_by(cipher, key, NONCE, slot, &mut record));
        record
    }

    #[test]
    fn only_what_was_sealed_opens() {
        let key = KeyPage::random().unwrap();
        for cipher in CIPHERS {
            let (slot, record) = (Slot::from_u32(9), sealed(cipher, &key));
            let open = |nonce, slot, mut record: Vec<u8>| {
                let opened = open_by(cipher, &key, nonce, slot, &mut record);
                opened.map(|bytes| bytes.to_vec())
            };
            assert!(!record.windows(4).any(|window| window == [7; 4]));
            assert_eq!(open(NONCE, slot, record.clone()).unwrap(), [7; 100]);
            for at in [0, 50, 99, 100, 115] {
                let mut changed = record.clone();
                changed[at] ^= 1;
                assert_eq!(open(NONCE, slot, changed), None, "byte {at}");
            }
            let later = Nonce { number: 4, ..NONCE };
            let moved = Nonce {
                granule: 18,
                ..NONCE
            };
            for nonce in [later, moved] {
                assert_eq!(open(nonce, slot, record.clone()), None);
            }
            assert_eq!(open(NONCE, Slot::from_u32(8), record.clone()), None);
            assert_eq!(open(NONCE, slot, record[..115].to_vec()), None);
            assert_eq!(open(NONCE, slot, std::vec![0; 3]), None);
            let other = KeyPage::random().unwrap();
            let mut record = record.clone();
            assert!(open_by(cipher, &other, NONCE, slot, &mut record).is_none());
        }
    }

    #[test]
    fn a_process_uses_one_cipher() {
        let key = KeyPage::random().unwrap();
        let used = Cipher::of_processor();
        assert_eq!(used, Cipher::of_processor());
        for cipher in CIPHERS {
            let mut record = sealed(cipher, &key);
            let opened = open(&key, NONCE, Slot::from_u32(9), &mut record);
            assert_eq!(opened.is_some(), cipher == used);
        }
    }
}
