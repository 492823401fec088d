//! Whether userfaultfd does here what the preload library needs of it.

use zfolio_mm::{Memory, Order, PAGE_SIZE, Pfn};
use zfolio_sys::arena::ArenaMap;
use zfolio_sys::moves::Moves;
use zfolio_sys::procfs::{Pagemap, PresentRun};
use zfolio_sys::syscall::Errno;
use zfolio_sys::uffd::{
    FEATURE_EVENT_FORK, FEATURE_EVENT_REMAP, FEATURE_EVENT_REMOVE, FEATURE_EVENT_UNMAP,
    FEATURE_MOVE, FEATURE_SIGBUS, Uffd,
};

/// Features the library asks for, with the names of the kernel's header.
pub const NEEDED: [(&str, u64); 6] = [
    ("EVENT_FORK", FEATURE_EVENT_FORK),
    ("EVENT_REMAP", FEATURE_EVENT_REMAP),
    ("EVENT_REMOVE", FEATURE_EVENT_REMOVE),
    ("EVENT_UNMAP", FEATURE_EVENT_UNMAP),
    ("SIGBUS", FEATURE_SIGBUS),
    ("MOVE", FEATURE_MOVE),
];

/// Events on the program's ranges, and MOVE: one descriptor's worth.
const PROGRAM: u64 = FEATURE_EVENT_FORK
    | FEATURE_EVENT_REMAP
    | FEATURE_EVENT_REMOVE
    | FEATURE_EVENT_UNMAP
    | FEATURE_MOVE;
/// The arena's descriptor.
const ARENA: u64 = FEATURE_SIGBUS | FEATURE_MOVE;

/// An error number in words.
pub fn words(errno: Errno) -> String {
    std::io::Error::from_raw_os_error(errno.0).to_string()
}

/// Opens and closes a descriptor that sees kernel-mode faults, with `features`.
///
/// # Errors
/// As the kernel says: PERM without the privilege, INVAL for an unknown feature.
pub fn open(features: u64) -> Result<(), Errno> {
    Uffd::open(features).map(Uffd::close)
}

/// Opens and closes what regions need: it sees faults of user code alone, for which
/// there need be no privilege.
///
/// # Errors
/// As the kernel says.
pub fn open_for_regions() -> Result<(), Errno> {
    Uffd::open_for_user_faults(ARENA).map(Uffd::close)
}

/// The quick check before a run: the two kinds of descriptor can be had.
///
/// # Errors
/// Why not, in words.
pub fn usable() -> Result<(), String> {
    open(PROGRAM).and_then(|()| open(ARENA)).map_err(|errno| {
        let why = match errno {
            Errno::PERM => "not permitted for this user".to_owned(),
            Errno::INVAL => "this kernel is too old (6.8 or newer is needed)".to_owned(),
            other => words(other),
        };
        format!("userfaultfd: {why}")
    })
}

/// Moves a page for real and compares it.
///
/// # Errors
/// What failed, in words.
pub fn try_move() -> Result<(), String> {
    let failed = |step: &'static str| move |errno| format!("{step}: {}", words(errno));
    let arena = ArenaMap::reserve(2 * Order::HUGE.pages()).map_err(failed("mapping"))?;
    let (from, to) = (Pfn(0), Pfn(0).offset(Order::HUGE.pages()));
    let pattern = |at: usize| u8::try_from((at * 31 + 7) % 251).unwrap_or_default();
    arena.with_mut(from, 0, PAGE_SIZE, |page| {
        for (at, byte) in page.iter_mut().enumerate() {
            *byte = pattern(at);
        }
    });
    let uffd = Uffd::open(PROGRAM).map_err(failed("opening"))?;
    let result = (|| {
        uffd.register(arena.address(to), PAGE_SIZE)
            .map_err(failed("registering"))?;
        let pagemap = Pagemap::open().map_err(failed("the page map"))?;
        let moves = Moves { uffd, pagemap };
        let progress = moves.out_of_held(arena.address(to), arena.address(from), PAGE_SIZE);
        if progress.done != PAGE_SIZE {
            // Nothing there, so the page is not read: that would wait forever.
            return Err(format!(
                "MOVE: {}",
                words(progress.stopped.unwrap_or(Errno::INVAL))
            ));
        }
        let same = arena.with(to, 0, PAGE_SIZE, |page| {
            page.iter()
                .enumerate()
                .all(|(at, byte)| *byte == pattern(at))
        });
        if same {
            Ok(())
        } else {
            Err("MOVE delivered other bytes".to_owned())
        }
    })();
    uffd.close();
    result
}

/// Asks PAGEMAP_SCAN about a page that is present and one that is not.
///
/// # Errors
/// What failed, in words.
pub fn try_pagemap_scan() -> Result<(), String> {
    let arena = ArenaMap::reserve(2 * Order::HUGE.pages()).map_err(words)?;
    arena.with_mut(Pfn(0), 0, 1, |byte| byte[0] = 1);
    let start = arena.address(Pfn(0));
    let end = start + arena.slots() * PAGE_SIZE;
    let mut runs = [PresentRun::default(); 4];
    let pagemap = Pagemap::open().map_err(words)?;
    let (count, _) = pagemap.present(start, end, &mut runs).map_err(words)?;
    // With huge pages the first 2 MiB are present, without one page is.
    let first = runs[..count].first().ok_or("a present page was not seen")?;
    if count == 1 && first.start() == start && first.end() <= start + Order::HUGE.bytes() {
        Ok(())
    } else {
        Err(format!("{count} runs where one page was touched"))
    }
}
