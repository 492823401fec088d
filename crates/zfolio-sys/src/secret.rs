//! A key that lives in one page, and in no child of the process.

use crate::arena::{discard, reserve_private};
use crate::syscall::{Errno, nr, syscall};
use core::ops::Range;

const MADV_DONTDUMP: usize = 16;
const MADV_WIPEONFORK: usize = 18;
/// Bytes of a key.
pub const KEY: usize = 32;
const PAGE: usize = 4096;

/// 32 random bytes in a page of their own: not in cores, not in the image of a
/// child of a fork (the kernel gives it zeros there), not swapped where that can
/// be had (RLIMIT_MEMLOCK).
///
/// # Invariants
/// The page is mapped for the life of the process. Its byte after the key is 1
/// as long as the key is there: a child finds 0.
#[derive(Debug)]
pub struct KeyPage(usize);

impl KeyPage {
    /// Makes a key.
    ///
    /// # Errors
    /// When the kernel refuses the page, its being wiped in children, or
    /// random bytes.
    pub fn random() -> Result<Self, Errno> {
        let page = reserve_private(PAGE, c"zfolio key")?;
        let advise = |advice| {
            // SAFETY: our own page, nothing in it yet.
            unsafe { syscall(nr::MADVISE, [page.start, PAGE, advice, 0, 0, 0]) }
        };
        advise(MADV_WIPEONFORK)?;
        let _ = advise(MADV_DONTDUMP);
        // SAFETY: our own page; a refusal changes nothing.
        let _ = unsafe { syscall(nr::MLOCK, [page.start, PAGE, 0, 0, 0, 0]) };
        let mut done = 0;
        while done < KEY {
            // SAFETY: the kernel writes at most that many bytes of our page.
            match unsafe { syscall(nr::GETRANDOM, [page.start + done, KEY - done, 0, 0, 0, 0]) } {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        // SAFETY: a byte of our own page, which nobody else knows yet.
        unsafe { ((page.start + KEY) as *mut u8).write(1) };
        Ok(Self(page.start))
    }

    /// Calls `with` on the key; `None` in a child of the process that made it.
    pub fn with<R>(&self, with: impl FnOnce(&[u8; KEY]) -> R) -> Option<R> {
        // SAFETY: mapped for good, and not written any more but by `forget`,
        // after which nobody has `self`.
        let bytes = unsafe { &*(self.0 as *const [u8; KEY + 1]) };
        let (key, mark) = bytes.split_first_chunk::<KEY>()?;
        (mark == [1]).then(|| with(key))
    }

    /// The page's addresses.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.0..self.0 + PAGE
    }

    /// Ends the key: nothing sealed with it can be read any more.
    pub fn forget(self) {
        let _ = discard(self.0, PAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ() {
        let (one, other) = (KeyPage::random().unwrap(), KeyPage::random().unwrap());
        let first = one.with(|key| *key).unwrap();
        assert_ne!(Some(first), other.with(|key| *key));
        assert_eq!(one.with(|key| *key), Some(first));
        assert_eq!(one.range().len(), PAGE);
        one.forget();
    }

    /// A child by a bare clone, as every fork is to the kernel.
    #[test]
    fn a_child_has_no_key() {
        const SIGCHLD: usize = 17;
        let key = KeyPage::random().unwrap();
        // SAFETY: the child only looks at the page and ends.
        let child = unsafe { syscall(nr::CLONE, [SIGCHLD, 0, 0, 0, 0, 0]) }.unwrap();
        if child == 0 {
            let wiped = key.with(|_| ()).is_none();
            crate::process::exit_now(if wiped { 7 } else { 8 });
        }
        let mut status = 0_i32;
        // SAFETY: the kernel writes one number.
        unsafe {
            let to = (&raw mut status) as usize;
            syscall(nr::WAIT4, [child, to, 0, 0, 0, 0])
        }
        .unwrap();
        assert_eq!(status >> 8, 7);
        assert!(key.with(|_| ()).is_some());
    }
}
