//! Where this library lies in memory, by the headers that it was loaded from.
//!
//! Its variables must never be moved out, and nothing else may be taken for
//! them: the program's mappings begin where they end.

use core::ops::Range;

const PAGE_SIZE: usize = 4096;
const PT_LOAD: u32 = 1;
/// Flag of a segment that is run.
const PF_X: u32 = 1;

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
pub(crate) struct Segment {
    pub(crate) kind: u32,
    flags: u32,
    _offset: usize,
    pub(crate) address: usize,
    _physical: usize,
    _in_file: usize,
    in_memory: usize,
}

core::arch::global_asm!(
    ".hidden __ehdr_start",
    ".hidden zfolio_image",
    ".globl zfolio_image",
    "zfolio_image:",
    "lea rax, [rip + __ehdr_start]",
    "ret",
);

unsafe extern "C" {
    fn zfolio_image() -> *const Header;
}

/// Calls `with` for each segment that is mapped, with its addresses.
fn for_each_segment(mut with: impl FnMut(&Segment, Range<usize>)) -> usize {
    // SAFETY: the address of the header, which the linker puts at the start of
    // the first segment.
    let start = unsafe { zfolio_image() };
    // SAFETY: mapped, readable, and never changed.
    let header = unsafe { &*start };
    let base = start as usize;
    for index in 0..usize::from(header.segment_count) {
        let at = base + header.segments + index * usize::from(header.segment_size);
        // SAFETY: the table of segments lies in the first segment too.
        let segment = unsafe { &*(at as *const Segment) };
        if segment.kind == PT_LOAD {
            let start = base + segment.address;
            with(segment, start..start + segment.in_memory);
        }
    }
    base
}

/// The whole pages from the first segment to the end of the last.
pub(crate) fn range() -> Range<usize> {
    let mut last = 0;
    let base = for_each_segment(|_, addresses| last = last.max(addresses.end));
    base..last.max(base + PAGE_SIZE).next_multiple_of(PAGE_SIZE)
}

/// The part of it that is run.
pub(crate) fn text() -> Range<usize> {
    let mut text = 0..0;
    for_each_segment(|segment, addresses| {
        if segment.flags & PF_X != 0 {
            text = addresses;
        }
    });
    text
}
