//! How much of the heap is in use, and when it must not be used at all.
//!
//! A process has one heap of this kind, so this is one for all of them.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static FROZEN: AtomicBool = AtomicBool::new(false);

/// Bytes of the blocks that are handed out now, and the most there have been. Both 0 in a
/// process whose manager uses another allocator (regions of the Rust crate).
#[must_use]
pub fn bytes() -> (usize, usize) {
    (BYTES.load(Ordering::Relaxed), PEAK.load(Ordering::Relaxed))
}

/// From here on (or no longer) the memory may be being copied for the child of a fork, which
/// would get a heap that is half changed. A debug build ends the process if the heap is
/// used meanwhile.
pub fn freeze(frozen: bool) {
    FROZEN.store(frozen, Ordering::SeqCst);
}

pub(super) fn about_to_change() {
    debug_assert!(
        !FROZEN.load(Ordering::SeqCst),
        "the manager's heap was used while its image was being copied"
    );
}

pub(super) fn taken(bytes: usize) {
    let now = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if now > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(now, Ordering::Relaxed);
    }
}

pub(super) fn given(bytes: usize) {
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
}
