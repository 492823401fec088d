//! What the queue protocol is made of, so that a model checker can stand in.
//!
//! The protocol ([`super::queue`], [`super::device`]) is generic over
//! [`Primitives`]: [`Native`] in programs, loom's in the tests, where every
//! order of the steps is tried.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zfolio_sys::lock::{Mutex, futex_wait, futex_wake};

/// A choice of the three below.
pub trait Primitives: 'static {
    /// A 32-bit word that threads can sleep on.
    type Word: Word;
    /// 64 flags.
    type Bits: Bits;
    /// A value that one thread at a time looks at.
    type Cell<T: Send>: Cell<T>;
}

/// A 32-bit word that threads can sleep on. Reads acquire, writes release.
pub trait Word: Send + Sync {
    /// With a first value.
    fn new(value: u32) -> Self;
    /// The value.
    fn load(&self) -> u32;
    /// Sets it.
    fn store(&self, value: u32);
    /// Adds, wrapping; returns what it was.
    fn add(&self, amount: u32) -> u32;
    /// Subtracts, wrapping; returns what it was.
    fn sub(&self, amount: u32) -> u32;
    /// Sets it; returns what it was.
    fn swap(&self, value: u32) -> u32;
    /// Sets it if it is `from`.
    ///
    /// # Errors
    /// What it is, if that is not `from`.
    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32>;
    /// Sleeps while the value is `expected`, for `timeout_ns` at most, until
    /// woken; may return early.
    fn wait(&self, expected: u32, timeout_ns: Option<u64>);
    /// Wakes everybody who sleeps on it.
    fn wake(&self);
}

/// 64 flags. Reads acquire, writes release.
pub trait Bits: Send + Sync {
    /// With first values.
    fn new(value: u64) -> Self;
    /// All of them.
    fn load(&self) -> u64;
    /// Clears those not in `mask`; returns what was.
    fn and(&self, mask: u64) -> u64;
    /// Sets those in `mask`; returns what was.
    fn or(&self, mask: u64) -> u64;
    /// Sets all of them at once.
    fn store(&self, value: u64);
}

/// A value that one thread at a time looks at. The protocol sees to that; the
/// cell only notices if it does not.
pub trait Cell<T>: Send + Sync {
    /// Holding `value`.
    fn new(value: T) -> Self;
    /// Runs `f` on the value; `None` if another thread is at it.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R>;
    /// Forgets a holder that does not exist: in the child of a fork.
    fn reset(&self);
}

/// The machine's own: atomics, futexes, a lock that is only ever tried.
#[derive(Clone, Copy, Debug)]
pub enum Native {}

impl Primitives for Native {
    type Word = AtomicU32;
    type Bits = AtomicU64;
    type Cell<T: Send> = Mutex<T>;
}

impl Word for AtomicU32 {
    fn new(value: u32) -> Self {
        Self::new(value)
    }
    fn load(&self) -> u32 {
        self.load(Ordering::Acquire)
    }
    fn store(&self, value: u32) {
        self.store(value, Ordering::Release);
    }
    fn add(&self, amount: u32) -> u32 {
        self.fetch_add(amount, Ordering::AcqRel)
    }
    fn sub(&self, amount: u32) -> u32 {
        self.fetch_sub(amount, Ordering::AcqRel)
    }
    fn swap(&self, value: u32) -> u32 {
        self.swap(value, Ordering::AcqRel)
    }
    fn exchange(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
    fn wait(&self, expected: u32, timeout_ns: Option<u64>) {
        futex_wait(self, expected, timeout_ns);
    }
    fn wake(&self) {
        futex_wake(self, i32::MAX.cast_unsigned());
    }
}

impl Bits for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
    fn and(&self, mask: u64) -> u64 {
        self.fetch_and(mask, Ordering::AcqRel)
    }
    fn or(&self, mask: u64) -> u64 {
        self.fetch_or(mask, Ordering::AcqRel)
    }
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

impl<T: Send> Cell<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Self::new(value)
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.try_lock().map(|mut value| f(&mut value))
    }
    fn reset(&self) {
        zfolio_sys::lock::reset_in_fork_child(self);
    }
}
