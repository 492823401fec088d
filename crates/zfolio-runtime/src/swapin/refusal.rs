//! What is done with a page that faulted and could not be put in place.

use crate::address_space::core::Core;
use crate::page::{Vpn, address_of};
use crate::page_fault::Outcome;
use crate::segment::{Counter, FaultKind};
use crate::transfer::Transfer;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::syscall::Errno;

impl Transfer {
    /// Whether page `vpn` was of a region that is no more: then nobody waits for it.
    pub(crate) fn is_gone(&self, core: &Core, vpn: Vpn) -> bool {
        let page = address_of(vpn)..address_of(vpn + 1);
        !self.scope.has_events() && !core.pages.registered.contains(&page)
    }

    /// A faulting page could not be put in place.
    pub(crate) fn refused(&self, vpn: Vpn, errno: Errno) -> Outcome {
        match errno {
            Errno::AGAIN | Errno::NOMEM => {
                self.count(Counter::MoveRetries, 1);
                Outcome::Defer
            }
            // Not about the page: a filter of the program's refuses the call, and
            // will go on to. Nobody could serve a fault any more.
            Errno::PERM => self.fail(format_args!(
                "the kernel no longer lets pages be put in place (a seccomp filter of the program?)"
            )),
            // A region is there as long as anybody may touch it; but its
            // descriptor may not be.
            other if !self.scope.has_events() => self.fail(format_args!(
                "a page of a region could not be put in place (errno {}: were descriptors closed?)",
                other.0
            )),
            // Nothing mapped there any more, or the program is ending: let
            // the toucher find out by itself.
            _ => {
                self.fds.program().wake(address_of(vpn), PAGE_SIZE);
                Outcome::Served(FaultKind::Stale)
            }
        }
    }
}
