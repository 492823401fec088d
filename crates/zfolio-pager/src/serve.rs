//! The process, and its threads that serve requests.
//!
//! It trusts nothing that members write: lengths are checked, values copied before they are
//! looked at.

use crate::fail::Fail;
use crate::jobs::{self, Done, Got, Job, What};
use crate::key::{Name, Salts};
use crate::links::{Links, Store};
use crate::records::Records;
use crate::said;
use crate::spec::{MOST_COPIES, Spec};
use crate::wire::{may_stay_awake, use_tls};
use std::ffi::CString;
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zfolio_sys::brief_wait::BriefWait;
use zfolio_sys::exchange::{CELLS, Hall, MEMBERS, VALUE, op, put_bytes, state, take_bytes};
use zfolio_sys::lock::futex_wake;
use zfolio_sys::syscall::Errno;

/// Threads that serve.
const THREADS: usize = 4;
/// Requests that one of them takes at a time.
const TAKEN: usize = 8;

/// Threads that may wait for one answer.
const WAITERS: u32 = 64;

/// Becomes the pager, as standard input says: the path of the exchange, the run's name, the
/// store, and whether to be quiet, a line each.
///
/// # Errors
/// What is wrong, in one line.
pub fn serve(input: impl BufRead + Send + 'static) -> Result<(), String> {
    let mut lines = input;
    let mut line = || {
        let mut text = String::new();
        let read = lines.read_line(&mut text);
        read.map_err(|error| error.to_string())?;
        Ok::<_, String>(text.trim_end_matches('\n').to_owned())
    };
    let (path, run, spec, quiet) = (line()?, line()?, line()?, line()?);
    let spec = Spec::parse(&spec)?;
    use_tls(&spec);
    let at = CString::new(path.as_str()).map_err(|error| error.to_string())?;
    let hall = Hall::open(&at).map_err(|errno| format!("{path}: errno {}", errno.0))?;
    let begin = Instant::now();
    while !hall.become_pager(may_stay_awake()) {
        if begin.elapsed() > Duration::from_secs(3) {
            return Err("there is a pager already".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let is_first = hall.head().pagers.fetch_add(1, Ordering::AcqRel) == 0;
    let say: fn(&str) = if quiet == "quiet" { |_| {} } else { said::say };
    let pager = Arc::new(Pager {
        hall,
        store: Store::new(spec, run, say),
        records: Records::new(),
        late: Mutex::default(),
        under_way: [const { AtomicU32::new(0) }; MEMBERS],
        ended: [const { AtomicBool::new(false) }; MEMBERS],
        brief: BriefWait::default(),
        last: Mutex::new(None),
    });
    if !is_first {
        pager.take_over();
    }
    for _ in 0..THREADS {
        let pager = pager.clone();
        std::thread::spawn(move || pager.work());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        let _ = lines.read_to_end(&mut Vec::new());
        told.store(true, Relaxed);
    });
    pager.look(&stop, is_first);
    let _ = std::fs::remove_file(Path::new(&path));
    said::finish();
    Ok(())
}

pub(crate) struct Pager {
    pub(crate) hall: Hall,
    pub(crate) store: Store,
    pub(crate) records: Records,
    /// To be tried again.
    pub(crate) late: Mutex<Vec<Job>>,
    /// Requests of each member that a thread has, or that are late.
    pub(crate) under_way: [AtomicU32; MEMBERS],
    /// Members that have ended and whose ring is not free yet.
    pub(crate) ended: [AtomicBool; MEMBERS],
    /// For the bell.
    pub(crate) brief: BriefWait,
    /// What a put failed for last, and when that was said.
    pub(crate) last: Mutex<Option<(String, Instant)>>,
}

impl Pager {
    /// A thread that serves.
    fn work(&self) {
        let mut links = Links::new(&self.store);
        let head = self.hall.head();
        loop {
            let bell = head.bell.load(Ordering::Acquire);
            let mut jobs = self.take_new();
            let next = self.take_late(&mut jobs);
            if jobs.is_empty() {
                let sleep = next.unwrap_or(Duration::from_secs(1));
                let ns = u64::try_from(sleep.as_nanos()).unwrap_or(u64::MAX);
                self.hall.hear(bell, ns.max(1000), &self.brief);
                continue;
            }
            if jobs.len() == TAKEN {
                // (Requests are posted several at a time, and one thread was woken for them.)
                futex_wake(&head.bell, 1);
            }
            // (A fault waits for a read: not for what else there is to do.)
            let (reads, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(Job::is_get);
            for mut jobs in [reads, others] {
                let done = jobs::round(&mut links, &mut jobs, &mut |job, got| {
                    self.hand_over(job, &got);
                });
                for (job, done) in jobs.into_iter().zip(done) {
                    match done {
                        Some(Done::Told) => {}
                        Some(done) => self.finish(job, done),
                        None => self.put_off(job),
                    }
                }
            }
            // (Of all pagers of the run together.)
            let counted = &self.store.counted;
            head.counts
                .sent
                .fetch_add(counted.sent.swap(0, Relaxed), Relaxed);
            let received = counted.received.swap(0, Relaxed);
            head.counts.received.fetch_add(received, Relaxed);
        }
    }

    /// Requests that were posted, as many as one thread takes.
    fn take_new(&self) -> Vec<Job> {
        let head = self.hall.head();
        let mut jobs = Vec::new();
        for member in 0..MEMBERS {
            let posted = &head.posted[member];
            while posted.load(Relaxed) != 0 && jobs.len() < TAKEN {
                let cell = posted.load(Relaxed).trailing_zeros() as usize;
                if cell >= 32 || posted.fetch_and(!(1 << cell), Ordering::AcqRel) & 1 << cell == 0 {
                    continue;
                }
                if cell < CELLS {
                    self.under_way[member].fetch_add(1, Ordering::SeqCst);
                    match self.read(member, cell) {
                        Some(job) => jobs.push(job),
                        None => self.has_gone(member),
                    }
                }
            }
        }
        jobs
    }

    /// Takes a request out of its cell; one that is none is refused.
    fn read(&self, member: usize, index: usize) -> Option<Job> {
        let ring = self.hall.ring(member);
        let cell = &ring.cells[index];
        let change = cell.state.compare_exchange(
            state::POSTED,
            state::TAKEN,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if change.is_err() || self.ended[member].load(Ordering::SeqCst) {
            return None;
        }
        let owner = self.hall.head().owners[member].load(Ordering::Acquire);
        let number = |of: &AtomicU32| of.load(Relaxed) as usize;
        let (from, len) = (number(&cell.from), number(&cell.len));
        let name = Name {
            owner,
            id: cell.id.load(Relaxed),
        };
        let within = from <= VALUE && len <= VALUE && from + len <= VALUE && len > 0;
        let copied = || {
            let mut data = vec![0; len];
            take_bytes(&ring.data[index], &mut data);
            data
        };
        let what = match cell.op.load(Relaxed) {
            op::PUT if within => Some(What::Put {
                name,
                data: copied(),
                kept: Vec::new(),
                strays: Vec::new(),
            }),
            op::GET if within => {
                let salts: Vec<u8> = Salts(cell.salts.load(Relaxed)).each().collect();
                (!salts.is_empty()).then(|| What::Get {
                    name,
                    salts,
                    from,
                    len,
                    missing: Vec::new(),
                })
            }
            op::DELETE if within => {
                let data = copied();
                let each = data.chunks_exact(16).map(|pair| {
                    let half = |at: usize| {
                        let bytes = pair[at..at + 8].try_into();
                        bytes.map_or(0, u64::from_le_bytes)
                    };
                    (half(0), Salts(u32::try_from(half(8)).unwrap_or(0)))
                });
                let values = each.collect();
                Some(What::Delete { owner, values })
            }
            _ => None,
        };
        let now = Instant::now();
        match what {
            Some(what) => Some(Job {
                what,
                since: now,
                due: now,
                tries: 0,
                from: (member, Some(index)),
                owner,
            }),
            None => {
                self.answer((member, Some(index)), Err(Errno::INVAL));
                None
            }
        }
    }

    /// Adds what is due again; returns when the next is.
    fn take_late(&self, jobs: &mut Vec<Job>) -> Option<Duration> {
        let mut late = self.late.lock().unwrap_or_else(|held| held.into_inner());
        let now = Instant::now();
        let mut at = 0;
        while at < late.len() {
            if late[at].due <= now && jobs.len() < TAKEN {
                jobs.push(late.swap_remove(at));
            } else {
                at += 1;
            }
        }
        let next = late.iter().map(|job| job.due).min();
        drop(late);
        jobs.retain(|job| {
            let (member, cell) = job.from;
            let waits = cell.is_none_or(|cell| {
                let cell = &self.hall.ring(member).cells[cell];
                cell.state.load(Ordering::Acquire) == state::TAKEN
            });
            let goes_on = waits && !self.ended[member].load(Ordering::SeqCst);
            if !goes_on {
                if let What::Put {
                    name, kept, strays, ..
                } = &job.what
                {
                    let kept = kept.iter().map(|(salt, _)| *salt);
                    let all: Vec<u8> = kept.chain(strays.iter().copied()).collect();
                    self.delete_strays(member, job.owner, name.id, &all);
                }
                self.answer(job.from, Err(Errno::TIMEDOUT));
                self.has_gone(member);
            }
            goes_on
        });
        next.map(|next| next.saturating_duration_since(now))
    }

    fn put_off(&self, job: Job) {
        let head = self.hall.head();
        // (A put that was never sent waits for bandwidth.)
        let count = match job.tries {
            0 => &head.counts.held_back,
            _ => &head.counts.retries,
        };
        count.fetch_add(1, Relaxed);
        let mut late = self.late.lock().unwrap_or_else(|held| held.into_inner());
        late.push(job);
    }

    fn has_gone(&self, member: usize) {
        self.under_way[member].fetch_sub(1, Ordering::AcqRel);
    }

    /// Hands the answer over; false if nobody waits for it.
    fn answer(&self, of: (usize, Option<usize>), answer: Result<Salts, Errno>) -> bool {
        let (member, Some(index)) = of else {
            return false;
        };
        let cell = &self.hall.ring(member).cells[index];
        let (salts, errno) = match answer {
            Ok(salts) => (salts.0, 0),
            Err(errno) => (0, errno.0.unsigned_abs()),
        };
        cell.salts.store(salts, Relaxed);
        cell.errno.store(errno, Relaxed);
        let change = |from, to| {
            cell.state
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        let waits = change(state::TAKEN, state::DONE);
        if waits {
            // (Several threads may wait for a part of the same value.)
            futex_wake(&cell.state, WAITERS);
        } else {
            change(state::ABANDONED, state::FREE);
        }
        waits
    }

    /// Hands a value over that was read.
    fn hand_over(&self, job: &Job, got: &Got) {
        let counts = &self.hall.head().counts;
        counts.other_copy.fetch_add(u64::from(got.other), Relaxed);
        counts.lost_copies.fetch_add(got.missing as u64, Relaxed);
        let (member, cell) = job.from;
        let lives = !self.ended[member].load(Ordering::SeqCst);
        if let Some(index) = cell.filter(|_| lives) {
            put_bytes(&self.hall.ring(member).data[index], &got.bytes);
        }
        self.answer(job.from, Ok(Salts::default()));
        self.has_gone(member);
    }

    fn finish(&self, job: Job, done: Done) {
        let (member, cell) = job.from;
        match (job.what, done) {
            (What::Put { name, strays, .. }, Done::Kept(salts)) => {
                let strays: Vec<u8> = strays
                    .into_iter()
                    .filter(|salt| !salts.each().any(|kept| kept == *salt))
                    .collect();
                self.delete_strays(member, job.owner, name.id, &strays);
                self.records.put(member, name.id, salts);
                if !self.answer(job.from, Ok(salts)) {
                    self.delete_later(member, job.owner, name.id, salts);
                }
            }
            (What::Put { name, strays, .. }, Done::Failed(fail, salts)) => {
                self.say_once(&fail);
                self.delete_strays(member, job.owner, name.id, &strays);
                if salts != Salts::default() {
                    self.delete_later(member, job.owner, name.id, salts);
                }
                let errno = match fail {
                    Fail::Full => Errno::NOSPC,
                    Fail::Slow(_) => Errno::TIMEDOUT,
                    Fail::Later(_) => Errno::AGAIN,
                    Fail::Refused(_) => Errno::PERM,
                };
                self.answer(job.from, Err(errno));
            }
            (What::Delete { values, .. }, _) => {
                for (id, salts) in values {
                    self.records.forget_these(member, id, salts);
                }
                if let Some(index) = cell {
                    let state = &self.hall.ring(member).cells[index].state;
                    let (from, to) = (state::TAKEN, state::FREE);
                    let _ = state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
            (What::Get { salts, .. }, _) => {
                let counts = &self.hall.head().counts;
                counts.lost_copies.fetch_add(salts.len() as u64, Relaxed);
                self.answer(job.from, Err(Errno::NOENT));
            }
            (What::Put { .. }, _) => {
                self.answer(job.from, Err(Errno::IO));
            }
        }
        self.has_gone(member);
    }

    /// Has copies deleted that a put may have left where it was not acknowledged.
    fn delete_strays(&self, member: usize, owner: u64, id: u64, strays: &[u8]) {
        for some in strays.chunks(MOST_COPIES) {
            self.delete_later(member, owner, id, Salts::of(some));
        }
    }

    /// Has copies deleted that no member knows of.
    fn delete_later(&self, member: usize, owner: u64, id: u64, salts: Salts) {
        self.under_way[member].fetch_add(1, Ordering::SeqCst);
        let now = Instant::now();
        let mut late = self.late.lock().unwrap_or_else(|held| held.into_inner());
        late.push(Job {
            what: What::Delete {
                owner,
                values: vec![(id, salts)],
            },
            since: now,
            due: now,
            tries: 0,
            from: (member, None),
            owner,
        });
    }

    /// Says why pages cannot go out: each reason every ten seconds at most.
    fn say_once(&self, fail: &Fail) {
        let mut last = self.last.lock().unwrap_or_else(|held| held.into_inner());
        let text = fail.to_string();
        let known = last
            .as_ref()
            .is_some_and(|(said, when)| *said == text && when.elapsed() < Duration::from_secs(10));
        if !known {
            (self.store.say)(&format!(
                "the store takes no pages now: {text}; they stay in memory, and it is tried again"
            ));
            *last = Some((text, Instant::now()));
        }
    }

    /// After another pager that ended: what it had taken is posted anew (a put keeps its
    /// number, so that doing it twice is doing it once).
    fn take_over(&self) {
        let head = self.hall.head();
        for member in (0..MEMBERS).filter(|of| head.owners[*of].load(Ordering::Acquire) != 0) {
            for (index, cell) in self.hall.ring(member).cells.iter().enumerate() {
                let change = |from, to| {
                    let _ =
                        cell.state
                            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
                };
                change(state::TAKEN, state::POSTED);
                change(state::ABANDONED, state::FREE);
                if cell.state.load(Ordering::Acquire) == state::POSTED {
                    head.posted[member].fetch_or(1 << index, Ordering::AcqRel);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
