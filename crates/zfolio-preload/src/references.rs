//! Calls that make the kernel keep a page of the program for later by a plain
//! reference: vmsplice(2), and sends without a copy (SO_ZEROCOPY). A page so
//! kept can be moved out, and its frame used for something else before the
//! other side has read it. What these calls promise is kept by copying. And
//! what madvise does without an event: guards, which discard a range, and
//! ranges to be wiped in a child.

use crate::manager;
use crate::outside::set_errno;
use core::ffi::{c_int, c_uint, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use zfolio_inthread::start::{call as syscall, is_on};
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::{Errno, nr};
use zfolio_sys::turns::Turns;

const O_ACCMODE: usize = 3;
const F_GETFL: usize = 3;
const SPLICE_F_NONBLOCK: c_uint = 2;
const RWF_NOWAIT: usize = 8;
const SOL_SOCKET: c_int = 1;
const SO_ZEROCOPY: c_int = 60;
const MADV_DONTNEED: c_int = 4;
const MADV_WIPEONFORK: c_int = 18;
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_POPULATE_READ: c_int = 22;

/// First and last bytes of ranges that a child is to find empty: the kernel
/// sees to that, and must not be helped by a copy of ours. They are left alone.
static WIPED: [[AtomicUsize; 2]; MOST_WIPES] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST_WIPES];
/// One more is refused as by a kernel that does not know the advice.
const MOST_WIPES: usize = 64;
static WIPES: AtomicUsize = AtomicUsize::new(0);
/// Who moves memory. The kernel reports a move a moment after it was made, and does not say by which
/// thread. Until then another thread may move something to the addresses that the first has left,
/// and unmap it there. Both orders of the two are possible, by each another range's bytes are left, and
/// where all of them are out nothing tells which it was. So nobody moves memory while
/// somebody else's move is on its way: mremap returns once it has been read.
static MOVES: Turns = Turns::new();
/// By when a move under way is over, ns.
const MOVED_NS: u64 = 10_000_000;

/// vmsplice(2): into a pipe, a write.
///
/// # Safety
/// As the call's.
#[unsafe(no_mangle)]
unsafe extern "C" fn vmsplice(fd: c_int, iov: *const c_void, count: usize, flags: c_uint) -> isize {
    let (fd, iov) = (descriptor(fd), iov as usize);
    // SAFETY: asks for a number.
    let mode = unsafe { syscall(nr::FCNTL, [fd, F_GETFL, 0, 0, 0, 0]) };
    let result = match mode {
        Ok(mode) if mode & O_ACCMODE != 0 => {
            let nowait = flags & SPLICE_F_NONBLOCK != 0;
            let how = if nowait { RWF_NOWAIT } else { 0 };
            // SAFETY: the caller's vector, as the caller vouches. At the
            // file's position, which a pipe does not have.
            unsafe { syscall(nr::PWRITEV2, [fd, iov, count, usize::MAX, usize::MAX, how]) }
        }
        // SAFETY: as above.
        _ => unsafe { syscall(nr::VMSPLICE, [fd, iov, count, flags as usize, 0, 0]) },
    };
    answer(result)
}

/// setsockopt(2): sends without a copy cannot be switched on.
///
/// # Safety
/// As the call's.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: c_uint,
) -> c_int {
    // (What the kernel would refuse is left to it.)
    let valued = len >= 4 && !value.is_null();
    // SAFETY: the caller's value, as the caller vouches, aligned or not.
    let on = || valued && unsafe { value.cast::<c_int>().read_unaligned() } != 0;
    if (level, option) == (SOL_SOCKET, SO_ZEROCOPY) && on() {
        set_errno(Errno::OPNOTSUPP.0);
        return -1;
    }
    let args = [
        descriptor(fd),
        level.cast_unsigned() as usize,
        option.cast_unsigned() as usize,
        value as usize,
        len as usize,
        0,
    ];
    // SAFETY: the caller's arguments, as the caller vouches.
    i32::try_from(answer(unsafe { syscall(nr::SETSOCKOPT, args) })).unwrap_or(-1)
}

/// madvise(2): what a guard hides is discarded, which is reported. Until that is seen a page may have been
/// brought back over its guard, so it is installed once more.
///
/// # Safety
/// As the call's.
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's range, as the caller vouches.
    let call = |advice: c_int| unsafe {
        let advice = advice.cast_unsigned() as usize;
        syscall(nr::MADVISE, [start as usize, len, advice, 0, 0, 0])
    };
    let result = match advice {
        _ if is_on() => call(advice),
        MADV_GUARD_INSTALL => call(advice)
            .and_then(|_| call(MADV_DONTNEED))
            .and_then(|_| call(advice)),
        MADV_WIPEONFORK => wipe_on_fork(&(start as usize..start as usize + len), call),
        _ => call(advice),
    };
    i32::try_from(answer(result)).unwrap_or(-1)
}

/// Notes the range, so that nothing of it leaves any more, has all of it
/// brought back, and only then asks the kernel.
fn wipe_on_fork(
    range: &Range<usize>,
    call: impl Fn(c_int) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    if !wiped().any(|noted| noted.start <= range.start && range.end <= noted.end) {
        place_of_wipe()?.note(range);
    }
    if manager().is_some() {
        pause(MOVED_NS);
        call(MADV_POPULATE_READ)?;
    }
    call(MADV_WIPEONFORK)
}

/// A place for one more range.
struct Place(&'static [AtomicUsize; 2]);

impl Place {
    fn note(&self, range: &Range<usize>) {
        self.0[0].store(range.start, Ordering::Release);
        self.0[1].store(range.end, Ordering::Release);
    }
}

fn place_of_wipe() -> Result<Place, Errno> {
    let next = WIPES.fetch_add(1, Ordering::AcqRel);
    WIPED.get(next).map(Place).ok_or(Errno::INVAL)
}

/// mremap(2): made in turn; what a child is to find empty it finds so where it has moved, and what it has grown by.
///
/// # Safety
/// As the call's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    start: *mut c_void,
    len: usize,
    new_len: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let from = start as usize;
    let flags = flags.cast_unsigned() as usize;
    // SAFETY: the caller's ranges, as the caller vouches.
    let make = || unsafe { syscall(nr::MREMAP, [from, len, new_len, flags, to as usize, 0]) };
    let call = || match manager() {
        Some(_) if !is_on() => MOVES.make(make),
        _ => make(),
    };
    let result = if !is_on() && is_wiped(&(from..from.saturating_add(len))) {
        // (Before: a move that could not be noted is not made.)
        place_of_wipe()
            .map_err(|_| Errno::NOMEM)
            .and_then(|place| call().inspect(|at| place.note(&(*at..at.saturating_add(new_len)))))
    } else {
        call()
    };
    answer(result) as *mut c_void
}

/// In the child of a fork.
pub(crate) fn forget_moves() {
    MOVES.forget();
}

/// What is noted.
fn wiped() -> impl Iterator<Item = Range<usize>> {
    let count = WIPES.load(Ordering::Acquire).min(MOST_WIPES);
    WIPED[..count].iter().map(|slot| {
        let [start, end] = [0, 1].map(|at: usize| slot[at].load(Ordering::Acquire));
        start..end
    })
}

/// Whether any of `range` is to be wiped in a child.
pub(crate) fn is_wiped(range: &Range<usize>) -> bool {
    wiped().any(|noted| noted.start < range.end && range.start < noted.end)
}

/// A descriptor as the kernel takes it.
fn descriptor(fd: c_int) -> usize {
    fd.cast_unsigned() as usize
}

/// As libc's wrappers answer.
pub(crate) fn answer(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(value) => value.cast_signed(),
        Err(errno) => {
            set_errno(errno.0);
            -1
        }
    }
}
