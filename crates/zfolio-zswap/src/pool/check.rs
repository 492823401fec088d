//! The invariants of the crate's head, checked.

use crate::arena::Arena;
use crate::entry::held::{Held, Object};
use crate::entry::multi_page::Unit;
use crate::pool::charge::Charged;
use crate::pool::state::Pool;
use crate::pool::versions::version_in;
use crate::pool::zswap::Zswap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use zfolio_compress::dictionary::{VERSIONS, version_of};
use zfolio_mm::PAGE_SIZE;

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
        let (mut same, mut raw, mut bytes, mut backed, mut lost) = (0, 0, 0, 0, 0);
        let mut far = 0;
        let mut members = 0_u64;
        let mut handles = Vec::new();
        let mut live: Vec<u32> = Vec::new();
        let mut own = Charged {
            swap_fail: pool.charge.now().swap_fail,
            ..Charged::default()
        };
        let mut versions = [0; VERSIONS];
        for held in pool.entries.iter() {
            if let Some(units) = version_in(&held).and_then(|at| versions.get_mut(at)) {
                *units += 1;
            }
            own.swap += PAGE_SIZE as u64;
            match held {
                Held::Member(member) => {
                    members += 1;
                    own.zswapped += PAGE_SIZE as u64;
                    let unit = pool.units.get(member.unit);
                    if unit.is_none_or(|unit| unit.live & 1 << member.place == 0) {
                        return Err(format!("{member:?} is not of {unit:?}"));
                    }
                }
                Held::Lost => lost += 1,
                Held::Backed(record) => {
                    backed += 1;
                    let behind = pool.behind.as_ref();
                    let is_far = behind.is_some_and(|behind| behind.logs.is_far(record.at));
                    far += u64::from(is_far);
                    let cluster = record.at.cluster();
                    if live.len() <= cluster {
                        live.resize(cluster + 1, 0);
                    }
                    live[cluster] += 1;
                }
                Held::Same(_) => {
                    same += 1;
                    own.zswapped += PAGE_SIZE as u64;
                }
                Held::Object(object) => {
                    own.zswap += u64::from(object.len);
                    own.zswapped += PAGE_SIZE as u64;
                    own.zswap_incomp += if object.raw { PAGE_SIZE as u64 } else { 0 };
                    raw += u64::from(object.raw);
                    bytes += u64::from(object.len);
                    handles.push(object.handle);
                    let Some(at) = pool.zs.try_location(object.handle) else {
                        return Err(format!("{object:?} has no object"));
                    };
                    if at.capacity < usize::from(object.len) {
                        return Err(format!("{object:?} is longer than its slot at {at:?}"));
                    }
                    self.check_version(&pool, &object)?;
                }
            }
        }
        let mut living = 0;
        for (id, unit) in pool.units.iter() {
            let Unit { object, .. } = unit;
            own.zswap += u64::from(object.len);
            bytes += u64::from(object.len);
            handles.push(object.handle);
            living += u64::from(unit.live.count_ones());
            if let Some(units) = usize::from(object.version)
                .checked_sub(1)
                .and_then(|at| versions.get_mut(at))
            {
                *units += 1;
            }
            let at = pool.zs.try_location(object.handle);
            if at.is_none_or(|at| at.capacity < usize::from(object.len)) {
                return Err(format!("{unit:?} does not fit at {at:?}"));
            }
            self.check_version(&pool, &object)?;
            if unit.live == 0 && !pool.zs.is_pinned(object.handle) {
                return Err(format!("{unit:?} is nobody's"));
            }
            for slot in unit.slots() {
                let held = pool.entries.get(slot);
                if !matches!(held, Some(Held::Member(member)) if member.unit == id) {
                    return Err(format!("{unit:?} has {slot:?}, which holds {held:?}"));
                }
            }
        }
        let objects = handles.len() as u64;
        handles.sort_unstable();
        handles.dedup();
        let now = self.stats.snapshot();
        let equal = [
            ("handles, all different", handles.len() as u64, objects),
            ("objects", pool.zs.objects() as u64, objects),
            ("units", now.units, pool.units.used() as u64),
            ("unit_pages", now.unit_pages, members),
            ("places in units", living, members),
            (
                "entries in use",
                pool.entries.used() as u64,
                now.stored_pages + backed + lost,
            ),
            ("backing_pages", now.backing_pages, backed),
            ("backing_store_pages", now.backing_store_pages, far),
            (
                "dictionary_units",
                now.dictionary_units,
                versions.iter().sum(),
            ),
            (
                "stored = objects + same-filled",
                now.stored_pages,
                objects - now.units + members + same,
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
        let charged = pool.charge.now();
        if charged != own {
            return Err(format!("{charged:?} is charged, {own:?} found"));
        }
        self.check_versions(&versions)?;
        pool.lru.validate(|_| {})?;
        let mut misplaced = None;
        pool.lru.validate(|slot| {
            let held = pool.entries.get(slot);
            if !matches!(held, Some(Held::Object(_))) {
                misplaced = Some(format!("{slot:?} is in the list: {held:?}"));
            }
        })?;
        if let Some(misplaced) = misplaced {
            return Err(misplaced);
        }
        if let Some(behind) = &pool.behind {
            behind.logs.validate(&live)?;
        }
        match equal.iter().find(|(_, counted, found)| counted != found) {
            Some((what, counted, found)) => {
                Err(format!("{what}: {counted} counted, {found} found"))
            }
            None => Ok(()),
        }
    }
}

impl<A: Arena> Zswap<A> {
    /// An object says the version that its entry does.
    fn check_version(&self, pool: &Pool, object: &Object) -> Result<(), String> {
        // (What is being stored may not have its bytes yet.)
        if self.dictionaries.is_none() || object.raw || pool.zs.is_pinned(object.handle) {
            return Ok(());
        }
        let at = pool.zs.location(object.handle);
        let tag = self.arena.with(at.at, at.offset, 1, version_of);
        if tag == object.version {
            Ok(())
        } else {
            Err(format!("{object:?} is of version {tag}"))
        }
    }

    /// Each version has as many units as there are entries that name it, and is there.
    fn check_versions(&self, versions: &[u64; VERSIONS]) -> Result<(), String> {
        for (version, units) in (1..).zip(versions) {
            let of = self.dictionaries.as_ref();
            let counted = of.and_then(|of| of.units(version));
            if counted.unwrap_or(0) != *units {
                return Err(format!(
                    "dictionary {version}: {counted:?} units counted, {units} found"
                ));
            }
        }
        Ok(())
    }
}
