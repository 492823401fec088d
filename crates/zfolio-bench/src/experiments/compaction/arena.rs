//! An arena of ordinary memory, with folios whose bytes are really copied.

use zfolio_mm::compaction::{Folios, Found, PageblockCounts, Refused};
use zfolio_mm::{Frames, Kind, Order, PAGE_SIZE, Pfn};

/// What starts at a slot; `pages` is 0 where no folio does.
#[derive(Clone, Copy, Default, Debug)]
struct Head {
    id: u32,
    pages: u16,
    movable: bool,
    splittable: bool,
}

/// Which slots are free and which folios are where: all but the bytes.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    frames: Frames,
    heads: Vec<Head>,
    ids: u32,
}

impl Layout {
    /// `blocks` pageblocks of free frames.
    pub(super) fn new(blocks: usize) -> Self {
        let slots = blocks * Order::HUGE.pages();
        let mut frames = Frames::new(slots);
        while let Some(at) = frames.alloc(Kind::Hole, Order::HUGE) {
            frames.free(Kind::Backed, at, Order::HUGE);
        }
        Self {
            frames,
            heads: vec![Head::default(); slots],
            ids: 0,
        }
    }

    /// A new folio of `pages` pages.
    pub(super) fn alloc(&mut self, pages: usize, splittable: bool) -> Option<Pfn> {
        let at = self.frames.alloc_exact(Kind::Backed, pages)?;
        self.ids += 1;
        self.heads[at.index()] = Head {
            id: self.ids,
            pages: u16::try_from(pages).ok()?,
            movable: true,
            splittable,
        };
        Some(at)
    }

    /// Frees the folio at `at`; returns its pages, 0 if there is none.
    pub(super) fn free(&mut self, at: Pfn) -> usize {
        let pages = usize::from(std::mem::take(&mut self.heads[at.index()]).pages);
        if pages > 0 {
            self.frames.free_range(Kind::Backed, at, pages);
        }
        pages
    }

    /// Keeps the folio at `at` where it is.
    pub(super) fn pin(&mut self, at: Pfn) {
        self.heads[at.index()].movable = false;
    }

    pub(super) fn free_pages(&self) -> usize {
        self.frames.free_pages(Kind::Backed)
    }

    pub(super) fn used_pages(&self) -> usize {
        self.frames.used_pages()
    }

    pub(super) fn slots(&self) -> usize {
        self.frames.slots()
    }

    fn folios(&self) -> impl Iterator<Item = (usize, &Head)> {
        self.heads.iter().enumerate().filter(|(_, h)| h.pages > 0)
    }
}

/// A layout and the bytes of its slots.
#[derive(Debug)]
pub(super) struct Arena<'a> {
    layout: Layout,
    bytes: &'a mut [u8],
}

impl<'a> Arena<'a> {
    /// The layout over `bytes`, which are stamped with the folios' numbers.
    pub(super) fn new(layout: Layout, bytes: &'a mut [u8]) -> Self {
        for (at, head) in layout.folios() {
            write_stamps(bytes, at, head);
        }
        Self { layout, bytes }
    }

    /// Takes a block of `order`, for good; `false` when there is none.
    pub(super) fn take(&mut self, order: Order) -> bool {
        let at = self.layout.alloc(order.pages(), false);
        if let Some(at) = at {
            write_stamps(self.bytes, at.index(), &self.layout.heads[at.index()]);
        }
        at.is_some()
    }

    pub(super) fn free_pages(&self) -> usize {
        self.layout.free_pages()
    }

    /// Pages whose bytes are not those of their folio. Folios that were split keep
    /// the numbers of what they were part of.
    pub(super) fn damaged(&self) -> usize {
        let pages = self.layout.folios().flat_map(|(at, head)| {
            (0..usize::from(head.pages)).map(move |page| (at + page, head, page))
        });
        pages
            .filter(|(slot, head, page)| {
                let (first, last) = stamps(*slot);
                let whole = stamp(head.id, *page);
                let intact = self.bytes[first.clone()] == self.bytes[last]
                    && self.bytes[first.clone()][..4] == whole[..4]
                    // A page of a folio that was split does not know which it was.
                    && (head.pages == 1 || self.bytes[first] == whole);
                !intact
            })
            .count()
    }
}

fn write_stamps(bytes: &mut [u8], at: usize, head: &Head) {
    for page in 0..usize::from(head.pages) {
        let (first, last) = stamps(at + page);
        bytes[first].copy_from_slice(&stamp(head.id, page));
        bytes[last].copy_from_slice(&stamp(head.id, page));
    }
}

/// Where the first and the last word of a slot are.
fn stamps(slot: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let (begin, end) = (slot * PAGE_SIZE, (slot + 1) * PAGE_SIZE);
    (begin..begin + 8, end - 8..end)
}

/// What a page of a folio is stamped with.
fn stamp(id: u32, page: usize) -> [u8; 8] {
    (u64::from(id) | (page as u64) << 32).to_le_bytes()
}

impl Folios for Arena<'_> {
    fn slots(&self) -> usize {
        self.layout.slots()
    }

    fn look(&self, at: Pfn) -> Found {
        let head = self.layout.heads[at.index()];
        if head.pages > 0 {
            return Found::Folio {
                pages: usize::from(head.pages),
                movable: head.movable,
            };
        }
        let free = self.layout.frames.of(Kind::Backed).block_at(at);
        free.map_or(Found::Other { pages: 1 }, Found::Free)
    }

    fn free_blocks(&self, order: Order) -> usize {
        self.layout.frames.free_blocks(Kind::Backed, order)
    }

    fn free_pages(&self) -> usize {
        self.layout.free_pages()
    }

    fn pageblock(&self, block: usize) -> PageblockCounts {
        let free = |kind| self.layout.frames.of(kind).free_in_pageblock(block);
        PageblockCounts {
            free: free(Kind::Backed),
            holes: free(Kind::Hole),
        }
    }

    fn isolate(&mut self, at: Pfn) -> Option<Order> {
        self.layout.frames.take_block(Kind::Backed, at)
    }

    fn give(&mut self, at: Pfn, pages: usize) {
        self.layout.frames.free_range(Kind::Backed, at, pages);
    }

    fn migrate(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<(), Refused> {
        let head = self.layout.heads[from.index()];
        if usize::from(head.pages) != pages {
            return Err(Refused::Gone);
        }
        if !head.movable {
            return Err(Refused::Busy);
        }
        let begin = from.index() * PAGE_SIZE;
        self.bytes
            .copy_within(begin..begin + pages * PAGE_SIZE, to.index() * PAGE_SIZE);
        self.layout.heads[to.index()] = std::mem::take(&mut self.layout.heads[from.index()]);
        Ok(())
    }

    fn split(&mut self, at: Pfn) -> bool {
        let head = self.layout.heads[at.index()];
        if head.pages == 0 || !head.splittable || !head.movable {
            return false;
        }
        let end = at.index() + usize::from(head.pages);
        self.layout.heads[at.index()..end].fill(Head { pages: 1, ..head });
        true
    }
}
