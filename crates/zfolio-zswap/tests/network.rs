//! The backing beyond this machine, against a pager of the test's own: what it makes of
//! writes and reads, and that it survives a pager that is late, wrong or not there.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
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

fn rig(name: &str, deadline: Option<Duration>) -> Rig {
    let path = std::env::temp_dir().join(format!("zfolio-{name}-{}", std::process::id()));
    File::create(&path).unwrap().set_len(BYTES as u64).unwrap();
    let at = CString::new(path.to_str().unwrap()).unwrap();
    let hall = Hall::open(&at).unwrap();
    hall.head().magic.store(MAGIC, Ordering::Release);
    let exchange = Exchange::join(&at, 5).unwrap();
    assert!(hall.become_pager());
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
    let cells = &rig.hall.ring(0).cells;
    let free = cells
        .iter()
        .all(|cell| cell.state.load(Ordering::Acquire) == state::FREE);
    assert!(free, "a cell is lost");
}

#[test]
fn many_read_at_once() {
    let rig = rig("many", None);
    let all = bytes(3, 200 << 10);
    for (index, part) in all.chunks(20 << 10).enumerate() {
        rig.backing
            .write((index * (20 << 10)) as u64, part)
            .unwrap();
    }
    std::thread::scope(|scope| {
        for reader in 0..12_usize {
            let (backing, all) = (&rig.backing, &all);
            scope.spawn(move || {
                for turn in 0..40 {
                    let from = (reader * 7919 + turn * 4099) % (100 << 10);
                    let mut into = vec![0; 90 << 10];
                    backing.read(from as u64, &mut into).unwrap();
                    assert!(into == all[from..from + into.len()]);
                }
            });
        }
    });
}
