//! Open files: which there are, and what is read from them.

use crate::World;
use crate::pages::Page;
use crate::plan::Call;
use crate::program::Change;
use std::ffi::CStr;
use std::fmt::Write;
use std::ops::Range;
use zfolio_mm::PAGE_SHIFT;
use zfolio_sys::syscall::Errno;

pub(super) const BAD_FILE: Errno = Errno(9);

/// The first descriptor: no number that a process has, so that what is asked of the real
/// kernel about one is refused.
const FIRST: usize = 1 << 24;

/// What a descriptor is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Uffd,
    Pagemap,
    Maps,
    Statm,
    Closed,
}

/// Open files.
#[derive(Default)]
pub(crate) struct Files(Vec<Kind>);

impl Files {
    pub(super) fn open(&mut self, kind: Kind) -> usize {
        self.0.push(kind);
        FIRST + self.0.len() - 1
    }

    pub(super) fn kind(&self, fd: usize) -> Kind {
        let at = fd.checked_sub(FIRST).and_then(|at| self.0.get(at));
        at.copied().unwrap_or(Kind::Closed)
    }

    pub(super) fn close(&mut self, fd: usize) {
        if let Some(kind) = fd.checked_sub(FIRST).and_then(|at| self.0.get_mut(at)) {
            *kind = Kind::Closed;
        }
    }
}

pub(super) unsafe fn open(world: &mut World, path: usize) -> Result<usize, Errno> {
    // SAFETY: by contract a NUL-terminated path.
    let path = unsafe { CStr::from_ptr(path as *const _) }.to_bytes();
    let kind = match path.rsplit(|byte| *byte == b'/').next() {
        Some(b"pagemap") => Kind::Pagemap,
        Some(b"maps") => Kind::Maps,
        Some(b"statm") => Kind::Statm,
        _ => return Err(Errno::NOENT),
    };
    Ok(world.files.open(kind))
}

/// The mappings: what is registered is never one with what is not.
pub(super) fn mappings(world: &World) -> Vec<Range<Page>> {
    let mut found = Vec::new();
    for mapped in &world.events.mapped {
        let mut from = mapped.start;
        for page in mapped.clone() {
            let owner = |page| world.pages.registration(page).map(|r| r.fd);
            if page + 1 == mapped.end || owner(page) != owner(page + 1) {
                found.push(from..page + 1);
                from = page + 1;
            }
        }
    }
    found.sort_by_key(|range| range.start);
    found
}

/// Messages of a descriptor.
pub(super) unsafe fn read(world: &mut World, args: [usize; 6]) -> Result<usize, Errno> {
    const MESSAGE: usize = 32;
    const REMOVE: u64 = 0x15;
    const UNMAP: u64 = 0x16;
    if world.files.kind(args[0]) != Kind::Uffd {
        return Err(BAD_FILE);
    }
    world.plan.check(Call::Read)?;
    let capacity = args[2] / MESSAGE;
    // SAFETY: by contract so many bytes; messages are made of words.
    let into = unsafe { std::slice::from_raw_parts_mut(args[1] as *mut [u64; 4], capacity) };
    let waiting = world.events.flying.iter_mut();
    let waiting = waiting.filter(|event| event.fd == args[0] && !event.read);
    let mut count = 0;
    for (event, message) in waiting.zip(into) {
        event.read = true;
        let (kind, range) = match &event.change {
            Change::Remove(range) => (REMOVE, range),
            Change::Unmap(range) => (UNMAP, range),
        };
        *message = [kind, range.start as u64, range.end as u64, 0];
        count += 1;
    }
    if count == 0 {
        return Err(Errno::AGAIN);
    }
    Ok(count * MESSAGE)
}

/// A file of /proc.
pub(super) unsafe fn read_text(world: &mut World, args: [usize; 6]) -> Result<usize, Errno> {
    let mut text = String::new();
    match world.files.kind(args[0]) {
        Kind::Maps => {
            for range in mappings(world) {
                let [start, end] = [range.start, range.end].map(|page| page << PAGE_SHIFT);
                writeln!(text, "{start:x}-{end:x} rw-p 00000000 00:00 0").expect("text");
            }
        }
        Kind::Statm => {
            // (What is mapped changes with the program's mappings alone.)
            let mapped = world.events.mapped.iter();
            let size: usize = mapped.map(Range::len).sum();
            let resident = world.pages.all;
            writeln!(text, "{size} {resident} 0 0 0 {size} 0").expect("text");
        }
        // SAFETY: by contract.
        Kind::Pagemap => return Ok(unsafe { read_pagemap(world, args) }),
        _ => return Err(BAD_FILE),
    }
    let rest = text.as_bytes().get(args[3]..).unwrap_or_default();
    let len = rest.len().min(args[2]);
    // SAFETY: by contract so many bytes.
    unsafe { (args[1] as *mut u8).copy_from_nonoverlapping(rest.as_ptr(), len) };
    Ok(len)
}

/// Words of the page map.
unsafe fn read_pagemap(world: &World, args: [usize; 6]) -> usize {
    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;
    let first = args[3] / size_of::<u64>();
    let count = args[2] / size_of::<u64>();
    for page in first..first + count {
        let state = world.pages.state(page);
        let present = if state.present { PRESENT } else { 0 };
        let own = if state.shared { 0 } else { EXCLUSIVE };
        let word = present | own;
        // SAFETY: by contract so many bytes.
        unsafe {
            (args[1] as *mut u64)
                .add(page - first)
                .write_unaligned(word)
        };
    }
    count * size_of::<u64>()
}
