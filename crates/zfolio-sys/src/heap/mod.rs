//! The manager's own heap, apart from libc's: the program's allocator may be
//! mid-call, replaced, or have its pages moved out.
//!
//! Small blocks come from talc, in one half of the reservation; blocks of 128 KiB and
//! more are runs of whole pages in the other (`page_runs`), which are given back to the
//! system when freed. So zeroed big blocks cost nothing until they are touched. Neighbours
//! that are free are one in both halves.

mod page_runs;
pub mod usage;

use self::page_runs::{PageRuns, UNIT};
use crate::arena::{discard, reserve_private};
use crate::lock::{Mutex, MutexGuard, RawFutexMutex};
use crate::syscall::{Errno, nr, syscall};
use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering};
use talc::DefaultBinning;
use talc::TalcLock;
use talc::base::Talc;
use talc::source::Manual;

/// Blocks from this size on are whole pages.
const BIG: usize = 128 << 10;
const PAGE: usize = 4096;

/// A global allocator over one reservation; refuses everything before
/// [`Heap::reserve`].
pub struct Heap {
    small: TalcLock<RawFutexMutex, Manual>,
    big: Mutex<Option<Big>>,
    /// The lock of small blocks, while [`Self::hold`] has both.
    held: AtomicPtr<Small>,
}

type Small = Mutex<Talc<Manual, DefaultBinning>>;

/// The heap that [`whole_in_child`] holds.
static OF_PROCESS: AtomicPtr<Heap> = AtomicPtr::new(core::ptr::null_mut());

/// Makes a fork by `fork`, while nobody changes the heap ([`Heap::is_of_process`]): the child, which
/// has none of the other threads, has it whole and free. `fork` must not use it.
pub fn whole_in_child<R>(fork: impl FnOnce() -> R) -> R {
    let heap = OF_PROCESS.load(Ordering::Acquire);
    // SAFETY: null, or a heap that is there for good.
    let heap = unsafe { heap.as_ref() };
    heap.inspect(|heap| heap.hold());
    let result = fork();
    heap.inspect(|heap| heap.release());
    result
}

/// The half for big blocks, once there is a reservation.
struct Big {
    reserved: Range<usize>,
    /// Address of unit 0.
    first: usize,
    runs: PageRuns<Bits>,
}

/// A bitmap at the beginning of the half.
struct Bits {
    at: *mut u64,
    words: usize,
}

// SAFETY: the words lie in the heap's own reservation, and are used under its lock only.
unsafe impl Send for Bits {}

impl AsRef<[u64]> for Bits {
    fn as_ref(&self) -> &[u64] {
        // SAFETY: mapped for as long as the heap lives, and borrowed as `self` is.
        unsafe { core::slice::from_raw_parts(self.at, self.words) }
    }
}

impl AsMut<[u64]> for Bits {
    fn as_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts_mut(self.at, self.words) }
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

impl Heap {
    /// A heap with nothing behind it yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            small: TalcLock::new(Manual),
            big: Mutex::from_raw(<RawFutexMutex as lock_api::RawMutex>::INIT, None),
            held: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Makes it the one that is held over forks.
    pub fn is_of_process(&'static self) {
        OF_PROCESS.store(core::ptr::from_ref(self).cast_mut(), Ordering::Release);
    }

    /// Lets nobody in until [`Self::release`].
    fn hold(&self) {
        core::mem::forget(self.big.lock());
        let small = self.small.lock();
        let lock: *const Small = MutexGuard::mutex(&small);
        self.held.store(lock.cast_mut(), Ordering::Relaxed);
        core::mem::forget(small);
    }

    /// Ends [`Self::hold`], in the thread that called it or the child's copy of it.
    fn release(&self) {
        let small = self.held.swap(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: null, or a lock of this heap, which both are taken then.
        if let Some(small) = unsafe { small.as_ref() } {
            // SAFETY: taken by `hold`, whose guard was forgotten.
            unsafe { small.force_unlock() };
            // SAFETY: as above.
            unsafe { self.big.force_unlock() };
        }
    }

    /// Reserves `len` bytes of address space, half for small blocks, half for
    /// big ones; the first time. Returns the addresses.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn reserve(&self, len: usize) -> Result<Range<usize>, Errno> {
        const MADV_NOHUGEPAGE: usize = 15;
        let mut big = self.big.lock();
        if let Some(big) = &*big {
            return Ok(big.reserved.clone());
        }
        let range = reserve_private(len, c"zfolio heap")?;
        // SAFETY: advice on our own mapping. Kernels without huge pages refuse.
        let _ = unsafe { syscall(nr::MADVISE, [range.start, len, MADV_NOHUGEPAGE, 0, 0, 0]) };
        let half = (range.start + len / 2) & !(PAGE - 1);
        // SAFETY: a fresh mapping that only this heap uses.
        let claimed = unsafe {
            self.small
                .lock()
                .claim(range.start as *mut u8, half - range.start)
        };
        claimed.ok_or(Errno::NOMEM)?;
        *big = Some(Big::new(range.clone(), half));
        Ok(range)
    }
}

impl Big {
    /// `half ..` of a fresh reservation.
    fn new(reserved: Range<usize>, half: usize) -> Self {
        let words = page_runs::words((reserved.end - half) / UNIT);
        let bits = Bits {
            at: half as *mut u64,
            words,
        };
        let first = half + (words * size_of::<u64>()).next_multiple_of(PAGE);
        Self {
            runs: PageRuns::new(bits, reserved.end.saturating_sub(first) / UNIT),
            reserved,
            first,
        }
    }

    fn take(&mut self, len: usize) -> Option<usize> {
        let unit = self.runs.take(len / UNIT)?;
        Some(self.first + unit * UNIT)
    }

    fn give(&mut self, start: usize, len: usize) {
        let ours = self.runs.give((start - self.first) / UNIT, len / UNIT);
        debug_assert!(ours, "a block that was not handed out was given back");
    }
}

/// Bytes of a block of whole units, if the layout asks for one.
fn whole_units(layout: Layout) -> Option<usize> {
    (layout.size() >= BIG && layout.align() <= PAGE).then(|| layout.size().next_multiple_of(UNIT))
}

// SAFETY: both parts hand out disjoint blocks of the reservation with the
// size and alignment asked for, or null.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        usage::about_to_change();
        let block = match whole_units(layout) {
            Some(len) => {
                let mut big = self.big.lock();
                big.as_mut().and_then(|big| big.take(len)).unwrap_or(0) as *mut u8
            }
            // SAFETY: the caller's promises, passed on.
            None => unsafe { self.small.alloc(layout) },
        };
        if !block.is_null() {
            usage::taken(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises, passed on. Big blocks are zero: new
        // ones by the kernel, used ones because their frames were given back.
        unsafe {
            let block = self.alloc(layout);
            if whole_units(layout).is_none() && !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        usage::about_to_change();
        match whole_units(layout) {
            Some(len) => {
                let start = block as usize;
                let _ = discard(start, len);
                if let Some(big) = &mut *self.big.lock() {
                    big.give(start, len);
                }
            }
            // SAFETY: the caller's promises, passed on.
            None => unsafe { self.small.dealloc(block, layout) },
        }
        usage::given(layout.size());
    }
}

/// Addresses of the heap; memory is taken as it is used. Half of it is for
/// blocks below 128 KiB.
const RESERVED: usize = 16 << 30;
/// What is asked for where addresses are limited.
const LEAST: usize = 256 << 20;

/// A [`Heap`] that reserves itself when it is first used: for libraries in
/// processes whose own allocator they must not use.
pub struct LazyHeap {
    heap: Heap,
}

impl LazyHeap {
    /// A heap with nothing behind it yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { heap: Heap::new() }
    }

    /// Lets nobody in until [`Self::release`]: over a fork by libc, so that the
    /// child has it whole and free.
    pub fn hold(&self) {
        self.heap.hold();
    }

    /// Ends [`Self::hold`], in the thread that called it or the child's copy of it.
    pub fn release(&self) {
        self.heap.release();
    }

    fn first(&self) -> bool {
        [RESERVED, LEAST]
            .into_iter()
            .any(|len| self.heap.reserve(len).is_ok())
    }
}

impl Default for LazyHeap {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: hands every call on to a heap that is one.
unsafe impl GlobalAlloc for LazyHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.heap.alloc(layout) };
        if !block.is_null() || !self.first() {
            return block;
        }
        // SAFETY: as above; null again if there is no more.
        unsafe { self.heap.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe { self.heap.alloc_zeroed(layout) };
        if !block.is_null() || !self.first() {
            return block;
        }
        // SAFETY: as above.
        unsafe { self.heap.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.heap.dealloc(block, layout) };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn blocks_are_disjoint_zeroed_and_reused() {
        let heap = Heap::new();
        let layout = |size| Layout::from_size_align(size, 16).unwrap();
        // SAFETY: a null result is all that is looked at.
        let early = unsafe { heap.alloc(layout(100)) };
        assert!(early.is_null(), "nothing before a reservation");
        heap.reserve(64 << 20).unwrap();
        let mut live: Vec<(*mut u8, usize, u8)> = Vec::new();
        for round in 0..400_usize {
            let size = [24, 700, 5000, BIG, BIG + 5000][round % 5];
            // SAFETY: used within its layout and freed once, below.
            let block = unsafe { heap.alloc_zeroed(layout(size)) };
            assert!(!block.is_null());
            // SAFETY: the block just handed out, `size` bytes long.
            let bytes = unsafe { core::slice::from_raw_parts_mut(block, size) };
            assert!(bytes.iter().all(|b| *b == 0), "round {round}");
            let mark = u8::try_from(round % 255).unwrap() + 1;
            bytes.fill(mark);
            live.push((block, size, mark));
            if live.len() > 40 {
                let (block, size, mark) = live.swap_remove(round % 40);
                // SAFETY: a block still live, with the layout it was made with.
                unsafe {
                    assert!(
                        core::slice::from_raw_parts(block, size)
                            .iter()
                            .all(|b| *b == mark)
                    );
                    heap.dealloc(block, layout(size));
                }
            }
        }
    }
    #[test]
    fn over_a_fork_nobody_changes_it() {
        use core::sync::atomic::AtomicUsize;
        static HEAP: Heap = Heap::new();
        static CHANGES: AtomicUsize = AtomicUsize::new(0);
        HEAP.reserve(64 << 20).unwrap();
        HEAP.is_of_process();
        let small = Layout::from_size_align(64, 16).unwrap();
        let big = Layout::from_size_align(BIG, 16).unwrap();
        let stop = core::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for layout in [small, big] {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        // SAFETY: freed at once, with the layout it was made with.
                        unsafe { HEAP.dealloc(HEAP.alloc(layout), layout) };
                        CHANGES.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let changes = || CHANGES.load(Ordering::Relaxed);
            while changes() < 1000 {
                std::thread::yield_now();
            }
            for _ in 0..50 {
                let meanwhile = whole_in_child(|| {
                    // (What each of the two has just given back, it may still count.)
                    let before = changes();
                    std::thread::sleep(core::time::Duration::from_millis(1));
                    changes() - before
                });
                assert!(meanwhile <= 2, "{meanwhile} changes");
            }
            stop.store(true, Ordering::Relaxed);
        });
        // SAFETY: freed at once, with the layout it was made with.
        unsafe { HEAP.dealloc(HEAP.alloc(big), big) };
    }
}
