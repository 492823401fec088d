//! What a value is called in the store: `zf:RUN:MEMBER:NUMBER:SALT`, all hexadecimal.
//!
//! RUN is random, so that no run meets another's values; MEMBER is the random number of the
//! process; NUMBER is never used twice by it; SALT is what a copy of the value has of its own:
//! it is chosen so that the copy comes to lie on a shard that has none yet.

/// Slots of a cluster.
pub(crate) const SLOTS: usize = 16384;

/// A value of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    pub(crate) owner: u64,
    pub(crate) id: u64,
}

/// The key of a copy.
pub(crate) fn key(run: &str, name: Name, salt: u8) -> String {
    format!("zf:{run}:{:x}:{:x}:{salt:x}", name.owner, name.id)
}

/// The opposite.
pub(crate) fn read(run: &str, key: &str) -> Option<(Name, u8)> {
    let mut parts = key.strip_prefix("zf:")?.strip_prefix(run)?.split(':');
    let hex = |part: Option<&str>| u64::from_str_radix(part?, 16).ok();
    if parts.next() != Some("") {
        return None;
    }
    let (owner, id, salt) = (hex(parts.next())?, hex(parts.next())?, hex(parts.next())?);
    let salt = u8::try_from(salt).ok()?;
    parts.next().is_none().then_some((Name { owner, id }, salt))
}

/// The slot of a key without braces: its CRC-16 (polynomial 0x1021, from 0).
pub(crate) fn slot(key: &str) -> usize {
    let mut crc = 0_u16;
    for byte in key.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
    }
    usize::from(crc) % SLOTS
}

/// Where the copies of a value are: a byte for each, and their number above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Salts(pub(crate) u32);

impl Salts {
    pub(crate) fn of(salts: &[u8]) -> Self {
        let mut bytes = [0; 4];
        let count = salts.len().min(crate::spec::MOST_COPIES);
        bytes[..count].copy_from_slice(&salts[..count]);
        bytes[3] = u8::try_from(count).unwrap_or(0);
        Self(u32::from_le_bytes(bytes))
    }

    /// Each copy's. (Somebody else may have written the number.)
    pub(crate) fn each(self) -> impl Iterator<Item = u8> {
        let bytes = self.0.to_le_bytes();
        let count = usize::from(bytes[3]).min(crate::spec::MOST_COPIES);
        bytes.into_iter().take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // (Its example: CRC-16 of these digits is 0x31c3.)
        assert_eq!(slot("123456789"), 0x31c3);
        let mut filled = [0_usize; 3];
        for id in 0..9000 {
            let name = Name {
                owner: 0x1234_5678_9abc,
                id,
            };
            filled[slot(&key("0123456789abcdef", name, 0)) * 3 / SLOTS] += 1;
        }
        assert!(
            filled.iter().all(|of| (2700..3300).contains(of)),
            "{filled:?}"
        );
    }

    #[test]
    fn keys_are_read_back_and_others_are_not() {
        let name = Name {
            owner: u64::MAX,
            id: 77,
        };
        assert_eq!(read("ab", &key("ab", name, 9)), Some((name, 9)));
        for other in [
            "",
            "zf:ab",
            "zf:abc:1:2:3",
            "zf:ab:1:2",
            "zf:ab:1:2:3:4",
            "zf:ab:1:2:fff",
        ] {
            assert_eq!(read("ab", other), None, "{other}");
        }
        assert_eq!(Salts::of(&[3, 250]).each().collect::<Vec<_>>(), [3, 250]);
        assert_eq!(Salts(u32::MAX).each().count(), 3);
    }
}
