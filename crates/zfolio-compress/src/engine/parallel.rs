//! A compressor whose batches go to the engines.

use super::attributes::{Attributes, Decompress, MAX_SUBMITTED, SyncMode};
use super::descriptor::{FLAG_INTERRUPT, Opcode};
use super::group::Group;
use super::job::{Job, fill, result_of};
use super::judge::{LEAST, Way};
use super::queue::{Claim, Submitted};
use crate::verify::{Verified, VerifyStats};
use crate::{BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;
use zfolio_sys::thread::{Clock, now_ns, processor, yield_now};

/// Most units submitted before the first is waited for.
const ROUND: usize = MAX_SUBMITTED;
/// Looks at the count of units under way before the processor is let go.
const SPINS: u32 = 256;

/// How long whoever loads waits for units that engines have begun, ns: some times what one takes.
/// An engine that takes longer has lost its processor, for milliseconds perhaps.
const HURRY_NS: u64 = 30_000;

/// Any codec, run by the engines.
#[derive(Clone)]
pub struct Parallel {
    group: Arc<Group>,
    inner: Arc<dyn Compressor>,
    verified: Arc<VerifyStats>,
}

impl Parallel {
    /// Batches of `inner` on the engines of `group`. With the attribute
    /// `verify_compress`, what comes of compressing is verified, wherever it is
    /// done; see [`Self::engine_context`].
    #[must_use]
    pub fn new(group: Arc<Group>, inner: Box<dyn Compressor>) -> Self {
        let verified = Arc::new(VerifyStats::default());
        let inner: Arc<dyn Compressor> = if group.attributes().verify {
            Arc::new(Verified::new(inner, verified.clone()))
        } else {
            Arc::from(inner)
        };
        Self {
            group,
            inner,
            verified,
        }
    }

    /// What verifying found, by engines and inline; all 0 without `verify_compress`.
    #[must_use]
    pub fn verified(&self) -> &VerifyStats {
        &self.verified
    }

    /// What a thread gives to [`Group::serve`].
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    pub fn engine_context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        self.inner.context()
    }

    /// The engines.
    #[must_use]
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }
}

impl Compressor for Parallel {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn batch_size(&self) -> usize {
        let attributes = self.group.attributes();
        let queues = self.group.engines() * attributes.queues_per_engine;
        (queues * attributes.descriptors).clamp(1, attributes.batch.min(ROUND))
    }

    fn unit_size(&self) -> usize {
        self.group.attributes().unit
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(ParallelContext {
            inner: self.inner.context()?,
            waiter: self.group.claim_waiter(),
            group: self.group.clone(),
            core: processor(),
            turn: 0,
            attributes: self.group.attributes(),
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        self.inner.max_compressed_len(unit)
    }
}

/// One submitter.
struct ParallelContext {
    /// For what is done inline.
    inner: Box<dyn Context + Send>,
    /// `None`: too many submitters; everything is done inline.
    waiter: Option<usize>,
    group: Arc<Group>,
    /// Processor the context is mapped by.
    core: usize,
    turn: usize,
    /// Of the batch under way: a wait is for what was submitted by the same.
    attributes: Attributes,
}

impl Drop for ParallelContext {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.group.release_waiter(waiter);
        }
    }
}

/// A unit of either kind, as the engines see it.
trait Unit {
    const OPCODE: Opcode;
    fn source(&self) -> &[u8];
    fn capacity(&self) -> usize;
    fn finish(&mut self, bytes: &[u8]);
    fn fail(&mut self, error: CodecError);
    fn is_ok(&self) -> bool;
    fn inline(&mut self, codec: &mut dyn Context);
}

impl Unit for CompressUnit<'_> {
    const OPCODE: Opcode = Opcode::Compress;
    fn source(&self) -> &[u8] {
        self.src
    }
    fn capacity(&self) -> usize {
        self.dst.len()
    }
    fn finish(&mut self, bytes: &[u8]) {
        self.dst[..bytes.len()].copy_from_slice(bytes);
        self.result = Ok(bytes.len());
    }
    fn fail(&mut self, error: CodecError) {
        self.result = Err(error);
    }
    fn is_ok(&self) -> bool {
        self.result.is_ok()
    }
    fn inline(&mut self, codec: &mut dyn Context) {
        let mut unit = [CompressUnit::new(self.src, self.dst)];
        let _ = codec.compress_batch(&mut unit);
        let result = unit[0].result;
        self.result = result;
    }
}

impl Unit for DecompressUnit<'_> {
    const OPCODE: Opcode = Opcode::Decompress;
    fn source(&self) -> &[u8] {
        self.src
    }
    fn capacity(&self) -> usize {
        self.dst.len()
    }
    fn finish(&mut self, bytes: &[u8]) {
        self.dst[..bytes.len()].copy_from_slice(bytes);
        self.result = Ok(bytes.len());
    }
    fn fail(&mut self, error: CodecError) {
        self.result = Err(error);
    }
    fn is_ok(&self) -> bool {
        self.result.is_ok()
    }
    fn inline(&mut self, codec: &mut dyn Context) {
        let mut unit = [DecompressUnit::new(self.src, self.dst)];
        let _ = codec.decompress_batch(&mut unit);
        let result = unit[0].result;
        self.result = result;
    }
}

/// Where a unit is.
struct Ticket {
    unit: usize,
    engine: usize,
    queue: usize,
    submitted: Submitted,
}

impl Context for ParallelContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        self.attributes = self.group.attributes();
        self.run(units)
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        let (group, count) = (self.group.clone(), units.len());
        self.attributes = group.attributes();
        let way = match self.attributes.decompress {
            _ if count < 2 || group.is_resting() || group.online() == 0 => Way::Inline,
            Decompress::Never => Way::Inline,
            Decompress::Always => Way::Engines,
            Decompress::Judged => group.judge.choose(count),
        };
        let start = now_ns(Clock::Monotonic);
        let outcome = if way == Way::Engines {
            group.totals.decomp_batches.fetch_add(1, Relaxed);
            self.run(units)
        } else if self.attributes.decompress == Decompress::Always {
            // (None can have it. That is counted.)
            self.run(units)
        } else {
            let many = u64::from(count >= LEAST);
            group.totals.sw_decomp_batches.fetch_add(many, Relaxed);
            self.inner.decompress_batch(units)
        };
        group
            .judge
            .note(count, way, now_ns(Clock::Monotonic) - start);
        outcome
    }
}

impl ParallelContext {
    fn run<U: Unit>(&mut self, units: &mut [U]) -> BatchOutcome {
        // One unit gains nothing from another thread.
        if units.len() < 2 || self.group.is_resting() {
            units.iter_mut().for_each(|unit| self.inline(unit));
        } else {
            let round = match self.attributes.sync_mode {
                SyncMode::Sync => 1,
                _ => self.attributes.batch.min(ROUND),
            };
            for units in units.chunks_mut(round) {
                self.round(units);
            }
        }
        let failed = units.iter().filter(|unit| !unit.is_ok()).count();
        BatchOutcome { failed }
    }

    fn inline<U: Unit>(&mut self, unit: &mut U) {
        self.group.totals.inline.fetch_add(1, Relaxed);
        unit.inline(&mut *self.inner);
    }

    /// Submits up to [`ROUND`] units, waits, collects.
    fn round<U: Unit>(&mut self, units: &mut [U]) {
        let mut tickets: [Option<Ticket>; ROUND] = [const { None }; ROUND];
        let mut count = 0;
        for (index, unit) in units.iter_mut().enumerate() {
            match self.submit(index, unit) {
                Some(ticket) => {
                    tickets[count] = Some(ticket);
                    count += 1;
                }
                None => self.inline(unit),
            }
        }
        if count == 0 {
            return;
        }
        let tickets = &mut tickets[..count];
        let assists = self.attributes.sync_mode == SyncMode::Assist;
        if assists {
            self.assist(units, tickets);
        }
        if assists && U::OPCODE == Opcode::Decompress {
            self.wait_briefly();
        } else {
            self.wait();
        }
        for ticket in tickets {
            if let Some(ticket) = ticket.take() {
                self.collect(units, ticket);
            }
        }
        // An engine that delivered a moment ago may not have counted it yet.
        let waiter = self.waiter;
        while waiter.is_some_and(|waiter| self.group.waiters[waiter].under_way() > 0) {
            yield_now();
        }
    }

    /// Hands a unit to an engine; `None` if it has to be done here.
    fn submit<U: Unit>(&mut self, index: usize, unit: &U) -> Option<Ticket> {
        let attributes = self.attributes;
        let (source, capacity) = (unit.source(), unit.capacity().min(self.group.capacity));
        let plain = match U::OPCODE {
            Opcode::Decompress => unit.capacity(),
            Opcode::Compress | Opcode::Noop => source.len(),
        };
        if source.is_empty() || plain > attributes.unit || source.len() > self.group.capacity {
            return None;
        }
        let waiter = self.waiter?;
        let handle = u16::try_from(waiter).ok()?;
        let interrupt = match attributes.sync_mode {
            SyncMode::Async => 0,
            SyncMode::Sync | SyncMode::AsyncIrq | SyncMode::Assist => FLAG_INTERRUPT,
        };
        for _ in 0..=attributes.retries {
            self.turn = self.turn.wrapping_add(1);
            let (engine, queue) =
                self.group
                    .choose(U::OPCODE, self.core, self.turn, &attributes)?;
            let device = &self.group.engines[engine].device;
            let stats = &self.group.engines[engine].stats[queue];
            let Some(claim) = device.queue(queue).allocate() else {
                stats.busy.fetch_add(1, Relaxed);
                continue;
            };
            let fill = |job: &mut Job| fill(job, source, capacity, handle, interrupt, U::OPCODE);
            if device.queue(queue).with(&claim, fill) != Some(true) {
                device.queue(queue).release(claim);
                return None;
            }
            stats.submitted.fetch_add(1, Relaxed);
            self.group.waiters[waiter].begin();
            let submitted = device.submit(queue, claim);
            return Some(Ticket {
                unit: index,
                engine,
                queue,
                submitted,
            });
        }
        None
    }

    /// Takes back what no engine has begun, the last first, and does it here.
    fn assist<U: Unit>(&mut self, units: &mut [U], tickets: &mut [Option<Ticket>]) {
        for slot in tickets.iter_mut().rev() {
            if let Some(ticket) = slot.take() {
                *slot = self.take_back(units, ticket).err();
            }
        }
    }

    fn take_back<U: Unit>(&mut self, units: &mut [U], ticket: Ticket) -> Result<(), Ticket> {
        let engine = &self.group.engines[ticket.engine];
        let queue = engine.device.queue(ticket.queue);
        match queue.take_back(ticket.submitted) {
            Ok(claim) => {
                queue.release(claim);
                let stats = &engine.stats[ticket.queue];
                stats.taken_back.fetch_add(1, Relaxed);
                self.ended();
                self.inline(&mut units[ticket.unit]);
                Ok(())
            }
            Err(submitted) => Err(Ticket {
                submitted,
                ..ticket
            }),
        }
    }

    /// Waits until all has ended, or for [`HURRY_NS`], without letting the processor go.
    fn wait_briefly(&self) {
        let Some(waiter) = self.waiter else { return };
        let waiter = &self.group.waiters[waiter];
        let start = now_ns(Clock::Monotonic);
        while waiter.under_way() > 0 {
            for _ in 0..SPINS / 4 {
                core::hint::spin_loop();
            }
            let spent = now_ns(Clock::Monotonic).saturating_sub(start);
            if spent > HURRY_NS.min(self.attributes.timeout_ns) {
                return;
            }
        }
    }

    /// Waits until all has ended or the time is over.
    fn wait(&self) {
        let Some(waiter) = self.waiter else { return };
        let waiter = &self.group.waiters[waiter];
        let attributes = &self.attributes;
        let start = now_ns(Clock::Monotonic);
        let left = || {
            let spent = now_ns(Clock::Monotonic).saturating_sub(start);
            attributes.timeout_ns.checked_sub(spent)
        };
        while waiter.under_way() > 0 {
            let Some(left) = left() else { return };
            if attributes.sync_mode == SyncMode::Async {
                for _ in 0..SPINS {
                    core::hint::spin_loop();
                    if waiter.under_way() == 0 {
                        return;
                    }
                }
                yield_now();
            } else {
                waiter.sleep(Some(left));
            }
        }
    }

    /// Brings a unit to its end: its result, or inline.
    fn collect<U: Unit>(&mut self, units: &mut [U], ticket: Ticket) {
        let unit = ticket.unit;
        let group = self.group.clone();
        let engine = &group.engines[ticket.engine];
        let queue = engine.device.queue(ticket.queue);
        let claim = match queue.collect(ticket.submitted) {
            Ok(claim) => Some(claim),
            // Not done in time: not begun, or an engine is at it still.
            Err(submitted) => {
                let ticket = Ticket {
                    submitted,
                    ..ticket
                };
                let (queue_index, ticket) = (ticket.queue, self.take_back(units, ticket));
                let Err(ticket) = ticket else { return };
                let claim = queue.abandon(ticket.submitted);
                if claim.is_none() {
                    engine.stats[queue_index].timeouts.fetch_add(1, Relaxed);
                    self.ended();
                }
                claim
            }
        };
        let delivered = claim.is_some_and(|claim| {
            let delivered = queue.with(&claim, |job| deliver(job, &mut units[unit]));
            release(queue, claim);
            if delivered == Some(true) && U::OPCODE == Opcode::Decompress {
                group.totals.decomp_units.fetch_add(1, Relaxed);
            }
            delivered == Some(true)
        });
        if !delivered {
            self.inline(&mut units[unit]);
        }
    }

    fn ended(&self) {
        if let Some(waiter) = self.waiter {
            self.group.waiters[waiter].end(false);
        }
    }
}

fn release<P, T>(queue: &super::queue::WorkQueue<P, T>, claim: Claim)
where
    P: super::primitive::Primitives,
    T: Send,
{
    queue.release(claim);
}

/// Copies a result out; false if the record cannot be believed.
fn deliver<U: Unit>(job: &mut Job, unit: &mut U) -> bool {
    match result_of(&job.record) {
        Some(Ok(len)) if len <= unit.capacity() && len <= job.destination.len() => {
            unit.finish(&job.destination[..len]);
            true
        }
        Some(Err(error)) => {
            unit.fail(error);
            true
        }
        Some(Ok(_)) | None => false,
    }
}
