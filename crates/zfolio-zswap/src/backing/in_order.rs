//! Two backings as one: what is written goes to the near one while that has room.

use crate::backing::clusters::MOST_POSITIONS;
use crate::backing::kinds::{Backing, CLUSTER};
use alloc::sync::Arc;
use core::fmt;
use zfolio_sys::syscall::Errno;

/// The number of a write that has ended when it was begun.
const ENDED: usize = usize::MAX;
/// Most of the near one: as many places are left for the far one.
const MOST_NEAR: u64 = MOST_POSITIONS / 2;

/// A near backing, whose places are below those of a far one. Each is given the places as they
/// are: neither knows of the other.
pub struct InOrder {
    near: Arc<dyn Backing>,
    far: Arc<dyn Backing>,
    far_from: u64,
}

impl InOrder {
    /// `near`, then `far`.
    #[must_use]
    pub fn new(near: Arc<dyn Backing>, far: Arc<dyn Backing>) -> Self {
        let near_most = near.capacity().min(MOST_NEAR);
        Self {
            far_from: near_most - near_most % CLUSTER as u64,
            near,
            far,
        }
    }

    fn is_near(&self, offset: u64) -> bool {
        offset < self.far_from
    }

    fn of(&self, offset: u64) -> &dyn Backing {
        match self.is_near(offset) {
            true => &*self.near,
            false => &*self.far,
        }
    }
}

impl Backing for InOrder {
    fn name(&self) -> &'static str {
        "in order"
    }

    fn capacity(&self) -> u64 {
        self.far_from.saturating_add(self.far.capacity())
    }

    fn far_from(&self) -> u64 {
        self.far_from
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.of(offset).write(offset, bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.of(offset).read(offset, into)
    }

    fn reads_ahead(&self) -> bool {
        self.far.reads_ahead()
    }

    fn will_read(&self, parts: &mut dyn Iterator<Item = (u64, usize)>) {
        let mut far = parts.filter(|(offset, _)| !self.is_near(*offset));
        self.far.will_read(&mut far);
    }

    fn discard(&self, offset: u64, len: u64) {
        self.of(offset).discard(offset, len);
    }

    fn writes_ahead(&self) -> bool {
        self.far.writes_ahead()
    }

    fn is_ready(&self) -> bool {
        self.far.is_ready()
    }

    fn begin(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        match self.is_near(offset) {
            true => self.near.write(offset, bytes).map(|()| ENDED),
            false => self.far.begin(offset, bytes),
        }
    }

    fn poll(&self, write: usize, give_up: Option<Errno>) -> Option<Result<(), Errno>> {
        match write {
            ENDED => Some(Ok(())),
            _ => self.far.poll(write, give_up),
        }
    }
}

impl fmt::Debug for InOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InOrder")
            .field("near", &self.near.name())
            .field("far", &self.far.name())
            .field("far_from", &self.far_from)
            .finish()
    }
}
