//! The C library: `zfolio.h` says what each function does.
//!
//! It has a heap of its own, so that nothing here uses the program's malloc:
//! a signal handler that interrupted that may touch a region. A panic ends the
//! process (the whole workspace is built so) and never crosses into C.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use zfolio::{Error, Group, Pin, Region, Serving, Stats};
use zfolio_sys::heap::LazyHeap;
use zfolio_sys::region::SignalsBlocked;

#[global_allocator]
static HEAP: LazyHeap = LazyHeap::new();

const VERSION: u32 = 1;

/// A code and what it means.
struct Code(c_int, &'static CStr);

const OK: c_int = 0;
const OUT_OF_RANGE: c_int = -3;
const UNAVAILABLE: c_int = -9;
const BAD_ARGUMENT: c_int = -10;
const OTHER: c_int = -11;
const BAD_OPTION: c_int = -12;

const CODES: &[Code] = &[
    Code(OK, c"no error"),
    Code(-1, c"a region of zero bytes was asked for"),
    Code(-2, c"there are no addresses for a region of so many bytes"),
    Code(OUT_OF_RANGE, c"the range is not inside the region"),
    Code(-4, c"pins would hold more than half of the limit"),
    Code(-5, c"the limit is below 4 MiB, or out of range"),
    Code(
        -6,
        c"the limit is set, with regions using it, and cannot be raised so far",
    ),
    Code(-7, c"there are too many regions"),
    Code(-8, c"the child of a raw fork cannot use regions"),
    Code(
        UNAVAILABLE,
        c"the system refuses what regions need (zfolio_errno, zfolio doctor)",
    ),
    Code(BAD_ARGUMENT, c"an argument is null, or has no such value"),
    Code(
        OTHER,
        c"the library failed in a way this one has no words for",
    ),
    Code(
        BAD_OPTION,
        c"there is no option of that name, or it cannot have that value",
    ),
];

std::thread_local! {
    static ERRNO: Cell<c_int> = const { Cell::new(0) };
}

fn code_of(error: Error) -> c_int {
    match error {
        Error::Empty => -1,
        Error::TooLarge { .. } => -2,
        Error::OutOfRange => OUT_OF_RANGE,
        Error::PinnedTooMuch => -4,
        Error::BadLimit => -5,
        Error::LimitIsSet => -6,
        Error::TooManyRegions => -7,
        Error::Forked => -8,
        Error::Unavailable { errno, .. } => {
            ERRNO.set(errno);
            UNAVAILABLE
        }
        Error::BadOption { .. } | Error::UnknownOption => BAD_OPTION,
        _ => OTHER,
    }
}

fn done(result: Result<(), Error>) -> c_int {
    result.map_or_else(code_of, |()| OK)
}

fn hold_heap_over_forks() {
    zfolio::hold_over_forks(|| HEAP.hold(), || HEAP.release());
}

/// Puts what was made where the caller wants it.
///
/// # Safety
/// `into` is null or may be written.
unsafe fn give<T>(into: *mut *mut T, make: impl FnOnce() -> Result<T, Error>) -> c_int {
    if into.is_null() {
        return BAD_ARGUMENT;
    }
    hold_heap_over_forks();
    let (code, made) = match make() {
        Ok(made) => {
            let _blocked = SignalsBlocked::new();
            (OK, Box::into_raw(Box::new(made)))
        }
        Err(error) => (code_of(error), core::ptr::null_mut()),
    };
    // SAFETY: not null, and by contract writable.
    unsafe { into.write(made) };
    code
}

/// Frees what [`give`] gave.
///
/// # Safety
/// `what` is null, or from there and not freed yet.
unsafe fn free<T>(what: *mut T) {
    if !what.is_null() {
        let _blocked = SignalsBlocked::new();
        // SAFETY: by contract.
        drop(unsafe { Box::from_raw(what) });
    }
}

fn span(offset: usize, len: usize) -> Result<Range<usize>, Error> {
    let end = offset.checked_add(len).ok_or(Error::OutOfRange)?;
    Ok(offset..end)
}

/// See zfolio.h.
#[unsafe(no_mangle)]
pub extern "C" fn zfolio_version() -> u32 {
    VERSION
}

/// See zfolio.h.
#[unsafe(no_mangle)]
pub extern "C" fn zfolio_message(code: c_int) -> *const c_char {
    let found = CODES.iter().find(|known| known.0 == code);
    found
        .map_or(c"there is no such code", |code| code.1)
        .as_ptr()
}

/// See zfolio.h.
#[unsafe(no_mangle)]
pub extern "C" fn zfolio_errno() -> c_int {
    ERRNO.get()
}

/// See zfolio.h.
#[unsafe(no_mangle)]
pub extern "C" fn zfolio_limit(high: usize) -> c_int {
    hold_heap_over_forks();
    done(zfolio::limit(high))
}

/// See zfolio.h.
///
/// # Safety
/// `group` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_group_new(
    high: usize,
    serving: c_int,
    group: *mut *mut Group,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { zfolio_group_new_with(high, serving, core::ptr::null(), group) }
}

/// See zfolio.h.
///
/// # Safety
/// `group` is null or may be written; `options` is null, or strings and a null after the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_group_new_with(
    high: usize,
    serving: c_int,
    options: *const *const c_char,
    group: *mut *mut Group,
) -> c_int {
    let serving = match serving {
        0 => Serving::InThread,
        1 => Serving::Threads,
        2 => Serving::Protected,
        _ => return BAD_ARGUMENT,
    };
    let make = || {
        let mut builder = Group::builder(high).serving(serving);
        let mut next = options;
        // SAFETY: null, or the caller's promise: each is read up to the null.
        while let Some(text) = unsafe { next.as_ref() }.filter(|text| !text.is_null()) {
            // SAFETY: the caller's promise.
            let text = unsafe { CStr::from_ptr(*text) };
            let text = text.to_str().map_err(|_| Error::UnknownOption)?;
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            builder = builder.option(name, value)?;
            // SAFETY: there was one, so there is one after it, or the null.
            next = unsafe { next.add(1) };
        }
        builder.build()
    };
    // SAFETY: the caller's promise.
    unsafe { give(group, make) }
}

/// A group, or the one that regions share.
///
/// # Safety
/// `group` is null or a group.
unsafe fn group_of(group: *const Group) -> Result<Group, Error> {
    // SAFETY: by contract.
    match unsafe { group.as_ref() } {
        Some(group) => Ok(group.clone()),
        None => Group::process(),
    }
}

/// See zfolio.h.
///
/// # Safety
/// `group` is null or a group; `text` has room for `size` bytes, or that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_group_statistics(
    group: *const Group,
    text: *mut c_char,
    size: usize,
) -> c_int {
    if text.is_null() && size > 0 {
        return BAD_ARGUMENT;
    }
    hold_heap_over_forks();
    // SAFETY: the caller's promise.
    let found = match unsafe { group_of(group) } {
        Ok(group) => group.statistics(),
        Err(error) => return code_of(error),
    };
    if let Some(most) = size.checked_sub(1) {
        let len = found.len().min(most);
        // SAFETY: `len` bytes and one more, which the caller has room for.
        unsafe {
            text.cast::<u8>().copy_from(found.as_ptr(), len);
            text.add(len).write(0);
        }
    }
    c_int::try_from(found.len()).unwrap_or(OTHER)
}

/// See zfolio.h.
///
/// # Safety
/// `group` is null or a group; each of the others is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_group_compact(
    group: *const Group,
    objs_moved: *mut u64,
    pages_compacted: *mut u64,
) -> c_int {
    hold_heap_over_forks();
    // SAFETY: the caller's promise.
    let done = match unsafe { group_of(group) } {
        Ok(group) => group.compact(),
        Err(error) => return code_of(error),
    };
    for (into, value) in [
        (objs_moved, done.objs_moved),
        (pages_compacted, done.pages_compacted),
    ] {
        if !into.is_null() {
            // SAFETY: the caller's promise.
            unsafe { into.write(value) };
        }
    }
    OK
}

/// See zfolio.h.
///
/// # Safety
/// `group` is null, or from `zfolio_group_new` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_group_free(group: *mut Group) {
    // SAFETY: the caller's promise.
    unsafe { free(group) };
}

/// As in zfolio.h.
#[repr(C)]
pub struct StatsOut {
    size: usize,
    values: [u64; 9],
}

impl StatsOut {
    fn of(stats: Stats) -> Self {
        Self {
            size: size_of::<Self>(),
            values: [
                stats.high,
                stats.used,
                stats.pool,
                stats.stored_pages,
                stats.compressed_bytes,
                stats.pages_out,
                stats.pages_in,
                stats.faults,
                stats.stall_ns,
            ],
        }
    }
}

/// See zfolio.h.
///
/// # Safety
/// `group` is null or a group; `stats` is null, or begins with how many bytes
/// of it may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_group_stats(group: *const Group, stats: *mut StatsOut) -> c_int {
    if stats.is_null() {
        return BAD_ARGUMENT;
    }
    // SAFETY: the caller's promise.
    let (group, size) = unsafe { (group.as_ref(), (*stats).size) };
    if size < size_of::<usize>() {
        return BAD_ARGUMENT;
    }
    let found = group.map_or_else(zfolio::stats, |group| Ok(group.stats()));
    let found = match found {
        Ok(found) => StatsOut::of(found),
        Err(error) => return code_of(error),
    };
    let bytes = size.min(size_of::<StatsOut>()) - size_of::<usize>();
    // SAFETY: as many bytes as both have, after `size`, which stays.
    unsafe {
        let from = (&raw const found.values).cast::<u8>();
        (&raw mut (*stats).values)
            .cast::<u8>()
            .copy_from(from, bytes);
    }
    OK
}

/// See zfolio.h.
///
/// # Safety
/// `group` is null or a group; `region` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_reserve(
    group: *mut Group,
    len: usize,
    region: *mut *mut Region,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        give(region, || match group.as_ref() {
            Some(group) => Region::reserve_in(group, len),
            None => Region::reserve(len),
        })
    }
}

/// See zfolio.h.
///
/// # Safety
/// `region` is null, or a region that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_free(region: *mut Region) {
    // SAFETY: the caller's promise.
    unsafe { free(region) };
}

/// See zfolio.h.
///
/// # Safety
/// `region` is null or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_data(region: *mut Region) -> *mut c_void {
    // SAFETY: the caller's promise. (Shared: other threads may use it.)
    let region = unsafe { region.as_ref() };
    region.map_or(core::ptr::null_mut(), |region| {
        region.as_ptr().cast_mut().cast()
    })
}

/// See zfolio.h.
///
/// # Safety
/// `region` is null or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_len(region: *const Region) -> usize {
    // SAFETY: the caller's promise.
    unsafe { region.as_ref() }.map_or(0, Region::len)
}

/// See zfolio.h.
///
/// # Safety
/// `region` is null, or a region that outlives the pin; `pin` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_pin_range(
    region: *mut Region,
    offset: usize,
    len: usize,
    pin: *mut *mut Pin<'static>,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(region) = (unsafe { region.as_ref() }) else {
        return BAD_ARGUMENT;
    };
    // SAFETY: the caller's promise.
    unsafe { give(pin, || region.pin(span(offset, len)?)) }
}

/// See zfolio.h.
///
/// # Safety
/// `pin` is null, or from `zfolio_pin_range` and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_unpin(pin: *mut Pin<'static>) {
    // SAFETY: the caller's promise.
    unsafe { free(pin) };
}

/// Does something with a range of a region.
///
/// # Safety
/// `region` is null or a region.
unsafe fn advise(
    region: *mut Region,
    offset: usize,
    len: usize,
    what: impl FnOnce(&Region, Range<usize>) -> Result<(), Error>,
) -> c_int {
    // SAFETY: by contract.
    match unsafe { region.as_ref() } {
        Some(region) => done(span(offset, len).and_then(|range| what(region, range))),
        None => BAD_ARGUMENT,
    }
}

/// See zfolio.h.
///
/// # Safety
/// `region` is null or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_cold(region: *mut Region, offset: usize, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        advise(region, offset, len, |region, range| {
            region.advise_cold(range)
        })
    }
}

/// See zfolio.h.
///
/// # Safety
/// `region` is null or a region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_willneed(region: *mut Region, offset: usize, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        advise(region, offset, len, |region, range| {
            region.advise_willneed(range)
        })
    }
}

/// See zfolio.h.
///
/// # Safety
/// `region` is null, or a region of which nobody uses the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zfolio_discard(region: *mut Region, offset: usize, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        advise(region, offset, len, |region, range| {
            region.discard_shared(range)
        })
    }
}

/// See zfolio.h.
#[unsafe(no_mangle)]
pub extern "C" fn zfolio_handle_fault(si_addr: *mut c_void) -> c_int {
    zfolio::handle_fault(si_addr as usize).into()
}
