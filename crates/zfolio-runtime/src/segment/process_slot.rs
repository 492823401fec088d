//! One process's statistics.

use super::counter::{Counter, FaultKind};
use super::threads::THREADS;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use zfolio_sys::lock::pause;

/// Buckets of a latency histogram: four per power of two.
pub const BUCKETS: usize = 128;
/// Bytes kept of a message or a name.
pub const MESSAGE: usize = 248;

/// Queues of engines that a slot lists; the counters of all are added up besides.
pub const ENGINE_QUEUES: usize = 16;

/// The words of a queue of an engine in a [`ProcessSlot`], in this order; units are pages.
pub mod engine_queue {
    /// Of each queue.
    pub const WORDS: usize = 1 + COUNTS.len();
    /// What is counted, after the word that says which queue it is.
    pub const COUNTS: [&str; 9] = [
        "submitted",
        "completed",
        "taken_back",
        "timeouts",
        "late",
        "busy",
        "broken",
        "input_bytes",
        "output_bytes",
    ];
    /// It compresses and decompresses.
    pub const GENERIC: u8 = 0;
    /// It only compresses.
    pub const COMPRESS: u8 = 1;
    /// It only decompresses.
    pub const DECOMPRESS: u8 = 2;
    /// Names of the kinds, by number.
    pub const KINDS: [&str; 3] = ["generic", "compress", "decompress"];

    /// The word that says which queue it is; never 0, which is a row of none.
    #[must_use]
    pub const fn identity(engine: usize, queue: usize, kind: u8) -> u64 {
        1 << 24 | (kind as u64) << 16 | (engine as u64 & 0xFF) << 8 | queue as u64 & 0xFF
    }

    /// The opposite: engine, queue and the kind's name. `None` for a row of none.
    #[must_use]
    pub fn identified(word: u64) -> Option<(u8, u8, &'static str)> {
        let [queue, engine, kind, 1, 0, 0, 0, 0] = word.to_le_bytes() else {
            return None;
        };
        Some((engine, queue, *KINDS.get(usize::from(kind))?))
    }
}

/// Rows of a pool's table of classes that a slot has: those that there is no row for are added
/// up in the last.
pub const CLASS_ROWS: usize = 128;

/// The words of a row of the table of classes in a [`ProcessSlot`], in this order: the columns
/// of zsmalloc's. A row without zspages is of no class.
pub mod class_row {
    /// Columns of zspages by how full they are, from 10 % to 100 %.
    pub const GROUPS: usize = 11;
    /// Number of the class, bytes of a slot, pages of a zspage.
    pub const CLASS: usize = 0;
    /// See [`CLASS`].
    pub const SIZE: usize = 1;
    /// See [`CLASS`].
    pub const PAGES_PER_ZSPAGE: usize = 2;
    /// The first of [`GROUPS`] counts.
    pub const FULLNESS: usize = 3;
    /// Slots; objects; pages of all zspages; pages that compaction would free.
    pub const OBJ_ALLOCATED: usize = FULLNESS + GROUPS;
    /// See [`OBJ_ALLOCATED`].
    pub const OBJ_USED: usize = OBJ_ALLOCATED + 1;
    /// See [`OBJ_ALLOCATED`].
    pub const PAGES_USED: usize = OBJ_USED + 1;
    /// See [`OBJ_ALLOCATED`].
    pub const FREEABLE: usize = PAGES_USED + 1;
    /// Of each row.
    pub const WORDS: usize = FREEABLE + 1;
}

/// State of a [`ProcessSlot`].
pub mod state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// Claimed; watching, nothing managed.
    pub const WATCHING: u32 = 1;
    /// Managing memory.
    pub const MANAGING: u32 = 2;
    /// Could not start: runs unmanaged; see the message.
    pub const UNMANAGED: u32 = 3;
    /// Unmanaged, and nobody watched whether it was worth managing.
    pub const UNWATCHED: u32 = 5;
    /// Ended itself rather than hand out a wrong byte; see the message.
    pub const FAILED: u32 = 4;
}

/// A latency histogram in nanoseconds.
#[repr(C)]
pub struct Histogram {
    /// Counts by [`Histogram::bucket`].
    pub buckets: [AtomicU32; BUCKETS],
    /// Largest value seen, ns.
    pub max: AtomicU64,
    /// Sum of all values, ns.
    pub sum: AtomicU64,
}

impl Histogram {
    /// Bucket of a value: four per power of two, so a bound is within 25 %.
    #[must_use]
    pub const fn bucket(ns: u64) -> usize {
        let ns = if ns < 16 { 16 } else { ns };
        let log = ns.ilog2();
        let quarter = ((ns >> (log - 2)) & 3) as usize;
        let index = (log as usize - 4) * 4 + quarter;
        if index < BUCKETS { index } else { BUCKETS - 1 }
    }

    /// Smallest value above everything in bucket `index`, ns.
    #[must_use]
    pub const fn upper_bound(index: usize) -> u64 {
        let log = index / 4 + 4;
        let quarter = (index % 4) as u64;
        (1 << log) + ((quarter + 1) << (log - 2))
    }

    /// Counts one value.
    pub fn record(&self, ns: u64) {
        self.record_for(ns, 1);
    }

    /// Counts one value for `times`, of which it alone was measured.
    pub fn record_for(&self, ns: u64, times: u32) {
        self.buckets[Self::bucket(ns)].fetch_add(times, Ordering::Relaxed);
        self.sum.fetch_add(ns * u64::from(times), Ordering::Relaxed);
        self.max.fetch_max(ns, Ordering::Relaxed);
    }
}

/// One process's statistics.
#[repr(C)]
pub struct ProcessSlot {
    /// Whose it is.
    pub process: ManagedProcess,
    /// One of [`state`].
    pub state: AtomicU32,
    /// Compactions on request that it has done, by number ([`super::FoliosAsked::compactions`]).
    pub compacted: AtomicU32,
    /// How far it is in being held: one of [`super::inspection::held`].
    pub held: AtomicU32,
    /// CLOCK_MONOTONIC of the last update, ns.
    pub updated_ns: AtomicU64,
    /// Times an update was begun or ended: odd during one.
    pub updates: AtomicU64,
    /// By [`Counter`].
    pub counters: [AtomicU64; Counter::COUNT],
    /// Folios by their order.
    pub by_order: ByOrder,
    /// Queues of its engines, by [`engine_queue`].
    pub engine_queues: [[AtomicU64; engine_queue::WORDS]; ENGINE_QUEUES],
    /// The pool's table of classes.
    pub classes: ClassRows,
    /// Service time by [`FaultKind`], from the message read to the page in place.
    pub faults: [Histogram; FaultKind::COUNT],
    /// Why it is unmanaged or failed.
    pub said: Said,
}

/// The process of a slot, and what manages it.
#[repr(C)]
pub struct ManagedProcess {
    /// Process id; 0 while nobody's.
    pub pid: AtomicU32,
    /// How its faults are told: one of [`super::faults`]; 0: nothing is managed yet.
    pub told_by: AtomicU32,
    /// CLOCK_MONOTONIC when management began, ns; 0 before.
    pub started_ns: AtomicU64,
    /// Ids of the manager's threads, the watchdog first; 0 for none.
    pub threads: [AtomicU32; THREADS],
    /// Address of the arena, by which one program image is told from the next.
    pub arena: AtomicU64,
    /// Where a thread of the program's is sent to make one that holds the process (`zfolio
    /// inspect`): an address in its own text; 0: it has a thread that looks by itself.
    pub hold_entry: AtomicU64,
    /// Command name (comm), NUL-padded bytes.
    pub comm: [AtomicU64; 2],
}

/// Folios by their order, 0 to 9.
#[repr(C)]
pub struct ByOrder {
    /// Stored whole.
    pub zswpout: [AtomicU64; 10],
    /// Loaded whole.
    pub zswpin: [AtomicU64; 10],
    /// Loaded whole from the backing.
    pub swpin: [AtomicU64; 10],
    /// That were to be loaded whole and came in less.
    pub swpin_fallback: [AtomicU64; 10],
    /// Whose store failed.
    pub fallback: [AtomicU64; 10],
    /// Of these, split and stored in parts.
    pub split: [AtomicU64; 10],
    /// Of these, split for nothing.
    pub split_failed: [AtomicU64; 10],
}

/// A pool's table of classes.
#[repr(C)]
pub struct ClassRows {
    /// By [`class_row`].
    pub rows: [[AtomicU32; class_row::WORDS]; CLASS_ROWS],
    /// When they were written, CLOCK_MONOTONIC, ns.
    pub written_ns: AtomicU64,
}

/// A message of a process.
#[repr(C)]
pub struct Said {
    /// 1: the process said it itself, on standard error.
    pub told: AtomicU64,
    /// Its length.
    pub message_len: AtomicU64,
    /// UTF-8, eight bytes a word.
    pub message: [AtomicU64; MESSAGE / 8],
}

/// Looks at a slot before a reader takes what it finds there, and the time
/// between two, ns: a writer may have lost its CPU.
const MOST_LOOKS: usize = 200;
const LOOK_NS: u64 = 200_000;

impl ProcessSlot {
    /// Sets gauges so that a reader gets all of them or none. One writer.
    pub fn update<R>(&self, set: impl FnOnce() -> R) -> R {
        self.updates.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        let result = set();
        self.updates.fetch_add(1, Ordering::Release);
        result
    }

    /// Reads gauges of one and the same [`update`](Self::update). If the writer
    /// died in one, or goes on making them, as they are.
    pub fn at_once<R>(&self, read: impl Fn() -> R) -> R {
        for _ in 0..MOST_LOOKS {
            let before = self.updates.load(Ordering::Acquire);
            let seen = read();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.updates.load(Ordering::Relaxed) == before {
                return seen;
            }
            pause(LOOK_NS);
        }
        read()
    }

    /// Makes it what a slot is that nobody ever claimed.
    pub fn clear(&self) {
        self.longs()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        self.words()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Whether it is that.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.longs().all(|word| word.load(Ordering::Relaxed) == 0)
            && self.words().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Every word of 64 bits.
    fn longs(&self) -> impl Iterator<Item = &AtomicU64> {
        let single = [
            &self.process.started_ns,
            &self.updated_ns,
            &self.updates,
            &self.process.arena,
            &self.process.hold_entry,
            &self.said.told,
            &self.said.message_len,
            &self.classes.written_ns,
        ];
        let lists = [
            &self.process.comm[..],
            &self.counters,
            &self.by_order.zswpout,
            &self.by_order.zswpin,
            &self.by_order.swpin,
            &self.by_order.swpin_fallback,
            &self.by_order.fallback,
            &self.by_order.split,
            &self.by_order.split_failed,
            &self.said.message,
        ];
        let faults = self.faults.iter().flat_map(|of| [&of.max, &of.sum]);
        let lists = lists
            .into_iter()
            .chain(self.engine_queues.iter().map(|row| &row[..]));
        let lists = lists.flatten();
        single.into_iter().chain(lists).chain(faults)
    }

    /// Every word of 32 bits.
    fn words(&self) -> impl Iterator<Item = &AtomicU32> {
        let faults = self.faults.iter().flat_map(|of| &of.buckets);
        let single = [
            &self.process.pid,
            &self.state,
            &self.process.told_by,
            &self.compacted,
            &self.held,
        ];
        let classes = self.classes.rows.iter().flatten();
        single
            .into_iter()
            .chain(&self.process.threads)
            .chain(faults)
            .chain(classes)
    }

    /// The word of a counter.
    #[must_use]
    pub fn counter(&self, which: Counter) -> &AtomicU64 {
        &self.counters[which as usize]
    }

    /// Adds to a counter.
    pub fn add(&self, which: Counter, amount: u64) {
        self.counter(which).fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, which: Counter, value: u64) {
        self.counter(which).store(value, Ordering::Relaxed);
    }

    /// Keeps `text` (cut to [`MESSAGE`] bytes) as the reason.
    pub fn set_message(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(MESSAGE)];
        for (word, chunk) in self.said.message.iter().zip(bytes.chunks(8)) {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
        }
        self.said
            .message_len
            .store(bytes.len() as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_known_by_its_word() {
        let word = engine_queue::identity(15, 7, engine_queue::DECOMPRESS);
        assert_eq!(engine_queue::identified(word), Some((15, 7, "decompress")));
        for wrong in [0, 7, 3 << 16 | 1 << 24, 1 << 24 | 1 << 40, u64::MAX] {
            assert_eq!(engine_queue::identified(wrong), None);
        }
    }

    #[test]
    fn all_words_of_a_slot_are_known_to_clear() {
        let ten = || [const { AtomicU64::new(1) }; 10];
        let slot = ProcessSlot {
            process: ManagedProcess {
                pid: AtomicU32::new(1),
                told_by: AtomicU32::new(1),
                started_ns: AtomicU64::new(1),
                threads: [const { AtomicU32::new(1) }; THREADS],
                arena: AtomicU64::new(1),
                hold_entry: AtomicU64::new(1),
                comm: [const { AtomicU64::new(1) }; 2],
            },
            state: AtomicU32::new(1),
            compacted: AtomicU32::new(1),
            held: AtomicU32::new(1),
            updated_ns: AtomicU64::new(1),
            updates: AtomicU64::new(1),
            counters: [const { AtomicU64::new(1) }; Counter::COUNT],
            by_order: ByOrder {
                zswpout: ten(),
                zswpin: ten(),
                swpin: ten(),
                swpin_fallback: ten(),
                fallback: ten(),
                split: ten(),
                split_failed: ten(),
            },
            engine_queues: [const { [const { AtomicU64::new(1) }; engine_queue::WORDS] };
                ENGINE_QUEUES],
            classes: ClassRows {
                rows: [const { [const { AtomicU32::new(1) }; class_row::WORDS] }; CLASS_ROWS],
                written_ns: AtomicU64::new(1),
            },
            faults: [const {
                Histogram {
                    buckets: [const { AtomicU32::new(1) }; BUCKETS],
                    max: AtomicU64::new(1),
                    sum: AtomicU64::new(1),
                }
            }; FaultKind::COUNT],
            said: Said {
                told: AtomicU64::new(1),
                message_len: AtomicU64::new(1),
                message: [const { AtomicU64::new(1) }; MESSAGE / 8],
            },
        };
        let bytes = 8 * slot.longs().count() + 4 * slot.words().count();
        assert!(size_of::<ProcessSlot>() - bytes < 16, "all but padding");
        assert!(!slot.is_clear());
        slot.clear();
        assert!(slot.is_clear());
    }
}
