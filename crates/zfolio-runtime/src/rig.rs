//! For tests: a manager on the fake kernel, a program, and a model of the program's memory.
//!
//! One thread is all threads: a fault is served where the program touches, reclaim runs when
//! it is called, and the program's thread goes on after an event when the test says so.

extern crate std;

mod random;

use crate::address_space::RangeRules;
use crate::address_space::place::Place;
use crate::budget::fair_share::Membership;
use crate::control::Manager;
use crate::control::relief::Remembered;
use crate::descriptors::{PROGRAM_FEATURES, SOURCE_FEATURES};
use crate::faces::assemble::{OpenedFiles, Parts, assemble};
use crate::frames::reserve_arena;
use crate::kernel::{File, Pagemap, Uffd};
use crate::options::{Codec, Options};
use crate::page::{Vpn, address_of};
use crate::page_fault::{Fault, Outcome};
use crate::pager::{Access, RegionEngine};
use crate::scope::{Scope, Serving};
use crate::segment::Segment;
use crate::segment::run_group::{RUN, named};
use crate::transfer::move_out::EvictMode;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;
use zfolio_fake_kernel::program::{self, Stopped};
use zfolio_mm::frames::Kind;
use zfolio_mm::{Memory, PAGE_SIZE};
use zfolio_sys::arena::SharedWords;
use zfolio_sys::syscall::Errno;

/// Waits for which one try counts: few are enough for memory beyond `high`.
const IMPATIENCE: usize = 30;

/// Tries of one fault after which it is not going to be served.
const TRIES: usize = 1000;

/// As advice moves pages out.
pub(crate) const COLD: EvictMode = EvictMode {
    huge: false,
    cold: true,
    may_fault: true,
};

/// A manager, and a program that has some pages.
pub(crate) struct Rig {
    pub(crate) manager: &'static Manager,
    pub(crate) memory: Range<usize>,
    /// What each page holds: see [`content`]; 0: zeros.
    pub(crate) model: Vec<u32>,
    remembered: RefCell<Remembered>,
}

/// Kinds of page that are made once.
const KINDS: u32 = 64;

/// Whether a page is of a kind.
fn is_of(bytes: &[u8], kind: u32) -> bool {
    static MADE: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    let made = MADE.get_or_init(|| (0..KINDS).map(content).collect());
    match made.get(kind as usize) {
        Some(page) => bytes == page,
        None => bytes == content(kind),
    }
}

/// A page of a kind: of zeros, of one byte, of text, or such that nothing compresses it.
pub(crate) fn content(kind: u32) -> Vec<u8> {
    let mut state = kind;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let fill = |_| match kind % 4 {
        _ if kind == 0 => 0,
        1 => kind.to_le_bytes()[0],
        2 | 3 => b'a' + next() % 8,
        _ => next(),
    };
    (0..PAGE_SIZE).map(fill).collect()
}

fn segment() -> &'static Segment {
    let layout = std::alloc::Layout::new::<Segment>();
    #[allow(unsafe_code)]
    // SAFETY: of the layout of a `Segment`, which any bytes are; never freed.
    unsafe {
        let new = std::alloc::alloc_zeroed(layout);
        assert!(!new.is_null(), "memory for a segment");
        &*new.cast::<Segment>()
    }
}

/// What rigs are made with: `high` pages.
fn options(high: usize) -> Options {
    let mut options = Options::for_regions(high * PAGE_SIZE, Codec::Lz4 { acceleration: 1 });
    options.folios.huge_page_assembly = true;
    options
}

impl Rig {
    /// A program with a region of `pages` pages, which may use `high`.
    pub(crate) fn of_regions(high: usize, pages: usize) -> Self {
        zfolio_fake_kernel::restart();
        let options = options(high);
        let made = Manager::for_regions(segment(), options, Serving::InThread, || {});
        let rig = Self::new(made.expect("a manager"), pages);
        rig.manager.add_region(&rig.memory).expect("a region");
        rig
    }

    /// A process with `pages` pages, all registered, which may use `high`.
    pub(crate) fn of_process(high: usize, pages: usize) -> Self {
        let segment = segment();
        Self::of_member(segment, Membership::of(RUN), high, pages)
    }

    /// A process in a named group of a run.
    pub(crate) fn in_group(name: &str, high: usize, pages: usize) -> Self {
        let segment = segment();
        let group = named(segment, name).expect("a group");
        Self::of_member(segment, Membership::of(group), high, pages)
    }

    fn of_member(
        segment: &'static Segment,
        membership: Membership,
        high: usize,
        pages: usize,
    ) -> Self {
        zfolio_fake_kernel::restart();
        let options = options(high);
        let open = |path| File::open(path).expect("a file");
        let made = assemble(Parts {
            options,
            membership,
            map: reserve_arena(high, usize::MAX).expect("addresses"),
            opened: OpenedFiles {
                program: Uffd::open(PROGRAM_FEATURES).expect("userfaultfd"),
                source: Uffd::open(SOURCE_FEATURES).expect("userfaultfd"),
                statm: open(c"/proc/thread-self/statm"),
                pagemap: Pagemap::open().expect("a file"),
                maps: open(c"/proc/thread-self/maps"),
            },
            words: SharedWords::map().expect("words"),
            private: Vec::new(),
            stack: None,
            rules: RangeRules {
                left_alone: |_| false,
                is_sealed: |_| false,
            },
            segment,
            statistics: segment.claim(zfolio_sys::thread::pid()),
            workers: 1,
            scope: Scope::Process,
        });
        let rig = Self::new(made.unwrap_or_else(|_| panic!("a manager")), pages);
        let manager = rig.manager;
        manager.register_own().expect("registering");
        manager.first_frames().expect("frames");
        let mut hand = manager.hand.lock();
        hand.vmas.refresh().expect("the list of mappings");
        manager.register_all(&hand);
        drop(hand);
        let registered = manager.core.lock().pages.registered.contains(&rig.memory);
        assert!(registered, "the program's memory is registered");
        rig
    }

    /// One of each scope, one after the other: the kernel begins anew for each.
    pub(crate) fn both(high: usize, pages: usize) -> impl Iterator<Item = Self> {
        let makers: [fn(usize, usize) -> Self; 2] = [Self::of_regions, Self::of_process];
        makers.into_iter().map(move |make| make(high, pages))
    }

    fn new(manager: &'static Manager, pages: usize) -> Self {
        Self {
            manager,
            memory: program::map(pages),
            model: alloc::vec![0; pages],
            remembered: RefCell::default(),
        }
    }

    pub(crate) fn vpn(&self, page: usize) -> Vpn {
        self.memory.start / PAGE_SIZE + page
    }

    pub(crate) fn vpns(&self, pages: Range<usize>) -> Range<Vpn> {
        self.vpn(pages.start)..self.vpn(pages.end)
    }

    pub(crate) fn address(&self, page: usize) -> usize {
        address_of(self.vpn(page))
    }

    /// Where page `page` is by its word.
    pub(crate) fn place(&self, page: usize) -> Place {
        self.manager.core.lock().pages.extents.place(self.vpn(page))
    }

    /// The program writes a page.
    pub(crate) fn write(&mut self, page: usize, kind: u32) {
        let (address, bytes) = (self.address(page), content(kind));
        self.until_served(page, Access::Write, || program::write(address, &bytes));
        self.model[page] = kind;
    }

    /// The program writes some pages, each what no other holds.
    pub(crate) fn write_all(&mut self, pages: Range<usize>) {
        for page in pages {
            let kind = u32::try_from(4 * page + 2).expect("few pages");
            self.write(page, kind);
        }
    }

    /// The program reads a page and finds what it wrote.
    pub(crate) fn read(&self, page: usize) {
        let address = self.address(page);
        let found = self.until_served(page, Access::Read, || program::read(address));
        assert!(is_of(&found, self.model[page]), "page {page} is another");
    }

    pub(crate) fn read_all(&self) {
        (0..self.model.len()).for_each(|page| self.read(page));
    }

    fn until_served<R>(
        &self,
        page: usize,
        access: Access,
        mut touch: impl FnMut() -> Result<R, Stopped>,
    ) -> R {
        for waits in 0..TRIES {
            match touch() {
                Ok(done) => return done,
                Err(_) => self.fault(page, access, waits * IMPATIENCE),
            };
        }
        panic!("the fault of page {page} was never served");
    }

    /// One try of a fault, and what a thread does about how it ended.
    fn fault(&self, page: usize, access: Access, waits: usize) -> Outcome {
        let outcome = self.try_fault(page, access, waits);
        match outcome {
            Outcome::Served(_) => {}
            Outcome::Defer => self.settle(),
            // The thread rings for the control thread, and stores for itself.
            Outcome::NeedFrames => {
                self.relieve();
                self.manager
                    .make_frames(&mut self.manager.workers[1].lock());
            }
        }
        outcome
    }

    /// One try of a fault.
    pub(crate) fn try_fault(&self, page: usize, access: Access, waits: usize) -> Outcome {
        let mut worker = self.manager.workers[1].lock();
        let waits = u32::try_from(waits).expect("few tries");
        worker.urgent = self.manager.has_waited_enough(waits);
        let fault = Fault {
            vpn: self.vpn(page),
            access,
            thread: 0,
            read_ns: 0,
            waits,
        };
        self.manager.serve(&mut worker, fault)
    }

    /// Events are read, and whoever made them goes on.
    pub(crate) fn settle(&self) {
        let mut core = self.manager.core.lock();
        self.manager.pump(&mut core);
        program::settle();
        self.manager.apply_parked(&mut core);
    }

    /// The program discards pages: of a region by a call of ours, of a process by the kernel's.
    pub(crate) fn discard(&mut self, pages: Range<usize>) {
        let range = self.address(pages.start)..self.address(pages.end);
        if self.manager.scope.has_events() {
            program::discard(range);
            self.settle();
        } else {
            self.manager.discard(&range);
        }
        self.model[pages].fill(0);
    }

    /// Moves pages out; how many.
    pub(crate) fn move_out(&self, pages: Range<usize>) -> Result<usize, Errno> {
        self.manager.move_run(self.vpns(pages), COLD)
    }

    /// Stores what stands by, until nothing does, or it is refused.
    pub(crate) fn store_all(&self) {
        use crate::swapout::store::Stored;
        let mut worker = self.manager.workers[0].lock();
        while let Stored::Pages(_) = self.manager.store_coldest(&mut worker, 1) {}
    }

    /// Moves pages out and stores them.
    pub(crate) fn swap_out(&self, pages: Range<usize>) {
        let wanted = pages.len();
        assert_eq!(self.move_out(pages.clone()), Ok(wanted), "{pages:?} leave");
        self.store_all();
        for page in pages {
            assert!(matches!(self.place(page), Place::Stored(_)), "{page}");
        }
    }

    /// Reclaims until usage is where it should be, as the control thread does.
    pub(crate) fn relieve(&self) {
        let manager = self.manager;
        let mut worker = manager.workers[0].lock();
        let mut compacting = manager.compacting.lock();
        let relief = manager.relieve(
            &mut worker,
            &mut self.remembered.borrow_mut(),
            &mut compacting,
        );
        manager.adjust_overdraft(relief);
    }

    /// What must hold whenever nothing is under way, of words, frames and bytes.
    pub(crate) fn validate(&self) {
        self.validate_but(0..0);
    }

    /// As [`Self::validate`], while an event of some pages is in flight.
    pub(crate) fn validate_but(&self, flying: Range<usize>) {
        let manager = self.manager;
        manager.zswap.validate().expect("the pool");
        let core = manager.core.lock();
        core.pages.extents.validate().expect("the extents");
        manager.validate_clean(&core).expect("clean pages");
        let map = manager.arena().map();
        let page_of = |bytes: &[u8], page| is_of(bytes, self.model[page]);
        let mut standby = 0;
        for page in (0..self.model.len()).filter(|page| !flying.contains(page)) {
            let address = self.address(page);
            let present = program::is_present(address);
            if present {
                let bytes = program::read(address).expect("present");
                assert!(page_of(&bytes, page), "page {page} is another");
            }
            let place = core.pages.extents.place(self.vpn(page));
            match place {
                Place::Present => {
                    let zeros = self.model[page] == 0;
                    assert!(present || zeros, "page {page} is nowhere");
                }
                Place::Gone => assert_eq!(self.model[page], 0, "page {page} was discarded"),
                Place::Clean(_) => {
                    let protected = program::is_protected(address);
                    assert!(!present || protected, "clean page {page} may be written to");
                }
                Place::Standby(at) => {
                    standby += 1;
                    assert!(program::is_present(map.address(at)), "{page} at {at}");
                    let same = map.with(at, 0, PAGE_SIZE, |bytes| page_of(bytes, page));
                    assert!(same, "page {page} is another in standby");
                }
                Place::Stored(_) => {}
                Place::Storing(_) | Place::Loading(_) => panic!("page {page} is under way"),
            }
            let away = matches!(place, Place::Standby(_) | Place::Stored(_));
            assert!(!(away && present), "page {page} is in two places");
        }
        assert_eq!(core.pages.standby.pages(), standby, "pages in standby");
        drop(core);
        let frames = manager.arena().frames();
        frames.validate().expect("the frames");
        let backed = frames.slots() - frames.free_pages(Kind::Hole);
        drop(frames);
        let arena = program::present(&map.range());
        assert_eq!(arena, backed, "slots with a frame");
        if manager.scope.counts_frames() {
            let resident = arena + program::present(&self.memory);
            assert_eq!(manager.usage(), resident, "usage");
        }
    }
}
