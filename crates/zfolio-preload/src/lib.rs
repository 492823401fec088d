//! What `zfolio run` loads into a program: a constructor, the fork handlers,
//! a heap, and nothing else. Everything that decides lives in `zfolio`.
//!
//! The constructor starts one sleeping thread. Nothing here uses libc but for
//! registering the fork handlers: the manager's threads have no libc thread
//! descriptor, and the program's heap may be what they are moving out.
//!
//! The library loads wherever a loader is told to load it, and does nothing
//! where it cannot work: it needs no other library and no symbol.
#![no_std]

mod behind;
mod fitness;
mod forks;
mod image;
mod locks;
mod memory;
mod namespaces;
mod outside;
mod panic;
mod references;
mod sealed;

use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use zfolio_runtime::Manager;
use zfolio_runtime::process::{Host, Never, never_managed, watch};
use zfolio_runtime::segment::{ENV_CONTROL, ENV_GROUP, MAGIC, Segment, Stamp, VERSION, faults};
use zfolio_sys::apart::keep_apart;
use zfolio_sys::arena::unmap;
use zfolio_sys::heap::Heap;
use zfolio_sys::lock::{futex_wait, futex_wake, pause};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{has_ended, id, spawn_with};

/// Which build this is: `zfolio run` reads it in the file. (Exported, so that no linker leaves
/// it out.)
#[unsafe(no_mangle)]
pub static ZFOLIO_PRELOAD_STAMP: Stamp = Stamp::THIS;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Bytes of the watcher's stack: it becomes the control thread, which
/// compresses.
const STACK: usize = 256 << 10;

static HOST: Host = Host {
    open_segment,
    hold_forks: forks::hold_for_start,
    release_forks: forks::release_after_start,
    reserve_heap,
    publish: |manager| MANAGER.store(ptr::from_ref(manager).cast_mut(), Ordering::Release),
    data: image::range,
    left_alone: |range| references::is_wiped(range) || locks::is_kept(range),
    is_sealed: sealed::is_sealed,
    nap,
    group: || GROUP.get()?.to_str().ok().filter(|name| !name.is_empty()),
    unfit: || fitness::unfit(),
};

/// Makes the heap usable, which has room for `len` bytes then.
fn reserve_heap(len: usize) -> Result<Range<usize>, Errno> {
    HEAP.is_of_process();
    HEAP.reserve(len)
}

/// The manager, once there is one.
static MANAGER: AtomicPtr<Manager> = AtomicPtr::new(ptr::null_mut());
/// The control segment, once it is mapped; children of a fork have it too, and
/// may not be able to open it any more (chroot).
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(ptr::null_mut());
/// Whether the watcher is to leave: one of [`watcher`].
static WATCHER: AtomicU32 = AtomicU32::new(watcher::STAYS);
/// The watcher's thread, once it leaves.
static WATCHER_THREAD: AtomicU32 = AtomicU32::new(0);
/// Path of the control segment: a string of the process's environment block,
/// which the kernel put on the main stack; copied, since programs write there.
static PATH: Path = Path::empty();
/// The stack of the last watcher that was started: in the child of a fork, of none.
static WATCHER_STACK: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Name of the group within the run; likewise.
static GROUP: Path = Path::empty();

/// A path that is written once, in the constructor, before any other thread
/// of ours exists.
struct Path(core::cell::UnsafeCell<[u8; 256]>);

// SAFETY: written only by the constructor, read only by threads made later.
unsafe impl Sync for Path {}

impl Path {
    const fn empty() -> Self {
        Self(core::cell::UnsafeCell::new([0; 256]))
    }

    fn set(&self, path: &CStr) -> bool {
        let bytes = path.to_bytes_with_nul();
        // SAFETY: no other thread of ours exists yet.
        let buffer = unsafe { &mut *self.0.get() };
        let fits = bytes.len() <= buffer.len();
        if fits {
            buffer[..bytes.len()].copy_from_slice(bytes);
        }
        fits
    }

    fn get(&self) -> Option<&'static CStr> {
        // SAFETY: not written any more; lives as long as the process.
        let bytes: &'static [u8; 256] = unsafe { &*self.0.get() };
        CStr::from_bytes_until_nul(bytes).ok()
    }
}

fn open_segment() -> Result<&'static Segment, Errno> {
    // SAFETY: null or mapped for as long as the process lives.
    if let Some(segment) = unsafe { SEGMENT.load(Ordering::Acquire).as_ref() } {
        return Ok(segment);
    }
    let path = PATH.get().ok_or(Errno::INVAL)?;
    let at = zfolio_sys::arena::map_shared_file(path, Segment::BYTES, Segment::READ_ONLY_BYTES)?;
    // SAFETY: a shared mapping of at least `BYTES` bytes that is never
    // unmapped; a Segment is made of atomic words, valid for any bytes. Nobody here writes
    // to its head.
    let segment = unsafe { &*(at as *const Segment) };
    let known = segment.head.magic.load(Ordering::Acquire) == MAGIC
        && segment.head.version.load(Ordering::Relaxed) == VERSION;
    if known {
        SEGMENT.store(ptr::from_ref(segment).cast_mut(), Ordering::Release);
        Ok(segment)
    } else {
        Err(Errno::INVAL)
    }
}

/// Starts the watcher; whatever fails, the program simply runs unmanaged.
fn start_watcher() {
    let started = if fitness::may_have_threads(&HOST) {
        spawn_with(STACK, &HOST, 0, watch).map_err(Never::NoThread)
    } else {
        Err(Never::Unfit(fitness::FILTERED))
    };
    match started {
        Ok(stack) => {
            WATCHER_STACK[0].store(stack.start, Ordering::Relaxed);
            WATCHER_STACK[1].store(stack.end, Ordering::Relaxed);
        }
        Err(why) => never_managed(&HOST, why),
    }
}

/// In the child of a fork, which has no watcher yet: gives back the stack of its parent's.
fn give_up_watchers_stack() {
    let [start, end] = [0, 1].map(|at: usize| WATCHER_STACK[at].swap(0, Ordering::Relaxed));
    if start != 0 {
        unmap(start..end);
    }
}

/// Values of [`WATCHER`].
mod watcher {
    pub(crate) const STAYS: u32 = 0;
    pub(crate) const ASKED: u32 = 1;
    pub(crate) const LEFT: u32 = 2;
}

fn watcher_becomes(from: u32, to: u32) -> bool {
    WATCHER
        .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// The watcher's sleep; false when it was asked to leave, which it then does.
fn nap(ns: u64) -> bool {
    futex_wait(&WATCHER, watcher::STAYS, Some(ns));
    if WATCHER.load(Ordering::Acquire) == watcher::ASKED {
        WATCHER_THREAD.store(id(), Ordering::Relaxed);
    }
    !watcher_becomes(watcher::ASKED, watcher::LEFT)
}

/// Calls `call` without the watcher, if that leaves in time. (It does not
/// once it is about to make a manager.) Long enough for a machine with more to
/// do than it can.
fn without_watcher(mut call: impl FnMut()) {
    const TURN_NS: u64 = 100_000;
    const TURNS: u32 = 5_000;
    if !watcher_becomes(watcher::STAYS, watcher::ASKED) {
        return;
    }
    futex_wake(&WATCHER, 1);
    let has_left = || {
        WATCHER.load(Ordering::Acquire) == watcher::LEFT
            && has_ended(WATCHER_THREAD.load(Ordering::Relaxed))
    };
    for _ in 0..TURNS {
        if has_left() {
            break;
        }
        pause(TURN_NS);
    }
    if WATCHER.load(Ordering::Acquire) == watcher::LEFT {
        call();
    }
    if WATCHER.swap(watcher::STAYS, Ordering::AcqRel) == watcher::LEFT {
        start_watcher();
    }
}

/// The manager, if this process has one.
fn manager() -> Option<&'static Manager> {
    // SAFETY: null or a leaked box.
    unsafe { MANAGER.load(Ordering::Acquire).as_ref() }
}

/// glibc calls constructors with main's arguments; others without.
extern "C" fn constructor(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    let Some(register) = outside::register_atfork() else {
        return;
    };
    let Some(path) = environment(envp, ENV_CONTROL) else {
        return;
    };
    #[cfg(debug_assertions)]
    if let Some(Ok(plan)) = environment(envp, "ZFOLIO_INJECT").map(CStr::to_str)
        && !zfolio_sys::inject::plan(plan)
    {
        zfolio_sys::process::say("zfolio: ZFOLIO_INJECT makes no sense\n");
        zfolio_sys::process::exit_now(zfolio_runtime::fatal::EXIT_FAILED);
    }
    if !PATH.set(path) {
        return;
    }
    locks::look_behind();
    if let Some(name) = environment(envp, ENV_GROUP) {
        let _ = GROUP.set(name);
    }
    if !fitness::look(|name| environment(envp, name)) {
        never_managed(&HOST, Never::Unfit(fitness::VALGRIND));
    } else if let Some(segment) = asks_for_in_thread() {
        start_in_thread(segment);
    } else {
        forks::register(register);
        keep_apart(image::text().start);
        start_watcher();
    }
}

/// The control segment, if faults are to be served in the threads that make them.
fn asks_for_in_thread() -> Option<&'static Segment> {
    let segment = open_segment().ok()?;
    let asked = segment.config().faults.load(Ordering::Relaxed);
    (asked != faults::MESSAGE).then_some(segment)
}

/// Puts the process under interception. Whatever fails, the program runs unmanaged.
fn start_in_thread(segment: &'static Segment) {
    let parts = zfolio_inthread::start::Parts {
        segment,
        text: image::text(),
        reserve_heap: HOST.reserve_heap,
        group: (HOST.group)(),
    };
    let started = if fitness::may_have_threads(&HOST) {
        zfolio_inthread::start::start(&parts).map_err(|(what, errno)| Never::Refused(what, errno))
    } else {
        Err(Never::Unfit(fitness::FILTERED))
    };
    if let Err(why) = started {
        never_managed(&HOST, why);
    }
}

/// The value of a variable in an environment block.
fn environment(envp: *const *const c_char, name: &str) -> Option<&'static CStr> {
    let mut entry = envp;
    loop {
        // SAFETY: the block is an array of strings that ends with null.
        let text = unsafe { entry.as_ref()?.as_ref()? };
        // SAFETY: a NUL-terminated string that lives as long as the process.
        let text = unsafe { CStr::from_ptr(text) };
        let bytes = text.to_bytes_with_nul();
        if let Some(value) = bytes
            .strip_prefix(name.as_bytes())
            .and_then(|b| b.strip_prefix(b"="))
        {
            return CStr::from_bytes_with_nul(value).ok();
        }
        // SAFETY: not past the null that ends the block.
        entry = unsafe { entry.add(1) };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// The program ends by `exit`: what it has is counted until it is gone, and no longer. (In the other
/// ways its last call says so.)
extern "C" fn destructor() {
    // SAFETY: null or mapped for as long as the process lives.
    if let Some(segment) = unsafe { SEGMENT.load(Ordering::Acquire).as_ref() }
        && segment.config().faults.load(Ordering::Relaxed) == faults::MESSAGE
    {
        zfolio_runtime::fair_share::announce_end(segment);
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;
