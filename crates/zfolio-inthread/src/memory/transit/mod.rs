//! Pages in transit: on their way in or out beside the core lock, so that threads which fault
//! at once do not wait for one another.
//!
//! Under the lock a thread only decides: which pages, and that their words are `Transit`, with
//! the number of its stage. It moves, compresses, decompresses and fills them without the lock,
//! with what its stage has, and says under the lock again what they have become.
//!
//! ```text
//! take a stage   core lock: decide, mark, begin      the work      core lock: publish, end, ring
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`waits`], [`gate`] | who may begin, and who waits for whom |
//! | [`stage`] | what a thread has while it works: two places for pages, a compressor's state |
//! | [`swap_in`], [`swap_out`] | the two ways |
//! | [`relief`] | how much leaves, for whom |
//! | [`batch`] | pages on their way out, and what becomes of each |
//! | [`span`] | in-thread: how many pages leave for one interrupt |
//! | `model` | every order of the steps of a few threads |
//!
//! # Who waits for whom
//!
//! - Who touches a page in transit waits for the bell of its stage, and looks again.
//! - Who changes the address space, forks, ends management or keeps pages ([`MemoryState::exclusive`])
//!   waits until nothing is in transit. As long as anybody waits so nothing new begins: who
//!   would begin waits at the gate.
//!
//! # Invariants
//!
//! 1. `under_way` is the number of stages with pages in transit, each of which is in the hands
//!    of one thread; `going` the number of pages on their way out.
//! 2. A page's word is `Transit` from the decision to the publishing, and only the thread that
//!    marked it changes it. What the pool has of it is known to that thread alone, so nobody
//!    else loads or drops it.
//! 3. Who has the lock by [`MemoryState::exclusive`] finds `under_way` 0 and no word in transit. The
//!    pool and what the stages have is used in transit or under the core lock alone: so what is
//!    done then, a fork too, finds all of it at rest and need not know of transits.
//! 4. A thread in transit has all signals blocked, waits for nothing but the core lock (never
//!    at the gate, never for another's page or a stage) and touches no memory of the program
//!    but the pages it has marked. So it comes to its end.
//! 5. A bell is listened to and rung under the core lock: none is missed.
//!
//! [`MemoryState::exclusive`]: crate::memory::layer::MemoryState::exclusive

pub(super) mod batch;
mod gate;
#[cfg(test)]
mod model;
pub(super) mod relief;
mod span;
pub(crate) mod stage;
pub(crate) mod swap_in;
mod swap_out;
pub(crate) mod waits;
