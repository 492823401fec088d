//! Pins: bytes that stay in memory while somebody holds the guard.

use crate::error::Error;
use crate::memory::Memory;
use core::ops::{Deref, DerefMut, Range};

const PAGE: usize = 4096;

/// Bytes of a region that are in memory as long as this lives.
pub struct Pin<'a> {
    memory: &'a Memory,
    bytes: Range<usize>,
    pages: Range<usize>,
}

/// A [`Pin`] whose bytes may be written.
pub struct PinMut<'a>(pub(crate) Pin<'a>);

impl<'a> Pin<'a> {
    /// Pins the pages that `bytes` (addresses inside `memory`) touches.
    pub(crate) fn hold(memory: &'a Memory, bytes: Range<usize>) -> Result<Self, Error> {
        let pages = if bytes.is_empty() {
            bytes.start..bytes.start
        } else {
            bytes.start / PAGE * PAGE..bytes.end.next_multiple_of(PAGE)
        };
        if !pages.is_empty()
            && let Some(pinned) = memory.with_engine(|engine| engine.pin(pages.clone()))
        {
            pinned?;
        }
        let pin = Self {
            memory,
            bytes,
            pages,
        };
        // From here on nothing of it goes out; what is out comes by being
        // touched.
        for page in pin.pages.clone().step_by(PAGE) {
            touch(page);
        }
        Ok(pin)
    }
}

/// Touches what is out of `range`.
pub(crate) fn bring(memory: &Memory, range: &Range<usize>) {
    let (mut page, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
    while let Some(Some(out)) = memory.with_engine(|engine| engine.next_out(page, end)) {
        touch(out * PAGE);
        page = out + 1;
    }
}

fn touch(page: usize) {
    // SAFETY: a page of a region that lives; the byte is thrown away.
    unsafe { (page as *const u8).read_volatile() };
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            self.memory.with_engine(|engine| engine.unpin(&self.pages));
        }
    }
}

impl Deref for Pin<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: inside a region that is borrowed for as long as this lives.
        unsafe { core::slice::from_raw_parts(self.bytes.start as *const u8, self.bytes.len()) }
    }
}

impl Deref for PinMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for PinMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Range { start, end } = self.0.bytes;
        // SAFETY: as for `Pin`, and borrowed to the holder alone.
        unsafe { core::slice::from_raw_parts_mut(start as *mut u8, end - start) }
    }
}
