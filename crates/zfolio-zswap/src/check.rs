//! The invariants of the crate's head, checked.

use crate::arena::Arena;
use crate::entries::Held;
use crate::zswap::Zswap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl<A: Arena> Zswap<A> {
    /// Checks every invariant, the pool's included. Walks everything, with the
    /// pool lock held: for tests and debugging.
    ///
    /// # Errors
    /// What was found wrong.
    pub fn validate(&self) -> Result<(), String> {
        let pool = self.pool.lock();
        pool.entries.validate()?;
        pool.zs.validate(&self.arena)?;
        let (mut same, mut raw, mut bytes) = (0, 0, 0);
        let mut handles = Vec::new();
        for held in pool.entries.iter() {
            match held {
                Held::Same(_) => same += 1,
                Held::Object(object) => {
                    raw += u64::from(object.raw);
                    bytes += u64::from(object.len);
                    handles.push(object.handle);
                    let Some(at) = pool.zs.try_location(object.handle) else {
                        return Err(format!("{object:?} has no object"));
                    };
                    if at.capacity < usize::from(object.len) {
                        return Err(format!("{object:?} is longer than its slot at {at:?}"));
                    }
                }
            }
        }
        let objects = handles.len();
        handles.sort_unstable();
        handles.dedup();
        let now = self.stats.snapshot();
        let equal = [
            (
                "handles, all different",
                handles.len() as u64,
                objects as u64,
            ),
            ("objects", pool.zs.objects() as u64, objects as u64),
            ("stored_pages", now.stored_pages, pool.entries.used() as u64),
            (
                "stored = objects + same-filled",
                now.stored_pages,
                objects as u64 + same,
            ),
            ("same_filled_pages", now.same_filled_pages, same),
            (
                "stored_incompressible_pages",
                now.stored_incompressible_pages,
                raw,
            ),
            ("compressed_bytes", now.compressed_bytes, bytes),
            ("pool_pages", now.pool_pages, pool.zs.pages_used() as u64),
        ];
        match equal.iter().find(|(_, counted, found)| counted != found) {
            Some((what, counted, found)) => {
                Err(format!("{what}: {counted} counted, {found} found"))
            }
            None => Ok(()),
        }
    }
}
