//! Slots on their way through a load, and what came of them.

use super::error::{LoadError, LoadFault};
use crate::backing::encryption::Nonce;
use crate::entry::held::{Member, Object, Record};
use crate::slot::Slot;
use crate::spans::Span;

/// What a slot names.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Nothing,
    /// A repeated word; zero pages too.
    Same(u64),
    /// A pinned object and where its bytes are.
    Object(Object, Span),
    /// The same of a unit, and which page of it.
    Unit(Object, Span, Member),
    /// A record in a pinned cluster, and what it is sealed under.
    Backed(Record, Nonce),
}

/// A slot on its way through a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) what: What,
    pub(super) fault: Option<LoadFault>,
}

impl Found {
    pub(super) const ZERO: Self = Self {
        what: What::Same(0),
        fault: None,
    };

    pub(super) fn bad(fault: LoadFault) -> Self {
        Self {
            what: What::Nothing,
            fault: Some(fault),
        }
    }
}

/// The results of one call, added up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) zero: u64,
    pub(super) loaded: u64,
    pub(super) backed: u64,
    /// Of those, from the part of the backing that is far away.
    pub(super) far: u64,
    pub(super) failed: u64,
    /// Of those, failures of the backing.
    pub(super) unread: u64,
    pub(super) first: Option<LoadError>,
}

impl Tally {
    /// Counts what came from `far_from` on in the backing.
    pub(super) fn add_far(&mut self, found: &[Found], far_from: u64) {
        let is_far = |found: &&Found| match found.what {
            What::Backed(record, _) => found.fault.is_none() && record.at.offset() >= far_from,
            What::Nothing | What::Same(_) | What::Object(..) | What::Unit(..) => false,
        };
        self.far += found.iter().filter(is_far).count() as u64;
    }

    /// Adds a batch whose first slot is the call's `base`th.
    pub(super) fn add(&mut self, base: usize, slots: &[Slot], found: &[Found]) {
        for (index, (slot, found)) in slots.iter().zip(found).enumerate() {
            match found.fault {
                None if *slot == Slot::ZERO => self.zero += 1,
                None if matches!(found.what, What::Backed(..)) => self.backed += 1,
                None => self.loaded += 1,
                Some(fault) => {
                    // A slot that names nothing is the caller's mistake, not
                    // damage.
                    let unread = matches!(
                        fault,
                        LoadFault::Backing(_) | LoadFault::Seal | LoadFault::Lost
                    );
                    self.unread += u64::from(unread);
                    self.failed += u64::from(!unread && fault != LoadFault::NoEntry);
                    let error = LoadError {
                        index: base + index,
                        fault,
                    };
                    self.first.get_or_insert(error);
                }
            }
        }
    }
}
