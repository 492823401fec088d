//! Why a mapping is not managed.

use crate::segment::Counter;
use zfolio_sys::procfs::Mapping;

/// Why a mapping is not managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// Shared with other processes, a file or not.
    Shared,
    /// A private mapping of a file.
    File,
    /// Anonymous and executable.
    Executable,
    /// Anonymous, to be read only.
    ReadOnly,
    /// Anonymous, and nobody may touch it now.
    NoAccess,
    /// As managed memory is, but the main stack, a library's variables, or small.
    Apart,
}

impl Why {
    /// Every reason, with the counter of its bytes.
    pub(crate) const COUNTERS: [(Self, Counter); 6] = [
        (Self::Shared, Counter::StaysShared),
        (Self::File, Counter::StaysFile),
        (Self::Executable, Counter::StaysExecutable),
        (Self::ReadOnly, Counter::StaysReadOnly),
        (Self::NoAccess, Counter::StaysNoAccess),
        (Self::Apart, Counter::StaysApart),
    ];

    /// The reason of a mapping that is not managed.
    pub(crate) fn of(mapping: &Mapping<'_>) -> Self {
        match mapping.perms {
            [_, _, _, b's'] => Self::Shared,
            _ if mapping.inode != 0 => Self::File,
            [_, _, b'x', _] => Self::Executable,
            [_, b'w', _, _] => Self::Apart,
            [b'r', ..] => Self::ReadOnly,
            _ => Self::NoAccess,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_mm::PAGE_SIZE;

    #[test]
    fn reasons_are_told_from_the_mapping() {
        let why = |perms: &[u8], inode| {
            Why::of(&Mapping {
                start: 0,
                end: PAGE_SIZE,
                perms,
                inode,
                name: b"",
            })
        };
        assert_eq!(why(b"rw-s", 0), Why::Shared);
        assert_eq!(why(b"rw-s", 7), Why::Shared);
        assert_eq!(why(b"r-xp", 7), Why::File);
        assert_eq!(why(b"rwxp", 0), Why::Executable);
        assert_eq!(why(b"r-xp", 0), Why::Executable);
        assert_eq!(why(b"r--p", 0), Why::ReadOnly);
        assert_eq!(why(b"---p", 0), Why::NoAccess);
        assert_eq!(why(b"rw-p", 0), Why::Apart);
    }

    #[test]
    fn every_reason_has_its_counter_in_its_place() {
        for (at, (why, _)) in Why::COUNTERS.iter().enumerate() {
            assert_eq!(*why as usize, at);
        }
    }
}
