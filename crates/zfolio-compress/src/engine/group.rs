//! The engines of a process: devices, how work is spread over them, counters.

use super::attributes::{AttributeError, Attributes, MAX_ENGINES, SyncMode};
use super::descriptor::{CompletionRecord, Descriptor, FLAG_INTERRUPT, Opcode};
use super::device::{Device, QueueKind, Waiter};
use super::job::{Job, run};
use super::judge::Judge;
use super::primitive::Native;
use super::queue::{Delivery, Work, WorkQueue};
use super::stats::{QueueStats, QueueTotals, Totals};
use crate::{CodecError, Context};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use zfolio_sys::thread::{Clock, now_ns, yield_now};

/// Most contexts that share the engines; further ones work inline.
pub(super) const MAX_CLIENTS: usize = 64;

/// How long an engine without work looks for more before it sleeps, ns. One batch follows
/// another, and to wake it takes longer than to compress a page or two.
const LINGER_NS: u64 = 50_000;

/// A device and what is counted of it.
pub(super) struct Engine {
    pub(super) device: Device<Native, Job>,
    pub(super) stats: Box<[QueueStats]>,
}

/// Engines that are enabled: of their attributes only [`Attributes::LIVE`] change.
///
/// Threads become engines by [`Group::serve`]; until one does, and after it has
/// left, its queues get nothing. Submitters are the contexts of
/// [`Parallel`](super::Parallel).
pub struct Group {
    /// [`Attributes::numbers`], each one of a valid set.
    attributes: [AtomicU64; Attributes::NAMES.len()],
    pub(super) engines: Box<[Engine]>,
    kinds: Box<[QueueKind]>,
    /// Processors that submitters are mapped by.
    cores: usize,
    /// A bit per engine that serves.
    online: AtomicU32,
    /// Where the next one of a round goes.
    round: AtomicUsize,
    pub(super) waiters: Box<[Waiter<Native>]>,
    /// A bit per waiter that no context has.
    free_waiters: AtomicU64,
    /// Longest a unit of the attributes' size can become, bytes.
    pub(super) capacity: usize,
    pub(super) totals: Totals,
    /// Whether loads go to engines.
    pub(super) judge: Judge,
    /// `verify_compress`.
    verify: bool,
    /// Nothing is submitted for now.
    resting: AtomicBool,
}

impl Group {
    pub(super) fn new(
        attributes: Attributes,
        engines: usize,
        cores: usize,
        capacity: usize,
    ) -> Result<Self, CodecError> {
        let queues = attributes.queues_per_engine;
        let kinds = (0..queues).map(|index| kind_of(index, queues, attributes.compress_queues));
        let make_engine = || {
            let made: Result<Vec<_>, CodecError> =
                (0..queues).map(|_| queue(&attributes, capacity)).collect();
            Ok(Engine {
                device: Device::new(made?.into_boxed_slice()),
                stats: (0..queues).map(|_| QueueStats::default()).collect(),
            })
        };
        let engines: Result<Vec<Engine>, CodecError> = (0..engines.clamp(1, MAX_ENGINES))
            .map(|_| make_engine())
            .collect();
        Ok(Self {
            attributes: attributes.numbers().map(AtomicU64::new),
            engines: engines?.into_boxed_slice(),
            kinds: kinds.collect(),
            cores: cores.max(1),
            online: AtomicU32::new(0),
            round: AtomicUsize::new(0),
            waiters: (0..MAX_CLIENTS).map(|_| Waiter::default()).collect(),
            free_waiters: AtomicU64::new(u64::MAX),
            capacity,
            totals: Totals::default(),
            judge: Judge::default(),
            verify: attributes.verify,
            resting: AtomicBool::new(false),
        })
    }

    /// The settings now.
    pub fn attributes(&self) -> Attributes {
        let numbers = self.attributes.each_ref();
        let numbers = numbers.map(|number| number.load(Relaxed));
        // (Each is valid whatever the others are, and only valid ones are stored.)
        Attributes::from_numbers(&numbers).unwrap_or_default()
    }

    /// Takes over those of [`Attributes::LIVE`]: batches that begin from now on go by them, one
    /// under way by what was. Whether anything changed.
    ///
    /// # Errors
    /// As [`Attributes::check`]; nothing has changed then.
    pub fn change(&self, to: &Attributes) -> Result<bool, AttributeError> {
        let was = self.attributes();
        let now = was.with_live_of(to);
        now.check()?;
        if now == was {
            return Ok(false);
        }
        for (word, number) in self.attributes.iter().zip(now.numbers()) {
            word.store(number, Relaxed);
        }
        Ok(true)
    }

    /// Engines there may be.
    pub fn engines(&self) -> usize {
        self.engines.len()
    }

    /// Engines that serve now.
    pub fn online(&self) -> usize {
        self.online.load(Relaxed).count_ones() as usize
    }

    /// Contexts that submit.
    pub fn clients(&self) -> usize {
        MAX_CLIENTS - self.free_waiters.load(Relaxed).count_ones() as usize
    }

    /// From now on nothing is submitted, or it is again. What is under way is not touched.
    pub fn rest(&self, rests: bool) {
        self.resting.store(rests, Relaxed);
    }

    /// Whether nothing is submitted for now.
    pub fn is_resting(&self) -> bool {
        self.resting.load(Relaxed)
    }

    /// Makes the calling thread engine `index`, working with `codec`, until
    /// [`Self::stop`]. Returns false at once if there is no such engine or
    /// another thread is it.
    pub fn serve(&self, index: usize, codec: &mut dyn Context) -> bool {
        let Some(engine) = self.engines.get(index) else {
            return false;
        };
        if !engine.device.attach() {
            return false;
        }
        self.rebalance(index, true);
        let (mut own, mut others) = ((0, 0), (0, 0));
        let mut idle_since = None;
        // (A load that went to engines found a processor idle, and more of it follows.)
        let mut loads = false;
        loop {
            let attributes = self.attributes();
            // (A submitter that lends a hand wants the processor for itself.)
            let waits_asleep = attributes.sync_mode != SyncMode::Assist;
            loads = if let Some((queue, work)) = engine.device.poll(&mut own) {
                self.work(engine, queue, work, codec)
            } else if let Some((other, queue, work)) = attributes
                .share
                .then(|| self.take_over(index, &mut others))
                .flatten()
            {
                self.work(other, queue, work, codec)
            } else if (waits_asleep || loads) && lingers(&mut idle_since) {
                continue;
            } else if let Some((queue, work)) = engine.device.next(&mut own) {
                self.work(engine, queue, work, codec)
            } else {
                break;
            };
            idle_since = None;
        }
        self.rebalance(index, false);
        engine.device.detach();
        true
    }

    /// Work that waits in the queues of another engine than `index`.
    fn take_over(&self, index: usize, from: &mut (usize, u32)) -> Option<(&Engine, usize, Work)> {
        let count = self.engines.len();
        // (One that was asked to leave has no business with them.)
        let may = self.engines[index].device.is_online();
        let others = (1..count).filter(|_| may);
        others
            .map(|step| &self.engines[(index + step) % count])
            .find_map(|other| {
                let (queue, work) = other.device.poll(from)?;
                Some((other, queue, work))
            })
    }

    /// Does work of one of the queues of `engine`, and tells who waits for it. Returns whether
    /// it was to decompress.
    fn work(&self, engine: &Engine, queue: usize, work: Work, codec: &mut dyn Context) -> bool {
        let queues = engine.device.queue(queue);
        let stats = &engine.stats[queue];
        let ran = queues.work_on(&work, |job| {
            run(job, self.kinds[queue], self.verify, codec);
            (
                job.descriptor.interrupt_handle,
                job.descriptor.has(FLAG_INTERRUPT),
                job.descriptor.source_len,
                job.record.output_len,
                job.descriptor.opcode() == Some(Opcode::Decompress),
            )
        });
        let Some((waiter, notify, input, output, loads)) = ran else {
            // Two holders of one descriptor: broken beyond repair. Nobody is
            // told that it is done, and its submitter does it again itself.
            stats.broken.fetch_add(1, Relaxed);
            return false;
        };
        match queues.complete(work) {
            Delivery::Delivered => {
                let (input, output) = if loads { (0, 0) } else { (input, output) };
                stats.completed(input, output);
                self.waiters[usize::from(waiter)].end(notify);
            }
            Delivery::Abandoned => {
                stats.late.fetch_add(1, Relaxed);
            }
        }
        loads
    }

    /// Asks engine `index` to leave; its work goes to the others from now on.
    pub fn stop(&self, index: usize) {
        if let Some(engine) = self.engines.get(index) {
            self.rebalance(index, false);
            engine.device.ask_to_leave();
        }
    }

    /// Asks all engines to leave.
    pub fn stop_all(&self) {
        for index in 0..self.engines.len() {
            self.stop(index);
        }
    }

    /// Whether all engines have left, waiting up to about `millis`.
    pub fn await_stopped(&self, millis: u32) -> bool {
        let mut engines = self.engines.iter();
        engines.all(|engine| engine.device.await_offline(1_000_000, millis))
    }

    /// Where the mapped cores and rounds go follows from this word alone.
    fn rebalance(&self, index: usize, serves: bool) {
        let bit = 1 << index;
        let before = if serves {
            self.online.fetch_or(bit, Relaxed)
        } else {
            self.online.fetch_and(!bit, Relaxed)
        };
        if (before & bit != 0) != serves {
            self.totals.rebalanced.fetch_add(1, Relaxed);
        }
    }

    /// An engine and its queue for one unit of a submitter on `core`.
    pub(super) fn choose(
        &self,
        opcode: Opcode,
        core: usize,
        turn: usize,
        attributes: &Attributes,
    ) -> Option<(usize, usize)> {
        let online = self.online.load(Relaxed);
        let count = online.count_ones() as usize;
        if count == 0 {
            return None;
        }
        let distribute = match opcode {
            Opcode::Decompress => attributes.distribute.decompress,
            Opcode::Compress | Opcode::Noop => attributes.distribute.compress,
        };
        let (nth, turn) = if distribute {
            // Over the engines, and each time round by one queue further: were the queue told
            // by the submitter's turn, the two would go in step and miss queues.
            let round = self.round.fetch_add(1, Relaxed);
            (round % count, round / count)
        } else {
            // Neighbouring cores share an engine.
            (core % self.cores * count / self.cores, turn)
        };
        let engine = nth_set(online, nth)?;
        // The queues of the kind take turns.
        let suits = |kind: &QueueKind| match kind {
            QueueKind::Generic => true,
            QueueKind::Compress => opcode == Opcode::Compress,
            QueueKind::Decompress => opcode == Opcode::Decompress,
        };
        let suiting = self.kinds.iter().filter(|kind| suits(kind)).count();
        let turn = turn.checked_rem(suiting)?;
        let queues = self.kinds.iter().enumerate();
        let (queue, _) = queues.filter(|(_, kind)| suits(kind)).nth(turn)?;
        Some((engine, queue))
    }

    /// What the queue does, by its number within an engine.
    pub fn kind(&self, queue: usize) -> Option<QueueKind> {
        self.kinds.get(queue).copied()
    }

    /// A waiter for a context; `None` when all are taken.
    pub(super) fn claim_waiter(&self) -> Option<usize> {
        let claim = |free: u64| (free != 0).then(|| free & (free - 1));
        let before = self.free_waiters.fetch_update(Relaxed, Relaxed, claim);
        before.ok().map(|free| free.trailing_zeros() as usize)
    }

    pub(super) fn release_waiter(&self, index: usize) {
        self.free_waiters.fetch_or(1 << index, Relaxed);
    }

    /// Counters of a queue of an engine.
    pub fn queue_totals(&self, engine: usize, queue: usize) -> Option<QueueTotals> {
        let stats = self.engines.get(engine)?.stats.get(queue)?;
        Some(stats.totals())
    }

    /// The counters of all queues, added up, and those that no queue has.
    pub fn totals(&self) -> (QueueTotals, &Totals) {
        let mut sum = QueueTotals::default();
        for stats in self.engines.iter().flat_map(|engine| &engine.stats) {
            sum += stats.totals();
        }
        (sum, &self.totals)
    }

    /// In the child of a fork that was made while no batch was under way: no
    /// engine serves, everything is free, nothing is counted. Only while the
    /// process has one thread; contexts stay good.
    pub fn reset_in_fork_child(&self) {
        for engine in &self.engines {
            engine.device.reset_in_fork_child();
            for stats in &engine.stats {
                stats.restart();
            }
        }
        self.totals.restart();
        self.judge.restart();
        for waiter in &self.waiters {
            waiter.reset_in_fork_child();
        }
        self.online.store(0, Relaxed);
    }

    /// Checks what holds while no batch is under way: every descriptor is free.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn validate_quiet(&self) -> Result<(), &'static str> {
        for engine in &self.engines {
            for queue in engine.device.queues() {
                if queue.free() as usize != queue.len() {
                    return Err("a descriptor is not free");
                }
                if queue.has_ready() {
                    return Err("work is ready that nobody submitted");
                }
            }
        }
        if self.waiters.iter().any(|waiter| waiter.under_way() != 0) {
            return Err("a waiter counts work under way");
        }
        Ok(())
    }
}

/// Lets others run for a moment instead of sleep: `since` it has had nothing to do, ns.
fn lingers(since: &mut Option<u64>) -> bool {
    let now = now_ns(Clock::Monotonic);
    let lingers = now - *since.get_or_insert(now) < LINGER_NS;
    if lingers {
        yield_now();
    }
    lingers
}

fn queue(attributes: &Attributes, capacity: usize) -> Result<WorkQueue<Native, Job>, CodecError> {
    let buffer = |len| -> Result<Box<[u8]>, CodecError> {
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(len)
            .map_err(|_| CodecError::Workspace)?;
        bytes.resize(len, 0);
        Ok(bytes.into_boxed_slice())
    };
    let jobs: Result<Vec<Job>, CodecError> = (0..attributes.descriptors)
        .map(|_| {
            Ok(Job {
                descriptor: Descriptor::default(),
                record: CompletionRecord::default(),
                // Either way: a page in and its room out, or the reverse.
                source: buffer(attributes.unit.max(capacity))?,
                destination: buffer(attributes.unit.max(capacity))?,
            })
        })
        .collect();
    Ok(WorkQueue::new(jobs?))
}

/// The last `compress` of an engine's queues compress only, the others
/// decompress only; without enough of them all do both.
fn kind_of(index: usize, queues: usize, compress: usize) -> QueueKind {
    if compress == 0 || compress >= queues {
        QueueKind::Generic
    } else if index >= queues - compress {
        QueueKind::Compress
    } else {
        QueueKind::Decompress
    }
}

fn nth_set(mut bits: u32, nth: usize) -> Option<usize> {
    for _ in 0..nth {
        bits &= bits.wrapping_sub(1);
    }
    (bits != 0).then_some(bits.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests;
