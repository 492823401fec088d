//! Where in the backing things are: a log in clusters.
//!
//! Records are appended to the *open* cluster, in granules of 64 bytes, so that
//! what is written at a time is one run. A cluster that is full is closed; when
//! the last of its records has gone it is *dead*: given back to the file system,
//! and then free to be begun again.
//!
//! ```text
//! free -> open -> closed -> dead -> free
//! ```
//!
//! # Invariants
//! - a cluster's `live` is the number of entries whose record is in it;
//! - a dead cluster has no live record and no pin, and is not the open one;
//! - numbers only grow, so none is given twice.

use crate::backing::encryption::{Nonce, TAG};
use crate::backing::kinds::CLUSTER;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use zfolio_mm::PAGE_SIZE;

/// Bytes of a granule.
pub(crate) const GRANULE: usize = 64;
/// Granules of a cluster.
#[allow(clippy::cast_possible_truncation, reason = "it is 4096")]
pub(crate) const GRANULES: u32 = (CLUSTER / GRANULE) as u32;

/// Bytes of all places that there can be: a position is a 32-bit number.
pub(crate) const MOST_POSITIONS: u64 = (1 << 32) * GRANULE as u64;

/// Granules of the record of an object of `len` bytes.
#[allow(clippy::cast_possible_truncation, reason = "a page at most")]
pub(crate) const fn granules(len: u16) -> u32 {
    (len as usize + TAG).div_ceil(GRANULE) as u32
}

/// Entries written back together, at most.
pub(crate) const GO: usize = 32;

/// Bytes of a buffer that all of their records fit in.
pub(crate) const IO: usize = GO * granules(PAGE_LEN) as usize * GRANULE;
#[allow(clippy::cast_possible_truncation, reason = "a page is 2^12 bytes")]
const PAGE_LEN: u16 = PAGE_SIZE as u16;

/// Where a record begins: its granule, counted through all clusters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Position(pub(crate) u32);

impl Position {
    pub(crate) const fn cluster(self) -> usize {
        (self.0 / GRANULES) as usize
    }

    pub(crate) const fn granule(self) -> u32 {
        self.0 % GRANULES
    }

    /// Offset in the backing, bytes.
    pub(crate) const fn offset(self) -> u64 {
        self.0 as u64 * GRANULE as u64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Closed,
    /// Waits to be discarded.
    Dead,
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    number: u64,
    state: State,
    /// Granules given out.
    filled: u32,
    /// Records that entries name.
    live: u32,
    /// Reads and writes under way.
    pins: u32,
}

/// All clusters of a backing, or of a part of it.
#[derive(Debug)]
pub(crate) struct Clusters {
    all: Vec<Cluster>,
    /// The place of the first, in clusters.
    first: usize,
    /// Most there may be.
    most: usize,
    open: Option<usize>,
    next_number: u64,
    /// Clusters in the states `Free` and `Dead`.
    free: usize,
    dead: usize,
}

/// Clusters in so many bytes, where `first` of them lie before.
fn most(capacity: u64, first: usize) -> usize {
    let most = (capacity / CLUSTER as u64).min(u64::from(u32::MAX / GRANULES));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    most.min(((u32::MAX / GRANULES) as usize).saturating_sub(first))
}

/// The first number of clusters that lie behind others, which have less: none is given twice.
const NUMBERS_BEHIND: u64 = 1 << 63;

impl Clusters {
    /// None yet, of a backing of `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            all: Vec::new(),
            first: 0,
            most: most(capacity, 0),
            open: None,
            next_number: 1,
            free: 0,
            dead: 0,
        }
    }

    /// The same behind the place of cluster `first`, of a part of a backing that begins there.
    pub(crate) fn behind(first: usize, capacity: u64) -> Self {
        Self {
            first,
            most: most(capacity, first),
            next_number: NUMBERS_BEHIND,
            ..Self::new(0)
        }
    }

    fn index(&self, at: Position) -> usize {
        at.cluster() - self.first
    }

    /// Whether so many granules are left in the open cluster, or there may be another one.
    pub(crate) fn has_room(&self, granules: u32) -> bool {
        let is_left = |open: usize| self.all[open].filled + granules <= GRANULES;
        self.open.is_some_and(is_left) || self.all.len() - self.free < self.most
    }

    /// There may be so many bytes from now on; what is there stays.
    pub(crate) fn limit(&mut self, capacity: u64) {
        self.most = most(capacity, self.first);
    }

    /// Room for a record of so many granules, behind the last, pinned; `None`
    /// when the backing is full.
    pub(crate) fn place(&mut self, granules: u32) -> Option<Position> {
        let full = |of: &Cluster| of.filled + granules > GRANULES;
        if let Some(open) = self.open
            && full(&self.all[open])
        {
            self.close(open);
        }
        let index = match self.open {
            Some(open) => open,
            None => self.begin()?,
        };
        let cluster = &mut self.all[index];
        let granule = cluster.filled;
        cluster.filled += granules;
        cluster.pins += 1;
        Some(Position(self.begins(index)?.0 + granule))
    }

    /// Where a cluster begins.
    fn begins(&self, index: usize) -> Option<Position> {
        let cluster = u32::try_from(self.first + index).ok()?;
        cluster.checked_mul(GRANULES).map(Position)
    }

    /// What a record at `at` is sealed under.
    pub(crate) fn nonce(&self, at: Position) -> Nonce {
        Nonce {
            number: self.all[self.index(at)].number,
            granule: at.granule(),
        }
    }

    /// Somebody reads there.
    pub(crate) fn pin(&mut self, at: Position) {
        let index = self.index(at);
        self.all[index].pins += 1;
    }

    /// Takes a pin back.
    pub(crate) fn unpin(&mut self, at: Position) {
        let index = self.index(at);
        self.all[index].pins -= 1;
        self.look(index);
    }

    /// An entry names the record there from now on. (It is pinned.)
    pub(crate) fn keep(&mut self, at: Position) {
        let index = self.index(at);
        self.all[index].live += 1;
    }

    /// It does not any more.
    pub(crate) fn drop(&mut self, at: Position) {
        let index = self.index(at);
        self.all[index].live -= 1;
        self.look(index);
    }

    /// Nothing more is written into the cluster of `at`: a write there failed.
    pub(crate) fn give_up(&mut self, at: Position) {
        let index = self.index(at);
        if self.open == Some(index) {
            self.close(index);
        }
    }

    /// Clusters that wait to be discarded.
    #[cfg(test)]
    pub(crate) fn dead(&self) -> usize {
        self.dead
    }

    /// A dead cluster, to be discarded and then [`Self::free`]d by the caller.
    pub(crate) fn take_dead(&mut self) -> Option<Position> {
        if self.dead == 0 {
            return None;
        }
        let dead = self.all.iter().position(|of| of.state == State::Dead)?;
        let begins = self.begins(dead)?;
        // Nobody else takes it, nobody begins it.
        self.all[dead].state = State::Closed;
        self.all[dead].pins = 1;
        self.dead -= 1;
        Some(begins)
    }

    /// A cluster that was dead and has been discarded.
    pub(crate) fn free(&mut self, dead: Position) {
        let index = self.index(dead);
        self.all[index].pins = 0;
        self.all[index].state = State::Free;
        self.free += 1;
    }

    /// Bytes of clusters in use, their gaps included.
    pub(crate) fn used_bytes(&self) -> u64 {
        (self.all.len() - self.free - self.dead) as u64 * CLUSTER as u64
    }

    /// Whether another record can be had, in a cluster not begun yet if need be.
    #[cfg(test)]
    pub(crate) fn is_full(&self) -> bool {
        self.open.is_none() && self.dead == 0 && self.all.len() - self.free >= self.most
    }

    /// Checks the invariants; `live[i]` is what the entries say of cluster i.
    pub(crate) fn validate(&self, live: &[u32]) -> Result<(), String> {
        let (mut free, mut dead) = (0, 0);
        for (index, of) in self.all.iter().enumerate() {
            let wrong = |what: &str| Err(format!("cluster {index} {what}: {of:?}"));
            if of.live != live.get(index).copied().unwrap_or(0) {
                return wrong("is named by other entries");
            }
            if (of.state == State::Open) != (self.open == Some(index)) {
                return wrong("is or is not open");
            }
            if matches!(of.state, State::Dead | State::Free) && (of.live > 0 || of.pins > 0) {
                return wrong("is in use");
            }
            if of.state == State::Closed && of.live == 0 && of.pins == 0 {
                return wrong("should be dead");
            }
            if of.filled > GRANULES || of.number >= self.next_number {
                return wrong("is overfull or ahead of its time");
            }
            free += usize::from(of.state == State::Free);
            dead += usize::from(of.state == State::Dead);
        }
        if (free, dead) == (self.free, self.dead) && live.len() <= self.all.len() {
            Ok(())
        } else {
            Err(format!("{free} free and {dead} dead clusters: {self:?}"))
        }
    }

    fn begin(&mut self) -> Option<usize> {
        if self.all.len() - self.free >= self.most {
            return None;
        }
        let index = if self.free > 0 {
            self.free -= 1;
            self.all.iter().position(|of| of.state == State::Free)?
        } else {
            self.all.try_reserve(1).ok()?;
            self.all.push(Cluster {
                number: 0,
                state: State::Free,
                filled: 0,
                live: 0,
                pins: 0,
            });
            self.all.len() - 1
        };
        self.all[index] = Cluster {
            number: self.next_number,
            state: State::Open,
            filled: 0,
            live: 0,
            pins: 0,
        };
        self.next_number += 1;
        self.open = Some(index);
        Some(index)
    }

    fn close(&mut self, index: usize) {
        self.open = None;
        self.all[index].state = State::Closed;
        self.look(index);
    }

    /// Whether a cluster has died.
    fn look(&mut self, index: usize) {
        let of = &mut self.all[index];
        if of.state == State::Closed && of.live == 0 && of.pins == 0 {
            of.state = State::Dead;
            self.dead += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_record_has_a_nonce_of_its_own_for_ever() {
        let mut clusters = Clusters::new(2 * CLUSTER as u64 + 5);
        let mut seen = BTreeSet::new();
        let mut kept = std::vec::Vec::new();
        let mut refused = 0;
        for round in 0..2000_u32 {
            match clusters.place(granules(1000 + (round % 3000) as u16)) {
                Some(at) => {
                    let nonce = clusters.nonce(at);
                    assert!(seen.insert((nonce.number, nonce.granule)));
                    clusters.keep(at);
                    clusters.unpin(at);
                    if round % 5 == 0 {
                        clusters.give_up(at);
                    }
                    kept.push(at);
                }
                None => {
                    refused += 1;
                    assert!(clusters.is_full());
                    kept.drain(..).for_each(|at| clusters.drop(at));
                    assert!(clusters.dead() > 0);
                    while let Some(dead) = clusters.take_dead() {
                        clusters.free(dead);
                    }
                }
            }
            let mut live = [0_u32; 2];
            kept.iter().for_each(|at| live[at.cluster()] += 1);
            let live = &live[..clusters.all.len().min(2)];
            clusters.validate(live).unwrap();
        }
        assert!(refused > 10);
    }

    #[test]
    fn less_room_is_kept_to_and_more_is_used_again() {
        let mut clusters = Clusters::new(4 * CLUSTER as u64);
        let fill = |clusters: &mut Clusters| {
            let mut kept = std::vec::Vec::new();
            while let Some(at) = clusters.place(GRANULES) {
                clusters.keep(at);
                clusters.unpin(at);
                kept.push(at);
            }
            kept
        };
        let kept = fill(&mut clusters);
        assert_eq!(kept.len(), 4);
        clusters.limit(2 * CLUSTER as u64);
        for at in &kept[..3] {
            clusters.drop(*at);
        }
        clusters.give_up(kept[3]);
        while let Some(dead) = clusters.take_dead() {
            clusters.free(dead);
        }
        // Three are free, and one of them may be used.
        assert_eq!(fill(&mut clusters).len(), 1);
        assert_eq!(clusters.used_bytes(), 2 * CLUSTER as u64);
        clusters.limit(3 * CLUSTER as u64);
        assert_eq!(fill(&mut clusters).len(), 1);
        clusters.limit(0);
        assert_eq!(clusters.place(1), None);
    }

    #[test]
    fn what_is_read_is_not_given_back() {
        let mut clusters = Clusters::new(u64::MAX);
        let at = clusters.place(1).unwrap();
        clusters.keep(at);
        clusters.give_up(at);
        clusters.drop(at);
        assert_eq!(clusters.take_dead(), None, "its write is not over");
        clusters.unpin(at);
        assert_eq!(clusters.take_dead(), Some(Position(0)));
        assert_eq!(clusters.place(1).map(Position::cluster), Some(1));
        clusters.free(Position(0));
        assert_eq!(clusters.used_bytes(), CLUSTER as u64);
        clusters.validate(&[]).unwrap();
    }
}
