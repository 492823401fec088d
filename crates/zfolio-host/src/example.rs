//! A control segment as a run leaves it: for the tests of this crate and of the command's, which
//! include this file as well.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::segment_file::OwnSegment;
use zfolio_runtime::segment::{Counter, FaultKind, ProcessSlot, class_row, engine_queue, state};

/// A segment with one managed process and one unmanaged.
pub(crate) fn example() -> OwnSegment {
    let segment = OwnSegment::create(|_| {}).unwrap();
    let name = |slot: &ProcessSlot, name: [u8; 8]| {
        slot.process.comm[0].store(u64::from_le_bytes(name), Relaxed)
    };
    let _ = (segment.claim(100), segment.claim(101));
    let [one, two, ..] = &segment.slots;
    name(one, *b"python3\0");
    one.state.store(state::MANAGING, Relaxed);
    for (which, value) in [
        (Counter::ProgramPeak, 474 << 20),
        (Counter::ResidentPeak, 210 << 20),
        (Counter::ResidentPeakSteady, 201 << 20),
        (Counter::StoredPages, 97_280),
        (Counter::CompressedBytes, 120 << 20),
        (Counter::PoolBytes, 122 << 20),
        (Counter::PoolPeak, 124 << 20),
        (Counter::PagesCompacted, 30),
        (Counter::StoredIncompressible, 40),
        (Counter::HugePagesSince, 50),
        (Counter::ObjsMoved, 60),
        (Counter::ObjsMovedPeriod, 10),
        (Counter::ObjsMovedPressure, 20),
        (Counter::ObjsMovedRequest, 30),
        (Counter::SameFilled, 70),
        (Counter::PagesOut, 300_000),
        (Counter::PagesIn, 200_000),
        (Counter::ManagerCpuNs, 4_100_000_000),
        (Counter::StallNs, 300_000_000),
    ] {
        one.set(which, value);
    }
    for _ in 0..99 {
        one.faults[FaultKind::Page as usize].record(20_000);
    }
    one.faults[FaultKind::Folio as usize].record(140_000);
    let add = |word: &AtomicU64| word.fetch_add(3, Relaxed);
    add(&one.by_order.zswpout[4]);
    one.by_order.swpin[4].store(2, Relaxed);
    one.by_order.swpin_fallback[4].store(6, Relaxed);
    one.by_order.fallback[4].store(5, Relaxed);
    one.by_order.split[4].store(4, Relaxed);
    one.by_order.split_failed[4].store(1, Relaxed);
    let row = &one.engine_queues[3];
    row[0].store(
        engine_queue::identity(1, 2, engine_queue::COMPRESS),
        Relaxed,
    );
    row[1].store(9, Relaxed);
    row[9].store(7, Relaxed);
    let mut class = [0; class_row::WORDS];
    class[..4].copy_from_slice(&[3, 80, 1, 1]);
    class[class_row::FULLNESS + 10] = 2;
    class[class_row::OBJ_ALLOCATED..].copy_from_slice(&[153, 120, 3, 0]);
    let larger = [20, 352, 2, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 102, 80, 4, 2];
    for (row, words) in one.classes.rows.iter().zip([class, larger]) {
        for (word, value) in row.iter().zip(words) {
            word.store(value, Relaxed);
        }
    }
    name(two, *b"sh\0\0\0\0\0\0");
    two.state.store(state::UNMANAGED, Relaxed);
    two.set(Counter::ProgramPeak, 5 << 20);
    two.set_message("userfaultfd: not permitted");
    segment.processes.store(3, Relaxed);
    segment
}
