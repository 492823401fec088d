//! One way over a corpus, once.

use std::sync::{Arc, Barrier};
use std::thread::{JoinHandle, ScopedJoinHandle, spawn, yield_now};
use std::time::Instant;
use zfolio_compress::engine::{Attributes, Distribute, Engines, Group, Parallel, SyncMode};
use zfolio_compress::{CompressUnit, Compressor, Context, DecompressUnit};
use zfolio_runtime::options::Codec;

/// How units are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    pub(super) codec: Codec,
    /// Bytes of a unit.
    pub(super) unit: usize,
    /// Units of a call.
    pub(super) batch: usize,
    pub(super) workers: Workers,
}

/// Who compresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Workers {
    Caller,
    /// Threads behind queues; the calling one only submits.
    Engines(usize),
    /// The calling thread takes back what they have not begun (`assist`, as `run` does).
    Assisted(usize),
    /// As many callers, each with its own part and no queue: what the processors can.
    Callers(usize),
}

impl Workers {
    /// Engines that it takes.
    pub(super) const fn engines(self) -> usize {
        match self {
            Self::Engines(count) | Self::Assisted(count) => count,
            Self::Caller | Self::Callers(_) => 0,
        }
    }
}

impl std::fmt::Display for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Caller => f.write_str("-"),
            Self::Engines(count) => write!(f, "{count}"),
            Self::Assisted(count) => write!(f, "{count}+caller"),
            Self::Callers(count) => write!(f, "({count} callers)"),
        }
    }
}

/// What one pass over a corpus came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Round {
    /// Plain bytes by compressed ones.
    pub(super) ratio: f64,
    /// Plain bytes per second, 10^6.
    pub(super) in_mb_s: f64,
    pub(super) out_mb_s: f64,
    /// 99th percentile of calls, per unit of the call.
    pub(super) in_p99_us: f64,
    pub(super) out_p99_us: f64,
    /// Units that the calling thread did itself, though there were engines.
    pub(super) inline: u64,
    pub(super) taken_back: u64,
}

/// Engines on threads of this process.
pub(super) struct Threads {
    group: Arc<Group>,
    threads: Vec<JoinHandle<bool>>,
}

impl Threads {
    /// The engines of `parallel`, all of which serve.
    pub(super) fn start(parallel: &Parallel, engines: usize) -> Result<Self, String> {
        let mut threads = Self {
            group: parallel.group().clone(),
            threads: Vec::new(),
        };
        for index in 0..engines {
            let context = parallel.engine_context();
            let mut context = context.map_err(|error| error.to_string())?;
            let group = threads.group.clone();
            let serve = move || group.serve(index, &mut *context);
            threads.threads.push(spawn(serve));
        }
        while threads.group.online() < engines {
            yield_now();
        }
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.group.stop_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Way {
    pub(super) fn name(&self) -> String {
        let Self {
            codec,
            unit,
            batch,
            workers,
        } = self;
        format!("{codec}, units of {unit}, {batch} a call, engines: {workers}")
    }

    /// Compresses and decompresses `plain`.
    ///
    /// # Errors
    /// When a unit does not come back as it was.
    pub(super) fn measure(&self, plain: &[u8]) -> Result<Round, String> {
        let codec = self.codec.compressor();
        let (engines, sync_mode) = match self.workers {
            Workers::Caller => return self.pass(&*codec, plain, None),
            Workers::Callers(count) => return self.side_by_side(count, plain),
            Workers::Engines(count) => (count, SyncMode::AsyncIrq),
            Workers::Assisted(count) => (count, SyncMode::Assist),
        };
        let setup = Engines::default();
        let attributes = Attributes {
            sync_mode,
            distribute: Distribute::ALL,
            descriptors: 64,
            unit: self.unit,
            timeout_ns: 10_000_000_000,
            ..Attributes::default()
        };
        setup
            .replace(attributes)
            .map_err(|error| error.to_string())?;
        let group = setup
            .enable(engines, engines, &*codec)
            .map_err(|error| error.to_string())?;
        let parallel = Parallel::new(group.clone(), codec);
        let _threads = Threads::start(&parallel, engines)?;
        self.pass(&parallel, plain, Some(&group))
    }

    /// Callers that know nothing of each other, each with a part of `plain`.
    fn side_by_side(&self, callers: usize, plain: &[u8]) -> Result<Round, String> {
        let part = plain
            .len()
            .div_ceil(callers)
            .next_multiple_of(self.unit * self.batch);
        let begin = Barrier::new(plain.chunks(part).len());
        let rounds: Vec<Result<Round, String>> = std::thread::scope(|scope| {
            let one = |part| {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    self.pass(&*self.codec.compressor(), part, None)
                })
            };
            let threads: Vec<_> = plain.chunks(part).map(one).collect();
            let join = |thread: ScopedJoinHandle<'_, _>| {
                let lost = |_| Err("a thread ended".to_owned());
                thread.join().unwrap_or_else(lost)
            };
            threads.into_iter().map(join).collect()
        });
        let rounds: Vec<Round> = rounds.into_iter().collect::<Result<_, _>>()?;
        let first = rounds.first().ok_or("there is nothing to compress")?;
        let sum = |figure: fn(&Round) -> f64| rounds.iter().map(figure).sum();
        let most = |figure: fn(&Round) -> f64| rounds.iter().map(figure).fold(0.0, f64::max);
        Ok(Round {
            in_mb_s: sum(|round| round.in_mb_s),
            out_mb_s: sum(|round| round.out_mb_s),
            in_p99_us: most(|round| round.in_p99_us),
            out_p99_us: most(|round| round.out_p99_us),
            ..*first
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    fn pass(
        &self,
        codec: &dyn Compressor,
        plain: &[u8],
        group: Option<&Group>,
    ) -> Result<Round, String> {
        let mut context = codec.context().map_err(|error| error.to_string())?;
        let capacity = codec.max_compressed_len(self.unit);
        let mut buffers = vec![0; capacity * self.batch];
        let mut back = vec![0; self.unit * self.batch];
        // Touched before the clock runs.
        let mut packed = vec![1_u8; plain.len() + plain.len() / 8 + capacity * self.batch];
        let mut lens = Vec::with_capacity(plain.len() / self.unit + 1);
        let (mut at, mut calls) = (0, Vec::with_capacity(plain.len() / self.unit + 1));
        for group in plain.chunks(self.unit * self.batch) {
            let mut units: Vec<_> = group
                .chunks(self.unit)
                .zip(buffers.chunks_mut(capacity))
                .map(|(src, dst)| CompressUnit::new(src, dst))
                .collect();
            let start = Instant::now();
            let outcome = context.compress_batch(&mut units);
            calls.push((start.elapsed().as_secs_f64(), units.len()));
            if !outcome.all_ok() {
                return Err(format!("{} units were not compressed", outcome.failed));
            }
            for unit in &units {
                let len = unit.result.unwrap_or(0);
                let end = at + len;
                let Some(into) = packed.get_mut(at..end) else {
                    return Err("the pages do not compress at all".to_owned());
                };
                into.copy_from_slice(&unit.dst[..len]);
                lens.push(len);
                at = end;
            }
        }
        let (in_s, in_p99_us) = times(&mut calls);
        let total = at;
        calls.clear();
        at = 0;
        let groups = plain.chunks(self.unit * self.batch);
        for (group, lens) in groups.zip(lens.chunks(self.batch)) {
            self.unpack(
                &mut *context,
                group,
                &packed[at..],
                lens,
                &mut back,
                &mut calls,
            )?;
            at += lens.iter().sum::<usize>();
        }
        let (out_s, out_p99_us) = times(&mut calls);
        let bytes = plain.len() as f64;
        let (totals, inline) = group.map_or_else(Default::default, |group| {
            let (totals, shared) = group.totals();
            (
                totals,
                shared.inline.load(std::sync::atomic::Ordering::Relaxed),
            )
        });
        Ok(Round {
            ratio: bytes / total as f64,
            in_mb_s: bytes / in_s / 1e6,
            out_mb_s: bytes / out_s / 1e6,
            in_p99_us,
            out_p99_us,
            inline,
            taken_back: totals.taken_back,
        })
    }

    /// Decompresses one call's units and compares them.
    fn unpack(
        &self,
        context: &mut dyn Context,
        plain: &[u8],
        mut packed: &[u8],
        lens: &[usize],
        back: &mut [u8],
        calls: &mut Vec<(f64, usize)>,
    ) -> Result<(), String> {
        let back = &mut back[..plain.len()];
        let mut units: Vec<_> = lens
            .iter()
            .zip(back.chunks_mut(self.unit))
            .map(|(len, dst)| {
                let (src, rest) = packed.split_at(*len);
                packed = rest;
                DecompressUnit::new(src, dst)
            })
            .collect();
        let start = Instant::now();
        let outcome = context.decompress_batch(&mut units);
        calls.push((start.elapsed().as_secs_f64(), units.len()));
        let whole = units.iter().all(|unit| unit.result == Ok(unit.dst.len()));
        if outcome.all_ok() && whole && *back == *plain {
            Ok(())
        } else {
            Err("a unit did not come back as it was".to_owned())
        }
    }
}

/// All calls in s, and the 99th percentile per unit in us.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn times(calls: &mut [(f64, usize)]) -> (f64, f64) {
    let all = calls.iter().map(|(time, _)| time).sum();
    let per_unit = |call: &(f64, usize)| call.0 / call.1 as f64;
    calls.sort_by(|a, b| per_unit(a).total_cmp(&per_unit(b)));
    let at = (calls.len() * 99 / 100).min(calls.len().saturating_sub(1));
    (all, calls.get(at).map_or(0.0, per_unit) * 1e6)
}

/// The middle value; the mean of the middle two of an even number.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values[..] {
        [] => 0.0,
        _ if values.len() % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
