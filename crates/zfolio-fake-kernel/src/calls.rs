//! The calls, as Linux 6.18 answers them.

use crate::World;
use crate::pages::{Page, Registered, of};
use crate::plan::{Call, Failure};
use crate::program::Change;
use std::ffi::CStr;
use std::fmt::Write;
use std::ops::Range;
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::syscall::{Errno, nr};

const API: usize = 0xc018_aa3f;
const REGISTER: usize = 0xc020_aa00;
const UNREGISTER: usize = 0x8010_aa01;
const WAKE: usize = 0x8010_aa02;
const COPY: usize = 0xc028_aa03;
const MOVE: usize = 0xc028_aa05;
const WRITE_PROTECT: usize = 0xc018_aa06;
const CONTINUE: usize = 0xc020_aa07;
const PAGEMAP_SCAN: usize = 0xc060_6610;
const PROCMAP_QUERY: usize = 0xc068_6611;

const MADV_DONTNEED: usize = 4;
const MADV_POPULATE_WRITE: usize = 23;
const MADV_DONTNEED_LOCKED: usize = 24;
const MADV_COLLAPSE: usize = 25;

const MODE_WP: u64 = 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const FAULT: Errno = Errno(14);
const BAD_FILE: Errno = Errno(9);

/// The first descriptor: no number that a process has, so that what is asked of the real
/// kernel about one is refused.
const FIRST: usize = 1 << 24;

/// What a descriptor is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
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
    fn open(&mut self, kind: Kind) -> usize {
        self.0.push(kind);
        FIRST + self.0.len() - 1
    }

    fn kind(&self, fd: usize) -> Kind {
        let at = fd.checked_sub(FIRST).and_then(|at| self.0.get(at));
        at.copied().unwrap_or(Kind::Closed)
    }

    fn close(&mut self, fd: usize) {
        if let Some(kind) = fd.checked_sub(FIRST).and_then(|at| self.0.get_mut(at)) {
            *kind = Kind::Closed;
        }
    }
}

/// Answers a call.
///
/// # Safety
/// As for the call itself.
pub(crate) unsafe fn call(
    world: &mut World,
    number: usize,
    args: [usize; 6],
) -> Result<usize, Errno> {
    // SAFETY: each by the contract of this call.
    unsafe {
        match number {
            nr::USERFAULTFD => Ok(world.files.open(Kind::Uffd)),
            nr::OPEN => open(world, args[0]),
            nr::CLOSE => {
                world.files.close(args[0]);
                Ok(0)
            }
            nr::READ => read(world, args),
            nr::PREAD64 => read_text(world, args),
            nr::MADVISE => advise(world, args[0], args[1], args[2]).map(|()| 0),
            nr::PROCESS_MADVISE => advise_all(world, args),
            nr::IOCTL => {
                let (fd, request, arg) = (args[0], args[1], args[2] as *mut u64);
                ioctl(world, fd, request, arg)
            }
            _ => panic!("call {number} is none of this kernel's"),
        }
    }
}

unsafe fn open(world: &mut World, path: usize) -> Result<usize, Errno> {
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

unsafe fn ioctl(
    world: &mut World,
    fd: usize,
    request: usize,
    arg: *mut u64,
) -> Result<usize, Errno> {
    let words = match request {
        UNREGISTER | WAKE => 2,
        API | WRITE_PROTECT => 3,
        REGISTER | CONTINUE => 4,
        COPY | MOVE => 5,
        PAGEMAP_SCAN => 12,
        PROCMAP_QUERY => 13,
        _ => panic!("ioctl {request:#x} is none of this kernel's"),
    };
    let kind = match request {
        PAGEMAP_SCAN => Kind::Pagemap,
        PROCMAP_QUERY => Kind::Maps,
        _ => Kind::Uffd,
    };
    if world.files.kind(fd) != kind {
        return Err(BAD_FILE);
    }
    // SAFETY: by contract as many words as the request says.
    let arg = unsafe { std::slice::from_raw_parts_mut(arg, words) };
    let at = |index: usize| usize::try_from(arg[index]).expect("an address");
    // SAFETY: each by the contract of the call.
    unsafe {
        match request {
            API => Ok(0),
            REGISTER => register(world, fd, of(at(0), at(1)), arg[2] & MODE_WP != 0),
            UNREGISTER => {
                world.pages.unregister(&of(at(0), at(1)));
                Ok(0)
            }
            WAKE => {
                failing(world, Call::Wake)?;
                world.events.woken.extend(of(at(0), at(1)));
                Ok(0)
            }
            COPY => transfer(world, Call::Copy, fd, arg),
            MOVE => transfer(world, Call::Move, fd, arg),
            WRITE_PROTECT => protect(world, fd, of(at(0), at(1)), arg[2] & 1 != 0),
            CONTINUE => {
                failing(world, Call::Continue)?;
                quiet(world, fd)?;
                let page = at(0) >> PAGE_SHIFT;
                let own = world.pages.registration(page).is_some_and(|r| r.fd == fd);
                Err(if own { Errno::INVAL } else { Errno::NOENT })
            }
            PAGEMAP_SCAN => scan(world, arg),
            _ => query(world, arg),
        }
    }
}

/// Fails as planned: calls that do all or nothing.
fn failing(world: &mut World, call: Call) -> Result<(), Errno> {
    world.plan.next(call).map_or(Ok(()), |how| Err(how.errno))
}

/// Fails while an event of the descriptor is in flight.
fn quiet(world: &World, fd: usize) -> Result<(), Errno> {
    let flying = world.events.flying.iter().any(|event| event.fd == fd);
    if flying { Err(Errno::AGAIN) } else { Ok(()) }
}

fn register(
    world: &mut World,
    fd: usize,
    pages: Range<Page>,
    protects: bool,
) -> Result<usize, Errno> {
    failing(world, Call::Register)?;
    let others = |one: &Registered| {
        one.fd != fd && one.pages.start < pages.end && pages.start < one.pages.end
    };
    if world.pages.registered.iter().any(others) {
        return Err(Errno::BUSY);
    }
    world.pages.unregister(&pages);
    world.pages.registered.push(Registered {
        pages,
        fd,
        protects,
    });
    Ok(0)
}

/// COPY and MOVE: `arg` is to, from, bytes, mode, and what was done.
unsafe fn transfer(
    world: &mut World,
    call: Call,
    fd: usize,
    arg: &mut [u64],
) -> Result<usize, Errno> {
    let at = |index: usize| usize::try_from(arg[index]).expect("an address");
    let (to, from, len) = (of(at(0), at(2)), at(1), at(2));
    let protected = arg[3] & MODE_WP != 0;
    let failure = world.plan.next(call);
    let mut done = 0;
    // SAFETY: by contract.
    let result = unsafe {
        whole(world, call, fd, &to).and_then(|()| {
            let most = failure.map_or(usize::MAX, |how| how.done);
            for page in to.clone() {
                if done == most {
                    return Err(failure.map_or(Errno::AGAIN, |how| how.errno));
                }
                let source = from + (page - to.start) * PAGE_SIZE;
                match call {
                    Call::Move => move_page(world, page, source >> PAGE_SHIFT)?,
                    _ => copy_page(world, page, source, protected)?,
                }
                done += 1;
            }
            Ok(())
        })
    };
    if let Some(Failure {
        untold: true,
        errno,
        ..
    }) = failure
    {
        arg[4] = (-i64::from(errno.0)).cast_unsigned();
        return Err(errno);
    }
    world.events.woken.extend(to.start..to.start + done);
    match result {
        Ok(()) => {
            arg[4] = len as u64;
            Ok(0)
        }
        Err(errno) if done == 0 => {
            arg[4] = (-i64::from(errno.0)).cast_unsigned();
            Err(errno)
        }
        Err(_) => {
            arg[4] = (done * PAGE_SIZE) as u64;
            Err(Errno::AGAIN)
        }
    }
}

/// Whether a range may be filled at all: it is in one registration, and quiet.
fn whole(world: &World, call: Call, fd: usize, to: &Range<Page>) -> Result<(), Errno> {
    quiet(world, fd)?;
    let of = world.pages.registration(to.start);
    let fits = of.is_some_and(|of| of.fd == fd && to.end <= of.pages.end);
    match call {
        _ if fits => Ok(()),
        Call::Move => Err(Errno::INVAL),
        _ => Err(Errno::NOENT),
    }
}

unsafe fn copy_page(
    world: &mut World,
    page: Page,
    from: usize,
    protected: bool,
) -> Result<(), Errno> {
    let source = from >> PAGE_SHIFT;
    let missing =
        |page: Page| world.pages.registration(page).is_some() && !world.pages.is_present(page);
    if missing(source) || missing((from + PAGE_SIZE - 1) >> PAGE_SHIFT) {
        return Err(FAULT);
    }
    if world.pages.is_present(page) {
        return Err(Errno::EXIST);
    }
    let protects = world.pages.registration(page).is_some_and(|r| r.protects);
    if protected && !protects {
        return Err(Errno::INVAL);
    }
    // SAFETY: by contract.
    unsafe { world.pages.come(page, Some(from), protected) };
    Ok(())
}

unsafe fn move_page(world: &mut World, page: Page, source: Page) -> Result<(), Errno> {
    let state = world.pages.state(source);
    if world.pages.is_present(page) {
        return Err(Errno::EXIST);
    }
    if !state.present {
        return Err(Errno::NOENT);
    }
    if state.pinned || state.shared {
        return Err(Errno::BUSY);
    }
    // SAFETY: by contract.
    unsafe {
        world.pages.come(page, Some(source << PAGE_SHIFT), false);
        world.pages.go(source);
    }
    Ok(())
}

fn protect(
    world: &mut World,
    fd: usize,
    pages: Range<Page>,
    protected: bool,
) -> Result<usize, Errno> {
    failing(world, Call::WriteProtect)?;
    quiet(world, fd)?;
    for page in pages {
        if !world.pages.registration(page).is_some_and(|r| r.protects) {
            return Err(Errno::NOENT);
        }
        if world.pages.is_present(page) {
            world
                .pages
                .change(page, |state| state.protected = protected);
        }
        if !protected {
            world.events.woken.push(page);
        }
    }
    Ok(0)
}

/// `arg` is a `struct pm_scan_arg`, of which categories asked for are: any of some.
unsafe fn scan(world: &mut World, arg: &mut [u64]) -> Result<usize, Errno> {
    failing(world, Call::Scan)?;
    let at = |index: usize| usize::try_from(arg[index]).expect("a size");
    let (pages, room, most) = (of(at(2), at(3) - at(2)), at(6), at(7));
    assert!(
        arg[8] == 0 && arg[9] == 0,
        "categories that this kernel does not know"
    );
    // SAFETY: by contract a vector of so many results, of three words each.
    let runs = unsafe { std::slice::from_raw_parts_mut(at(5) as *mut [u64; 3], room) };
    let wanted = |page: &Page| arg[10] & PAGE_IS_PRESENT != 0 && world.pages.is_present(*page);
    let most = if most == 0 { usize::MAX } else { most };
    let (mut count, mut reached) = (0, pages.end);
    for page in pages.filter(wanted).take(most) {
        let (start, end) = (
            (page << PAGE_SHIFT) as u64,
            ((page + 1) << PAGE_SHIFT) as u64,
        );
        if count > 0 && runs[count - 1][1] == start {
            runs[count - 1][1] = end;
        } else if count == room {
            reached = page;
            break;
        } else {
            runs[count] = [start, end, arg[11] & PAGE_IS_PRESENT];
            count += 1;
        }
    }
    arg[4] = (reached << PAGE_SHIFT) as u64;
    Ok(count)
}

/// The mappings: what is registered is never one with what is not.
fn mappings(world: &World) -> Vec<Range<Page>> {
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

/// `arg` is a `struct procmap_query`.
fn query(world: &mut World, arg: &mut [u64]) -> Result<usize, Errno> {
    const READ_WRITE: u64 = 3;
    failing(world, Call::Query)?;
    let page = usize::try_from(arg[2]).expect("an address") >> PAGE_SHIFT;
    let found = mappings(world);
    let found = found.iter().find(|range| range.contains(&page));
    let found = found.ok_or(Errno::NOENT)?;
    arg[3] = (found.start << PAGE_SHIFT) as u64;
    arg[4] = (found.end << PAGE_SHIFT) as u64;
    arg[5] = READ_WRITE;
    arg[8] = 0;
    Ok(0)
}

/// Copies what is there into one page: nothing that shows, and only where all of it is there,
/// free to move, and no fault of it has to be told.
fn collapse(world: &World, start: usize, len: usize) -> Result<(), Errno> {
    for page in of(start, len) {
        let state = world.pages.state(page);
        if !state.present {
            return Err(Errno::INVAL);
        }
        if state.pinned || state.protected {
            return Err(Errno::AGAIN);
        }
    }
    Ok(())
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

unsafe fn advise(world: &mut World, start: usize, len: usize, advice: usize) -> Result<(), Errno> {
    if advice == MADV_COLLAPSE {
        failing(world, Call::Collapse)?;
        return collapse(world, start, len);
    }
    let discards = [MADV_DONTNEED, MADV_DONTNEED_LOCKED].contains(&advice);
    assert!(
        discards || advice == MADV_POPULATE_WRITE,
        "advice {advice} is none of this kernel's"
    );
    let call = if discards {
        Call::Discard
    } else {
        Call::Populate
    };
    failing(world, call)?;
    for page in of(start, len) {
        if discards {
            // SAFETY: by contract.
            unsafe { world.pages.go(page) };
            continue;
        }
        if !world.pages.is_present(page) {
            assert!(
                world.pages.registration(page).is_none(),
                "a fault of page {page:#x} that the thread itself would have to serve"
            );
            // SAFETY: by contract.
            unsafe { world.pages.come(page, None, false) };
        }
        world.pages.change(page, |state| state.shared = false);
    }
    Ok(())
}

unsafe fn advise_all(world: &mut World, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: by contract a list of so many ranges.
    let ranges = unsafe { std::slice::from_raw_parts(args[1] as *const [usize; 2], args[2]) };
    let mut done = 0;
    for [start, len] in ranges {
        // SAFETY: by contract.
        match unsafe { advise(world, *start, *len, args[3]) } {
            Ok(()) => done += len,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Messages of a descriptor.
unsafe fn read(world: &mut World, args: [usize; 6]) -> Result<usize, Errno> {
    const MESSAGE: usize = 32;
    const REMOVE: u64 = 0x15;
    const UNMAP: u64 = 0x16;
    if world.files.kind(args[0]) != Kind::Uffd {
        return Err(BAD_FILE);
    }
    failing(world, Call::Read)?;
    let room = args[2] / MESSAGE;
    // SAFETY: by contract so many bytes; messages are made of words.
    let into = unsafe { std::slice::from_raw_parts_mut(args[1] as *mut [u64; 4], room) };
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
unsafe fn read_text(world: &mut World, args: [usize; 6]) -> Result<usize, Errno> {
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
