//! Faults served in the thread that touches.
//!
//! The page is missing, the kernel sends SIGBUS instead of a message, and the
//! handler of the face calls [`Swap::serve_in_thread`]. So all of this runs in a
//! signal handler, in a thread of the program:
//!
//! - it runs on a stack of a worker's: the thread's own may be nearly used up;
//! - it takes only locks that no interrupted thread can hold: manager code
//!   never touches a region, and calls of the API block signals while they
//!   have one.

use crate::page_fault::{Fault, Outcome};
use crate::pager::Access;
use crate::segment::Counter;
use crate::swapout::Swap;
use crate::transfer::worker::{Worker, claim_worker};
use zfolio_mm::PAGE_SHIFT;
use zfolio_sys::thread::yield_now;

/// Tries of a fault for which the kernel says "again" before it is a failure.
const TRIES: u32 = 1 << 20;

impl Swap {
    /// See [`RegionEngine::serve_here`](crate::pager::RegionEngine::serve_here).
    pub(crate) fn serve_in_thread(&self, address: usize, access: Access) -> bool {
        let Some(regions) = self.regions() else {
            return false;
        };
        let (mut worker, index) = claim_worker(&self.workers);
        let Some(stack) = regions.stacks.get(index - 1) else {
            return false;
        };
        stack.call(|| self.serve_address(&mut worker, address, access))
    }

    fn serve_address(&self, worker: &mut Worker, address: usize, access: Access) -> bool {
        let vpn = address >> PAGE_SHIFT;
        let page = vpn << PAGE_SHIFT..(vpn + 1) << PAGE_SHIFT;
        if !self.core.lock().pages.registered.contains(&page) {
            return false;
        }
        let mut fault = Fault {
            vpn,
            access,
            thread: 0,
            read_ns: 0,
            waits: 0,
        };
        for _ in 0..TRIES {
            let outcome = self.serve(worker, fault);
            worker.urgent = false;
            match outcome {
                Outcome::Served(_) => {
                    self.count(Counter::Pgmajfault, 1);
                    return true;
                }
                Outcome::Defer => yield_now(),
                Outcome::NeedFrames => {
                    fault.waits += 1;
                    worker.urgent = self.has_waited_enough(fault.waits);
                    self.make_frames(worker);
                }
            }
        }
        self.fail(format_args!(
            "the page at {address:#x} of a region could not be brought"
        ));
    }
}
