//! What serves regions, whichever way: the calls that a face makes.
//!
//! Two do. [`Manager`] moves pages by userfaultfd, with the engine of `zfolio run`.
//! [`Protected`] closes and opens them by page protection, where userfaultfd
//! is refused. Their regions look the same to who uses them.
//!
//! [`Manager`]: crate::Manager
//! [`Protected`]: crate::protect::Protected

use crate::error::PinError;
use crate::page::Vpn;
pub use crate::page_fault::Access;
use crate::scope::Serving;
use crate::segment::{Counter, ProcessSlot};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::syscall::Errno;

/// An engine for regions. Ranges are of addresses, of the program's view.
pub trait RegionEngine: Sync {
    /// Who serves faults.
    fn serving(&self) -> Serving;

    /// Descriptors that must stay open as long as a region is used.
    fn descriptors(&self) -> Vec<usize>;

    /// The life of the thread that reclaims.
    fn control_regions(&'static self) -> !;

    /// How many threads serve besides.
    fn serving_threads(&self) -> usize;

    /// The life of one of those, from 1.
    fn serve_regions(&'static self, index: usize) -> !;

    /// How many threads help to compress besides.
    fn engines(&self) -> usize;

    /// The life of one of those, from 0; it ends only if there is none.
    fn engine_thread(&'static self, index: usize);

    /// Begins to manage a mapping that [`map_region`] made.
    ///
    /// [`map_region`]: zfolio_sys::region::map_region
    ///
    /// # Errors
    /// What the kernel says; the mapping is of no use then.
    fn add_region(&self, range: &Range<usize>) -> Result<(), Errno>;

    /// Ends that: nothing of it is kept, and nobody touches it any more. It
    /// can be unmapped afterwards.
    fn remove_region(&self, range: &Range<usize>);

    /// Serves the page at `address`; false if it is none of this engine's.
    ///
    /// For the signal handler: all signals are blocked.
    fn serve_here(&self, address: usize, access: Access) -> bool;

    /// Keeps the pages of `range` from moving out until [`Self::unpin`]; what
    /// is out already stays out until it is touched.
    ///
    /// # Errors
    /// See [`PinError`].
    fn pin(&self, range: Range<usize>) -> Result<(), PinError>;

    /// Ends a pin.
    ///
    /// # Panics
    /// When there is no such pin.
    fn unpin(&self, range: &Range<usize>);

    /// Moves out what is present of the pages wholly in `range`, to be stored
    /// next.
    fn advise_cold(&self, range: &Range<usize>);

    /// Drops the contents of the pages wholly in `range`: they read as zeros
    /// again. Nobody else may touch them meanwhile.
    fn discard(&self, range: &Range<usize>);

    /// First page of `from .. end` that is out.
    fn next_out(&self, from: Vpn, end: Vpn) -> Option<Vpn>;

    /// Bytes in the regions' pages and in the pool.
    fn usage_bytes(&self) -> usize;

    /// Changes the target, bytes; false if more addresses would be needed than
    /// were reserved.
    fn set_high_bytes(&self, bytes: usize) -> bool;

    /// What it has counted, as of the last [`Self::refresh_statistics`].
    fn statistics(&self) -> &'static ProcessSlot;

    /// The value of a counter.
    fn counter(&self, which: Counter) -> u64 {
        self.statistics().counter(which).load(Ordering::Relaxed)
    }

    /// Brings gauges and the table of classes up to date.
    fn refresh_statistics(&self);

    /// Compacts the pool's zspages, as long as it frees any; how many objects it moved,
    /// and pages it freed. Nothing while another run does not end.
    fn compact_zspages(&self) -> (u64, u64);

    /// Checks the invariants. For tests, while no call is under way.
    ///
    /// # Errors
    /// Which does not hold.
    fn validate(&self) -> Result<(), String>;
}
