//! The clock without a system call: the kernel's shared object in each process.
//!
//! Found by the auxiliary vector, as libc does; read as the System V ABI lays out
//! shared objects. A process that has none asks the kernel. (Under valgrind the vector
//! names one that is not mapped.)

use crate::syscall::{nr, syscall};
use core::sync::atomic::{AtomicUsize, Ordering};
use zfolio_mm::PAGE_SIZE;

const PR_GET_AUXV: usize = 0x4155_5856;
const AT_SYSINFO_EHDR: u64 = 33;
/// Pages of the object at most; there are two.
const MOST_PAGES: usize = 16;
/// Words of an auxiliary vector looked at: the kernel's own are about 50.
const AUXV: usize = 128;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

const NAME: &[u8] = b"__vdso_clock_gettime\0";

type ClockGettime = unsafe extern "C" fn(i32, *mut [u64; 2]) -> i32;

/// Address of the function; 0: not looked for yet; 1: there is none, or it is left alone.
static FOUND: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = 1;

/// Seconds and nanoseconds on clock `clock`; `None` where the system has to be asked.
pub(crate) fn clock_gettime(clock: usize) -> Option<[u64; 2]> {
    let mut at = FOUND.load(Ordering::Relaxed);
    if at == 0 {
        at = find().unwrap_or(NONE);
        FOUND.store(at, Ordering::Relaxed);
    }
    if at == NONE {
        return None;
    }
    let clock = i32::try_from(clock).ok()?;
    let mut spec = [0; 2];
    // SAFETY: `find` has found the function of this name and type in the shared object
    // that the kernel mapped, which stays as long as the process does; it writes one
    // timespec.
    let result = unsafe { core::mem::transmute::<usize, ClockGettime>(at)(clock, &raw mut spec) };
    (result == 0).then_some(spec)
}

/// Has the system asked from here on, in this process and its children: where a system call
/// that the object makes would end the process. (It makes one where the kernel's clock source
/// cannot be read by programs, which may become so at any time.)
pub(crate) fn leave_alone() {
    FOUND.store(NONE, Ordering::Relaxed);
}

fn find() -> Option<usize> {
    let mut auxv = [0_u64; AUXV];
    let (to, len) = (auxv.as_mut_ptr() as usize, size_of_val(&auxv));
    // SAFETY: the kernel writes at most `len` bytes.
    unsafe { syscall(nr::PRCTL, [PR_GET_AUXV, to, len, 0, 0, 0]) }.ok()?;
    let (pairs, _) = auxv.as_chunks::<2>();
    let [_, base] = pairs.iter().find(|[kind, _]| *kind == AT_SYSINFO_EHDR)?;
    Image::at(usize::try_from(*base).ok()?)?.symbol(NAME)
}

/// Whether all of these bytes are mapped.
fn is_mapped(at: usize, len: usize) -> bool {
    let mut resident = [0_u8; MOST_PAGES];
    if !at.is_multiple_of(PAGE_SIZE) || len.div_ceil(PAGE_SIZE) > MOST_PAGES {
        return false;
    }
    let to = resident.as_mut_ptr() as usize;
    // SAFETY: the kernel writes a byte for each page.
    unsafe { syscall(nr::MINCORE, [at, len, to, 0, 0, 0]) }.is_ok()
}

/// A shared object in memory: all of it is mapped, and nothing else is read.
struct Image {
    base: usize,
    len: usize,
    /// What is added to the addresses in it.
    bias: usize,
}

impl Image {
    fn at(base: usize) -> Option<Self> {
        let mut image = Self {
            base,
            len: PAGE_SIZE,
            bias: 0,
        };
        if !is_mapped(base, PAGE_SIZE) || image.read::<[u8; 5]>(base)? != *b"\x7fELF\x02" {
            return None;
        }
        // (Offset in the file at 8, address at 16, length in memory at 40.)
        let load = image.header(PT_LOAD)?;
        image.len = image.read(load + 40)?;
        if !is_mapped(base, image.len) {
            return None;
        }
        let offset = image.read::<usize>(load + 8)?;
        image.bias = base
            .wrapping_add(offset)
            .wrapping_sub(image.read(load + 16)?);
        Some(image)
    }

    /// A value at an address within the object.
    fn read<T: Number>(&self, at: usize) -> Option<T> {
        let from = at.checked_sub(self.base)?;
        if from.checked_add(size_of::<T>())? > self.len {
            return None;
        }
        // SAFETY: within the object, all of which is mapped; the kernel's is readable and
        // never written; of a number any bit pattern is one.
        Some(unsafe { core::ptr::read_unaligned(core::ptr::with_exposed_provenance(at)) })
    }

    /// Where the first program header of this kind is.
    fn header(&self, kind: u32) -> Option<usize> {
        let first = self.base.checked_add(self.read(self.base + 32)?)?;
        let size = usize::from(self.read::<u16>(self.base + 54)?);
        let count = usize::from(self.read::<u16>(self.base + 56)?);
        let mut headers = (0..count).map(|index| first.saturating_add(index * size));
        headers.find(|at| self.read(*at) == Some(kind))
    }

    /// Where the dynamic section says that this is.
    fn entry(&self, tag: u64) -> Option<usize> {
        let dynamic = self
            .bias
            .wrapping_add(self.read(self.header(PT_DYNAMIC)? + 16)?);
        for at in (dynamic..).step_by(16) {
            match self.read::<u64>(at)? {
                0 => return None,
                found if found == tag => {
                    return Some(self.bias.wrapping_add(self.read(at.checked_add(8)?)?));
                }
                _ => {}
            }
        }
        None
    }

    /// Symbols there are.
    fn symbols(&self) -> Option<usize> {
        match self.entry(DT_HASH) {
            // As many chains as there are symbols.
            Some(table) => Some(self.read::<u32>(table.checked_add(4)?)? as usize),
            None => self.symbols_hashed(self.entry(DT_GNU_HASH)?),
        }
    }

    /// The same by the hash table of GNU: the longest chain's end.
    fn symbols_hashed(&self, table: usize) -> Option<usize> {
        let word = |index: usize| -> Option<usize> {
            Some(self.read::<u32>(table.checked_add(index * 4)?)? as usize)
        };
        let (buckets, first, bloom) = (word(0)?, word(1)?, word(2)?);
        let mut last = 0;
        for index in 0..buckets {
            last = last.max(word(4 + bloom * 2 + index)?);
        }
        if last < first {
            return Some(first);
        }
        while word(4 + bloom * 2 + buckets + last - first)? & 1 == 0 {
            last += 1;
        }
        Some(last + 1)
    }

    /// Address of the symbol of that name, which ends with 0.
    fn symbol(&self, name: &[u8]) -> Option<usize> {
        let (symbols, strings) = (self.entry(DT_SYMTAB)?, self.entry(DT_STRTAB)?);
        for index in 0..self.symbols()? {
            let at = symbols.checked_add(index * 24)?;
            let text = strings.checked_add(self.read::<u32>(at)? as usize)?;
            let defined = self.read::<u16>(at + 6)? != 0;
            let same = |byte: usize| self.read::<u8>(text + byte) == Some(name[byte]);
            if defined && (0..name.len()).all(same) {
                return Some(self.bias.wrapping_add(self.read(at + 8)?));
            }
        }
        None
    }
}

/// What any bytes are one of.
trait Number: Copy {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for usize {}
impl Number for [u8; 5] {}

#[cfg(test)]
mod tests;
