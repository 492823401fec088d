//! Faults while a fork freezes the manager: served by copies, the words stay.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::events::resolve::Resolved;
use crate::page_fault::{Fault, Outcome};
use crate::segment::FaultKind;
use crate::transfer::Transfer;
use crate::transfer::move_in::Placed;
use crate::transfer::worker::{Worker, ZERO_PAGE};

impl Transfer {
    /// Serves a fault of the program while words must stay: by a copy, and at
    /// once. (libc's fork waits for whoever is inside malloc, and that one may
    /// wait for a page: no fault may wait for the end of a fork.) The page is
    /// noted, and its word dropped at the thaw: what the program has
    /// is newer from now on. (Its word, by the page it is under: events that
    /// would move it are parked.)
    pub(crate) fn serve_frozen(
        &self,
        core: &mut Core,
        worker: &mut Worker,
        fault: Fault,
    ) -> Outcome {
        if !self.order_parked(core) {
            return Outcome::Defer;
        }
        let page = core.inbox.parked().resolve(fault.vpn);
        let from = self.page_before(core, worker, page);
        match self.copy_in(fault.vpn, from) {
            Placed::Refused(errno) => self.refused(fault.vpn, errno),
            Placed::AlreadyThere => Outcome::Served(FaultKind::Stale),
            _ => {
                if let Resolved::At(vpn) = page {
                    core.note_superseded(vpn);
                }
                Outcome::Served(FaultKind::Page)
            }
        }
    }

    /// Address of a copy of what a page was before events it was traced
    /// through.
    pub(crate) fn page_before(&self, core: &Core, worker: &mut Worker, page: Resolved) -> usize {
        match page {
            Resolved::Discarded => ZERO_PAGE.as_ptr() as usize,
            Resolved::At(vpn) => self.bytes_of(worker, core.pages.extents.place(vpn)),
        }
    }

    pub(crate) fn bytes_of(&self, worker: &mut Worker, place: Place) -> usize {
        match place {
            // (In regions alone pages are clean, and no child has those.)
            Place::Present | Place::Gone | Place::Clean(_) => ZERO_PAGE.as_ptr() as usize,
            Place::Standby(at) | Place::Storing(at) => self.address(at),
            Place::Stored(slot) | Place::Loading(slot) => {
                let Worker { context, page, .. } = &mut *worker;
                let loaded = self.zswap.load_into(context, slot, Worker::buffer(page, 1));
                if let Err(error) = loaded {
                    self.fail(format_args!(
                        "a stored page failed its check during a fork ({error})"
                    ));
                }
                worker.page.as_ptr() as usize
            }
        }
    }
}
