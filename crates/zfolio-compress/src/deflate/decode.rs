//! Bits to bytes. Any input gives a result or an error; nothing is read or
//! written but what was lent, and every turn of a loop either consumes input
//! or writes output.

use super::canned;
use super::encode::ORDER;
use super::huffman::{FIXED_DISTANCES, fixed_litlens};
use super::symbols::{DISTANCES, LITLENS, MAX_BITS, distance_of, length_of};
use super::tables::{Tables, WINDOW};
use crate::CodecError;
use alloc::boxed::Box;

/// Bits of the code that the first look-up sees.
const PRIMARY: u32 = 10;

/// An entry of the first look-up: bits of the code (0: look further), kind,
/// extra bits, and the literal or least value.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    len: u8,
    kind: Kind,
    extra: u8,
    value: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Kind {
    Literal,
    /// A length or a distance.
    Based,
    End,
    #[default]
    Invalid,
}

/// A code, ready to be read.
#[derive(Debug)]
struct Table {
    primary: Box<[Entry; 1 << PRIMARY]>,
    /// Codes of each length.
    count: [u16; MAX_BITS + 1],
    /// What each code means, in order of code.
    meaning: [Entry; 288],
}

impl Table {
    fn new() -> Self {
        Self {
            primary: Box::new([Entry::default(); 1 << PRIMARY]),
            count: [0; MAX_BITS + 1],
            meaning: [Entry::default(); 288],
        }
    }

    /// Makes it read the canonical code of `lens`.
    ///
    /// # Errors
    /// When no code can have these lengths. Codes that are missing are errors
    /// when they occur.
    #[allow(clippy::cast_possible_truncation, reason = "lengths are below 16")]
    fn set(&mut self, lens: &[u8], means: impl Fn(usize) -> Entry) -> Result<(), CodecError> {
        self.count = [0; MAX_BITS + 1];
        for len in lens {
            let count = self.count.get_mut(usize::from(*len));
            *count.ok_or(CodecError::Corrupt)? += 1;
        }
        self.count[0] = 0;
        let mut unused = 1_i32;
        let mut first = [0_u16; MAX_BITS + 2];
        for len in 1..=MAX_BITS {
            unused = unused * 2 - i32::from(self.count[len]);
            if unused < 0 {
                return Err(CodecError::Corrupt);
            }
            first[len + 1] = first[len] + self.count[len];
        }
        self.primary.fill(Entry::default());
        // The code and place in order of the next symbol of each length.
        let mut place = first;
        let mut code = [0_u32; MAX_BITS + 2];
        for len in 1..=MAX_BITS {
            code[len + 1] = (code[len] + u32::from(self.count[len])) << 1;
        }
        for (symbol, len) in lens.iter().enumerate().filter(|(_, len)| **len > 0) {
            let at = usize::from(*len);
            let entry = Entry {
                len: *len,
                ..means(symbol)
            };
            self.meaning[usize::from(place[at])] = entry;
            place[at] += 1;
            let bits = code[at].reverse_bits() >> (32 - at);
            code[at] += 1;
            if at as u32 <= PRIMARY {
                let step = 1 << at;
                for slot in (bits as usize..1 << PRIMARY).step_by(step) {
                    self.primary[slot] = entry;
                }
            }
        }
        Ok(())
    }

    /// What the next code means; at most 15 of `bits` are looked at.
    fn look(&self, bits: u64) -> Entry {
        #[allow(clippy::cast_possible_truncation, reason = "masked")]
        let entry = self.primary[bits as usize & ((1 << PRIMARY) - 1)];
        if entry.len > 0 {
            return entry;
        }
        // Canonical: codes of a length follow those of the length before.
        let (mut code, mut first, mut index) = (0_u32, 0_u32, 0_u32);
        for len in 1..=MAX_BITS {
            code |= u32::from(bits >> (len - 1) & 1 == 1);
            let count = u32::from(self.count[len]);
            if code < first + count {
                return self.meaning[(index + code - first) as usize];
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Entry::default()
    }
}

#[allow(clippy::cast_possible_truncation, reason = "lengths are below 259")]
fn litlen_means(symbol: usize) -> Entry {
    let (kind, extra, value) = match symbol {
        0..=255 => (Kind::Literal, 0, symbol as u16),
        256 => (Kind::End, 0, 0),
        _ => match length_of(symbol) {
            Some((base, extra)) => (Kind::Based, extra as u8, base as u16),
            None => (Kind::Invalid, 0, 0),
        },
    };
    Entry {
        len: 0,
        kind,
        extra,
        value,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "least values are below 2^15"
)]
fn distance_means(symbol: usize) -> Entry {
    match distance_of(symbol) {
        Some((base, extra)) => Entry {
            len: 0,
            kind: Kind::Based,
            extra: extra as u8,
            value: base as u16,
        },
        None => Entry::default(),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "symbols are below 19")]
fn order_means(symbol: usize) -> Entry {
    Entry {
        len: 0,
        kind: Kind::Literal,
        extra: 0,
        value: symbol as u16,
    }
}

/// Decompresses units.
#[derive(Debug)]
pub(super) struct Decoder {
    canned: bool,
    /// The preset tables: canned or fixed.
    preset: (Table, Table),
    /// Those of the current block.
    dynamic: (Table, Table),
}

impl Decoder {
    pub(super) fn new(tables: Tables) -> Result<Self, CodecError> {
        let canned = tables == Tables::Canned;
        let mut preset = (Table::new(), Table::new());
        if canned {
            preset.0.set(&canned::LITLENS, litlen_means)?;
            preset.1.set(&canned::DISTANCES, distance_means)?;
        } else {
            preset.0.set(&fixed_litlens(), litlen_means)?;
            preset.1.set(&FIXED_DISTANCES, distance_means)?;
        }
        Ok(Self {
            canned,
            preset,
            dynamic: (Table::new(), Table::new()),
        })
    }

    /// Decompresses a unit; returns the bytes of `dst` filled.
    pub(super) fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let mut bits = Reader::new(src);
        let mut out = Output { dst, at: 0 };
        if self.canned {
            symbols(&self.preset, &mut bits, &mut out)?;
        } else {
            loop {
                let last = bits.take(1)? == 1;
                match bits.take(2)? {
                    0 => stored(&mut bits, &mut out)?,
                    1 => symbols(&self.preset, &mut bits, &mut out)?,
                    2 => {
                        self.read_tables(&mut bits)?;
                        symbols(&self.dynamic, &mut bits, &mut out)?;
                    }
                    _ => return Err(CodecError::Corrupt),
                }
                if last {
                    break;
                }
            }
        }
        bits.end()?;
        Ok(out.at)
    }

    fn read_tables(&mut self, bits: &mut Reader<'_>) -> Result<(), CodecError> {
        let litlens = bits.take(5)? as usize + 257;
        let distances = bits.take(5)? as usize + 1;
        let used = bits.take(4)? as usize + 4;
        if litlens > LITLENS || distances > DISTANCES {
            return Err(CodecError::Corrupt);
        }
        let mut order = [0_u8; 19];
        for symbol in &ORDER[..used] {
            order[*symbol] = bits.take(3)?.to_le_bytes()[0];
        }
        // The distance table serves until it is its own turn.
        self.dynamic.1.set(&order, order_means)?;
        let mut lens = [0_u8; LITLENS + DISTANCES];
        let lens = &mut lens[..litlens + distances];
        let mut at = 0;
        while at < lens.len() {
            bits.refill();
            let entry = self.dynamic.1.look(bits.bits);
            bits.skip(entry)?;
            let value = entry.value.to_le_bytes()[0];
            let (len, run) = match value {
                0..=15 => (value, 1),
                16 => {
                    let before = at.checked_sub(1).ok_or(CodecError::Corrupt)?;
                    (lens[before], bits.take(2)? as usize + 3)
                }
                17 => (0, bits.take(3)? as usize + 3),
                _ => (0, bits.take(7)? as usize + 11),
            };
            let run_lens = lens.get_mut(at..at + run).ok_or(CodecError::Corrupt)?;
            run_lens.fill(len);
            at += run;
        }
        let (litlen, distance) = lens.split_at(litlens);
        self.dynamic.0.set(litlen, litlen_means)?;
        self.dynamic.1.set(distance, distance_means)
    }
}

/// Symbols up to the end mark.
fn symbols(
    tables: &(Table, Table),
    bits: &mut Reader<'_>,
    out: &mut Output<'_>,
) -> Result<(), CodecError> {
    loop {
        // A length and a distance take 15 + 5 + 15 + 13 bits: one refill.
        bits.refill();
        let entry = tables.0.look(bits.bits);
        bits.skip(entry)?;
        match entry.kind {
            Kind::Literal => out.byte(entry.value.to_le_bytes()[0])?,
            Kind::Based => {
                let length = usize::from(entry.value) + bits.have(entry.extra)?;
                let entry = tables.1.look(bits.bits);
                bits.skip(entry)?;
                if entry.kind != Kind::Based {
                    return Err(CodecError::Corrupt);
                }
                let distance = usize::from(entry.value) + bits.have(entry.extra)?;
                out.repeat(length, distance)?;
            }
            Kind::End => return Ok(()),
            Kind::Invalid => return Err(CodecError::Corrupt),
        }
    }
}

fn stored(bits: &mut Reader<'_>, out: &mut Output<'_>) -> Result<(), CodecError> {
    let odd = bits.count % 8;
    bits.take(odd)?;
    let len = bits.take(16)?;
    if bits.take(16)? != len ^ 0xffff {
        return Err(CodecError::Corrupt);
    }
    for _ in 0..len {
        let byte = bits.take(8)?;
        out.byte(byte.to_le_bytes()[0])?;
    }
    Ok(())
}

/// Bytes into bits.
struct Reader<'a> {
    rest: &'a [u8],
    bits: u64,
    count: u32,
}

impl<'a> Reader<'a> {
    fn new(src: &'a [u8]) -> Self {
        Self {
            rest: src,
            bits: 0,
            count: 0,
        }
    }

    /// At least 56 bits, or all there are.
    fn refill(&mut self) {
        if let Some(word) = self.rest.first_chunk::<8>() {
            self.bits |= u64::from_le_bytes(*word) << self.count;
            let bytes = (63 - self.count) / 8;
            self.rest = &self.rest[bytes as usize..];
            self.count += bytes * 8;
            // What lies above the count was read too, and will be again.
            self.bits &= u64::MAX >> (64 - self.count);
        } else {
            while self.count <= 56 {
                let Some((byte, rest)) = self.rest.split_first() else {
                    return;
                };
                self.bits |= u64::from(*byte) << self.count;
                self.count += 8;
                self.rest = rest;
            }
        }
    }

    /// At most 32 bits.
    fn take(&mut self, count: u32) -> Result<u32, CodecError> {
        if self.count < count {
            self.refill();
            if self.count < count {
                return Err(CodecError::Corrupt);
            }
        }
        let value = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.count -= count;
        u32::try_from(value).map_err(|_| CodecError::Corrupt)
    }

    /// Bits that a refill has brought.
    fn have(&mut self, count: u8) -> Result<usize, CodecError> {
        let count = u32::from(count);
        if self.count < count {
            return Err(CodecError::Corrupt);
        }
        let value = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.count -= count;
        usize::try_from(value).map_err(|_| CodecError::Corrupt)
    }

    /// Passes a code; one that means nothing is an error.
    fn skip(&mut self, entry: Entry) -> Result<(), CodecError> {
        let len = u32::from(entry.len);
        if len == 0 || len > self.count {
            return Err(CodecError::Corrupt);
        }
        self.bits >>= len;
        self.count -= len;
        Ok(())
    }

    /// Nothing but the rest of a byte may be left, and that is zero.
    fn end(&self) -> Result<(), CodecError> {
        if self.rest.is_empty() && self.count < 8 && self.bits == 0 {
            Ok(())
        } else {
            Err(CodecError::Corrupt)
        }
    }
}

/// What has been written.
struct Output<'a> {
    dst: &'a mut [u8],
    at: usize,
}

impl Output<'_> {
    fn byte(&mut self, byte: u8) -> Result<(), CodecError> {
        let target = self.dst.get_mut(self.at).ok_or(CodecError::DoesNotFit)?;
        *target = byte;
        self.at += 1;
        Ok(())
    }

    fn repeat(&mut self, length: usize, distance: usize) -> Result<(), CodecError> {
        if distance == 0 || distance > self.at || distance > WINDOW {
            return Err(CodecError::Corrupt);
        }
        let (from, end) = (self.at - distance, self.at + length);
        if end > self.dst.len() {
            return Err(CodecError::DoesNotFit);
        }
        if distance >= length {
            self.dst.copy_within(from..from + length, self.at);
        } else {
            // Overlapping: what is written is read again.
            for at in self.at..end {
                self.dst[at] = self.dst[at - distance];
            }
        }
        self.at = end;
        Ok(())
    }
}
