//! What the bytes around a site of a call say: whether it can become a jump, and how. Pure.
//!
//! A jump has five bytes, a `syscall` two. In both forms five bytes go that are whole
//! instructions, and the stub does what they did:
//!
//! ```text
//! before:  mov $number, %eax          after:  syscall
//!          syscall                            cmp $-4096, %rax      (or a test, a mov, ...)
//! ```
//!
//! *Before* is the better one: what follows the `syscall` stays, and whoever returns to it finds
//! it. In *after* it is gone, so every call of such a site has to return to the stub, from the
//! first one on; and nobody may jump to it.

/// Bytes of the jump that a site becomes, and of the mov it replaces.
pub(crate) const JUMP: usize = 5;
/// Bytes of `syscall`.
pub(crate) const SYSCALL: usize = 2;
/// Most bytes of the instructions after a `syscall` that go with it.
pub(crate) const MOST_MOVED: usize = 6;
/// Bytes looked at to each side for jumps into a site.
pub(crate) const AROUND: usize = 1024;

/// How a site becomes a jump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// By the mov before the `syscall`.
    Before,
    /// By the `syscall` and what follows it.
    After(Moved),
}

/// Whole instructions after a `syscall` that can run elsewhere as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    /// Bytes, at least three.
    pub(crate) len: usize,
    /// A bit for each byte that begins an instruction.
    starts: u8,
}

/// Whether the bytes before a `syscall` are a mov of `number` to eax; `bytes` are the six
/// before it, and itself.
pub(crate) fn is_before(bytes: &[u8; 8], number: usize) -> bool {
    let [before, mov, immediate @ .., s0, s1] = *bytes;
    mov == 0xb8
        && u32::from_le_bytes(immediate) as usize == number
        && [s0, s1] == [0x0f, 0x05]
        // A prefix would make it another register's.
        && before & 0xf0 != 0x40
}

/// Those of the bytes after a `syscall` that can move; `None` where the first ones cannot.
pub(crate) fn moved(after: &[u8; MOST_MOVED]) -> Option<Moved> {
    let mut moved = Moved { len: 0, starts: 0 };
    while moved.len < JUMP - SYSCALL {
        moved.starts |= 1 << moved.len;
        moved.len += instruction(after.get(moved.len..)?)?;
    }
    (moved.len <= MOST_MOVED).then_some(moved)
}

impl Moved {
    /// Whether an instruction begins at `offset`.
    fn starts_at(self, offset: usize) -> bool {
        offset < self.len && self.starts & 1 << offset != 0
    }
}

/// The length of an instruction on registers alone, of the few that follow calls.
fn instruction(bytes: &[u8]) -> Option<usize> {
    let (prefix, rest) = match bytes {
        [0x40..=0x4f, rest @ ..] => (1, rest),
        rest => (0, rest),
    };
    let of_registers = |modrm: &u8| *modrm >= 0xc0;
    let len = match rest {
        // cmp $immediate, %eax or %rax
        [0x3d, ..] => 5,
        // cmp $byte, register
        [0x83, modrm, ..] if of_registers(modrm) => 3,
        // cmp, test, mov, xor of two registers; neg of one
        [0x39 | 0x3b | 0x85 | 0x89 | 0x8b | 0x31 | 0x33, modrm, ..] if of_registers(modrm) => 2,
        [0xf7, modrm, ..] if (0xd8..0xe0).contains(modrm) => 2,
        _ => return None,
    };
    Some(prefix + len)
}

/// Whether any jump in `code`, which lies at `at`, may lead to an instruction of `moved`, which
/// lie at `back`. Every byte is taken for the beginning of one, so it is rather said too often.
pub(crate) fn has_jump_into(code: &[u8], at: usize, back: usize, moved: Moved) -> bool {
    (0..code.len()).any(|begin| {
        let (len, distance) = match code[begin..] {
            [0xeb | 0x70..=0x7f | 0xe0..=0xe3, near, ..] => (2, isize::from(near.cast_signed())),
            [0xe8 | 0xe9, a, b, c, d, ..] => (5, far([a, b, c, d])),
            [0x0f, 0x80..=0x8f, a, b, c, d, ..] => (6, far([a, b, c, d])),
            _ => return false,
        };
        let target = (at + begin + len).wrapping_add_signed(distance);
        target
            .checked_sub(back)
            .is_some_and(|offset| moved.starts_at(offset))
    })
}

const fn far(bytes: [u8; 4]) -> isize {
    i32::from_le_bytes(bytes) as isize
}

/// The `syscall`s in `code` that a comparison with the highest error number follows: eight
/// bytes that are nothing else. Offsets.
pub(crate) fn certain(code: &[u8]) -> impl Iterator<Item = usize> {
    let is_one = |bytes: &&[u8]| {
        matches!(
            bytes[..],
            [0x0f, 0x05, 0x48, 0x3d, _, 0xf0, 0xff, 0xff]
                | [0x0f, 0x05, 0x3d, _, 0xf0, 0xff, 0xff, _]
        )
    };
    code.windows(SYSCALL + MOST_MOVED)
        .enumerate()
        .filter(move |(_, bytes)| is_one(bytes))
        .map(|(offset, _)| offset)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn after(bytes: &[u8]) -> Option<usize> {
        let mut all = [0xcc; MOST_MOVED];
        all[..bytes.len()].copy_from_slice(bytes);
        moved(&all).map(|moved| moved.len)
    }

    #[test]
    fn instructions_on_registers_move() {
        assert_eq!(after(&[0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff]), Some(6));
        assert_eq!(after(&[0x3d, 0x00, 0xf0, 0xff, 0xff]), Some(5));
        assert_eq!(after(&[0x48, 0x85, 0xc0]), Some(3));
        assert_eq!(after(&[0x85, 0xc0, 0x89, 0xc3]), Some(4));
        assert_eq!(after(&[0x48, 0x83, 0xf8, 0xfc]), Some(4));
        assert_eq!(after(&[0x89, 0xc2, 0x48, 0x89, 0xc5]), Some(5));
        // One that ends beyond what may be looked at.
        assert_eq!(after(&[0x89, 0xc2, 0x48, 0x3d, 0x00, 0xf0]), None);
    }

    #[test]
    fn what_depends_on_its_place_stays() {
        // ret; a jump; a call; a mov from memory beside it; of the stack.
        for bytes in [
            &[0xc3][..],
            &[0x89, 0xc2, 0xc3],
            &[0x74, 0x05],
            &[0xe8, 0, 0, 0, 0],
            &[0x8b, 0x05, 0, 0, 0, 0],
            &[0x89, 0x44, 0x24, 0x08],
            &[0x85, 0xc0, 0x7f, 0x13],
        ] {
            assert_eq!(after(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn a_mov_of_the_number_is_known() {
        assert!(is_before(&[0x90, 0xb8, 1, 0, 0, 0, 0x0f, 0x05], 1));
        assert!(!is_before(&[0x90, 0xb8, 1, 0, 0, 0, 0x0f, 0x05], 2));
        // mov $1, %r8d
        assert!(!is_before(&[0x41, 0xb8, 1, 0, 0, 0, 0x0f, 0x05], 1));
    }

    #[test]
    fn jumps_into_a_site_are_seen() {
        // test %eax, %eax; mov %eax, %ebx
        let moved = moved(&[0x85, 0xc0, 0x89, 0xc3, 0xc3, 0x90]).unwrap();
        let leads = |code: &[u8]| has_jump_into(code, 0x1010, 0x1002, moved);
        // 16 bytes back from its end, 0x1012; to the next instruction; into one, and behind.
        assert!(leads(&[0xeb, 0xf0]));
        assert!(leads(&[0x75, 0xf2]));
        assert!(!leads(&[0xeb, 0xf1]));
        assert!(!leads(&[0xeb, 0xf4]));
        assert!(!leads(&[0xeb, 0xef]));
        assert!(leads(&[0x90, 0xe9, 0xec, 0xff, 0xff, 0xff]));
        assert!(leads(&[0x0f, 0x84, 0xec, 0xff, 0xff, 0xff]));
        assert!(!leads(&[0x0f, 0x84, 0xea, 0xff, 0xff, 0xff]));
        // (Cut off at the end.)
        assert!(!leads(&[0xe9, 0xec]));
    }

    #[test]
    fn certain_sites_are_found() {
        let code = [
            &[0x90, 0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff][..],
            &[0x0f, 0x05, 0xc3, 0x90],
            &[0x0f, 0x05, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x77],
        ]
        .concat();
        assert_eq!(certain(&code).collect::<Vec<_>>(), [1, 13]);
    }
}
