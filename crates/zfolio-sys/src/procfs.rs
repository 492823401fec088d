//! What /proc tells about this process: sizes, mappings, present pages.

use crate::syscall::{Errno, Kernel, Linux, nr};
use core::marker::PhantomData;
use zfolio_mm::PAGE_SIZE;

const O_RDONLY_CLOEXEC: usize = 0o2_000_000;
const O_WRONLY_CLOEXEC: usize = 0o2_000_001;
const IOC_PAGEMAP_SCAN: usize = 0xc060_6610;
/// Of a file, or of shared memory.
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// A file of /proc, open in the manager's own table.
#[derive(Clone, Copy, Debug)]
pub struct FileOf<K>(usize, PhantomData<K>);

/// One of the kernel that this process runs on.
pub type File = FileOf<Linux>;

impl<K: Kernel> FileOf<K> {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn open(path: &core::ffi::CStr) -> Result<Self, Errno> {
        // SAFETY: a NUL-terminated path.
        unsafe {
            K::call(
                nr::OPEN,
                [path.as_ptr() as usize, O_RDONLY_CLOEXEC, 0, 0, 0, 0],
            )
        }
        .map(Self::from_fd)
    }

    /// Opens `path` for writing.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn open_for_writing(path: &core::ffi::CStr) -> Result<Self, Errno> {
        // SAFETY: a NUL-terminated path.
        unsafe {
            K::call(
                nr::OPEN,
                [path.as_ptr() as usize, O_WRONLY_CLOEXEC, 0, 0, 0, 0],
            )
        }
        .map(Self::from_fd)
    }

    /// Wraps a descriptor of the manager's own table.
    #[must_use]
    pub const fn from_fd(fd: usize) -> Self {
        Self(fd, PhantomData)
    }

    /// The descriptor number.
    #[must_use]
    pub const fn fd(self) -> usize {
        self.0
    }

    /// Reads from `offset`.
    ///
    /// # Errors
    /// As the kernel says, twice: it may have had no memory for the text just then.
    pub fn read_at(self, into: &mut [u8], offset: usize) -> Result<usize, Errno> {
        let (at, len) = (into.as_mut_ptr() as usize, into.len());
        // SAFETY: the kernel writes at most the slice.
        twice(|| unsafe { K::call(nr::PREAD64, [self.0, at, len, offset, 0, 0]) })
    }

    /// Writes, as much as fits.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn write(self, bytes: &[u8]) -> Result<usize, Errno> {
        // SAFETY: the kernel reads the slice.
        unsafe {
            K::call(
                nr::WRITE,
                [self.0, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0],
            )
        }
    }

    /// Closes it.
    pub fn close(self) {
        // SAFETY: the caller gives the descriptor up.
        let _ = unsafe { K::call(nr::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// The answer to a question, asked once more if there was none: a failure that comes again is
/// believed. Callers look in turns of several questions, and what failed for a reason that has
/// passed would have them do without all of a turn.
pub(crate) fn twice(mut ask: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    ask().or_else(|_| ask())
}

/// Page counts of a statm, of the thread that opened it: the process's, as long as that thread
/// lives. (/proc/self is the main thread's, which may end before the others: zeros then.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statm {
    /// Address space, pages.
    pub size: usize,
    /// Resident, pages.
    pub resident: usize,
    /// Of which files and shared memory, pages.
    pub shared: usize,
    /// Address space that private writable memory has, pages.
    pub data: usize,
}

impl Statm {
    /// Reads the counts.
    ///
    /// # Errors
    /// As the kernel says; `INVAL` for a line that is no statm.
    pub fn read<K: Kernel>(file: FileOf<K>) -> Result<Self, Errno> {
        let mut line = [0; 128];
        let len = file.read_at(&mut line, 0)?;
        Self::parse(&line[..len]).ok_or(Errno::INVAL)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ').map(|field| number(field, 10));
        Some(Self {
            size: fields.next()??,
            resident: fields.next()??,
            shared: fields.next()??,
            data: fields.nth(2)??,
        })
    }
}

pub(crate) fn number(digits: &[u8], radix: u32) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(digits).ok()?.trim(), radix).ok()
}

/// One line of /proc/self/maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping<'a> {
    /// First byte.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// Four letters, as in `rw-p`.
    pub perms: &'a [u8],
    /// Inode of the file; 0 for none.
    pub inode: usize,
    /// Path or `[name]`; empty for none.
    pub name: &'a [u8],
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ').filter(|f| !f.is_empty());
        let range = fields.next()?;
        let dash = range.iter().position(|b| *b == b'-')?;
        let perms = fields.next()?;
        let _offset = fields.next()?;
        let _device = fields.next()?;
        let inode = number(fields.next()?, 10)?;
        let name = fields.next().map_or(&b""[..], |first| {
            let at = first.as_ptr() as usize - line.as_ptr() as usize;
            &line[at..]
        });
        Some(Self {
            start: number(&range[..dash], 16)?,
            end: number(&range[dash + 1..], 16)?,
            perms,
            inode,
            name,
        })
    }
}

/// Calls `each` for every mapping, in address order, reading through `buffer`
/// (at least two pages: a line may be a path long).
///
/// The list is a series of snapshots: a mapping that changes while it is
/// being read may be missed or seen in part.
///
/// # Errors
/// As the kernel says.
pub fn for_each_mapping<K: Kernel>(
    file: FileOf<K>,
    buffer: &mut [u8],
    mut each: impl FnMut(&Mapping<'_>),
) -> Result<(), Errno> {
    let (mut held, mut offset) = (0, 0);
    loop {
        let got = file.read_at(&mut buffer[held..], offset)?;
        offset += got;
        let filled = held + got;
        let mut start = 0;
        while let Some(len) = buffer[start..filled].iter().position(|b| *b == b'\n') {
            if let Some(mapping) = Mapping::parse(&buffer[start..start + len]) {
                each(&mapping);
            }
            start += len + 1;
        }
        if got == 0 {
            return Ok(());
        }
        buffer.copy_within(start..filled, 0);
        held = filled - start;
        if held == buffer.len() {
            held = 0; // a line longer than the buffer: not a mapping we manage
        }
    }
}

/// A run of present pages.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PresentRun {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    categories: u64,
}

impl PresentRun {
    /// First byte.
    #[must_use]
    pub fn start(&self) -> usize {
        usize::try_from(self.start).unwrap_or(0)
    }

    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> usize {
        usize::try_from(self.end).unwrap_or(0)
    }

    /// Mapped by huge page table entries.
    #[must_use]
    pub const fn is_huge(&self) -> bool {
        self.categories & PAGE_IS_HUGE != 0
    }
}

/// A pagemap.
#[derive(Clone, Copy, Debug)]
pub struct PagemapOf<K>(FileOf<K>);

/// The one of the kernel that this process runs on.
pub type Pagemap = PagemapOf<Linux>;

impl<K: Kernel> PagemapOf<K> {
    /// Opens this process's page map.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn open() -> Result<Self, Errno> {
        FileOf::open(c"/proc/thread-self/pagemap").map(Self)
    }

    /// The file behind it.
    #[must_use]
    pub const fn file(self) -> FileOf<K> {
        self.0
    }

    /// Wraps an open page map.
    #[must_use]
    pub const fn from_file(file: FileOf<K>) -> Self {
        Self(file)
    }

    /// Lists runs of present pages in `start..end` into `runs`; returns how
    /// many and how far the walk came (`end` unless `runs` was too short).
    ///
    /// # Errors
    /// As the kernel says (`PAGEMAP_SCAN` came with 6.7).
    pub fn present(
        self,
        start: usize,
        end: usize,
        runs: &mut [PresentRun],
    ) -> Result<(usize, usize), Errno> {
        let limit = usize::MAX;
        self.scan(start..end, PAGE_IS_PRESENT, PAGE_IS_HUGE, limit, runs)
    }

    /// Bytes that are present in `range`; of a private mapping of a file, what was written there.
    /// What cannot be looked at is none. Other threads that map memory wait for 256 MiB at most.
    #[must_use]
    pub fn resident(self, range: core::ops::Range<usize>, is_shared: bool) -> usize {
        const PIECE: usize = 256 << 20;
        let mut runs = [PresentRun::default(); 64];
        let (mut at, mut bytes) = (range.start, 0);
        while at < range.end {
            let piece = at..range.end.min(at.saturating_add(PIECE));
            let found = self.scan(piece, PAGE_IS_PRESENT, PAGE_IS_FILE, usize::MAX, &mut runs);
            let Ok((count, reached)) = found else {
                return bytes;
            };
            let counts = |run: &&PresentRun| is_shared || run.categories & PAGE_IS_FILE == 0;
            let counted = runs[..count].iter().filter(counts);
            bytes += counted.map(|run| run.end() - run.start()).sum::<usize>();
            if reached <= at {
                return bytes;
            }
            at = reached;
        }
        bytes
    }

    /// As [`Self::present`], of what huge page table entries map alone.
    ///
    /// # Errors
    /// As [`Self::present`].
    pub fn huge(
        self,
        start: usize,
        end: usize,
        runs: &mut [PresentRun],
    ) -> Result<(usize, usize), Errno> {
        self.scan(start..end, PAGE_IS_HUGE, PAGE_IS_HUGE, usize::MAX, runs)
    }

    /// Whether every page of `start..end` is present and this process's alone, not shared
    /// with a child of a fork.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn is_own(self, start: usize, end: usize) -> Result<bool, Errno> {
        const WORD: usize = size_of::<u64>();
        const PRESENT_AND_EXCLUSIVE: u64 = 1 << 63 | 1 << 56;
        let mut words = [0_u8; 64 * WORD];
        let mut page = start / PAGE_SIZE;
        while page < end / PAGE_SIZE {
            let count = (end / PAGE_SIZE - page).min(words.len() / WORD);
            let into = &mut words[..count * WORD];
            if self.0.read_at(into, page * WORD)? != into.len() {
                return Ok(false);
            }
            let (words, _) = into.as_chunks::<WORD>();
            let own = |word: &[u8; WORD]| {
                u64::from_ne_bytes(*word) & PRESENT_AND_EXCLUSIVE == PRESENT_AND_EXCLUSIVE
            };
            if !words.iter().all(own) {
                return Ok(false);
            }
            page += count;
        }
        Ok(true)
    }

    /// Address of the first present page in `start..end`. Looks at a gigabyte
    /// of nothing in some 50 us.
    ///
    /// # Errors
    /// As [`Self::present`].
    pub fn first_present(self, start: usize, end: usize) -> Result<Option<usize>, Errno> {
        let mut run = [PresentRun::default()];
        let (count, _) = self.scan(start..end, PAGE_IS_PRESENT, 0, 1, &mut run)?;
        Ok((count > 0).then(|| run[0].start()))
    }

    /// As [`Self::present`], with pages that hold bytes but are not mapped
    /// just now: under migration (the split of a huge page migrates all of
    /// it) or in swap.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn occupied(
        self,
        start: usize,
        end: usize,
        runs: &mut [PresentRun],
    ) -> Result<(usize, usize), Errno> {
        let occupied = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
        self.scan(start..end, occupied, 0, usize::MAX, runs)
    }

    /// Runs of pages in any of the categories `wanted`, `limit` pages at most;
    /// runs end where one of `told` changes.
    fn scan(
        self,
        range: core::ops::Range<usize>,
        wanted: u64,
        told: u64,
        limit: usize,
        runs: &mut [PresentRun],
    ) -> Result<(usize, usize), Errno> {
        let mut arg = [0_u64; 12];
        arg[7] = if limit == usize::MAX { 0 } else { limit as u64 };
        arg[10] = wanted;
        arg[11] = told;
        arg[0] = size_of_val(&arg) as u64;
        arg[2] = range.start as u64;
        arg[3] = range.end as u64;
        arg[5] = runs.as_mut_ptr() as u64;
        arg[6] = runs.len() as u64;
        // SAFETY: the argument has the kernel's layout and names a vector of
        // `runs.len()` results.
        let mut scan = || unsafe {
            let arg = arg.as_mut_ptr() as usize;
            K::call(nr::IOCTL, [self.0.0, IOC_PAGEMAP_SCAN, arg, 0, 0, 0])
        };
        let count = match scan() {
            Err(Errno::INTR | Errno::AGAIN) => scan()?,
            result => result?,
        };
        Ok((count, usize::try_from(arg[4]).unwrap_or(range.end)))
    }
}

#[cfg(test)]
mod tests;
