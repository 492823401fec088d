//! Writes that are begun and settled later: an entry keeps its object until its record is
//! written, whatever happens meanwhile.

mod support;

use std::sync::Arc;
use support::{Content, TestArena, content_of, store};
use zfolio_compress::Codec;
use zfolio_sys::secret::KeyPage;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::backing::Call;
use zfolio_zswap::{Limits, MemoryBacking, Parts, Shrunk, Slot, WorkContext, Zswap};

const ROOM: u64 = 64 << 20;

fn ahead() -> (Zswap<TestArena>, Arc<MemoryBacking>) {
    let zswap = Zswap::new(TestArena::new(), Codec::LZ4, Limits::default());
    let backing = Arc::new(MemoryBacking::ahead(ROOM));
    zswap.attach(backing.clone(), KeyPage::random().unwrap());
    (zswap, backing)
}

fn records(count: u64) -> Vec<Content> {
    (0..count).map(Content::Records).collect()
}

/// Begins goes until no more can be begun; what was settled meanwhile.
fn begin(zswap: &Zswap<TestArena>, context: &mut WorkContext) -> Shrunk {
    loop {
        let step = zswap.shrink_step(context);
        if step.busy || step.is_stuck() {
            return step;
        }
        assert_eq!(step.written, 0, "nothing was answered");
    }
}

/// Folios of 32 pages, and one of what is left.
fn stored(zswap: &Zswap<TestArena>, contents: &[Content]) -> Vec<Slot> {
    let folios = contents.chunks(32);
    folios
        .flat_map(|folio| store(zswap, folio).unwrap())
        .collect()
}

fn check(zswap: &Zswap<TestArena>, slots: &[Slot], contents: &[Content]) {
    zswap.validate().unwrap();
    for (slot, content) in slots.iter().zip(contents) {
        let found = content_of(zswap, *slot).unwrap();
        assert!(found == content.bytes(), "{content:?}");
    }
}

#[test]
fn a_page_is_let_go_when_its_write_was_answered_and_not_before() {
    let (zswap, backing) = ahead();
    let contents = records(256);
    let slots = stored(&zswap, &contents);
    let mut context = zswap.context().unwrap();
    let step = begin(&zswap, &mut context);
    assert!(
        step.busy && step.errno.is_none() && !step.is_stuck(),
        "{step:?}"
    );
    assert_eq!(zswap.writes_under_way(), 4);
    assert_eq!(zswap.settle_writes().written, 0, "no answer yet");
    assert_eq!(zswap.backing_pages(), 0);
    check(&zswap, &slots, &contents);
    // Freed while it goes; loaded above.
    zswap.invalidate(&slots[..8]);
    assert!(backing.answer(Ok(())) >= 4);
    assert_eq!(zswap.settle_writes().written, 4 * 32 - 8);
    assert_eq!(zswap.writes_under_way(), 0);
    check(&zswap, &slots[8..], &contents[8..]);
    let now = zswap.stats().snapshot();
    assert_eq!([now.pswpout, now.backing_pages], [120, 120]);
    assert_eq!(now.pswpin, 120, "those are read from there");
    zswap.invalidate(&slots[8..]);
    zswap.validate().unwrap();
}

#[test]
fn a_write_that_fails_leaves_its_pages_in_the_pool() {
    let (zswap, backing) = ahead();
    let contents = records(128);
    let slots = stored(&zswap, &contents);
    let mut context = zswap.context().unwrap();
    begin(&zswap, &mut context);
    backing.answer(Err(Errno::NOSPC));
    let settled = zswap.settle_writes();
    assert_eq!((settled.written, settled.errno), (0, Some(Errno::NOSPC)));
    assert_eq!(zswap.stats().snapshot().backing_write_fail, 1);
    check(&zswap, &slots, &contents);
    // One that cannot be begun.
    backing.fail(Call::Write, Errno::IO, 1);
    let step = zswap.shrink_step(&mut context);
    assert_eq!((step.errno, step.written), (Some(Errno::IO), 0));
    check(&zswap, &slots, &contents);
    // They are tried again.
    begin(&zswap, &mut context);
    backing.answer(Ok(()));
    assert!(zswap.settle_writes().written > 0);
    check(&zswap, &slots, &contents);
}

#[test]
fn before_a_fork_what_goes_stays() {
    let (zswap, backing) = ahead();
    let contents = records(96);
    let slots = stored(&zswap, &contents);
    let mut context = zswap.context().unwrap();
    begin(&zswap, &mut context);
    zswap.give_up_writes();
    assert_eq!(zswap.writes_under_way(), 0);
    assert_eq!(backing.answer(Ok(())), 0, "nothing is asked for any more");
    let now = zswap.stats().snapshot();
    assert_eq!([now.backing_pages, now.backing_write_fail], [0, 0]);
    check(&zswap, &slots, &contents);
}

#[test]
fn what_lies_where_is_told_and_found_to_have_changed() {
    let (zswap, backing) = ahead();
    let contents = records(64);
    let slots = stored(&zswap, &contents);
    assert!(zswap.parts_behind(&slots).unwrap().is_empty());
    assert!(zswap.is_covered(&slots, &Parts::default()));
    let mut context = zswap.context().unwrap();
    begin(&zswap, &mut context);
    backing.answer(Ok(()));
    zswap.settle_writes();
    let some = &slots[..32];
    let parts = zswap.parts_behind(some).unwrap();
    assert_eq!(parts.iter().count(), 1, "{parts:?}");
    assert!(parts.bytes() > 32 * 64);
    assert!(zswap.is_covered(some, &parts));
    assert!(!zswap.is_covered(&slots, &parts), "others lie elsewhere");
    // What is written there later is another cluster, with other records at the same place.
    let within = |part: &zfolio_zswap::Part| {
        let end = part.offset + part.len as u64;
        let holds =
            |of: &zfolio_zswap::Part| of.offset <= part.offset && end <= of.offset + of.len as u64;
        parts.iter().any(holds)
    };
    let mut old = slots;
    for _ in 0..200 {
        zswap.invalidate(&old);
        zswap.tend_backing();
        old = stored(&zswap, &records(320));
        loop {
            let step = begin(&zswap, &mut context);
            backing.answer(Ok(()));
            if zswap.settle_writes().written == 0 && !step.busy {
                break;
            }
        }
        let lies_there = |slot: &&Slot| {
            let at = zswap.parts_behind(&[**slot]).unwrap();
            zswap.is_in_backing(**slot) && at.iter().all(within)
        };
        let mut same = old.iter().filter(lies_there).peekable();
        if same.peek().is_some() {
            assert!(same.all(|slot| !zswap.is_covered(&[*slot], &parts)));
            return;
        }
    }
    panic!("nothing came to lie there");
}

#[test]
fn what_was_not_there_when_it_was_looked_up_is_not_covered() {
    let (zswap, backing) = ahead();
    let contents = records(96);
    let slots = stored(&zswap, &contents);
    let mut context = zswap.context().unwrap();
    begin(&zswap, &mut context);
    assert_eq!(zswap.writes_under_way(), 3);
    // The second of three writes, which lie one behind the other, is answered last.
    assert_eq!(backing.answer_those(Ok(()), |order| order != 1), 2);
    assert_eq!(zswap.settle_writes().written, 64);
    let outer = [&slots[28..32], &slots[64..68]].concat();
    let parts = zswap.parts_behind(&outer).unwrap();
    assert_eq!(
        parts.iter().count(),
        1,
        "read as one, with a gap: {parts:?}"
    );
    assert_eq!(backing.answer(Ok(())), 1);
    assert_eq!(zswap.settle_writes().written, 32);
    assert!(zswap.is_covered(&outer, &parts));
    for slot in &slots[32..64] {
        assert!(!zswap.is_covered(&[*slot], &parts), "nobody has read it");
    }
    check(&zswap, &slots, &contents);
}
