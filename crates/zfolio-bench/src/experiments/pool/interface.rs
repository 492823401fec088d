//! What is asked of a pool, whoever's it is.

use crate::corpus::Page;

/// A pool of compressed pages, ours or the kernel's.
pub(super) trait Pool {
    /// Stores page `at`.
    fn store(&mut self, at: usize, page: &Page) -> Result<(), String>;
    /// Frees page `at`.
    fn free(&mut self, at: usize) -> Result<(), String>;
    /// Compacts until nothing is left to do.
    fn compact(&mut self) -> Result<(), String>;
    /// What it holds now.
    fn state(&mut self) -> Result<State, String>;
    /// Whether page `at` is as it was stored.
    fn is_intact(&mut self, at: usize, page: &Page) -> Result<bool, String>;
}

/// What a pool holds, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct State {
    pub(super) compressed: u64,
    pub(super) used: u64,
    /// Objects copied by compaction; the kernel does not say.
    pub(super) moved: Option<u64>,
}
