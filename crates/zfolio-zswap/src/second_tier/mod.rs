//! The second tier: what has been in the pool for a while is compressed again, denser.
//!
//! - [`recompress`]: a hand goes over the entries, a step at a time.
//! - [`units`]: four pages into one object, and out of it again.
//! - [`dictionaries`]: one is made of what the tier sees, and goes when it does not pay.
//! - [`step`], [`joiner`], [`learner`], [`context`]: what these work with.
//!
//! State: `TierContext`, which who recompresses owns; the hand itself is the table's.
//!
//! Lock: the pool lock, to choose and to settle; not while anything is compressed. Nobody
//! waits for any of it: an object that somebody looks at stays as it is.
//!
//! Below: `pool`, and `load` for making pages of objects.

pub(crate) mod context;
mod dictionaries;
mod joiner;
pub(crate) mod learner;
mod recompress;
pub(crate) mod step;
mod units;
