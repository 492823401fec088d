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

/// Address of the function; 0: not looked for yet; 1: there is none.
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

/// A shared object in memory, of which the kernel vouches that it is one.
struct Image {
    /// What is added to the addresses in it.
    bias: usize,
    symbols: usize,
    strings: usize,
    count: usize,
}

/// Reads a value of the object.
fn read<T: Copy>(at: usize) -> T {
    // SAFETY: only called for addresses within the kernel's shared object, which is
    // readable and never written; any bit pattern is a number.
    unsafe { core::ptr::read_unaligned(core::ptr::with_exposed_provenance(at)) }
}

impl Image {
    fn at(base: usize) -> Option<Self> {
        if !is_mapped(base, PAGE_SIZE) || read::<[u8; 5]>(base) != *b"\x7fELF\x02" {
            return None;
        }
        let headers = base + read::<usize>(base + 32);
        let (size, count) = (read::<u16>(base + 54), read::<u16>(base + 56));
        let headers = (0..count).map(|index| headers + usize::from(index * size));
        let of = |kind| headers.clone().find(|at| read::<u32>(*at) == kind);
        // (Offset in the file at 8, address at 16, length in memory at 40.)
        let load = of(PT_LOAD)?;
        if !is_mapped(base, read::<usize>(load + 40)) {
            return None;
        }
        let bias = base
            .wrapping_add(read::<usize>(load + 8))
            .wrapping_sub(read::<usize>(load + 16));
        let dynamic = bias.wrapping_add(read::<usize>(of(PT_DYNAMIC)? + 16));
        let entry = |tag| {
            let mut entries = (0..).map(|index| dynamic + index * 16);
            let found = entries.find(|at| [0, tag].contains(&read::<u64>(*at)))?;
            (read::<u64>(found) == tag).then(|| bias.wrapping_add(read::<usize>(found + 8)))
        };
        let count = match (entry(DT_HASH), entry(DT_GNU_HASH)) {
            // As many chains as there are symbols.
            (Some(table), _) => read::<u32>(table + 4) as usize,
            (None, Some(table)) => symbols_hashed(table),
            (None, None) => return None,
        };
        Some(Self {
            bias,
            symbols: entry(DT_SYMTAB)?,
            strings: entry(DT_STRTAB)?,
            count,
        })
    }

    /// Address of the symbol of that name, which ends with 0.
    fn symbol(&self, name: &[u8]) -> Option<usize> {
        let mut symbols = (0..self.count).map(|index| self.symbols + index * 24);
        let is_it = |at: &usize| {
            let text = self.strings + read::<u32>(*at) as usize;
            let defined = read::<u16>(at + 6) != 0;
            // (Ends at the first byte that differs: within the string.)
            defined && (0..name.len()).all(|byte| read::<u8>(text + byte) == name[byte])
        };
        let found = symbols.find(is_it)?;
        Some(self.bias.wrapping_add(read::<usize>(found + 8)))
    }
}

/// Symbols there are, by the hash table of GNU: the longest chain's end.
fn symbols_hashed(table: usize) -> usize {
    let word = |index: usize| read::<u32>(table + index * 4) as usize;
    let (buckets, first, bloom) = (word(0), word(1), word(2));
    let bucket = |index| word(4 + bloom * 2 + index);
    let last = (0..buckets).map(bucket).max().unwrap_or(0);
    if last < first {
        return first;
    }
    let chain = |symbol| word(4 + bloom * 2 + buckets + symbol - first);
    (last..)
        .find(|symbol| chain(*symbol) & 1 != 0)
        .unwrap_or(last)
        + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{Clock, now_ns, now_ns_of_system};

    #[test]
    fn the_clock_is_the_system_s() {
        for _ in 0..1000 {
            let before = now_ns_of_system(Clock::Monotonic);
            let between = now_ns(Clock::Monotonic);
            let after = now_ns_of_system(Clock::Monotonic);
            assert!((before..=after).contains(&between));
        }
    }

    #[test]
    fn what_is_not_mapped_is_not_read() {
        assert!(!is_mapped(0, PAGE_SIZE) && !is_mapped(PAGE_SIZE, PAGE_SIZE));
        assert!(Image::at(PAGE_SIZE).is_none());
    }

    #[test]
    fn symbols_are_found_by_their_whole_name() {
        let mut auxv = [0_u64; AUXV];
        let (to, len) = (auxv.as_mut_ptr() as usize, size_of_val(&auxv));
        // SAFETY: as in `find`.
        unsafe { syscall(nr::PRCTL, [PR_GET_AUXV, to, len, 0, 0, 0]) }.expect("Linux 6.4");
        let (pairs, _) = auxv.as_chunks::<2>();
        let base = pairs.iter().find(|[kind, _]| *kind == AT_SYSINFO_EHDR);
        let Some([_, base]) = base else {
            return; // in a process that has none
        };
        let image = Image::at(usize::try_from(*base).expect("an address")).expect("an image");
        assert!(image.symbol(NAME).is_some());
        assert!(image.symbol(b"__vdso_clock_gettim\0").is_none());
        assert_eq!(find(), image.symbol(NAME));
    }
}
