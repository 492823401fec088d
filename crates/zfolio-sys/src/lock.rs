//! A mutex for the manager's threads: spins briefly, then sleeps on a futex.
//!
//! No libc: the threads that take it have no libc thread descriptor.

use crate::syscall::{nr, syscall};
use core::sync::atomic::{AtomicU32, Ordering};

/// Futex word states.
const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Turns of the spin loop before sleeping: about the length of a MOVE.
const SPINS: u32 = 200;

/// The raw lock behind [`Mutex`].
pub struct RawFutexMutex(AtomicU32);

/// Marks a mutex free whatever its holder was doing.
///
/// For the child of a fork, where the holder does not exist. The caller must
/// know that what the mutex guards was consistent at the moment of the fork,
/// and be the only thread.
pub fn reset_in_fork_child<T>(mutex: &Mutex<T>) {
    // SAFETY: `raw` asks that the lock not be released behind a live guard;
    // by contract no thread exists that holds one.
    unsafe { mutex.raw() }.0.store(FREE, Ordering::Release);
}

/// A mutex over `T`.
pub type Mutex<T> = lock_api::Mutex<RawFutexMutex, T>;
/// What it is made of, for statics.
pub use lock_api::RawMutex;

/// Its guard.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFutexMutex, T>;

// SAFETY: `try_lock` and `lock` return only after moving the word from FREE,
// which one thread can do at a time; `unlock` stores FREE with release order.
unsafe impl lock_api::RawMutex for RawFutexMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicU32::new(FREE));
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            wake(&self.0, 1, FUTEX_PRIVATE);
        }
    }
}

impl RawFutexMutex {
    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            if self.0.load(Ordering::Relaxed) == FREE
                && self
                    .0
                    .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            core::hint::spin_loop();
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            wait(&self.0, CONTENDED, None, FUTEX_PRIVATE);
        }
    }
}

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
/// Of one address space: the kernel need not ask what page the word is in.
const FUTEX_PRIVATE: usize = 128;
const FUTEX_SHARED: usize = 0;

/// Sleeps while `*word == expected`, `timeout_ns` at most. Spurious returns
/// are normal. Works across processes when the word is in shared memory.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    wait(word, expected, timeout_ns, FUTEX_SHARED);
}

fn wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>, scope: usize) {
    let spec = timeout_ns.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let ptr = spec.as_ref().map_or(0, |s| s.as_ptr() as usize);
    // SAFETY: the word and the timespec outlive the call.
    let _ = unsafe {
        syscall(
            nr::FUTEX,
            [
                word.as_ptr() as usize,
                FUTEX_WAIT | scope,
                expected as usize,
                ptr,
                0,
                0,
            ],
        )
    };
}

/// Sleeps for `ns`.
pub fn pause(ns: u64) {
    futex_wait(&AtomicU32::new(0), 0, Some(ns));
}

/// Wakes up to `count` sleepers on `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    wake(word, count, FUTEX_SHARED);
}

fn wake(word: &AtomicU32, count: u32, scope: usize) {
    // SAFETY: the call reads nothing but the address.
    let _ = unsafe {
        syscall(
            nr::FUTEX,
            [
                word.as_ptr() as usize,
                FUTEX_WAKE | scope,
                count as usize,
                0,
                0,
                0,
            ],
        )
    };
}
