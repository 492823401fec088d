//! Locks whose words the kernel reads and writes without waiting for a page: mutexes with
//! priority inheritance, and robust ones, which it unlocks when their owner has ended. On a page that is out
//! a call would fail (EFAULT), and the owner's death be lost. So a page with such a lock stays
//! from the moment the lock is initialised, and so does what a futex call of these kinds names.
//!
//! # Invariant
//! A page is moved out under a lock of the manager's, under which [`is_kept`] is asked before.
//! Who notes a page waits until that lock was seen free once, and then has the page brought
//! back: whoever takes the lock later sees the note. (Noting is an exchange and taking the lock
//! is one: each is a full barrier on this architecture.)

use crate::manager;
use crate::outside;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zfolio_inthread::start::{call as syscall, is_on};
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::nr;

const PAGE_SHIFT: usize = 12;
const MADV_POPULATE_WRITE: usize = 23;
/// Bytes of a `pthread_mutex_t`.
const MUTEX: usize = 40;
/// Places of the table, and how many are taken at most: searches stay short.
const PLACES: usize = 1 << 13;
const MOST: usize = PLACES / 4 * 3;
/// Turns of waiting for the manager's lock, and how long each is, ns.
const TURNS: usize = 500;
const TURN_NS: u64 = 20_000;

/// Numbers of the pages that stay, each at its hash or behind it; 0: nothing.
static KEPT: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// There were too many: nothing leaves any more.
static ALL: AtomicBool = AtomicBool::new(false);

/// Where the search for a page begins.
const fn hash(page: usize) -> usize {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())
}

/// The places a page may be in, in order.
fn places(page: usize) -> impl Iterator<Item = &'static AtomicUsize> {
    (0..PLACES).map(move |step| &KEPT[(hash(page) + step) % PLACES])
}

/// Notes a page.
fn note(page: usize) {
    for place in places(page) {
        let found = match place.load(Ordering::SeqCst) {
            0 => place
                .compare_exchange(0, page, Ordering::SeqCst, Ordering::SeqCst)
                .err(),
            other => Some(other),
        };
        match found {
            None => {
                if COUNT.fetch_add(1, Ordering::SeqCst) >= MOST {
                    ALL.store(true, Ordering::SeqCst);
                }
                return;
            }
            Some(other) if other == page => return,
            Some(_) => {}
        }
    }
    ALL.store(true, Ordering::SeqCst);
}

/// Whether any page of a range of addresses has a lock that the kernel walks.
pub(crate) fn is_kept(range: &Range<usize>) -> bool {
    if COUNT.load(Ordering::SeqCst) == 0 {
        return false;
    }
    let pages = range.start >> PAGE_SHIFT..(range.end - 1 >> PAGE_SHIFT) + 1;
    let is_noted = |page: usize| {
        let values = places(page).map(|place| place.load(Ordering::Relaxed));
        values
            .take_while(|value| *value != 0)
            .any(|value| value == page)
    };
    ALL.load(Ordering::Relaxed) || pages.into_iter().any(is_noted)
}

/// Has the pages of `len` bytes at `start` stay from here on, and brings them back.
fn keep(start: usize, len: usize) {
    let pages = start >> PAGE_SHIFT..(start.wrapping_add(len - 1) >> PAGE_SHIFT) + 1;
    pages.clone().for_each(note);
    if is_on() {
        return;
    }
    let Some(manager) = manager().filter(|manager| manager.is_ours()) else {
        return;
    };
    // A move under way may not have seen it. (Nor, if another thread noted it just now.)
    for _ in 0..TURNS {
        if !manager.may_be_moving() {
            break;
        }
        pause(TURN_NS);
    }
    let at = pages.start << PAGE_SHIFT;
    let args = [at, pages.len() << PAGE_SHIFT, MADV_POPULATE_WRITE, 0, 0, 0];
    // SAFETY: keeps every byte. What cannot be written is the caller's call to refuse.
    let _ = unsafe { syscall(nr::MADVISE, args) };
}

/// pthread_mutex_init(3): notes where a mutex of these kinds is.
///
/// # Safety
/// As the call's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_init(mutex: *mut c_void, how: *const c_void) -> c_int {
    // SAFETY: as the caller vouches.
    let result = unsafe { outside::init_mutex()(mutex, how) };
    if result == 0 && !how.is_null() && outside::is_for_kernel(how) {
        keep(mutex as usize, MUTEX);
    }
    result
}

/// Called by syscall(2) for a futex call, with its arguments; see `outside`.
pub(crate) extern "C" fn futex(word: usize, operation: usize, other: usize) {
    /// Without the flags for private words and the clock.
    const COMMAND: usize = 0x7f;
    const WAKE_OP: usize = 5;
    const LOCK_PI: usize = 6;
    const TRYLOCK_PI: usize = 8;
    const WAIT_REQUEUE_PI: usize = 11;
    const CMP_REQUEUE_PI: usize = 12;
    const LOCK_PI2: usize = 13;
    let (first, second) = match operation & COMMAND {
        WAKE_OP => (false, true),
        LOCK_PI..=TRYLOCK_PI | LOCK_PI2 => (true, false),
        WAIT_REQUEUE_PI | CMP_REQUEUE_PI => (true, true),
        _ => return,
    };
    for address in [(first, word), (second, other)]
        .into_iter()
        .filter_map(|(used, address)| used.then_some(address))
    {
        if address % 4 == 0 && (1 << PAGE_SHIFT..1 << 47).contains(&address) {
            keep(address, 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_stays_and_its_neighbours_do_not() {
        [77, 79, 77].into_iter().for_each(note);
        assert_eq!(COUNT.load(Ordering::SeqCst), 2);
        assert!(is_kept(&(77 << 12..78 << 12)) && is_kept(&((76 << 12)..(77 << 12) + 1)));
        assert!(!is_kept(&(78 << 12..79 << 12)) && is_kept(&(78 << 12..80 << 12)));
    }
}
