//! What a run is for, and how it ended.

use crate::types::Order;

/// When a run has done what it was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// One block of the order wanted, or larger, is free.
    OneBlock,
    /// The share of free memory outside blocks of order 9 is at most so many percent.
    Score(usize),
    /// The scanners have met.
    Everything,
}

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The order of the blocks wanted. Folios of this order or larger stay where they
    /// are, except with [`Goal::Everything`], where only those of order 9 do.
    pub order: Order,
    /// When to stop.
    pub goal: Goal,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The goal was reached.
    Success,
    /// The scanners met, having looked at the whole arena.
    Complete,
    /// The scanners met, having begun where an earlier run had stopped.
    Partial,
    /// The owner was contended, or stopped the run.
    Contended,
    /// A folio found no free block of its order, and larger ones are not split: the
    /// early abort of the variant that moves folios whole without splitting.
    NoFreePage,
}

/// What a step has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is more to do.
    More,
    /// The run has ended; everything held was given back.
    Done(Outcome),
}

/// Why no run was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotBegun {
    /// A block is free already.
    NotNeeded,
    /// Not worth trying: see [`super::suitability::suitability`].
    NotSuitable,
    /// Put off after failures: see [`super::backoff::Defer`].
    Deferred,
}
