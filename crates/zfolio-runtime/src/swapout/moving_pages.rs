//! Pages that move, as the loop that serves faults has them.

use crate::page_fault::{Fault, Outcome};
use crate::segment::FaultKind;
use crate::serve_loop::{Pager, Tried};
use crate::swapout::Swap;
use crate::transfer::worker::Worker;
use core::convert::Infallible;

impl Pager for Swap {
    type Fault = Fault;
    type PerThread = Worker;
    type Served = FaultKind;
    type Refusal = Infallible;

    fn try_fault(&self, worker: &mut Worker, fault: &mut Fault) -> Tried<FaultKind, Infallible> {
        let outcome = self.serve(worker, *fault);
        worker.urgent = false;
        match outcome {
            Outcome::Served(kind) => Tried::Served(kind),
            Outcome::Defer => Tried::Later(0),
            Outcome::NeedFrames => Tried::NoRoom,
        }
    }

    fn make_room(&self, worker: &mut Worker, fault: &mut Fault) {
        fault.waits += 1;
        worker.urgent = self.has_waited_enough(fault.waits);
        self.make_frames(worker);
    }

    /// What the kernel refuses is an event in flight, or the page's end.
    fn make_way(&self, _: &mut Fault, refusal: Infallible) {
        match refusal {}
    }
}
