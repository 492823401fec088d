//! Where this library lies in memory, by the headers that it was loaded from.
//!
//! Its variables must never be moved out, and nothing else may be taken for
//! them: the program's mappings begin where they end.

use core::ops::Range;

const PAGE_SIZE: usize = 4096;
const PT_LOAD: u32 = 1;

/// The header of an ELF file of 64 bits, the only kind this library
/// comes in.
#[repr(C)]
struct Header {
    _ident: [u8; 16],
    _kind: [u8; 16],
    /// Offset of the segments' headers.
    segments: usize,
    _sections: usize,
    _flags: u32,
    _size: u16,
    segment_size: u16,
    segment_count: u16,
}

/// One segment's.
#[repr(C)]
struct Segment {
    kind: u32,
    _flags: u32,
    _offset: usize,
    address: usize,
    _physical: usize,
    _in_file: usize,
    in_memory: usize,
}

core::arch::global_asm!(
    ".hidden __ehdr_start",
    ".hidden zfolio_image",
    "zfolio_image:",
    "lea rax, [rip + __ehdr_start]",
    "ret",
);

unsafe extern "C" {
    fn zfolio_image() -> *const Header;
}

/// The whole pages from the first segment to the end of the last.
pub(crate) fn range() -> Range<usize> {
    // SAFETY: the address of the header, which the linker puts at the start of
    // the first segment.
    let start = unsafe { zfolio_image() };
    // SAFETY: mapped, readable, and never changed.
    let header = unsafe { &*start };
    let base = start as usize;
    let mut end = base + PAGE_SIZE;
    for index in 0..usize::from(header.segment_count) {
        let at = base + header.segments + index * usize::from(header.segment_size);
        // SAFETY: the table of segments lies in the first segment too.
        let segment = unsafe { &*(at as *const Segment) };
        if segment.kind == PT_LOAD {
            end = end.max(base + segment.address + segment.in_memory);
        }
    }
    base..end.next_multiple_of(PAGE_SIZE)
}
