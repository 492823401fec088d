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

use crate::page_fault::Fault;
use crate::pager::Access;
use crate::segment::{Counter, FaultKind};
use crate::serve_loop::{Ended, Next, Pager, Teller, serve_fault};
use crate::swapout::Swap;
use crate::transfer::worker::{Worker, claim_worker};
use zfolio_mm::PAGE_SHIFT;
use zfolio_sys::thread::yield_now;

/// Tries of a fault for which the kernel says "again" before it is a failure.
const TRIES: u32 = 1 << 20;

/// SIGBUS told: the thread that faulted serves, and has nobody to leave the fault to.
struct BySigbus {
    address: usize,
    /// Tries that did not serve it.
    tries: u32,
}

impl BySigbus {
    fn tried(&mut self, pager: &Swap) -> Next {
        self.tries += 1;
        if self.tries == TRIES {
            pager.fail(format_args!(
                "the page at {:#x} of a region could not be brought",
                self.address
            ));
        }
        Next::Again
    }
}

impl Teller<Swap> for BySigbus {
    fn served(&mut self, pager: &Swap, kind: FaultKind, _: Fault) {
        pager.count(Counter::FaultsServed, 1);
        pager.count(Counter::Pgmajfault, usize::from(kind.is_major()));
    }

    fn put_off(&mut self, pager: &Swap, _: Fault, _: u32) -> Next {
        yield_now();
        self.tried(pager)
    }

    fn short(&mut self, pager: &Swap, worker: &mut Worker, fault: &mut Fault) -> Next {
        pager.make_room(worker, fault);
        if pager.may_wait_for_ever() {
            return Next::Again;
        }
        self.tried(pager)
    }
}

impl Swap {
    /// See [`RegionEngine::serve_here`](crate::pager::RegionEngine::serve_here).
    pub(crate) fn serve_in_thread(&self, address: usize, access: Access) -> bool {
        if !self.scope.serves_in_thread() {
            return false;
        }
        let (mut worker, index) = claim_worker(&self.workers);
        let Some(stack) = self.scope.stack_of(index) else {
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
        let fault = Fault {
            vpn,
            access,
            thread: 0,
            read_ns: 0,
            waits: 0,
        };
        let mut by_sigbus = BySigbus { address, tries: 0 };
        serve_fault(self, &mut by_sigbus, worker, fault) == Ended::Served
    }
}
