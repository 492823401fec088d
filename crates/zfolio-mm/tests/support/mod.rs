//! An arena with contents: what every page holds is the number of its folio, and is
//! moved with it. After any sequence each folio must still hold its number.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary includes it and uses a part"
)]

use std::collections::BTreeMap;

use zfolio_mm::compaction::{Compactor, Folios, Found, PageblockCounts, Policy, Refused};
use zfolio_mm::{Frames, Kind, Order, Pfn};

pub fn order(o: u8) -> Order {
    Order::new(o).expect("at most 9")
}

pub fn pfn(slot: usize) -> Pfn {
    Pfn(0).offset(slot)
}

#[derive(Clone, Copy, Debug)]
pub struct Folio {
    pub id: u32,
    pub pages: usize,
    /// In flight: never offered.
    pub movable: bool,
    /// Offered, then refused: a reader came in between.
    pub busy: bool,
    pub splittable: bool,
}

pub struct Arena {
    pub frames: Frames,
    pub folios: BTreeMap<usize, Folio>,
    /// What each slot holds.
    contents: Vec<u32>,
    ids: u32,
    pub contended: bool,
    /// Calls of `migrate`, successful or not.
    pub asked: usize,
}

impl Arena {
    /// `blocks` pageblocks of free backed slots.
    pub fn backed(blocks: usize) -> Self {
        let mut arena = Self::holes(blocks);
        while arena.populate(Order::HUGE).is_some() {}
        arena
    }

    /// `blocks` pageblocks of holes.
    pub fn holes(blocks: usize) -> Self {
        Self {
            frames: Frames::new(blocks * 512),
            folios: BTreeMap::new(),
            contents: vec![0; blocks * 512],
            ids: 0,
            contended: false,
            asked: 0,
        }
    }

    pub fn populate(&mut self, order: Order) -> Option<Pfn> {
        let at = self.frames.alloc(Kind::Hole, order)?;
        self.frames.free(Kind::Backed, at, order);
        Some(at)
    }

    pub fn release(&mut self, order: Order) {
        if let Some((at, order)) = self.frames.take_free(Kind::Backed, order) {
            self.frames.free(Kind::Hole, at, order);
        }
    }

    pub fn alloc(&mut self, pages: usize) -> Option<Pfn> {
        let at = self.frames.alloc_exact(Kind::Backed, pages)?;
        self.place(at, pages);
        Some(at)
    }

    fn place(&mut self, at: Pfn, pages: usize) {
        self.ids += 1;
        let id = self.ids;
        self.contents[at.index()..at.index() + pages].fill(id);
        let folio = Folio {
            id,
            pages,
            movable: true,
            busy: false,
            splittable: true,
        };
        assert!(self.folios.insert(at.index(), folio).is_none());
    }

    /// Makes a folio of free slots at a given place.
    pub fn alloc_at(&mut self, slot: usize, pages: usize) {
        let mut at = slot;
        while at < slot + pages {
            let backed = self.frames.of(Kind::Backed);
            let (block, order) = Order::all()
                .map(|order| (at >> order.get() << order.get(), order))
                .find(|(block, order)| backed.block_at(pfn(*block)) == Some(*order))
                .expect("all of the slots are free");
            self.frames.take_block(Kind::Backed, pfn(block));
            let end = block + order.pages();
            let wanted = end.min(slot + pages);
            for (from, to) in [(block, at), (wanted, end)] {
                self.frames.free_range(Kind::Backed, pfn(from), to - from);
            }
            at = wanted;
        }
        self.place(pfn(slot), pages);
    }

    pub fn free(&mut self, at: usize) {
        let folio = self.folios.remove(&at).expect("a folio");
        self.frames.free_range(Kind::Backed, pfn(at), folio.pages);
    }

    pub fn nth(&self, n: usize) -> Option<usize> {
        let len = self.folios.len();
        (len > 0).then(|| *self.folios.keys().nth(n % len).expect("in range"))
    }

    pub fn folio_mut(&mut self, at: usize) -> &mut Folio {
        self.folios.get_mut(&at).expect("a folio")
    }

    /// Every slot has one owner, every folio its contents, and nothing is lost.
    pub fn check<P: Policy>(&self, compactor: &Compactor<P>) {
        self.frames.validate().expect("the owner's invariants");
        compactor.validate().expect("the compactor's invariants");
        let mut owners = vec![0_u8; self.contents.len()];
        for kind in Kind::ALL {
            for order in Order::all() {
                for at in self.frames.of(kind).iter_free(order) {
                    owners[at.index()..at.index() + order.pages()]
                        .iter_mut()
                        .for_each(|n| *n += 1);
                }
            }
        }
        for (at, folio) in &self.folios {
            let slots = *at..at + folio.pages;
            owners[slots.clone()].iter_mut().for_each(|n| *n += 1);
            let intact = self.contents[slots].iter().all(|page| *page == folio.id);
            assert!(intact, "the folio at {at}");
        }
        let mut held = 0;
        for (slot, owner) in owners.iter_mut().enumerate() {
            if compactor.holds(pfn(slot)) {
                *owner += 1;
                held += 1;
            }
            assert_eq!(*owner, 1, "owners of slot {slot}");
        }
        assert_eq!(held, compactor.held_pages());
    }
}

impl Folios for Arena {
    fn slots(&self) -> usize {
        self.frames.slots()
    }

    fn look(&self, at: Pfn) -> Found {
        if let Some(order) = self.frames.of(Kind::Backed).block_at(at) {
            return Found::Free(order);
        }
        if let Some(order) = self.frames.of(Kind::Hole).block_at(at) {
            return Found::Other {
                pages: order.pages(),
            };
        }
        match self.folios.get(&at.index()) {
            Some(folio) => Found::Folio {
                pages: folio.pages,
                movable: folio.movable,
            },
            None => Found::Other { pages: 1 },
        }
    }

    fn free_blocks(&self, order: Order) -> usize {
        self.frames.free_blocks(Kind::Backed, order)
    }

    fn free_pages(&self) -> usize {
        self.frames.free_pages(Kind::Backed)
    }

    fn pageblock(&self, block: usize) -> PageblockCounts {
        PageblockCounts {
            free: self.frames.of(Kind::Backed).free_in_pageblock(block),
            holes: self.frames.of(Kind::Hole).free_in_pageblock(block),
        }
    }

    fn isolate(&mut self, at: Pfn) -> Option<Order> {
        self.frames.take_block(Kind::Backed, at)
    }

    fn give(&mut self, at: Pfn, pages: usize) {
        self.frames.free_range(Kind::Backed, at, pages);
    }

    fn migrate(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<(), Refused> {
        self.asked += 1;
        let folio = self.folios.get(&from.index()).ok_or(Refused::Gone)?;
        assert_eq!(folio.pages, pages, "the whole folio is moved");
        if folio.busy || !folio.movable {
            return Err(Refused::Busy);
        }
        let (from, to) = (from.index(), to.index());
        assert_eq!(
            to / 512,
            (to + pages - 1) / 512,
            "a folio lies in one pageblock"
        );
        self.contents.copy_within(from..from + pages, to);
        // What is left behind must not be read any more.
        self.contents[from..from + pages].fill(u32::MAX);
        let folio = self.folios.remove(&from).expect("just seen");
        assert!(self.folios.insert(to, folio).is_none());
        Ok(())
    }

    fn split(&mut self, at: Pfn) -> bool {
        let Some(folio) = self.folios.get(&at.index()).copied() else {
            return false;
        };
        if !folio.splittable || folio.busy || !folio.movable {
            return false;
        }
        self.folios.remove(&at.index());
        for page in 0..folio.pages {
            let single = Folio { pages: 1, ..folio };
            self.folios.insert(at.index() + page, single);
        }
        true
    }

    fn contended(&self) -> bool {
        self.contended
    }
}
