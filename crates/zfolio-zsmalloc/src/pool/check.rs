//! The walker that checks a pool's invariants.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use zfolio_mm::Memory;

use super::running::Running;
use super::zs_pool::{ZsPool, objs};
use crate::class::SizeClass;
use crate::grouping::Grouping;
use crate::slot::{Header, NO_SLOT};
use crate::zspage::{DAMAGED, Zspage};

/// What a walk over the lists found of one zspage.
#[derive(Clone, Default)]
struct Seen {
    /// On a list.
    listed: bool,
    /// Per slot below `fresh`: free or in use, each counted once.
    slots: Vec<bool>,
    objects: u16,
    pinned: u16,
}

impl<G: Grouping> ZsPool<G> {
    /// Checks the invariants at the heads of `pool`, `zspage`, `lists` and
    /// `pool::compact`. Takes time
    /// and memory in proportion to the objects: for tests.
    ///
    /// # Errors
    /// A sentence on the first invariant found broken.
    pub fn validate(&self, memory: &impl Memory) -> Result<(), String> {
        let mut seen = vec![Seen::default(); self.zspages.records()];
        let mut pages = 0;
        let mut zspages = 0;
        for (position, class) in self.table.classes().iter().enumerate() {
            let count = self.validate_lists(position, class, memory, &mut seen)?;
            zspages += count;
            pages += count * class.pages;
        }
        if pages != self.pages_used {
            return Err(format!(
                "pages_used {} but {pages} in zspages",
                self.pages_used
            ));
        }
        if zspages != self.zspages.live() || zspages != self.bases.len() {
            return Err(format!(
                "{zspages} zspages listed, {} records, {} bases",
                self.zspages.live(),
                self.bases.len()
            ));
        }
        self.validate_running(&seen)?;
        self.validate_handles(memory, &mut seen)
    }

    /// The compaction under way keeps a zspage that exists, of its class.
    fn validate_running(&self, seen: &[Seen]) -> Result<(), String> {
        let Some((class, id)) = self.running.as_ref().and_then(Running::kept) else {
            return Ok(());
        };
        let listed = seen
            .get(id.get() as usize - 1)
            .is_some_and(|note| note.listed);
        if !listed || usize::from(self.zspages.get(id).class) != class {
            return Err(format!("a compaction of class {class} keeps {id:?}"));
        }
        Ok(())
    }

    /// Walks the lists of one class, returns its zspages.
    fn validate_lists(
        &self,
        position: usize,
        class: &SizeClass,
        memory: &impl Memory,
        seen: &mut [Seen],
    ) -> Result<usize, String> {
        let lists = &self.lists[position];
        let name = class.size;
        let mut total = 0;
        let mut used = 0;
        for group in 0..lists.len() {
            let mut count = 0;
            let mut before = None;
            for (id, zspage) in lists.iter(&self.zspages, group) {
                let note = seen
                    .get_mut(id.get() as usize - 1)
                    .ok_or("id out of range")?;
                if note.listed {
                    return Err(format!("class {name}: a zspage is on two lists"));
                }
                note.listed = true;
                if usize::from(zspage.class) != position || lists.list_of(zspage.group) != group {
                    return Err(format!("class {name} list {group}: {zspage:?} misplaced"));
                }
                if zspage.group_for::<G>(objs(class)) != zspage.group || zspage.inuse == 0 {
                    return Err(format!("class {name} list {group}: {zspage:?} misgrouped"));
                }
                if zspage.prev != before || self.bases.get(zspage.base) != Some(id) {
                    return Err(format!("class {name}: {zspage:?} badly linked"));
                }
                note.slots = validate_free_list(zspage, class, memory)?;
                used += usize::from(zspage.inuse);
                before = Some(id);
                count += 1;
            }
            if count != lists.count(group) || lists.is_nonempty(group) != (count != 0) {
                return Err(format!(
                    "class {name} list {group}: {count} members, miscounted"
                ));
            }
            total += count;
        }
        if total != lists.zspages() {
            return Err(format!(
                "class {name}: {total} zspages, counted {}",
                lists.zspages()
            ));
        }
        if used != self.used[position] {
            return Err(format!(
                "class {name}: {used} in use, counted {}",
                self.used[position]
            ));
        }
        Ok(total)
    }

    /// Walks the handles: each to one slot in use, no slot without one.
    fn validate_handles(&self, memory: &impl Memory, seen: &mut [Seen]) -> Result<(), String> {
        let (mut live, mut pinned) = (0, 0);
        let mut lodging = vec![0; self.lodging.len()];
        for (handle, place) in self.handles.iter() {
            let host = usize::from(self.zspages.get(place.zspage).class);
            let own = host.checked_sub(usize::from(place.distance));
            let own = own.ok_or_else(|| format!("{handle:?} is a guest from below class 0"))?;
            lodging[own] += self.beyond(own, host);
            let note = seen
                .get_mut(place.zspage.get() as usize - 1)
                .ok_or("id out of range")?;
            if !note.listed {
                return Err(format!("{handle:?} is in a zspage on no list"));
            }
            match note.slots.get_mut(usize::from(place.index)) {
                Some(slot) if !*slot => *slot = true,
                _ => return Err(format!("{handle:?} is in a slot free or taken: {place:?}")),
            }
            note.objects += 1;
            note.pinned += u16::from(place.pins != 0);
            pinned += usize::from(place.pins != 0);
            if !self.check_owner(handle, memory) {
                return Err(format!("the header of {handle:?} does not name it"));
            }
            live += 1;
        }
        if pinned != self.pinned {
            return Err(format!(
                "{pinned} objects with pins, {} counted",
                self.pinned
            ));
        }
        if lodging != self.lodging {
            return Err(format!("lodging {:?} but {lodging:?} found", self.lodging));
        }
        if live != self.handles.live()
            || self.handles.free_cells() != Some(self.handles.cells() - live)
        {
            return Err(format!("{live} handles, {} counted", self.handles.live()));
        }
        for lists in &self.lists {
            for (id, zspage) in (0..lists.len()).flat_map(|g| lists.iter(&self.zspages, g)) {
                let note = &seen[id.get() as usize - 1];
                if note.objects != zspage.inuse || note.pinned != zspage.pinned {
                    return Err(format!(
                        "{zspage:?} has {} objects, {} pinned",
                        note.objects, note.pinned
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Walks the free slots of a zspage: a flag per slot below `fresh`, set for the
/// free ones. A damaged zspage has no list to walk.
fn validate_free_list(
    zspage: &Zspage,
    class: &SizeClass,
    memory: &impl Memory,
) -> Result<Vec<bool>, String> {
    let mut slots = vec![false; usize::from(zspage.fresh)];
    if zspage.inuse > zspage.fresh || usize::from(zspage.fresh) > class.objs {
        return Err(format!(
            "class {}: {zspage:?} miscounts its slots",
            class.size
        ));
    }
    if zspage.group == DAMAGED {
        return Ok(slots);
    }
    let mut free = 0;
    let mut index = zspage.free;
    while index != NO_SLOT {
        match slots.get_mut(usize::from(index)) {
            Some(slot) if !*slot => *slot = true,
            _ => {
                return Err(format!(
                    "class {}: {zspage:?} has a bad free slot",
                    class.size
                ));
            }
        }
        free += 1;
        let offset = usize::from(index) * class.size;
        match Header::read(memory, zspage.base, offset) {
            Header::Free(next) => index = next,
            header => {
                return Err(format!(
                    "class {}: slot {index} says {header:?}",
                    class.size
                ));
            }
        }
    }
    if free != zspage.fresh - zspage.inuse {
        return Err(format!(
            "class {}: {zspage:?} lists {free} free slots",
            class.size
        ));
    }
    Ok(slots)
}
