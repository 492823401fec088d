//! What `zfolio run` loads into a program: a constructor, the fork handlers,
//! a heap, and nothing else. Everything that decides lives in `zfolio`.
//!
//! The constructor starts one sleeping thread. Nothing here uses libc but for
//! registering the fork handlers: the manager's threads have no libc thread
//! descriptor, and the program's heap may be what they are moving out.
#![no_std]

mod forks;
mod panic;

use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use zfolio::Manager;
use zfolio::control::{ENV_CONTROL, MAGIC, Segment, VERSION};
use zfolio::start::{Host, watch};
use zfolio_sys::heap::Heap;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::spawn_with;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Bytes of the watcher's stack: it becomes the control thread, which
/// compresses.
const WATCHER_STACK: usize = 256 << 10;

static HOST: Host = Host {
    open_segment,
    hold_forks: forks::hold_for_start,
    release_forks: forks::release_after_start,
    reserve_heap: |len| HEAP.reserve(len),
    publish: |manager| MANAGER.store(ptr::from_ref(manager).cast_mut(), Ordering::Release),
    data,
};

/// The manager, once there is one.
static MANAGER: AtomicPtr<Manager> = AtomicPtr::new(ptr::null_mut());
/// Path of the control segment: a string of the process's environment block,
/// which the kernel put on the main stack; copied, since programs write there.
static PATH: Path = Path::empty();

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
        let room = unsafe { &mut *self.0.get() };
        let fits = bytes.len() <= room.len();
        if fits {
            room[..bytes.len()].copy_from_slice(bytes);
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
    let path = PATH.get().ok_or(Errno::INVAL)?;
    let at = zfolio_sys::arena::map_shared_file(path, Segment::BYTES)?;
    // SAFETY: a shared mapping of at least `BYTES` bytes that is never
    // unmapped; a Segment is made of atomic words, valid for any bytes.
    let segment = unsafe { &*(at as *const Segment) };
    let known = segment.magic.load(Ordering::Acquire) == MAGIC
        && segment.version.load(Ordering::Relaxed) == VERSION;
    if known {
        Ok(segment)
    } else {
        Err(Errno::INVAL)
    }
}

/// Our variables: a few pages round any of them.
fn data() -> Range<usize> {
    let here = ptr::from_ref(&HEAP) as usize & !0xfff;
    here - 0x1_0000..here + 0x1_0000
}

/// Starts the watcher; whatever fails, the program simply runs unmanaged.
fn start_watcher() {
    let _ = spawn_with(WATCHER_STACK, &HOST, 0, watch);
}

/// The manager, if this process has one.
fn manager() -> Option<&'static Manager> {
    // SAFETY: null or a leaked box.
    unsafe { MANAGER.load(Ordering::Acquire).as_ref() }
}

/// glibc calls constructors with main's arguments.
extern "C" fn constructor(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    let Some(path) = environment(envp, ENV_CONTROL) else {
        return;
    };
    #[cfg(debug_assertions)]
    if let Some(Ok(plan)) = environment(envp, "ZFOLIO_INJECT").map(CStr::to_str)
        && !zfolio_sys::inject::plan(plan)
    {
        zfolio_sys::process::say("zfolio: ZFOLIO_INJECT makes no sense\n");
        zfolio_sys::process::exit_now(zfolio::fatal::EXIT_FAILED);
    }
    if PATH.set(path) {
        forks::register();
        start_watcher();
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
