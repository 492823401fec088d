//! One entry of the table of entries: what it holds, and how that is packed into 12 bytes.

use crate::backing::clusters::Position;
use zfolio_compress::dictionary::VERSIONS;
use zfolio_zsmalloc::Handle;

/// What an entry holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// A page of one repeated word: no object.
    Same(u64),
    /// Bytes in an object.
    Object(Object),
    /// A part of an object that holds several pages.
    Member(Member),
    /// Those bytes, sealed, in the backing.
    Backed(Record),
    /// In the backing of the process that this one is a child of: not to be had.
    Lost,
}

/// An object written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) at: Position,
    /// Of the object.
    pub(crate) len: u16,
    /// Of the object.
    pub(crate) checksum: u32,
    /// As of the object.
    pub(crate) raw: bool,
    /// As of the object.
    pub(crate) version: u8,
}

/// Bytes in an object of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Object {
    pub(crate) handle: Handle,
    /// Bytes used: a page when `raw`.
    pub(crate) len: u16,
    /// Of those bytes.
    pub(crate) checksum: u32,
    /// The page itself, not compressed.
    pub(crate) raw: bool,
    /// Of the dictionary it was made with; 0: none.
    pub(crate) version: u8,
}

/// What an entry says of a page in a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) unit: u32,
    pub(crate) place: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Free,
    Same,
    Packed,
    Raw,
    BackedPacked,
    BackedRaw,
    Lost,
    Member,
}

/// A kind, and the version of a dictionary, in a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form(u8);

impl Form {
    const KINDS: [Kind; 8] = [
        Kind::Free,
        Kind::Same,
        Kind::Packed,
        Kind::Raw,
        Kind::BackedPacked,
        Kind::BackedRaw,
        Kind::Lost,
        Kind::Member,
    ];
    pub(crate) const FREE: Self = Self(0);

    pub(crate) fn of(kind: Kind, version: u8) -> Self {
        Self(kind as u8 | version << 4)
    }

    pub(crate) fn kind(self) -> Kind {
        let kind = Self::KINDS.get(usize::from(self.0 & 15));
        kind.copied().unwrap_or(Kind::Lost)
    }

    pub(crate) fn version(self) -> u8 {
        self.0 >> 4
    }
}

const _: () = assert!(VERSIONS < 16);

/// One entry; its form says what the other words mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Free: the slot value of the next free entry, 0 for none. Same: the low
    /// half of the word. Backed: the position. Member: the unit. Else the handle.
    pub(crate) low: u32,
    /// Same: the high half of the word. Member: the place in the unit. Else the checksum.
    pub(crate) high: u32,
    /// Bytes of the object less one, and above them the flags.
    pub(crate) bits: u16,
    pub(crate) form: Form,
}

/// Invalidated while its object was pinned: goes with the last pin.
pub(crate) const DOOMED: u16 = 1 << 15;
/// Passed over once when entries are looked for to be written back.
pub(crate) const REFERENCED: u16 = 1 << 14;
/// Compressing it again has been tried.
pub(crate) const TRIED: u16 = 1 << 13;
/// The tier's hand has passed it once.
pub(crate) const IDLE: u16 = 1 << 12;
const LEN: u16 = IDLE - 1;

const _: () = assert!(size_of::<Entry>() == 12);

pub(crate) const FREE: Entry = Entry {
    low: 0,
    high: 0,
    bits: 0,
    form: Form::FREE,
};

pub(crate) fn packed(held: Held) -> Entry {
    let (low, high, bits, form) = match held {
        Held::Same(word) => {
            let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
            let (low, high) = ([a, b, c, d], [e, f, g, h]);
            let (low, high) = (u32::from_le_bytes(low), u32::from_le_bytes(high));
            (low, high, 0, Form::of(Kind::Same, 0))
        }
        Held::Object(of) => {
            let kind = if of.raw { Kind::Raw } else { Kind::Packed };
            let form = Form::of(kind, of.version);
            (of.handle.as_u32(), of.checksum, len_bits(of.len), form)
        }
        Held::Backed(of) => {
            let kind = if of.raw {
                Kind::BackedRaw
            } else {
                Kind::BackedPacked
            };
            let form = Form::of(kind, of.version);
            (of.at.0, of.checksum, len_bits(of.len), form)
        }
        Held::Member(of) => (of.unit, of.place.into(), 0, Form::of(Kind::Member, 0)),
        Held::Lost => (0, 0, 0, Form::of(Kind::Lost, 0)),
    };
    Entry {
        low,
        high,
        bits,
        form,
    }
}

/// Lengths are 1 ..= a page.
fn len_bits(len: u16) -> u16 {
    len.saturating_sub(1) & LEN
}

pub(crate) fn held(entry: &Entry) -> Option<Held> {
    let len = (entry.bits & LEN) + 1;
    let (kind, version) = (entry.form.kind(), entry.form.version());
    match kind {
        Kind::Free => None,
        Kind::Same => Some(Held::Same(
            u64::from(entry.high) << 32 | u64::from(entry.low),
        )),
        Kind::Packed | Kind::Raw => Some(Held::Object(Object {
            handle: Handle::from_u32(entry.low)?,
            len,
            checksum: entry.high,
            raw: kind == Kind::Raw,
            version,
        })),
        Kind::BackedPacked | Kind::BackedRaw => Some(Held::Backed(Record {
            at: Position(entry.low),
            len,
            checksum: entry.high,
            raw: kind == Kind::BackedRaw,
            version,
        })),
        Kind::Member => Some(Held::Member(Member {
            unit: entry.low,
            place: u8::try_from(entry.high).ok()?,
        })),
        Kind::Lost => Some(Held::Lost),
    }
}
