extern crate std;
use super::*;
use std::ffi::CString;
use std::fs::File;
use std::vec::Vec;

fn fresh(name: &str) -> CString {
    let path = std::env::temp_dir().join(std::format!("{name}-{}", std::process::id()));
    File::create(&path).unwrap().set_len(BYTES as u64).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

#[test]
fn what_is_put_into_a_cell_is_taken_out_of_it() {
    let data: Data = [const { AtomicU64::new(u64::MAX) }; VALUE / 8];
    let all: Vec<u8> = (0..251_u8).cycle().take(VALUE).collect();
    for len in (0..40).chain([VALUE - 9, VALUE - 8, VALUE - 1, VALUE]) {
        put_bytes(&data, &all[..len]);
        let mut taken = std::vec![0; len];
        take_bytes(&data, &mut taken);
        assert!(taken == all[..len], "{len} bytes");
    }
    // The rest of a cell, and more than fits.
    let mut end = [0xff; 16];
    take_bytes(&data[VALUE / 8 - 1..], &mut end);
    assert_eq!((&end[..8], &end[8..]), (&all[VALUE - 8..], &[0xff; 8][..]));
}

#[test]
fn rings_are_given_to_one_and_given_again_when_it_has_gone() {
    let path = fresh("zfolio-exchange-test");
    assert_eq!(
        Exchange::join(&path, 1).err(),
        Some(Errno::INVAL),
        "no magic"
    );
    let hall = Hall::open(&path).unwrap();
    hall.head().magic.store(MAGIC, Ordering::Release);
    let members: Vec<_> = (1..4).map(|n| Exchange::join(&path, n).unwrap()).collect();
    assert_eq!(
        members.iter().map(|m| m.index).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert!(!members[0].has_pager());
    assert!(hall.become_pager(true));
    assert!(
        !Hall::open(&path).unwrap().become_pager(true),
        "there is one"
    );
    assert!(members[0].has_pager());
    assert!(!hall.take_ring(1), "its owner lives");
    // As when its process ends: its mappings go as well, which keep the file open.
    members[1].file.close();
    let (head, ring) = (members[1].head, members[1].ring);
    for (at, len) in [
        ((&raw const *head) as usize, size_of::<Head>()),
        ((&raw const *ring) as usize, size_of::<Ring>()),
    ] {
        unmap(at..at + len);
    }
    // Not before the pager has cleaned up.
    let bare = Exchange::join(&path, 5).unwrap().without_descriptor();
    assert_eq!(bare.index, 3);
    assert!(
        bare.has_pager() && !hall.take_ring(3),
        "its mappings hold the lock"
    );
    assert!(hall.take_ring(1));
    // Nothing that the last owner asked for is the next one's.
    let cells = &hall.ring(1).cells;
    for (cell, state) in cells.iter().zip([state::POSTED, state::TAKEN]) {
        cell.state.store(state, Ordering::Relaxed);
    }
    hall.head().posted[1].store(3, Ordering::Relaxed);
    let ring = hall.clear_ring(1);
    let states = cells
        .each_ref()
        .map(|cell| cell.state.load(Ordering::Relaxed));
    assert_eq!(states, [state::FREE; CELLS]);
    assert_eq!(hall.head().posted[1].load(Ordering::Relaxed), 0);
    let other = Exchange::join(&path, 6).unwrap();
    assert_eq!(other.index, 4, "it is not given yet");
    hall.give_ring(ring);
    assert_eq!(Exchange::join(&path, 7).unwrap().index, 1);
    std::fs::remove_file(path.to_str().unwrap()).unwrap();
}

#[test]
fn bytes_go_through_a_cell() {
    let path = fresh("zfolio-exchange-bytes");
    let hall = Hall::open(&path).unwrap();
    hall.head().magic.store(MAGIC, Ordering::Release);
    let member = Exchange::join(&path, 9).unwrap();
    let bytes: Vec<u8> = (0..1003_u32).map(|n| n.to_le_bytes()[0]).collect();
    put_bytes(&member.ring().data[3], &bytes);
    let mut back = std::vec![0; bytes.len()];
    take_bytes(&hall.ring(0).data[3], &mut back);
    assert_eq!(back, bytes);
    let seen = hall.head().bell.load(Ordering::Relaxed);
    member.note_posted(3);
    member.ring_the_bell();
    assert_ne!(hall.head().bell.load(Ordering::Relaxed), seen);
    assert_eq!(hall.head().posted[0].load(Ordering::Relaxed), 8);
    std::fs::remove_file(path.to_str().unwrap()).unwrap();
}
