//! What /proc tells, read from text and from the system.

extern crate std;
use super::*;
use std::vec::Vec;

#[test]
fn statm_line_parses() {
    let parsed = Statm::parse(b"765 435 407 5 0 123 0\n").unwrap();
    assert_eq!(
        parsed,
        Statm {
            size: 765,
            resident: 435,
            shared: 407,
            data: 123
        }
    );
    assert_eq!(Statm::parse(b"junk"), None);
}

#[test]
fn maps_lines_parse() {
    let line = b"7ffc1000-7ffc3000 rw-p 00000000 00:00 0                          [stack]";
    let mapping = Mapping::parse(line).unwrap();
    assert_eq!((mapping.start, mapping.end), (0x7ffc_1000, 0x7ffc_3000));
    assert_eq!(
        (mapping.perms, mapping.inode, mapping.name),
        (&b"rw-p"[..], 0, &b"[stack]"[..])
    );
    let bare = Mapping::parse(b"1000-2000 rw-p 00000000 00:00 0 ").unwrap();
    assert_eq!(bare.name, b"");
}

#[test]
fn huge_runs_are_those_of_what_is_present() {
    const HUGE: usize = 2 << 20;
    let mut memory = std::vec![0_u8; 5 * HUGE];
    let start = (memory.as_ptr() as usize).next_multiple_of(HUGE);
    crate::arena::prefer_huge_pages(start, 4 * HUGE);
    memory.fill(1);
    // One of them is small pages from now on.
    crate::arena::discard(start + HUGE + 4096, 4096).unwrap();
    let pagemap = Pagemap::open().unwrap();
    let mut runs = [PresentRun::default(); 64];
    let bytes = |runs: &[PresentRun]| -> usize {
        let huge = runs.iter().filter(|run| run.is_huge());
        huge.map(|run| run.end() - run.start()).sum()
    };
    let (count, reached) = pagemap.present(start, start + 4 * HUGE, &mut runs).unwrap();
    assert_eq!(reached, start + 4 * HUGE);
    let present = bytes(&runs[..count]);
    let (count, reached) = pagemap.huge(start, start + 4 * HUGE, &mut runs).unwrap();
    assert_eq!(reached, start + 4 * HUGE);
    assert!(runs[..count].iter().all(PresentRun::is_huge));
    assert_eq!(bytes(&runs[..count]), present);
    assert!(present <= 3 * HUGE);
}

#[test]
fn every_mapping_is_seen_through_a_small_buffer() {
    let file = File::open(c"/proc/thread-self/maps").unwrap();
    let collect = |size: usize| {
        let mut starts = Vec::new();
        for_each_mapping(file, &mut std::vec![0; size], |m| starts.push(m.start)).unwrap();
        starts
    };
    let here = (&raw const file) as usize;
    let mut found = false;
    for_each_mapping(file, &mut [0; 8192], |m| {
        found |= (m.start..m.end).contains(&here)
    })
    .unwrap();
    assert!(found, "our own stack is mapped");
    assert!(collect(8192).len() > 10);
}

#[test]
fn what_was_written_of_a_file_is_resident_and_its_pages_are_not() {
    const PAGES: usize = 64;
    let pagemap = Pagemap::open().unwrap();
    let map = |shared: bool| {
        let path = std::env::current_exe().unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let file = File::open(&name).unwrap();
        // (MAP_SHARED to be read, or MAP_PRIVATE to be written.)
        let (protection, flags) = if shared { (1, 1) } else { (3, 2) };
        let args = [0, PAGES * PAGE_SIZE, protection, flags, file.fd(), 0];
        // SAFETY: a new mapping, where the kernel has room.
        let start = unsafe { crate::syscall::syscall(nr::MMAP, args) }.unwrap();
        file.close();
        start..start + PAGES * PAGE_SIZE
    };
    let touch = |range: &core::ops::Range<usize>| {
        let each = range.clone().step_by(PAGE_SIZE);
        each.for_each(|page| {
            // SAFETY: readable memory of this test's.
            let _ = unsafe { (page as *const u8).read_volatile() };
        });
    };
    let of_file = map(false);
    touch(&of_file);
    assert_eq!(pagemap.resident(of_file.clone(), false), 0);
    for page in of_file.clone().step_by(2 * PAGE_SIZE) {
        // SAFETY: writable memory of this test's.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
    assert_eq!(
        pagemap.resident(of_file.clone(), false),
        PAGES / 2 * PAGE_SIZE
    );
    let shared = map(true);
    touch(&shared);
    assert_eq!(pagemap.resident(shared.clone(), true), PAGES * PAGE_SIZE);
    crate::arena::unmap(of_file);
    crate::arena::unmap(shared);
}
