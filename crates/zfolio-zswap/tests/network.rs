//! The backing beyond this machine, against a pager of the test's own: what it makes of
//! writes and reads, and that it survives a pager that is late, wrong or not there.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zfolio_sys::exchange::{BYTES, CELLS, Exchange, Hall, MAGIC, op, put_bytes, state, take_bytes};
use zfolio_sys::lock::futex_wake;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::backing::CLUSTER;
use zfolio_zswap::{Backing, NetworkBacking};

/// Values by number, and whether requests are left lying.
#[derive(Default)]
struct Fake {
    values: Mutex<HashMap<u64, Vec<u8>>>,
    stands: AtomicBool,
    ended: AtomicBool,
    /// Reads that were answered.
    gets: AtomicUsize,
}

impl Fake {
    fn serve(&self, hall: Hall) {
        while !self.ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(200));
            if self.stands.load(Ordering::Relaxed) {
                continue;
            }
            for index in 0..CELLS {
                self.look(hall, index);
            }
        }
    }

    fn look(&self, hall: Hall, index: usize) {
        let (cell, data) = (&hall.ring(0).cells[index], &hall.ring(0).data[index]);
        let change = |from, to| {
            let ordering = (Ordering::AcqRel, Ordering::Acquire);
            let changed = cell
                .state
                .compare_exchange(from, to, ordering.0, ordering.1);
            changed.is_ok()
        };
        if !change(state::POSTED, state::TAKEN) {
            return;
        }
        let number = |of: &std::sync::atomic::AtomicU32| of.load(Ordering::Relaxed) as usize;
        let (from, len) = (number(&cell.from), number(&cell.len));
        let id = cell.id.load(Ordering::Relaxed);
        let mut values = self.values.lock().unwrap();
        cell.errno.store(0, Ordering::Relaxed);
        match cell.op.load(Ordering::Relaxed) {
            op::PUT => {
                let mut bytes = vec![0; len];
                take_bytes(data, &mut bytes);
                assert!(values.insert(id, bytes).is_none(), "a number is used twice");
                cell.salts
                    .store(u32::try_from(id).unwrap() ^ 7, Ordering::Relaxed);
            }
            op::GET => match values.get(&id) {
                Some(value) => {
                    self.gets.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(
                        cell.salts.load(Ordering::Relaxed),
                        u32::try_from(id).unwrap() ^ 7
                    );
                    put_bytes(data, &value[from..from + len]);
                }
                None => cell
                    .errno
                    .store(Errno::NOENT.0.unsigned_abs(), Ordering::Relaxed),
            },
            _ => {
                for pair in 0..len / 16 {
                    values.remove(&data[2 * pair].load(Ordering::Relaxed));
                }
                assert!(change(state::TAKEN, state::FREE));
                return;
            }
        }
        if change(state::TAKEN, state::DONE) {
            futex_wake(&cell.state, 1);
        } else {
            assert!(change(state::ABANDONED, state::FREE));
        }
    }
}

struct Rig {
    fake: Arc<Fake>,
    backing: NetworkBacking,
    path: std::path::PathBuf,
    hall: Hall,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.fake.ended.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Rig {
    /// Whether every cell is nobody's.
    fn all_are_free(&self) -> bool {
        let cells = &self.hall.ring(0).cells;
        cells
            .iter()
            .all(|cell| cell.state.load(Ordering::Acquire) == state::FREE)
    }

    /// Writes values of 20 KiB, one behind the other; what they are.
    fn with_values(&self, count: usize) -> Vec<u8> {
        let all = bytes(3, count * (20 << 10));
        for (index, part) in all.chunks(20 << 10).enumerate() {
            let offset = (index * (20 << 10)) as u64;
            self.backing.write(offset, part).unwrap();
        }
        all
    }

    fn will_read(&self, parts: &[(usize, usize)]) {
        let mut parts = parts.iter().map(|(from, len)| (*from as u64, *len));
        self.backing.will_read(&mut parts);
    }

    /// Reads, which is as it was written.
    fn reads(&self, all: &[u8], from: usize, len: usize) {
        let mut into = vec![0; len];
        self.backing.read(from as u64, &mut into).unwrap();
        assert!(into == all[from..from + len], "{len} bytes from {from}");
    }
}

fn rig(name: &str, deadline: Option<Duration>) -> Rig {
    let path = std::env::temp_dir().join(format!("zfolio-{name}-{}", std::process::id()));
    File::create(&path).unwrap().set_len(BYTES as u64).unwrap();
    let at = CString::new(path.to_str().unwrap()).unwrap();
    let hall = Hall::open(&at).unwrap();
    hall.head().magic.store(MAGIC, Ordering::Release);
    let exchange = Exchange::join(&at, 5).unwrap();
    assert!(hall.become_pager(true));
    let fake = Arc::new(Fake::default());
    let serving = fake.clone();
    std::thread::spawn(move || serving.serve(hall));
    let ns = deadline.map(|of| u64::try_from(of.as_nanos()).unwrap());
    Rig {
        fake,
        backing: NetworkBacking::new(exchange, 1 << 30, ns),
        path,
        hall,
    }
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    let each = (0..len).map(|at| (at * 31 + seed * 7 + at / 256).to_le_bytes()[0]);
    each.collect()
}

#[test]
fn any_part_of_what_was_written_comes_back() {
    let rig = rig("parts", None);
    let mut all = Vec::new();
    // Writes of several lengths, one behind the other, some longer than a value.
    for (seed, len) in [640, 64, 40 << 10, 100 << 10, 65536, 4096]
        .into_iter()
        .enumerate()
    {
        let part = bytes(seed, len);
        rig.backing
            .write((CLUSTER + all.len()) as u64, &part)
            .unwrap();
        all.extend(part);
    }
    assert_eq!(rig.fake.values.lock().unwrap().len(), 7);
    for (from, len) in [
        (0, all.len()),
        (600, 200),
        (63, 1),
        (50_000, 100_000),
        (all.len() - 9, 9),
    ] {
        let mut into = vec![0; len];
        rig.backing
            .read((CLUSTER + from) as u64, &mut into)
            .unwrap();
        assert!(into == all[from..from + len], "{len} bytes from {from}");
    }
    let mut beyond = [0; 64];
    let end = (CLUSTER + all.len() - 32) as u64;
    assert_eq!(rig.backing.read(end, &mut beyond), Err(Errno::NOENT));
    assert_eq!(rig.backing.read(0, &mut beyond), Err(Errno::NOENT));
    rig.fake.values.lock().unwrap().remove(&3);
    assert_eq!(
        rig.backing.read((CLUSTER + 704) as u64, &mut beyond),
        Err(Errno::NOENT)
    );
}

/// What is written a page at a time, where pages are small, is many values.
#[test]
fn a_read_has_as_many_values_as_lie_there() {
    let rig = rig("small", None);
    let part = 128;
    let all = bytes(5, 300 * part);
    for (index, bytes) in all.chunks(part).enumerate() {
        // (A write that failed leaves a gap.)
        if index % 50 != 49 {
            rig.backing.write((index * part) as u64, bytes).unwrap();
        }
    }
    let reads = |from: usize, len: usize| {
        let mut into = vec![0; len];
        assert_eq!(rig.backing.read(from as u64, &mut into), Ok(()), "{len}");
        for (at, (got, wrote)) in into.iter().zip(&all[from..]).enumerate() {
            let is_gap = (from + at) / part % 50 == 49;
            assert!(is_gap || got == wrote, "{len} from {from}, byte {at}");
        }
    };
    for values in 30..=38 {
        reads(7 * part, values * part);
    }
    // (Several lie behind each other: what is read ahead is the first.)
    rig.will_read(&[(0, 299 * part)]);
    for from in [0, 1, 64, part * 32] {
        reads(from, 299 * part - from);
    }
    let mut beyond = vec![0; 300 * part];
    let ended = rig.backing.read(0, &mut beyond);
    assert_eq!(ended, Err(Errno::NOENT), "its end is not there");
    rig.fake.values.lock().unwrap().remove(&200);
    let ended = rig.backing.read(0, &mut beyond[..299 * part]);
    assert_eq!(ended, Err(Errno::NOENT), "one of them is not there");
}

#[test]
fn what_is_discarded_is_deleted() {
    let rig = rig("deleted", None);
    for cluster in 0..40_u64 {
        rig.backing
            .write(cluster * CLUSTER as u64, &bytes(1, 128))
            .unwrap();
    }
    for cluster in 0..40_u64 {
        rig.backing
            .discard(cluster * CLUSTER as u64, CLUSTER as u64);
    }
    // The next write takes the rest along.
    rig.backing.write(0, &bytes(2, 128)).unwrap();
    let begin = Instant::now();
    while rig.fake.values.lock().unwrap().len() > 1 {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "they are not deleted"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut into = [0; 128];
    rig.backing.read(0, &mut into).unwrap();
    assert_eq!(into[..], bytes(2, 128));
}

#[test]
fn a_pager_that_stands_still_is_waited_for_until_the_deadline() {
    let rig = rig("late", Some(Duration::from_millis(700)));
    rig.backing.write(0, &bytes(1, 640)).unwrap();
    rig.fake.stands.store(true, Ordering::Relaxed);
    let mut into = [0; 640];
    // (It may have been about to serve one more.)
    let _ = rig.backing.read(0, &mut into);
    // More often than there are cells: who gives up gives its cell back, too.
    for _ in 0..3 {
        let begin = Instant::now();
        assert_eq!(rig.backing.read(0, &mut into), Err(Errno::TIMEDOUT));
        assert!(begin.elapsed() >= Duration::from_millis(700));
    }
    rig.fake.stands.store(false, Ordering::Relaxed);
    rig.backing.read(0, &mut into).unwrap();
    assert_eq!(into[..], bytes(1, 640));
    assert!(rig.all_are_free(), "a cell is lost");
}

#[test]
fn many_read_at_once() {
    let rig = rig("many", None);
    let all = rig.with_values(10);
    std::thread::scope(|scope| {
        for reader in 0..12_usize {
            let (rig, all) = (&rig, &all);
            scope.spawn(move || {
                for turn in 0..40 {
                    let from = (reader * 7919 + turn * 4099) % (100 << 10);
                    // (Some of it is asked for before, by one or the other.)
                    if turn % 3 == 0 {
                        rig.will_read(&[(from / 64 * 64, 64 << 10)]);
                    }
                    rig.reads(all, from, 90 << 10);
                }
            });
        }
    });
}

#[test]
fn what_is_asked_for_ahead_is_read_once() {
    let rig = rig("ahead", None);
    let all = rig.with_values(5);
    rig.will_read(&[(0, 40 << 10), (50 << 10, 20 << 10)]);
    // (Asked for already.)
    rig.will_read(&[(64, 20 << 10), (0, 40 << 10)]);
    for from in (0..40 << 10).step_by(4096) {
        rig.reads(&all, from, 4096);
    }
    for (from, len) in [(50, 1), (51, 10), (61, 9)] {
        rig.reads(&all, from << 10, len << 10);
    }
    assert_eq!(
        rig.fake.gets.load(Ordering::Relaxed),
        4,
        "a value is read twice"
    );
    assert!(rig.all_are_free(), "what has been taken is free");
    // Partly asked for, partly not.
    rig.will_read(&[(20 << 10, 20 << 10)]);
    rig.reads(&all, 10 << 10, 80 << 10);
    assert!(rig.all_are_free());
}

#[test]
fn what_is_asked_for_ahead_and_not_wanted_holds_nobody_up() {
    let rig = rig("unwanted", Some(Duration::from_secs(20)));
    let all = rig.with_values(12);
    for _ in 0..3 {
        let each = (0..12).map(|index| (index * (20 << 10), 4096));
        rig.will_read(&each.collect::<Vec<_>>());
        // More readers than there are cells.
        std::thread::scope(|scope| {
            for reader in 0..CELLS + 4 {
                let (rig, all) = (&rig, &all);
                scope.spawn(move || rig.reads(all, reader * 9001 + 64, 40 << 10));
            }
        });
        rig.backing.write(CLUSTER as u64, &bytes(4, 6400)).unwrap();
        rig.backing.discard(CLUSTER as u64, CLUSTER as u64);
        // It is given up for other readers' after a while.
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn what_is_asked_for_ahead_has_the_deadline_of_who_wants_it() {
    let rig = rig("ahead-late", Some(Duration::from_millis(500)));
    let all = rig.with_values(3);
    rig.fake.stands.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(50));
    rig.will_read(&[(0, 60 << 10)]);
    let mut into = [0; 4096];
    let begin = Instant::now();
    assert_eq!(rig.backing.read(64, &mut into), Err(Errno::TIMEDOUT));
    assert!(begin.elapsed() < Duration::from_secs(10));
    // What has gone by then is not there; the others are.
    rig.fake.values.lock().unwrap().remove(&2);
    rig.fake.stands.store(false, Ordering::Relaxed);
    rig.reads(&all, 0, 20 << 10);
    assert_eq!(rig.backing.read(20 << 10, &mut into), Err(Errno::NOENT));
    rig.reads(&all, 40 << 10, 20 << 10);
    assert!(rig.all_are_free(), "a cell is lost");
}
