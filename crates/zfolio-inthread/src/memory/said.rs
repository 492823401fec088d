//! What a process with nothing out has said of itself ([`share`](super::share)), and what of it is others'.

use crate::raw::PAGE;
use zfolio_sys::rollup::Anonymous;
use zfolio_sys::syscall::Linux;
use zfolio_sys::thread::{Clock, now_ns};

/// The kernel is asked for the proportional part again after so many times what the last answer took.
const RARELY: u64 = 100;
/// Fewer pages than these are not worth another look.
const FEW: usize = 64;

/// What a process has said while nothing was out.
#[derive(Default)]
pub(super) struct Said {
    /// Usage then, pages.
    pub(super) usage: usize,
    pub(super) forks: Forks,
}

/// What is shared since a fork.
#[derive(Default)]
pub(super) struct Forks {
    /// Something may be.
    any: bool,
    /// Resident pages that are other processes' part of it.
    of_others: usize,
    /// When that is looked at next, ns.
    next_ns: u64,
}

impl Forks {
    /// The process has forked, or is the child, which looks at once.
    pub(super) fn note(&mut self, is_child: bool) {
        self.any = true;
        if is_child {
            self.next_ns = 0;
        }
    }

    /// Resident pages that are other processes' part.
    pub(super) fn look(&mut self) -> usize {
        let begun = now_ns(Clock::Monotonic);
        if !self.any || begun < self.next_ns {
            return self.of_others;
        }
        // (Where the kernel does not tell, all counts in each.)
        let found = Anonymous::look::<Linux>().unwrap_or_default();
        self.of_others = found.of_others() * 1024 / PAGE;
        self.any = self.of_others >= FEW;
        let ended = now_ns(Clock::Monotonic);
        self.next_ns = ended + (ended - begun) * RARELY;
        self.of_others
    }
}
