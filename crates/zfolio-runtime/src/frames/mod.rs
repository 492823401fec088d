//! Physical memory: the arena and the frames in it.
//!
//! - [`arena`]: the slots of the arena as zswap sees them. A slot is backed (there is a frame)
//!   or a hole; MOVE takes frames out and puts them in.
//! - [`huge_reserve`]: one frame that is a huge page, kept ready for a reader of huge pages.
//!
//! State: `FrameArena` (inside `Zswap`), `HugeFrames`.
//!
//! Lock: the frame allocator's, which is the last in the order: nothing is locked while it is
//! held. Frames that are taken belong to whoever took them.
//!
//! Below: the segment, for its counters.

pub(crate) mod arena;
pub(crate) mod huge_reserve;
