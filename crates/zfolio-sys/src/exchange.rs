//! The exchange: a file of shared memory through which processes that are managed (*members*)
//! hand values to a process that keeps them elsewhere (the *pager*).
//!
//! The file begins with a [`Head`]; each member has a [`Ring`] behind it. A ring has a few
//! *cells*, each with room for one request and one value:
//!
//! ```text
//!         member             pager                 pager          member
//! FREE -> CLAIMED -> POSTED ------> TAKEN ---------------> DONE ---------> FREE
//!                        |             +-> (member gives up) ABANDONED --> FREE, by the pager
//!                        +--- member gives up, or a deletion is done ----> FREE
//! ```
//!
//! Neither side trusts what the other writes: numbers are read once and checked, bytes are
//! copied out before they are looked at. Everything here is atomic words, so that any content
//! is a valid one.
//!
//! # Who is alive
//! A member holds a lock on the byte of the file that has its number, the pager on byte
//! [`MEMBERS`]: the kernel drops such a lock when the process ends or calls exec, in whatever
//! pid namespace. (With the last of the descriptor and the mappings made by it.) A ring belongs to who holds its lock *and* is named as its owner; when the
//! lock is gone the pager takes it, cleans up, names nobody and lets it go.

use crate::arena::unmap;
use crate::brief_wait::BriefWait;
use crate::lock::{futex_wait, futex_wake};
use crate::syscall::Errno;
use core::ffi::CStr;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

mod locked;
use locked::Locked;

/// Members at once.
pub const MEMBERS: usize = 256;
/// Requests of a member at once.
pub const CELLS: usize = 16;
/// Bytes of a value, at most.
pub const VALUE: usize = 64 << 10;
/// Buckets of [`Head::waits`]: bucket `n` has waits of less than 2^n us.
pub const BUCKETS: usize = 32;
/// What [`Head::magic`] says of a file that is this version's.
pub const MAGIC: u64 = u64::from_le_bytes(*b"zfolioX5");

/// States of a cell.
pub mod state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// A member writes a request.
    pub const CLAIMED: u32 = 1;
    /// The request is the pager's to take.
    pub const POSTED: u32 = 2;
    /// The pager is at it.
    pub const TAKEN: u32 = 3;
    /// The answer is there.
    pub const DONE: u32 = 4;
    /// The member does not wait any more; the pager frees it.
    pub const ABANDONED: u32 = 5;
}

/// What is asked for.
pub mod op {
    /// Keep the value under a new number.
    pub const PUT: u32 = 1;
    /// Give bytes `from .. from + len` of a value.
    pub const GET: u32 = 2;
    /// Forget the values whose numbers and salts are in the data, 16 bytes each. Not answered.
    pub const DELETE: u32 = 3;
}

/// The beginning of the file.
#[repr(C, align(4096))]
pub struct Head {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// Changes with each request; the pager sleeps on it.
    pub bell: AtomicU32,
    /// Pagers that have begun.
    pub pagers: AtomicU32,
    /// Threads of the pager that look at the bell by themselves: who rings it need wake none.
    pub awake: AtomicU32,
    /// Whether who waits for something brief may stay awake for it: the pager's word, 0 or 1.
    pub may_stay_awake: AtomicU32,
    /// Whose each ring is: a random number of the process; 0: nobody's.
    pub owners: [AtomicU64; MEMBERS],
    /// A bit for each cell that was posted.
    pub posted: [AtomicU32; MEMBERS],
    /// How long reads took, as members saw it, by powers of two of a microsecond.
    pub waits: [AtomicU64; BUCKETS],
    /// What the pager counts.
    pub counts: Counts,
}

/// What the pager counts.
#[repr(C)]
pub struct Counts {
    /// Bytes that went to the store, protocol included.
    pub sent: AtomicU64,
    /// Bytes that came from it, likewise.
    pub received: AtomicU64,
    /// Requests tried once more.
    pub retries: AtomicU64,
    /// Copies that the store was found not to have any more.
    pub lost_copies: AtomicU64,
    /// Reads answered from another copy than the first asked for.
    pub other_copy: AtomicU64,
    /// Writes that waited for the bandwidth they are limited to.
    pub held_back: AtomicU64,
    /// How long all reads took together, us.
    pub waits_sum_us: AtomicU64,
}

/// A cell without its data.
#[repr(C)]
pub struct Cell {
    /// One of [`state`]; members sleep on it.
    pub state: AtomicU32,
    /// One of [`op`].
    pub op: AtomicU32,
    /// The value's number: never used twice by a member.
    pub id: AtomicU64,
    /// Where its copies are: what a put answers, and a read hands back.
    pub salts: AtomicU32,
    /// First byte wanted.
    pub from: AtomicU32,
    /// Bytes of the data.
    pub len: AtomicU32,
    /// The answer: 0, or an errno.
    pub errno: AtomicU32,
}

/// The room of a cell's value.
pub type Data = [AtomicU64; VALUE / 8];

/// What a member has.
#[repr(C, align(4096))]
pub struct Ring {
    /// Its cells.
    pub cells: [Cell; CELLS],
    padding: [AtomicU32; 4096 / 4 - CELLS * size_of::<Cell>() / 4],
    /// Their data.
    pub data: [Data; CELLS],
}

/// Bytes of the file.
pub const BYTES: usize = size_of::<Head>() + MEMBERS * size_of::<Ring>();

/// Copies `bytes` into a cell's data, as much as fits.
pub fn put_bytes(data: &Data, bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks();
    for (word, bytes) in data.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if let Some(word) = data.get(whole.len()) {
        let mut raw = [0; 8];
        raw[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
    }
}

/// Copies bytes out of a cell's data, or the rest of it, as many as fit.
pub fn take_bytes(data: &[AtomicU64], into: &mut [u8]) {
    let (whole, rest) = into.as_chunks_mut();
    for (word, bytes) in data.iter().zip(&mut *whole) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if let Some(word) = data.get(whole.len()) {
        let raw = word.load(Ordering::Relaxed).to_le_bytes();
        rest.copy_from_slice(&raw[..rest.len()]);
    }
}

/// Whether a member or a pager lives that uses the exchange at `path`.
///
/// # Errors
/// As opening it does.
pub fn is_in_use(path: &CStr) -> Result<bool, Errno> {
    let file = Locked::open(path)?;
    let is = file.is_locked(0..MEMBERS + 1);
    file.close();
    Ok(is)
}

/// The exchange as a member has it. Never unmapped; children of forks do not have it.
#[derive(Clone, Copy)]
pub struct Exchange {
    file: Locked,
    head: &'static Head,
    ring: &'static Ring,
    index: usize,
}

impl Exchange {
    /// Takes a ring of the exchange at `path` for the calling process, whose number is
    /// `owner`.
    ///
    /// # Errors
    /// `USERS` when there is none left, `INVAL` when the file is no exchange; else as the
    /// kernel says.
    pub fn join(path: &CStr, owner: u64) -> Result<Self, Errno> {
        let file = Locked::open(path)?;
        Self::join_in(file, owner).inspect_err(|_| file.close())
    }

    fn join_in(file: Locked, owner: u64) -> Result<Self, Errno> {
        let head_at = file.map(0, size_of::<Head>())?;
        // SAFETY: page-aligned, long enough (the file is), never unmapped once this call
        // has succeeded; any content is valid.
        let head: &'static Head = unsafe { &*(head_at as *const Head) };
        let found = if head.magic.load(Ordering::Acquire) == MAGIC {
            let found = (0..MEMBERS).find(|index| {
                let free = |of: &AtomicU64| of.load(Ordering::Acquire) == 0;
                let mine = free(&head.owners[*index]) && file.lock(*index).is_ok();
                if mine && !free(&head.owners[*index]) {
                    // Of one who ended without the pager having looked.
                    let _ = file.unlock(*index);
                    return false;
                }
                mine
            });
            found.ok_or(Errno::USERS)
        } else {
            Err(Errno::INVAL)
        };
        let ring = found.and_then(|index| {
            let at = size_of::<Head>() + index * size_of::<Ring>();
            // (A full file system would be a SIGBUS otherwise.)
            file.reserve(at, size_of::<Ring>())?;
            Ok((index, file.map(at, size_of::<Ring>())?))
        });
        let (index, ring_at) = match ring {
            Ok(ring) => ring,
            Err(errno) => {
                unmap(head_at..head_at + size_of::<Head>());
                return Err(errno);
            }
        };
        // SAFETY: as above.
        let ring: &'static Ring = unsafe { &*(ring_at as *const Ring) };
        for cell in &ring.cells {
            cell.state.store(state::FREE, Ordering::Relaxed);
        }
        head.owners[index].store(owner, Ordering::Release);
        Ok(Self {
            file,
            head,
            ring,
            index,
        })
    }

    /// The beginning of the file.
    #[must_use]
    pub fn head(&self) -> &'static Head {
        self.head
    }

    /// The member's ring.
    #[must_use]
    pub fn ring(&self) -> &'static Ring {
        self.ring
    }

    /// Notes that a cell is posted; the pager is told by [`Self::ring_the_bell`].
    pub fn note_posted(&self, cell: usize) {
        self.head.posted[self.index].fetch_or(1 << cell, Ordering::AcqRel);
    }

    /// Tells the pager that cells are posted: one of its threads takes them all.
    pub fn ring_the_bell(&self) {
        // (Who has stopped looking looks once more, so that one of the two sees what the other did.)
        self.head.bell.fetch_add(1, Ordering::SeqCst);
        if self.head.awake.load(Ordering::SeqCst) == 0 {
            futex_wake(&self.head.bell, 1);
        }
    }

    /// Whether there is a pager. Only by a thread in whose descriptor table the file is; true
    /// where it is in none.
    #[must_use]
    pub fn has_pager(&self) -> bool {
        self.file.0 == usize::MAX || self.file.is_locked(MEMBERS..MEMBERS + 1)
    }

    /// The same without its descriptor, which is closed: for who has none but the program's
    /// table. The mappings keep the file open, and with it the lock; children of forks do not
    /// have them, and exec ends them.
    #[must_use]
    pub fn without_descriptor(self) -> Self {
        self.file.close();
        Self {
            file: Locked(usize::MAX),
            ..self
        }
    }
}

/// The exchange as the pager has it, or who only reads it. Never unmapped.
#[derive(Clone, Copy)]
pub struct Hall {
    file: Locked,
    head: &'static Head,
    rings: &'static [Ring; MEMBERS],
}

impl Hall {
    /// Maps the exchange at `path`, a file of [`BYTES`].
    ///
    /// # Errors
    /// As the kernel says.
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        let file = Locked::open(path)?;
        let at = file.map(0, BYTES).inspect_err(|_| file.close())?;
        Ok(Self {
            file,
            // SAFETY: page-aligned, long enough, never unmapped; any content is valid.
            head: unsafe { &*(at as *const Head) },
            // SAFETY: as above, behind the head, whose size is whole pages.
            rings: unsafe { &*((at + size_of::<Head>()) as *const [Ring; MEMBERS]) },
        })
    }

    /// The beginning of the file.
    #[must_use]
    pub fn head(&self) -> &'static Head {
        self.head
    }

    /// Ring `index`.
    #[must_use]
    pub fn ring(&self, index: usize) -> &'static Ring {
        &self.rings[index]
    }

    /// Becomes the pager; false if there is one. `may_stay_awake`: there are processors for that.
    #[must_use]
    pub fn become_pager(&self, may_stay_awake: bool) -> bool {
        let became = self.file.lock(MEMBERS).is_ok();
        if became {
            // (Of one that was killed as it looked.)
            self.head.awake.store(0, Ordering::SeqCst);
            let may = u32::from(may_stay_awake);
            self.head.may_stay_awake.store(may, Ordering::Relaxed);
        }
        became
    }

    /// Waits until the bell is not at `seen` any more, `ns` at most. One thread stays awake for it where
    /// `brief`, which knows how long it takes from one request to the next, says that it pays.
    pub fn hear(&self, seen: u32, ns: u64, brief: &BriefWait) {
        let head = self.head;
        let has_rung = || head.bell.load(Ordering::SeqCst) != seen;
        brief.begin();
        let looks = || {
            head.awake
                .compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        if head.may_stay_awake.load(Ordering::Relaxed) != 0 && looks() {
            brief.stay(has_rung);
            head.awake.store(0, Ordering::SeqCst);
        }
        if !has_rung() {
            futex_wait(&head.bell, seen, Some(ns));
        }
        if has_rung() {
            brief.end();
        }
    }

    /// Takes ring `index` from a member that has ended: nobody can claim it until
    /// [`Self::give_ring`]. False if its owner lives.
    #[must_use]
    pub fn take_ring(&self, index: usize) -> bool {
        self.file.lock(index).is_ok()
    }

    /// Forgets all that is asked for in a ring that was taken. Nobody can ask anew until
    /// [`Self::give_ring`].
    #[must_use]
    pub fn clear_ring(&self, index: usize) -> Cleared {
        for cell in &self.rings[index].cells {
            // (Who has taken it before has said so before: that is seen behind this.)
            cell.state.swap(state::FREE, Ordering::AcqRel);
        }
        self.head.posted[index].store(0, Ordering::Release);
        let at = size_of::<Head>() + index * size_of::<Ring>();
        self.file.punch(at, size_of::<Ring>());
        Cleared(index)
    }

    /// The ring is for the next.
    pub fn give_ring(&self, ring: Cleared) {
        let Cleared(index) = ring;
        self.head.owners[index].store(0, Ordering::Release);
        let _ = self.file.unlock(index);
    }
}

/// A ring that was taken, in which nothing is asked for.
#[derive(Debug)]
pub struct Cleared(usize);

#[cfg(test)]
mod bell_model;
#[cfg(test)]
mod tests;
