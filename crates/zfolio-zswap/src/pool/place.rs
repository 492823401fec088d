//! Room in the pool for an object.

use crate::arena::Arena;
use crate::entry::held::{Held, Object};
use crate::frame_reserve::Reserve;
use crate::pool::state::Pool;
use crate::pool::zswap::Zswap;
use zfolio_sys::lock::MutexGuard;

impl<A: Arena> Zswap<A> {
    /// Room for `len` bytes, dropping the lock while frames are fetched.
    pub(crate) fn place_object(
        &self,
        pool: &mut MutexGuard<'_, Pool>,
        frames: &mut Reserve,
        len: u16,
        checksum: u32,
        raw: bool,
    ) -> Option<Held> {
        loop {
            frames.wanted = 0;
            match pool.zs.malloc(usize::from(len), &self.arena, frames) {
                Ok(handle) => {
                    return Some(Held::Object(Object {
                        handle,
                        len,
                        checksum,
                        raw,
                        version: 0,
                    }));
                }
                Err(_) if frames.wanted == 0 => return None,
                Err(_) => {}
            }
            let (wanted, unfit) = (frames.wanted, frames.spare.take());
            self.note_pool(pool);
            frames.spare = MutexGuard::unlocked(pool, || {
                // A run left over when another thread made room meanwhile.
                if let Some((at, pages)) = unfit {
                    self.arena.free_frames(at, pages);
                }
                self.arena.alloc_frames(wanted).map(|at| (at, wanted))
            });
            frames.spare?;
        }
    }
}
