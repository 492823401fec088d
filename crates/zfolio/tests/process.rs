//! Regions among what else a process does: forks, and signal handlers of its
//! own. Each case runs in a process for itself.

mod support;

use core::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use support::alone::*;
use support::*;
use zfolio::{Error, Group, Region, Serving};

/// A region with most of it out.
fn cold_region() -> Region {
    let group = Group::new(8 * MIB).unwrap();
    let mut region = Region::reserve_in(&group, 4 * MIB).unwrap();
    region.fill(9);
    region.advise_cold(..).unwrap();
    region
}

/// Waits for a child; its exit status, or minus its signal.
fn wait_for(child: c_int) -> c_int {
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        -libc::WTERMSIG(status)
    }
}

/// Forks by `fork`; in the child ends with what `child` returns.
fn forked(fork: impl FnOnce() -> c_int, child: impl FnOnce() -> c_int) -> c_int {
    let pid = fork();
    assert!(pid >= 0);
    if pid == 0 {
        let status = child();
        // SAFETY: ends the child and runs nothing of the test's.
        unsafe { libc::_exit(status) };
    }
    wait_for(pid)
}

fn by_libc() -> c_int {
    // SAFETY: the child does little, and nothing with other threads' locks.
    unsafe { libc::fork() }
}

fn raw() -> c_int {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_fork) }.try_into().unwrap()
}

#[test]
fn a_child_that_touches_a_region_ends_with_a_line() {
    let body = || {
        let region = cold_region();
        for fork in [by_libc, raw] {
            let status = forked(fork, || c_int::from(region[MIB] != 9));
            assert_eq!(status, 70);
            assert!(region.iter().step_by(PAGE).all(|byte| *byte == 9));
            region.advise_cold(..).unwrap();
        }
    };
    let check = |output: &Output| {
        assert_passed(output);
        let told = String::from_utf8_lossy(&output.stderr);
        let lines = told.matches("regions stay with their process").count();
        assert_eq!(lines, 2, "{told}");
    };
    alone(
        "a_child_that_touches_a_region_ends_with_a_line",
        body,
        check,
    );
}

#[test]
fn a_child_can_have_regions_of_its_own() {
    let body = || {
        let mut region = cold_region();
        let status = forked(by_libc, || {
            let group = Group::new(8 * MIB).unwrap();
            let mut own = Region::reserve_in(&group, 24 * MIB).unwrap();
            for (page, bytes) in own.chunks_mut(PAGE).enumerate() {
                write_page(bytes, page as u64 + 1);
            }
            for (page, bytes) in own.chunks(PAGE).enumerate() {
                check_page(bytes, page as u64 + 1, page);
            }
            // Of the parent's, only the handle is here.
            drop(core::mem::replace(&mut region, own));
            0
        });
        assert_eq!(status, 0);
        let status = forked(raw, || {
            let refused = Group::new(8 * MIB).err() == Some(Error::Forked);
            drop(core::mem::replace(&mut region, unreachable_region(refused)));
            0
        });
        assert_eq!(status, 3, "a raw fork's child is refused");
        assert!(region.iter().step_by(PAGE).all(|byte| *byte == 9));
    };
    alone("a_child_can_have_regions_of_its_own", body, assert_passed);
}

/// Ends the child with 3 if it was refused a region, as it must be.
fn unreachable_region(refused: bool) -> Region {
    // SAFETY: ends the child.
    unsafe { libc::_exit(if refused { 3 } else { 4 }) }
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static FILE: AtomicUsize = AtomicUsize::new(0);
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The signal by which regions are served here.
fn signal() -> c_int {
    match engine() {
        Engine::Moving => libc::SIGBUS,
        Engine::Protecting | Engine::Refused => libc::SIGSEGV,
    }
}

/// That signal about a page that is no region's: one past the end of its file, or
/// one that is closed.
fn break_a_rule() {
    // SAFETY: a page that the handler mends; the byte is there then.
    unsafe {
        let fd = libc::memfd_create(c"short".as_ptr(), 0);
        let (len, protection) = match signal() {
            libc::SIGBUS => (0, libc::PROT_READ | libc::PROT_WRITE),
            _ => (PAGE, libc::PROT_NONE),
        };
        assert_eq!(libc::ftruncate(fd, len.try_into().unwrap()), 0);
        let shared = libc::MAP_SHARED;
        let page = libc::mmap(core::ptr::null_mut(), PAGE, protection, shared, fd, 0);
        assert_ne!(page, libc::MAP_FAILED);
        FILE.store(fd.try_into().unwrap(), Ordering::Relaxed);
        MAPPED.store(page as usize, Ordering::Relaxed);
        assert_eq!(page.cast::<u8>().read_volatile(), 0);
    }
}

/// The program's handler: mends what `break_a_rule` breaks.
extern "C" fn mends(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let fd = FILE.load(Ordering::Relaxed);
    let page = MAPPED.load(Ordering::Relaxed) as *mut c_void;
    // SAFETY: makes the file longer, and opens the page.
    unsafe {
        libc::ftruncate(fd.try_into().unwrap(), PAGE.try_into().unwrap());
        libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    }
}

/// Another one: calls what was there before it.
extern "C" fn calls_on(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let before = BEFORE.load(Ordering::Relaxed);
    // SAFETY: the address of zfolio's handler, which takes these.
    let before: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
        unsafe { core::mem::transmute(before) };
    before(number, info, context);
}

/// Installs a handler of that signal; returns the one before.
fn install(handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)) -> usize {
    // SAFETY: a handler that lives as long as the process.
    unsafe {
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        new.sa_sigaction = handler as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal(), &raw const new, &raw mut old), 0);
        old.sa_sigaction
    }
}

fn read_all(region: &Region) {
    region.advise_cold(..).unwrap();
    assert!(region.iter().step_by(PAGE).all(|byte| *byte == 9));
}

#[test]
fn what_is_not_a_regions_goes_to_the_handler_of_before() {
    let body = || {
        install(mends);
        let region = cold_region();
        read_all(&region);
        assert_eq!(CALLS.load(Ordering::Relaxed), 0, "regions are ours alone");
        break_a_rule();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        break_a_rule();
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
        read_all(&region);
    };
    alone(
        "what_is_not_a_regions_goes_to_the_handler_of_before",
        body,
        assert_passed,
    );
}

#[test]
fn a_handler_installed_later_comes_behind_ours() {
    let body = || {
        let region = cold_region();
        install(mends);
        let other = cold_region(); // a region more: ours is put in front
        read_all(&region);
        read_all(&other);
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
        break_a_rule();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    };
    alone(
        "a_handler_installed_later_comes_behind_ours",
        body,
        assert_passed,
    );
}

#[test]
fn a_later_handler_that_calls_ours_serves_regions() {
    let body = || {
        let region = cold_region();
        // (Ours is put in front again by who reclaims, which may be at once.)
        for _ in 0..100 {
            BEFORE.store(install(calls_on), Ordering::Relaxed);
            read_all(&region);
            if CALLS.load(Ordering::Relaxed) > 0 {
                return;
            }
        }
        panic!("it never was in front");
    };
    alone(
        "a_later_handler_that_calls_ours_serves_regions",
        body,
        assert_passed,
    );
}

#[test]
fn two_handlers_that_call_each_other_end_with_the_signal() {
    let body = || {
        let _region = cold_region();
        BEFORE.store(install(calls_on), Ordering::Relaxed);
        let _other = cold_region();
        break_a_rule();
    };
    let check = |output: &Output| {
        // (Rust's own handler was there first; it restores the default.)
        let signal = output.status.signal();
        let ours = [Some(libc::SIGBUS), Some(libc::SIGSEGV)];
        assert!(ours.contains(&signal), "{output:?}");
    };
    alone(
        "two_handlers_that_call_each_other_end_with_the_signal",
        body,
        check,
    );
}

#[test]
fn a_stack_that_is_nearly_used_up_is_enough() {
    let body = || {
        let region = cold_region();
        let address = region.as_ptr() as usize;
        let thread = std::thread::Builder::new().stack_size(16 << 10);
        let reads = move || {
            (0..MIB).step_by(PAGE).all(|at| {
                // SAFETY: inside the region, which outlives the thread.
                unsafe { ((address + at) as *const u8).read_volatile() == 9 }
            })
        };
        assert!(thread.spawn(reads).unwrap().join().unwrap());
    };
    alone(
        "a_stack_that_is_nearly_used_up_is_enough",
        body,
        assert_passed,
    );
}

#[test]
fn a_region_works_by_itself_where_userfaultfd_is_refused() {
    let body = || {
        let by = match engine() {
            Engine::Moving => Serving::InThread,
            Engine::Protecting | Engine::Refused => Serving::Protected,
        };
        zfolio::limit(8 * MIB).unwrap();
        let mut region = Region::reserve(24 * MIB).unwrap();
        assert_eq!(region.group().serving(), Some(by));
        for (page, bytes) in region.chunks_mut(PAGE).enumerate() {
            write_page(bytes, page as u64 + 1);
        }
        for (page, bytes) in region.chunks(PAGE).enumerate() {
            check_page(bytes, page as u64 + 1, page);
        }
        assert!(zfolio::stats().unwrap().stored_pages > 0);
        let threads = Group::builder(8 * MIB).serving(Serving::Threads).build();
        if engine() == Engine::Refused {
            let why = threads.err().expect("there is no other way to serve it");
            assert!(why.to_string().contains("userfaultfd failed"), "{why}");
        }
    };
    let case = "a_region_works_by_itself_where_userfaultfd_is_refused";
    alone(case, body, assert_passed);
}

#[test]
fn the_limit_of_the_process_can_be_changed() {
    let body = || {
        zfolio::limit(48 * MIB).unwrap();
        let mut region = Region::reserve(8 * MIB).unwrap();
        region.fill(1);
        assert_eq!(zfolio::limit(8 << 30), Err(Error::LimitIsSet));
        zfolio::limit(4 * MIB).unwrap();
        while zfolio::stats().unwrap().pages_out < (3 * MIB / PAGE) as u64 {
            std::thread::yield_now();
        }
        zfolio::limit(96 * MIB).unwrap();
        assert!(region.iter().all(|byte| *byte == 1));
    };
    alone(
        "the_limit_of_the_process_can_be_changed",
        body,
        assert_passed,
    );
}
