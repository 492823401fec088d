//! The calls, as Linux 6.18 answers them.

use crate::World;
use crate::pages::{Page, Registered, of};
use crate::plan::{Call, Failure};
use std::ops::Range;
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::syscall::{Errno, nr};

mod files;

pub(crate) use files::Files;
use files::{BAD_FILE, Kind, mappings, open, read, read_text};

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
                world.plan.check(Call::Wake)?;
                world.events.woken.extend(of(at(0), at(1)));
                Ok(0)
            }
            COPY => transfer(world, Call::Copy, fd, arg),
            MOVE => transfer(world, Call::Move, fd, arg),
            WRITE_PROTECT => protect(world, fd, of(at(0), at(1)), arg[2] & 1 != 0),
            CONTINUE => {
                world.plan.check(Call::Continue)?;
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
    world.plan.check(Call::Register)?;
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
    world.plan.check(Call::WriteProtect)?;
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
    world.plan.check(Call::Scan)?;
    let at = |index: usize| usize::try_from(arg[index]).expect("a size");
    let (pages, capacity, most) = (of(at(2), at(3) - at(2)), at(6), at(7));
    assert!(
        arg[8] == 0 && arg[9] == 0,
        "categories that this kernel does not know"
    );
    // SAFETY: by contract a vector of so many results, of three words each.
    let runs = unsafe { std::slice::from_raw_parts_mut(at(5) as *mut [u64; 3], capacity) };
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
        } else if count == capacity {
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

/// `arg` is a `struct procmap_query`.
fn query(world: &mut World, arg: &mut [u64]) -> Result<usize, Errno> {
    const READ_WRITE: u64 = 3;
    world.plan.check(Call::Query)?;
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

unsafe fn advise(world: &mut World, start: usize, len: usize, advice: usize) -> Result<(), Errno> {
    if advice == MADV_COLLAPSE {
        world.plan.check(Call::Collapse)?;
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
    world.plan.check(call)?;
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
