//! Our pool, as the engine uses it: a page that compresses to less than the
//! largest class with several objects holds is an object, else it is kept.

use super::interface::{Pool, State};
use crate::corpus::Page;
use zfolio_compress::{Codec, CompressUnit, Context, DecompressUnit};
use zfolio_mm::{Frames, Kind, Memory, Order, PAGE_SIZE};
use zfolio_sys::arena::ArenaMap;
use zfolio_zsmalloc::{Handle, ZsPool};

pub(super) struct Ours {
    pool: ZsPool,
    frames: Frames,
    arena: ArenaMap,
    codec: Box<dyn Context + Send>,
    useful: usize,
    /// Object and length of each page.
    held: Vec<Option<(Handle, usize)>>,
    compressed: u64,
}

impl Ours {
    /// With room for `pages` in a pool that is empty.
    pub(super) fn new(pool: ZsPool, pages: usize) -> Result<Self, String> {
        // A page each at worst, and runs of up to 16 begun for every class.
        let slots = (pages + 16 * 256).next_multiple_of(512);
        let arena = ArenaMap::reserve(slots).map_err(|error| format!("no arena: {error:?}"))?;
        let mut frames = Frames::new(slots);
        while let Some((at, order)) = frames.take_free(Kind::Hole, Order::HUGE) {
            frames.free(Kind::Backed, at, order);
        }
        let useful = pool.classes().huge_class_size() - 1;
        let codec = Codec::LZ4.compressor().context();
        Ok(Self {
            pool,
            frames,
            arena,
            codec: codec.map_err(|error| error.to_string())?,
            useful,
            held: vec![None; pages],
            compressed: 0,
        })
    }
}

impl Pool for Ours {
    fn store(&mut self, at: usize, page: &Page) -> Result<(), String> {
        let mut packed = [0; PAGE_SIZE];
        let mut units = [CompressUnit::new(&page.0, &mut packed[..self.useful])];
        // Its one result is looked at.
        let _ = self.codec.compress_batch(&mut units);
        let len = units[0].result.ok();
        let bytes = len.map_or(&page.0[..], |len| &packed[..len]);
        let handle = self
            .pool
            .malloc(bytes.len(), &self.arena, &mut self.frames)
            .map_err(|error| error.to_string())?;
        let place = self.pool.location(handle);
        self.arena
            .with_mut(place.at, place.offset, bytes.len(), |into| {
                into.copy_from_slice(bytes);
            });
        self.held[at] = Some((handle, bytes.len()));
        self.compressed += bytes.len() as u64;
        Ok(())
    }

    fn free(&mut self, at: usize) -> Result<(), String> {
        let (handle, len) = self.held[at].take().ok_or("freed twice")?;
        self.compressed -= len as u64;
        self.pool
            .free(handle, &self.arena, &mut self.frames)
            .map_err(|error| error.to_string())
    }

    fn compact(&mut self) -> Result<(), String> {
        self.pool.compact(&self.arena, &mut self.frames);
        self.pool.validate(&self.arena)
    }

    fn state(&mut self) -> Result<State, String> {
        Ok(State {
            compressed: self.compressed,
            used: (self.pool.pages_used() * PAGE_SIZE) as u64,
            moved: Some(self.pool.objs_moved()),
        })
    }

    fn is_intact(&mut self, at: usize, page: &Page) -> Result<bool, String> {
        let (handle, len) = self.held[at].ok_or("freed")?;
        let place = self.pool.location(handle);
        let mut plain = [0; PAGE_SIZE];
        let codec = &mut self.codec;
        self.arena.with(place.at, place.offset, len, |bytes| {
            if len == PAGE_SIZE {
                plain.copy_from_slice(bytes);
            } else {
                let _ = codec.decompress_batch(&mut [DecompressUnit::new(bytes, &mut plain)]);
            }
        });
        Ok(plain == page.0)
    }
}
