//! What a pool is charged for what is out, and how much of it there may be.
//!
//! There is one account for all of a [`Zswap`](crate::Zswap). Its limits are what the groups
//! that a process is in leave for it; the runtime, which knows the groups, works them out
//! (`budget/fair_share.rs`). They mean what the kernel's mean:
//!
//! | limit | what happens |
//! |---|---|
//! | `swap.max` | a charge that would exceed it is refused: event `swap_fail` |
//! | `zswap.max` | looked at before a folio is stored, at or above it the answer is no; the charges themselves are never refused. 0: nothing is stored |
//! | `zswap.writeback` | 0 keeps all that there is from the backing |
//!
//! # Invariants
//! Each figure is what was charged, less what was uncharged.

/// What there may be. `None`: no limit. Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// `memory.swap.max`.
    pub swap_max: Option<u64>,
    /// `memory.zswap.max`.
    pub zswap_max: Option<u64>,
    /// `memory.zswap.writeback`.
    pub writeback: bool,
}

impl Default for GroupLimits {
    fn default() -> Self {
        Self {
            swap_max: None,
            zswap_max: None,
            writeback: true,
        }
    }
}

/// What is charged at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charged {
    /// Compressed bytes in the pool: the kernel's `zswap`.
    pub zswap: u64,
    /// What these are uncompressed, bytes: `zswapped`.
    pub zswapped: u64,
    /// Of those, pages kept as they are, bytes: `zswap_incomp`.
    pub zswap_incomp: u64,
    /// Pages out, in the pool or in a backing, bytes: `swap.current`.
    pub swap: u64,
    /// Charges of pages refused by `swap.max`.
    pub swap_fail: u64,
}

/// A charge would exceed `swap.max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OverLimit;

/// The account. Under the pool lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charge {
    pub(crate) limits: GroupLimits,
    now: Charged,
}

impl Charge {
    /// What is charged now.
    pub(crate) fn now(&self) -> Charged {
        self.now
    }

    /// A page of `bytes` goes out.
    pub(crate) fn charge_out(&mut self, bytes: u64) -> Result<(), OverLimit> {
        let after = self.now.swap.saturating_add(bytes);
        if self.limits.swap_max.is_some_and(|max| after > max) {
            self.now.swap_fail += 1;
            return Err(OverLimit);
        }
        self.now.swap = after;
        Ok(())
    }

    /// It is out no more.
    pub(crate) fn uncharge_out(&mut self, bytes: u64) {
        self.now.swap -= bytes;
    }

    /// An entry with an object of `len` bytes (0: none) came into the pool.
    pub(crate) fn charge_entry(&mut self, len: u64, raw: bool, page: u64) {
        self.now.zswap += len;
        self.now.zswapped += page;
        self.now.zswap_incomp += if raw { page } else { 0 };
    }

    /// It left the pool.
    pub(crate) fn uncharge_entry(&mut self, len: u64, raw: bool, page: u64) {
        self.now.zswap -= len;
        self.now.zswapped -= page;
        self.now.zswap_incomp -= if raw { page } else { 0 };
    }

    /// A page takes so much less in the pool; of `incompressible` bytes it is not true any
    /// more that they do not compress.
    pub(crate) fn shorten_entry(&mut self, saved: u64, incompressible: u64) {
        self.now.zswap -= saved;
        self.now.zswap_incomp -= incompressible;
    }

    /// A page takes so much more in the pool.
    pub(crate) fn lengthen_entry(&mut self, more: u64) {
        self.now.zswap += more;
    }

    /// Whether a folio may be stored: `zswap.max`.
    pub(crate) fn may_store(&self) -> bool {
        self.limits.zswap_max.is_none_or(|max| self.now.zswap < max)
    }

    /// Whether what there is may be written back.
    pub(crate) fn may_write_back(&self) -> bool {
        self.limits.writeback
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[derive(Clone, Debug)]
    enum Op {
        Out(u64),
        Back(prop::sample::Index),
        Limit(Option<u64>, Option<u64>),
        Store(u64, bool),
        Drop(prop::sample::Index),
    }

    fn op() -> impl Strategy<Value = Op> {
        let index = any::<prop::sample::Index>;
        let limit = || prop::option::of(0_u64..200);
        prop_oneof![
            5 => (0_u64..60).prop_map(Op::Out),
            3 => index().prop_map(Op::Back),
            1 => (limit(), limit()).prop_map(|(swap, zswap)| Op::Limit(swap, zswap)),
            5 => (0_u64..60, any::<bool>()).prop_map(|(len, raw)| Op::Store(len, raw)),
            3 => index().prop_map(Op::Drop),
        ]
    }

    const PAGE: u64 = 64;

    proptest! {
        #[test]
        fn charges_add_up_and_refusals_change_nothing(ops in prop::collection::vec(op(), 1..120)) {
            let mut charge = Charge::default();
            let (mut out, mut stored): (Vec<u64>, Vec<(u64, bool)>) = (Vec::new(), Vec::new());
            let mut refused = 0;
            for op in ops {
                match op {
                    Op::Limit(swap_max, zswap_max) => {
                        charge.limits = GroupLimits { swap_max, zswap_max, writeback: true };
                    }
                    Op::Out(bytes) => {
                        let after = out.iter().sum::<u64>() + bytes;
                        let over = charge.limits.swap_max.is_some_and(|max| after > max);
                        prop_assert_eq!(charge.charge_out(bytes).is_err(), over);
                        if over { refused += 1 } else { out.push(bytes) }
                    }
                    Op::Back(at) if !out.is_empty() => {
                        charge.uncharge_out(out.swap_remove(at.index(out.len())));
                    }
                    Op::Store(len, raw) => {
                        charge.charge_entry(len, raw, PAGE);
                        stored.push((len, raw));
                    }
                    Op::Drop(at) if !stored.is_empty() => {
                        let (len, raw) = stored.swap_remove(at.index(stored.len()));
                        charge.uncharge_entry(len, raw, PAGE);
                    }
                    Op::Back(_) | Op::Drop(_) => {}
                }
                let zswap = stored.iter().map(|(len, _)| len).sum();
                let raw = stored.iter().filter(|(_, raw)| *raw).count() as u64;
                prop_assert_eq!(charge.now(), Charged {
                    zswap,
                    zswapped: stored.len() as u64 * PAGE,
                    zswap_incomp: raw * PAGE,
                    swap: out.iter().sum(),
                    swap_fail: refused,
                });
                prop_assert_eq!(charge.may_store(), charge.limits.zswap_max.is_none_or(|max| zswap < max));
            }
        }
    }
}
