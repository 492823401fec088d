//! Two backings, one after the other: what is near is filled first, and what is far takes the rest.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Content, TestArena, content_of, store};
use zfolio_compress::Codec;
use zfolio_sys::secret::KeyPage;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::backing::{CLUSTER, Call};
use zfolio_zswap::{Backing, ByDistance, InOrder, Limits, MemoryBacking, Shrunk, Slot, Zswap};

const ROOM: u64 = 64 << 20;

struct Rig {
    zswap: Zswap<TestArena>,
    near: Arc<MemoryBacking>,
    far: Arc<MemoryBacking>,
    slots: Vec<Slot>,
    contents: Vec<Content>,
}

impl Rig {
    /// With so many clusters near, and a far one.
    fn new(clusters: u64, far: MemoryBacking) -> Self {
        let near = Arc::new(MemoryBacking::new(clusters * CLUSTER as u64 + 100));
        let far = Arc::new(far);
        let zswap = Zswap::new(TestArena::new(), Codec::LZ4, Limits::default());
        let both = InOrder::new(near.clone(), far.clone());
        zswap.attach(Arc::new(both), KeyPage::random().unwrap());
        Self {
            zswap,
            near,
            far,
            slots: Vec::new(),
            contents: Vec::new(),
        }
    }

    /// Stores `count` pages in folios of 32.
    fn store(&mut self, count: usize) {
        let first = self.contents.len() as u64;
        let new: Vec<_> = (first..first + count as u64).map(Content::Noise).collect();
        for folio in new.chunks(32) {
            self.slots.extend(store(&self.zswap, folio).unwrap());
        }
        self.contents.extend(new);
    }

    /// Goes on until nothing more can go, or `busy`; what came of it.
    fn write_back(&self) -> Shrunk {
        let mut context = self.zswap.context().unwrap();
        let mut written = 0;
        loop {
            let step = self.zswap.shrink_step(&mut context);
            self.zswap.validate().unwrap();
            written += step.written;
            if step.is_stuck() || step.busy {
                return Shrunk { written, ..step };
            }
        }
    }

    /// Pages that are near and far.
    fn pages(&self) -> (u64, u64) {
        let now = self.zswap.stats().snapshot();
        (
            now.backing_pages - now.backing_store_pages,
            now.backing_store_pages,
        )
    }

    fn check(&self) {
        for (slot, content) in self.slots.iter().zip(&self.contents) {
            let found = content_of(&self.zswap, *slot).unwrap();
            assert!(found == content.bytes(), "{content:?}");
        }
        self.zswap.validate().unwrap();
    }

    /// Drops the first `count` pages.
    fn drop(&mut self, count: usize) {
        let gone: Vec<Slot> = self.slots.drain(..count).collect();
        self.contents.drain(..count);
        self.zswap.invalidate(&gone);
        self.zswap.tend_backing();
        self.zswap.validate().unwrap();
    }
}

#[test]
fn what_is_near_is_filled_first() {
    let mut rig = Rig::new(3, MemoryBacking::new(ROOM));
    rig.store(320);
    let step = rig.write_back();
    assert_eq!((step.written, step.errno, step.full), (320, None, false));
    let (near, far) = rig.pages();
    // (A page that does not compress has 65 granules of a cluster's 4096.)
    assert_eq!((near, far), (3 * 63, 320 - 3 * 63));
    let now = rig.zswap.stats().snapshot();
    assert_eq!((now.pswpout, now.pswpout_store), (320, far));
    assert_eq!(now.backing_full, 0, "there is room");
    let used = now.backing_used();
    assert_eq!(used.near, 3 * CLUSTER as u64);
    assert!(used.far >= far * 4096 && used.far.is_multiple_of(CLUSTER as u64));
    rig.check();
    let now = rig.zswap.stats().snapshot();
    assert_eq!((now.pswpin, now.pswpin_store), (320, far));
    // Places that become free there are taken again, and first.
    rig.drop(130);
    rig.store(100);
    rig.write_back();
    let (near, now_far) = rig.pages();
    assert!(near > 100 && now_far < far + 100, "{near}, {now_far}");
    rig.check();
    rig.drop(rig.slots.len());
    assert_eq!(rig.pages(), (0, 0));
    assert!(rig.near.held() <= CLUSTER && rig.far.held() <= CLUSTER);
}

#[test]
fn each_has_its_limit() {
    let mut rig = Rig::new(8, MemoryBacking::new(ROOM));
    let cluster = CLUSTER as u64;
    let limit = |near: u64, far: u64| ByDistance {
        near: near * cluster,
        far: far * cluster,
    };
    rig.zswap.limit_backing(limit(1, 1));
    rig.store(200);
    let step = rig.write_back();
    assert!(step.full);
    assert_eq!(rig.pages(), (63, 63));
    rig.zswap.limit_backing(limit(1, 2));
    assert!(rig.write_back().full);
    assert_eq!(rig.pages(), (63, 126));
    rig.zswap.limit_backing(limit(100, 0));
    rig.write_back();
    assert_eq!(rig.pages(), (74, 126));
    rig.check();
}

#[test]
fn what_does_not_take_it_is_passed_by_for_a_while() {
    let mut rig = Rig::new(100, MemoryBacking::new(ROOM));
    rig.store(96);
    rig.near.fail(Call::Write, Errno::NOSPC, 1);
    let step = rig.write_back();
    assert_eq!((step.written, step.errno), (96, None), "the others go on");
    assert_eq!(rig.pages(), (0, 96));
    assert_eq!(rig.zswap.stats().snapshot().backing_write_fail, 1);
    rig.check();
    let begin = Instant::now();
    while rig.pages().0 == 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "it rests for ever"
        );
        std::thread::sleep(Duration::from_millis(100));
        rig.store(32);
        rig.write_back();
    }
    assert!(begin.elapsed() > Duration::from_millis(500));
    // Where the far one refuses, there is nothing left.
    rig.far.fail(Call::Write, Errno::IO, 1);
    rig.near.fail(Call::Write, Errno::IO, 1);
    rig.store(32);
    assert_eq!(rig.write_back().errno, Some(Errno::IO));
    rig.check();
}

/// The far one's writes are begun and settled later; the near one's end at once, and go on where the
/// far one has no room for more.
#[test]
fn what_is_near_waits_for_nothing() {
    let mut rig = Rig::new(4, MemoryBacking::ahead(ROOM));
    assert!(rig.zswap.writes_ahead());
    rig.store(4 * 63 + 200);
    let step = rig.write_back();
    assert!(step.busy, "{step:?}");
    assert_eq!((step.written, rig.pages()), (4 * 63, (4 * 63, 0)));
    let under_way = rig.zswap.writes_under_way();
    assert!(under_way >= 2, "{under_way}");
    rig.check();
    // Room near, none far: it goes on.
    rig.drop(130);
    let step = rig.write_back();
    assert!(step.busy && step.written > 0, "{step:?}");
    assert_eq!(rig.zswap.writes_under_way(), under_way);
    assert_eq!(rig.pages().1, 0);
    assert!(rig.far.answer(Ok(())) >= under_way);
    rig.zswap.settle_writes();
    assert_eq!(rig.pages().1, under_way as u64 * 32);
    rig.check();
    // Only what is far is read before a lock is taken.
    let is_far = |slot: &Slot| !rig.zswap.parts_behind(&[*slot]).unwrap().is_empty();
    let far = rig.slots.iter().filter(|slot| is_far(slot)).count();
    assert_eq!(far as u64, rig.pages().1);
    // A near one that fails is passed by here as well.
    rig.near.fail(Call::Write, Errno::NOSPC, 1);
    rig.store(32);
    rig.drop(63);
    loop {
        let step = rig.write_back();
        assert_eq!(step.errno, None);
        if rig.far.answer(Ok(())) == 0 && !step.busy {
            break;
        }
    }
    assert_eq!(rig.zswap.writes_under_way(), 0);
    rig.check();
}

#[test]
fn places_of_the_first_are_below_the_seconds() {
    let near = Arc::new(MemoryBacking::new(3 * CLUSTER as u64 + 5));
    let far = Arc::new(MemoryBacking::new(1 << 30));
    let both = InOrder::new(near.clone(), far.clone());
    let from = 3 * CLUSTER as u64;
    assert_eq!((both.far_from(), both.capacity()), (from, from + (1 << 30)));
    for (offset, text) in [(from - 64, b"near"), (from, b"far!")] {
        both.write(offset, text).unwrap();
        let mut into = [0; 4];
        both.read(offset, &mut into).unwrap();
        assert_eq!(&into, text);
    }
    assert_eq!((near.calls(), far.calls()), ((1, 1), (1, 1)));
    // As many places are left for what is far as what is near may have.
    let large = Arc::new(MemoryBacking::new(u64::MAX));
    let both = InOrder::new(large, far);
    assert_eq!(both.far_from(), 128 << 30);
}
