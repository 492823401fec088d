//! Where in a backing records may lie: near, and far where that is full or does not take them.
//!
//! Each part is a log of its own ([`Clusters`]), with places of its own. A near part that did
//! not take a write is left alone for a while, if there is a far one; what is there stays.

use crate::backing::cells::now;
use crate::backing::clusters::{Clusters, GO, Position, granules};
use crate::backing::encryption::Nonce;
use crate::backing::kinds::{Backing, CLUSTER};
use crate::by_distance::ByDistance;
use alloc::string::String;
use zfolio_mm::PAGE_SIZE;

/// As long as that nothing goes to a near part that did not take a write, ns.
const RESTS_NS: u64 = 1_000_000_000;
/// Granules of a go, at most.
#[allow(clippy::cast_possible_truncation, reason = "a page is 2^12 bytes")]
const OF_A_GO: u32 = GO as u32 * granules(PAGE_SIZE as u16);

/// The logs of a backing, near and far.
#[derive(Debug)]
pub(crate) struct Logs {
    each: ByDistance<Clusters>,
    capacity: ByDistance<u64>,
    /// The first byte of the far part.
    far_from: u64,
    /// Nothing goes to the near part before (CLOCK_MONOTONIC, ns).
    rests_until: u64,
}

impl Logs {
    /// Those of `backing`, with nothing in them yet.
    pub(crate) fn of(backing: &dyn Backing) -> Self {
        let (all, far_from) = (backing.capacity(), backing.far_from());
        let near = all.min(far_from);
        let capacity = ByDistance {
            near,
            far: all - near,
        };
        let first = usize::try_from(far_from / CLUSTER as u64).unwrap_or(usize::MAX);
        Self {
            each: ByDistance {
                near: Clusters::new(near),
                far: Clusters::behind(first, capacity.far),
            },
            capacity,
            far_from,
            rests_until: 0,
        }
    }

    /// There may be so many bytes from now on, at most what the backing can hold; what is there
    /// stays.
    pub(crate) fn limit(&mut self, bytes: ByDistance<u64>) {
        let bytes = bytes.zip(self.capacity).map(|(of, most)| of.min(most));
        self.each.near.limit(bytes.near);
        self.each.far.limit(bytes.far);
    }

    /// Whether it is in the far part.
    pub(crate) fn is_far(&self, at: Position) -> bool {
        at.offset() >= self.far_from
    }

    fn log(&mut self, at: Position) -> &mut Clusters {
        match self.is_far(at) {
            true => &mut self.each.far,
            false => &mut self.each.near,
        }
    }

    /// Room for a record of so many granules, pinned: in the part that the record `before` it in
    /// its go is in, or in the first that has room. `None`: there is none.
    pub(crate) fn place(&mut self, granules: u32, before: Option<Position>) -> Option<Position> {
        match before {
            Some(before) => self.log(before).place(granules),
            None if self.rests() => self.each.far.place(granules),
            None => {
                let near = self.each.near.place(granules);
                near.or_else(|| self.each.far.place(granules))
            }
        }
    }

    /// Whether there is nothing left behind `before`, to which a place was refused.
    pub(crate) fn is_full_behind(&self, before: Option<Position>) -> bool {
        before.is_none_or(|before| self.is_far(before) || self.capacity.far == 0)
    }

    /// Whether all records of the next go will lie in the near part.
    pub(crate) fn is_near_next(&self) -> bool {
        !self.rests() && self.each.near.has_room(OF_A_GO)
    }

    fn rests(&self) -> bool {
        self.rests_until != 0 && now() < self.rests_until
    }

    /// The write at `at` failed. Whether what follows goes elsewhere.
    pub(crate) fn leave_alone(&mut self, at: Position) -> bool {
        let has_other = !self.is_far(at) && self.capacity.far > 0;
        if has_other {
            self.rests_until = now() + RESTS_NS;
        }
        has_other
    }

    /// What a record at `at` is sealed under.
    pub(crate) fn nonce(&self, at: Position) -> Nonce {
        match self.is_far(at) {
            true => self.each.far.nonce(at),
            false => self.each.near.nonce(at),
        }
    }

    /// Somebody reads there.
    pub(crate) fn pin(&mut self, at: Position) {
        self.log(at).pin(at);
    }

    /// Takes a pin back.
    pub(crate) fn unpin(&mut self, at: Position) {
        self.log(at).unpin(at);
    }

    /// An entry names the record there from now on. (It is pinned.)
    pub(crate) fn keep(&mut self, at: Position) {
        self.log(at).keep(at);
    }

    /// It does not any more.
    pub(crate) fn drop(&mut self, at: Position) {
        self.log(at).drop(at);
    }

    /// Nothing more is written into the cluster of `at`: a write there failed.
    pub(crate) fn give_up(&mut self, at: Position) {
        self.log(at).give_up(at);
    }

    /// A dead cluster, to be discarded and then [`Self::free`]d by the caller.
    pub(crate) fn take_dead(&mut self) -> Option<Position> {
        let near = self.each.near.take_dead();
        near.or_else(|| self.each.far.take_dead())
    }

    /// A cluster that was dead and has been discarded.
    pub(crate) fn free(&mut self, dead: Position) {
        self.log(dead).free(dead);
    }

    /// Bytes of clusters in use, their gaps included.
    pub(crate) fn used_bytes(&self) -> ByDistance<u64> {
        self.each.as_ref().map(Clusters::used_bytes)
    }

    /// Checks the invariants; `live[i]` is what the entries say of the cluster at i.
    pub(crate) fn validate(&self, live: &[u32]) -> Result<(), String> {
        let far = usize::try_from(self.far_from / CLUSTER as u64).unwrap_or(usize::MAX);
        let (near, far) = live.split_at(far.min(live.len()));
        let last = near.iter().rposition(|count| *count > 0);
        self.each
            .near
            .validate(&near[..last.map_or(0, |last| last + 1)])?;
        self.each.far.validate(far)
    }
}
