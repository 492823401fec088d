//! Pages between the program and the arena.
//!
//! - [`move_out`]: MOVE from the program to holes of the arena.
//! - [`move_in`]: MOVE from the arena to the program, or a copy where that cannot be.
//! - [`worker`]: the buffers of a thread that does either.
//! - [`clean_pages`]: pages of regions that nobody wrote to since they came; they leave
//!   without being moved.
//!
//! State: the airlocks, through which pages leave.
//!
//! Lock: the core lock, which is the caller's: a word and the place of its page change under
//! one lock.
//!
//! Below: `address_space`, `budget`, `frames`.

pub(crate) mod clean_pages;
pub(crate) mod move_in;
pub(crate) mod move_out;
pub(crate) mod worker;
