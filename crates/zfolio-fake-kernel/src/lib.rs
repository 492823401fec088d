//! For tests: a kernel that keeps pages in plain memory and fails when it is told to.
//!
//! [`Fake`] answers the calls by which `zfolio-runtime` moves pages and looks at them:
//! userfaultfd, the page map, the list of mappings, advice. Every thread has a kernel of its
//! own, so tests that run beside each other do not meet. Addresses are real: bytes lie where
//! the program and the arena have them, and whether a page is *present* is noted here.
//!
//! - [`program`]: what a program does: it maps memory, reads, writes, discards.
//! - [`plan`]: which call fails, with what, and how far it came.
//! - `pages`: presence, protection, registration; `calls`: the calls themselves.
//!
//! An absent page is filled with [`pages::ABSENT`]: code that reads one gets bytes that no test
//! wrote, and a write to one is found when the next page comes there. That is a panic, as are
//! calls that no kernel would survive or that a test cannot mean.

mod calls;
pub mod pages;
pub mod plan;
pub mod program;

use std::cell::RefCell;
use zfolio_sys::syscall::{Errno, Kernel};

/// The kernel of the calling thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fake;

/// All that a thread's kernel knows.
#[derive(Default)]
struct World {
    pages: pages::Pages,
    plan: plan::Plan,
    events: program::Events,
    files: calls::Files,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

fn with<R>(f: impl FnOnce(&mut World) -> R) -> R {
    WORLD.with_borrow_mut(f)
}

/// Begins anew: the calling thread's kernel knows nothing, and what it kept of memory is the
/// system's again. Who was managed by it before is no more.
pub fn restart() {
    with(|world| {
        world.pages.give_back();
        *world = World::default();
    });
}

impl Kernel for Fake {
    unsafe fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
        // SAFETY: by contract.
        with(|world| unsafe { calls::call(world, number, args) })
    }
}
