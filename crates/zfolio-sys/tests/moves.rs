//! What a move says it moved is what it moved, though several threads take
//! the same huge page apart at once. (What `UFFDIO_MOVE` itself says is not,
//! with Linux 6.18: a page that it moved is reported as EEXIST.)

use std::io::Write;
use std::sync::{Barrier, Mutex};
use zfolio_mm::{Memory, Order, PAGE_SIZE, Pfn};
use zfolio_sys::arena::{ArenaMap, discard};
use zfolio_sys::moves::Moves;
use zfolio_sys::procfs::Pagemap;
use zfolio_sys::syscall::{Errno, nr, syscall};
use zfolio_sys::uffd::{self, Progress, Uffd};

const ROUNDS: usize = 200;
const THREADS: usize = 3;
const PAGES: usize = 512;

fn start() -> Option<Moves> {
    let opened = Uffd::open(uffd::FEATURE_MOVE | uffd::FEATURE_SIGBUS).and_then(|uffd| {
        let pagemap = Pagemap::open()?;
        Ok(Moves { uffd, pagemap })
    });
    match opened {
        Ok(moves) => Some(moves),
        Err(Errno(errno)) => {
            let require = std::env::var_os("ZFOLIO_TEST_REQUIRE").is_some_and(|v| v == "1");
            assert!(!require, "no userfaultfd (errno {errno})");
            let _ = writeln!(
                std::io::stderr().lock(),
                "SKIPPED: userfaultfd cannot be opened here (errno {errno})"
            );
            None
        }
    }
}

fn allow_huge_pages(arena: &ArenaMap) {
    const MADV_HUGEPAGE: usize = 14;
    let range = arena.range();
    // SAFETY: changes no byte. Without huge pages the test only shows less.
    let _ = unsafe {
        syscall(
            nr::MADVISE,
            [range.start, range.len(), MADV_HUGEPAGE, 0, 0, 0],
        )
    };
}

fn content(page: usize) -> u8 {
    // A third of the pages are zero: the split of a huge page maps those to
    // the shared zero page.
    if page.is_multiple_of(3) {
        0
    } else {
        u8::try_from(page % 251).unwrap_or(0) + 1
    }
}

/// [`Moves::out_of_held`] or [`Moves::into_held`]: here both sides are held.
type Way = fn(Moves, usize, usize, usize) -> Progress;

#[test]
fn threads_that_take_a_huge_page_apart_know_what_they_took() {
    take_apart(Moves::out_of_held);
}

#[test]
fn and_what_arrived() {
    take_apart(Moves::into_held);
}

fn take_apart(way: Way) {
    let Some(moves) = start() else { return };
    let arena = ArenaMap::reserve(2 * PAGES).expect("address space");
    let (source, target) = (Pfn(0), Pfn(0).offset(PAGES));
    allow_huge_pages(&arena);
    moves
        .uffd
        .register(arena.address(target), Order::HUGE.bytes())
        .expect("registering");
    let barrier = Barrier::new(THREADS);
    let told = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (arena, barrier, told) = (&arena, &barrier, &told);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    if barrier.wait().is_leader() {
                        fill(arena, source, target);
                    }
                    barrier.wait();
                    let wrong = take_share(way, moves, arena, source, target, thread);
                    told.lock().expect("no panic").extend(wrong);
                    barrier.wait();
                }
            });
        }
    });
    let told = told.into_inner().expect("no panic");
    assert!(told.is_empty(), "{} wrong, first: {}", told.len(), told[0]);
}

/// Moves a thread's part of every 64 pages; says what went wrong.
fn take_share(
    way: Way,
    moves: Moves,
    arena: &ArenaMap,
    source: Pfn,
    target: Pfn,
    thread: usize,
) -> Option<String> {
    // Runs of one page, a few, many.
    let run = [1, 8, 64][thread % 3];
    let mut refusals = 0;
    for first in (0..PAGES).step_by(64) {
        let mine = first + thread * 21..first + (thread + 1) * 21;
        let mut next = mine.start;
        while next < mine.end {
            let want = run.min(mine.end - next);
            let progress = way(
                moves,
                arena.address(target.offset(next)),
                arena.address(source.offset(next)),
                want * PAGE_SIZE,
            );
            if progress.done == 0 {
                // (BUSY: the huge folio is being split just now, by another's move.)
                let passes = matches!(progress.stopped, Some(Errno::AGAIN | Errno::BUSY));
                refusals += 1;
                if !passes || refusals > 1_000_000 {
                    return Some(format!("page {next} of {want}: {:?}", progress.stopped));
                }
                std::thread::yield_now();
            }
            let moved = progress.done / PAGE_SIZE;
            for page in next..next + moved {
                // An absent slot is a SIGBUS here.
                let byte = arena.with(target.offset(page), 0, 1, |b| b[0]);
                if byte != content(page) {
                    return Some(format!("page {page}: {byte}, not {}", content(page)));
                }
            }
            next += moved;
        }
    }
    None
}

fn fill(arena: &ArenaMap, source: Pfn, target: Pfn) {
    for block in [source, target] {
        discard(arena.address(block), Order::HUGE.bytes()).expect("discarding");
    }
    for page in 0..PAGES {
        let at = source.offset(page);
        arena.with_mut(at, 0, 1, |b| b[0] = content(page));
    }
}
