//! What each page is stored as: zeros and repeated words are found, the rest is compressed.

use super::error::{StoreError, StoreReport};
use crate::MAX_BATCH;
use crate::arena::Arena;
use crate::limits::Admission;
use crate::pool::context::WorkContext;
use crate::pool::zswap::Zswap;
use crate::spans::{Span, with_all};
use crate::stats::add;
use zfolio_compress::checksum::checksum;
use zfolio_compress::fill::same_filled;
use zfolio_compress::{CodecError, CompressUnit};
use zfolio_mm::{Memory, PAGE_SIZE, Pfn};

/// What a page is to be stored as.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan {
    Zero,
    Same(u64),
    /// The first `len` bytes of the page's part of the context's buffer.
    Packed {
        len: u16,
        checksum: u32,
    },
    /// The page itself.
    Raw {
        checksum: u32,
    },
}

/// A page to be stored.
#[derive(Clone, Copy)]
pub(super) enum Page<'a> {
    /// In the arena.
    At(Pfn),
    /// Elsewhere.
    Bytes(&'a [u8]),
}

/// Runs `f` on the bytes of a batch's pages.
pub(super) fn lend_pages<M: Memory>(memory: &M, pages: &[Page<'_>], f: &mut dyn FnMut(&[&[u8]])) {
    let mut spans = [Span::page(Pfn(0)); MAX_BATCH];
    let mut bytes: [&[u8]; MAX_BATCH] = [&[]; MAX_BATCH];
    let mut elsewhere = 0;
    for ((page, span), place) in pages.iter().zip(&mut spans).zip(&mut bytes) {
        match *page {
            Page::At(at) => span.at = at,
            Page::Bytes(page) => {
                *place = page;
                elsewhere += 1;
            }
        }
    }
    if elsewhere == pages.len() {
        f(&bytes[..elsewhere]);
    } else {
        with_all(memory, &spans[..pages.len()], f);
    }
}

impl<A: Arena> Zswap<A> {
    /// Decides what each page of a batch is stored as; compresses those that
    /// need it into the context's buffer.
    pub(super) fn plan(
        &self,
        context: &mut WorkContext,
        pages: &[&[u8]],
        admitted: &mut bool,
    ) -> Result<[Plan; MAX_BATCH], StoreError> {
        let mut plans = [Plan::Zero; MAX_BATCH];
        // Which page each unit is.
        let mut units: [CompressUnit<'_>; MAX_BATCH] =
            core::array::from_fn(|_| CompressUnit::default());
        let mut which = [0; MAX_BATCH];
        let mut count = 0;
        let buffers = context.buffer.chunks_exact_mut(PAGE_SIZE);
        for (index, (page, buffer)) in pages.iter().zip(buffers).enumerate() {
            match same_filled(page) {
                Some(0) => plans[index] = Plan::Zero,
                Some(word) => plans[index] = Plan::Same(word),
                None => {
                    // No longer a buffer than pays: a codec stops early then.
                    units[count] = CompressUnit::new(page, &mut buffer[..self.useful]);
                    which[count] = index;
                    count += 1;
                }
            }
        }
        if count == 0 {
            return Ok(plans);
        }
        if !*admitted {
            self.admit()?;
            *admitted = true;
        }
        let units = &mut units[..count];
        let _ = context.codec.compress_batch(units);
        for (unit, index) in units.iter().zip(which) {
            plans[index] = self.judge(unit)?;
        }
        Ok(plans)
    }

    /// What a compressed unit is stored as.
    fn judge(&self, unit: &CompressUnit<'_>) -> Result<Plan, StoreError> {
        let error = match unit.result {
            // A length of 0 is as much of an error as one past the buffer.
            Ok(len) if len > 0 && len <= unit.dst.len() => {
                if let Ok(short) = u16::try_from(len) {
                    return Ok(Plan::Packed {
                        len: short,
                        checksum: checksum(&unit.dst[..len]),
                    });
                }
                CodecError::DoesNotFit
            }
            Ok(_) => CodecError::DoesNotFit,
            Err(error) => error,
        };
        if !self.gate.reject_poor() {
            return Ok(Plan::Raw {
                checksum: checksum(unit.src),
            });
        }
        Err(match error {
            CodecError::DoesNotFit => StoreError::Poor,
            error => StoreError::CompressFailed(error),
        })
    }

    /// The limits, once per folio.
    fn admit(&self) -> Result<(), StoreError> {
        match self.gate.admit(self.pool_pages()) {
            Admission::Accept => Ok(()),
            Admission::Waiting => Err(StoreError::PoolFull),
            Admission::Hit => {
                add(&self.stats.pool_limit_hit, 1);
                Err(StoreError::PoolFull)
            }
        }
    }
}

impl StoreReport {
    /// Adds a batch.
    pub(super) fn add(&mut self, plans: &[Plan]) {
        for plan in plans {
            match plan {
                Plan::Zero => self.zero_pages += 1,
                Plan::Same(_) => self.same_filled_pages += 1,
                Plan::Packed { len, .. } => {
                    self.compressed_pages += 1;
                    self.compressed_bytes += usize::from(*len);
                }
                Plan::Raw { .. } => {
                    self.incompressible_pages += 1;
                    self.compressed_bytes += PAGE_SIZE;
                }
            }
        }
    }
}
