//! Which call fails, and how.

use crate::with;
use std::collections::HashMap;
use zfolio_sys::syscall::Errno;

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// `UFFDIO_REGISTER`.
    Register,
    /// `UFFDIO_COPY`.
    Copy,
    /// `UFFDIO_MOVE`.
    Move,
    /// `UFFDIO_WRITEPROTECT`.
    WriteProtect,
    /// `UFFDIO_CONTINUE`, by which it is asked what is registered.
    Continue,
    /// `UFFDIO_WAKE`.
    Wake,
    /// `PAGEMAP_SCAN`.
    Scan,
    /// `PROCMAP_QUERY`.
    Query,
    /// madvise and process_madvise that discard.
    Discard,
    /// madvise that writes to pages.
    Populate,
    /// madvise that makes a huge page of what is there.
    Collapse,
    /// Reading a descriptor.
    Read,
}

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Pages that it does before: of COPY and MOVE. It says EAGAIN then, and how many.
    pub done: usize,
    /// What it fails with, having done none.
    pub errno: Errno,
    /// It does those pages and says that it did none, as MOVE of Linux 6.18 may.
    pub untold: bool,
}

/// What is to fail, and what was called.
#[derive(Default)]
pub(crate) struct Plan {
    /// Calls still to be made before the failure.
    failures: Vec<(Call, usize, Failure)>,
    made: HashMap<Call, usize>,
}

impl Plan {
    /// A call is being made: how it is to fail, if it is.
    pub(crate) fn next(&mut self, call: Call) -> Option<Failure> {
        *self.made.entry(call).or_default() += 1;
        let mut due = None;
        for (index, (of, left, failure)) in self.failures.iter_mut().enumerate() {
            if *of == call && *left == 0 {
                due.get_or_insert((index, *failure));
            } else if *of == call {
                *left -= 1;
            }
        }
        let (index, failure) = due?;
        self.failures.remove(index);
        Some(failure)
    }

    /// A call is being made that does all or nothing: whether it may.
    pub(crate) fn check(&mut self, call: Call) -> Result<(), Errno> {
        self.next(call).map_or(Ok(()), |how| Err(how.errno))
    }
}

/// The `nth` call of a kind from now on, 1 being the next, fails so.
pub fn fail_as(call: Call, nth: usize, failure: Failure) {
    assert!(nth > 0, "the first is 1");
    with(|world| world.plan.failures.push((call, nth - 1, failure)));
}

/// The `nth` call of a kind from now on does nothing and fails with `errno`.
pub fn fail(call: Call, nth: usize, errno: Errno) {
    let failure = Failure {
        done: 0,
        errno,
        untold: false,
    };
    fail_as(call, nth, failure);
}

/// The `nth` COPY or MOVE from now on stops after `pages` pages.
pub fn stop_after(call: Call, nth: usize, pages: usize) {
    let failure = Failure {
        done: pages,
        errno: Errno::AGAIN,
        untold: false,
    };
    fail_as(call, nth, failure);
}

/// How many calls of a kind were made.
#[must_use]
pub fn made(call: Call) -> usize {
    with(|world| world.plan.made.get(&call).copied().unwrap_or(0))
}

/// Failures that have not come yet; from now on there are none.
pub fn clear() -> usize {
    with(|world| world.plan.failures.drain(..).count())
}
