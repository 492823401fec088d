//! What is behind the pool: somewhere to write compressed pages to.
//!
//! A backing is a flat run of bytes. What goes into it is sealed before (see
//! `encryption`), in clusters that are written front to back (see `clusters`): it
//! need not keep a secret, and a byte that it changes is found when it is read.

use crate::backing::waits::during_call;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zfolio_sys::disk::DiskFile;
use zfolio_sys::lock::Mutex;
use zfolio_sys::syscall::Errno;

/// Bytes of a cluster: what is freed, and given back to the file system, at once.
pub const CLUSTER: usize = 256 << 10;

/// Somewhere to write to. Called from any thread, with no lock of this crate held.
pub trait Backing: Send + Sync {
    /// For people.
    fn name(&self) -> &'static str;

    /// Bytes it may come to hold.
    fn capacity(&self) -> u64;

    /// The first byte of the part that is on other machines, whose reads may wait long.
    fn far_from(&self) -> u64 {
        u64::MAX
    }

    /// Writes all of `bytes` at `offset`, which nobody else writes or reads
    /// meanwhile.
    ///
    /// # Errors
    /// What is at `offset .. offset + bytes.len()` is anything then.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Reads what was written.
    ///
    /// # Errors
    /// What is in `into` is anything then.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Whether it makes use of [`Self::will_read`].
    fn reads_ahead(&self) -> bool {
        false
    }

    /// Parts that are likely to be read next, as offset and bytes: they may be on their way by
    /// the time they are. Waits for nothing.
    fn will_read(&self, _parts: &mut dyn Iterator<Item = (u64, usize)>) {}

    /// What is there is not needed any more; it may take no room from now on.
    fn discard(&self, offset: u64, len: u64);

    /// Whether writes are begun and looked after later ([`Self::begin`]), so that nobody waits
    /// for one.
    fn writes_ahead(&self) -> bool {
        false
    }

    /// Whether there is room to begin the writes of another go.
    fn is_ready(&self) -> bool {
        true
    }

    /// Begins to write all of `bytes`, as [`Self::write`] does; the write is asked after by the
    /// number returned ([`Self::poll`]). Waits for nothing.
    ///
    /// # Errors
    /// `BUSY` where there is no room for it now; nothing has begun then.
    fn begin(&self, _offset: u64, _bytes: &[u8]) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// How a write that was begun has ended, told once; `None` while it goes on. With `give_up`
    /// it ends now, with that error if not otherwise.
    fn poll(&self, _write: usize, _give_up: Option<Errno>) -> Option<Result<(), Errno>> {
        Some(Err(Errno::OPNOTSUPP))
    }
}

/// A file without a name on a file system, mode 0600.
#[derive(Debug)]
pub struct FileBacking {
    file: DiskFile,
    capacity: u64,
    /// Cleared when the file system cannot make holes.
    punches: core::sync::atomic::AtomicBool,
}

impl FileBacking {
    /// Makes the file in directory `dir`, to grow to `capacity` bytes at most.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn create(dir: &CStr, capacity: u64) -> Result<Self, Errno> {
        Ok(Self {
            file: DiskFile::anonymous(dir)?,
            capacity,
            punches: true.into(),
        })
    }

    /// The same file by a descriptor of a high number, if that can be had.
    #[must_use]
    pub fn lifted(self) -> Self {
        Self {
            file: self.file.lifted(),
            ..self
        }
    }

    /// Its descriptor, in the table of the thread that made it.
    #[must_use]
    pub fn fd(&self) -> usize {
        self.file.fd()
    }
}

impl Backing for FileBacking {
    fn name(&self) -> &'static str {
        "file"
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        during_call(|| self.file.write_at(bytes, offset))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        during_call(|| self.file.read_at(into, offset))
    }

    fn discard(&self, offset: u64, len: u64) {
        if !self.punches.load(Relaxed) {
            return;
        }
        if during_call(|| self.file.punch(offset, len)) == Err(Errno::OPNOTSUPP) {
            self.punches.store(false, Relaxed);
        }
    }
}

/// A backing in memory, which does what it is told: for tests.
pub struct MemoryBacking {
    capacity: u64,
    clusters: Mutex<Vec<Option<Box<[u8]>>>>,
    /// Bytes written yet until it is full; `u64::MAX`: never.
    headroom: AtomicU64,
    /// Errno of the next calls, and how many of them; packed, reads above writes.
    failures: Mutex<[Option<(Errno, u32)>; 2]>,
    writes: AtomicU64,
    reads: AtomicU64,
    /// Of one that writes ahead: what was begun, until it is answered.
    begun: Option<Mutex<Vec<Begun>>>,
}

/// A write that was begun: its number, offset and bytes, and how it has ended.
struct Begun {
    number: usize,
    offset: u64,
    bytes: Vec<u8>,
    result: Option<Result<(), Errno>>,
}

/// Calls of a [`MemoryBacking`] that are to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Call {
    /// [`Backing::write`].
    Write,
    /// [`Backing::read`].
    Read,
}

impl MemoryBacking {
    /// One that holds `capacity` bytes.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            clusters: Mutex::default(),
            headroom: AtomicU64::new(u64::MAX),
            failures: Mutex::new([None; 2]),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            begun: None,
        }
    }

    /// One that is as a store: its writes are begun, and end when [`Self::answer`] says so.
    #[must_use]
    pub fn ahead(capacity: u64) -> Self {
        Self {
            begun: Some(Mutex::default()),
            ..Self::new(capacity)
        }
    }

    /// Ends all writes that were begun and go on; how many. Those that fail have not been made.
    pub fn answer(&self, result: Result<(), Errno>) -> usize {
        self.answer_those(result, |_| true)
    }

    /// As [`Self::answer`], of those that `is_one` says, by the order in which they were begun.
    pub fn answer_those(
        &self,
        result: Result<(), Errno>,
        mut is_one: impl FnMut(usize) -> bool,
    ) -> usize {
        let Some(begun) = &self.begun else { return 0 };
        let mut begun = begun.lock();
        let mut count = 0;
        let go_on = begun.iter_mut().filter(|of| of.result.is_none());
        let these = go_on.enumerate().filter(|(order, _)| is_one(*order));
        for (_, of) in these {
            if result.is_ok() {
                self.each(of.offset, of.bytes.len(), |part, from| {
                    part.copy_from_slice(&of.bytes[from..from + part.len()]);
                });
            }
            of.result = Some(result);
            count += 1;
        }
        count
    }

    /// The next `times` calls fail, having done half of what they should.
    pub fn fail(&self, call: Call, errno: Errno, times: u32) {
        self.failures.lock()[call as usize] = Some((errno, times));
    }

    /// After so many more bytes it has no room.
    pub fn fill_up_after(&self, bytes: u64) {
        self.headroom.store(bytes, Relaxed);
    }

    /// Calls that were made: writes and reads.
    pub fn calls(&self) -> (u64, u64) {
        (self.writes.load(Relaxed), self.reads.load(Relaxed))
    }

    /// Bytes it holds in clusters that were not discarded.
    pub fn held(&self) -> usize {
        self.clusters.lock().iter().flatten().count() * CLUSTER
    }

    /// Everything it holds, one cluster after the other.
    pub fn contents(&self) -> Vec<u8> {
        let clusters = self.clusters.lock();
        clusters
            .iter()
            .flatten()
            .flat_map(|cluster| cluster.iter().copied())
            .collect()
    }

    /// Flips bits of a byte, as a failing device might.
    pub fn flip(&self, offset: u64, bits: u8) {
        self.each(offset, 1, |part, _| {
            if let Some(byte) = part.first_mut() {
                *byte ^= bits;
            }
        });
    }

    fn fails(&self, call: Call) -> Option<Errno> {
        let mut failures = self.failures.lock();
        let (errno, times) = failures[call as usize].take()?;
        if times > 1 {
            failures[call as usize] = Some((errno, times - 1));
        }
        Some(errno)
    }

    /// Calls `with` for each part of a range that lies in one cluster, and
    /// where in the range it begins.
    fn each(&self, offset: u64, len: usize, mut with: impl FnMut(&mut [u8], usize)) {
        let mut clusters = self.clusters.lock();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut done = 0;
        while done < len {
            let (at, inside) = ((start + done) / CLUSTER, (start + done) % CLUSTER);
            let part = (CLUSTER - inside).min(len - done);
            if clusters.len() <= at {
                clusters.resize_with(at + 1, || None);
            }
            let cluster = clusters[at].get_or_insert_with(|| alloc::vec![0; CLUSTER].into());
            with(&mut cluster[inside..inside + part], done);
            done += part;
        }
    }
}

impl Backing for MemoryBacking {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn far_from(&self) -> u64 {
        match self.begun {
            Some(_) => 0,
            None => u64::MAX,
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.writes.fetch_add(1, Relaxed);
        let headroom = self.headroom.load(Relaxed);
        let failure = self.fails(Call::Write).or_else(|| {
            let full = headroom != u64::MAX && headroom < bytes.len() as u64;
            full.then_some(Errno::NOSPC)
        });
        let written = if failure.is_some() {
            bytes.len() / 2
        } else {
            bytes.len()
        };
        self.each(offset, written, |part, from| {
            let len = part.len();
            part.copy_from_slice(&bytes[from..from + len]);
        });
        if headroom != u64::MAX && failure.is_none() {
            self.headroom.store(headroom - bytes.len() as u64, Relaxed);
        }
        failure.map_or(Ok(()), Err)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.reads.fetch_add(1, Relaxed);
        if let Some(errno) = self.fails(Call::Read) {
            into.fill(0xaa);
            return Err(errno);
        }
        let len = into.len();
        self.each(offset, len, |part, from| {
            into[from..from + part.len()].copy_from_slice(part);
        });
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) {
        let mut clusters = self.clusters.lock();
        let first = usize::try_from(offset).unwrap_or(usize::MAX) / CLUSTER;
        let count = usize::try_from(len).unwrap_or(0) / CLUSTER;
        for cluster in clusters.iter_mut().skip(first).take(count) {
            *cluster = None;
        }
    }

    fn writes_ahead(&self) -> bool {
        self.begun.is_some()
    }

    fn is_ready(&self) -> bool {
        self.begun.as_ref().is_none_or(|of| of.lock().len() < 4)
    }

    fn begin(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let begun = self.begun.as_ref().ok_or(Errno::OPNOTSUPP)?;
        let number = usize::try_from(self.writes.fetch_add(1, Relaxed)).unwrap_or(0);
        if let Some(errno) = self.fails(Call::Write) {
            return Err(errno);
        }
        begun.lock().push(Begun {
            number,
            offset,
            bytes: bytes.into(),
            result: None,
        });
        Ok(number)
    }

    fn poll(&self, write: usize, give_up: Option<Errno>) -> Option<Result<(), Errno>> {
        let mut begun = self.begun.as_ref()?.lock();
        let at = begun.iter().position(|of| of.number == write)?;
        let result = begun[at].result.or(give_up.map(Err))?;
        begun.swap_remove(at);
        Some(result)
    }
}

impl fmt::Debug for MemoryBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBacking")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// A backing that keeps nothing: for measuring what writing back costs without
/// a device. What went there cannot be read, which is an error and never a
/// wrong byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullBacking;

impl Backing for NullBacking {
    fn name(&self) -> &'static str {
        "null"
    }

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn read(&self, _offset: u64, _into: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::IO)
    }

    fn discard(&self, _offset: u64, _len: u64) {}
}
