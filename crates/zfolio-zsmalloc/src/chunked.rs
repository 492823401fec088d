//! A growing array whose elements stay where they are.
//!
//! A `Vec` of records doubles by copying all of them, with the pool's lock held:
//! milliseconds at a million objects. Here growing allocates one chunk of
//! [`CHUNK`] records and moves nothing but chunk pointers. Records are never
//! given back; users keep free lists inside them.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Records per chunk.
const CHUNK: usize = 512;

/// An array of `T` by `u32` index.
#[derive(Debug)]
pub(crate) struct Chunked<T> {
    chunks: Vec<Box<[T]>>,
    /// Records in use, `<= chunks.len() * CHUNK`.
    len: u32,
}

impl<T: Copy> Chunked<T> {
    /// An array without records; allocates nothing.
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }

    /// Records in the array.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Adds a record, returns its index; `None` at 2^32 - 1 records.
    pub(crate) fn push(&mut self, record: T) -> Option<u32> {
        let index = self.len;
        let after = index.checked_add(1)?;
        let (chunk, at) = split(index);
        if chunk == self.chunks.len() {
            self.chunks.push(vec![record; CHUNK].into_boxed_slice());
        } else {
            self.chunks[chunk][at] = record;
        }
        self.len = after;
        Some(index)
    }

    /// A record, `None` past the end.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, at) = split(index);
        if index < self.len {
            self.chunks.get(chunk)?.get(at)
        } else {
            None
        }
    }

    /// A record to change, `None` past the end.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let (chunk, at) = split(index);
        if index < self.len {
            self.chunks.get_mut(chunk)?.get_mut(at)
        } else {
            None
        }
    }
}

/// Chunk and place within it.
const fn split(index: u32) -> (usize, usize) {
    (index as usize / CHUNK, index as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stay_and_are_found_across_chunks() {
        let mut array = Chunked::new();
        assert_eq!(array.push(0), Some(0));
        let first: *const u32 = array.get(0).expect("a record");
        let count = 3 * 512 + 1;
        for n in 1..count {
            assert_eq!(array.push(n), Some(n));
        }
        assert_eq!(array.len(), count);
        assert!((0..count).all(|n| array.get(n) == Some(&n)));
        assert!(core::ptr::eq(first, array.get(0).expect("a record")));
        // The chunk has room for these, but they were not pushed.
        assert_eq!(array.get(count), None);
        assert_eq!(array.get_mut(count), None);
        *array.get_mut(700).expect("a record") = 7;
        assert_eq!(array.get(700), Some(&7));
    }
}
