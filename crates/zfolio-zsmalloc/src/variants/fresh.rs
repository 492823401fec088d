//! The compaction loop the kernel's zsmalloc had before it kept destinations.

use zfolio_mm::Memory;

use super::algorithm::Algorithm;
use crate::grouping::Grouping;
use crate::pool::{Stop, ZsPool};
use crate::source::FrameSource;
use crate::zspage_id::ZspageId;

/// Source first, and for each source fresh destinations: taken from the fullest
/// group with room, put back at the head of its group after one source. What
/// was half filled in one round is then often the source of the next, and its
/// objects move again. That is the fault the experiment shows.
///
/// A class is given up at the first pinned source.
#[derive(Clone, Copy, Debug)]
pub struct FreshDestination;

impl Algorithm for FreshDestination {
    const NAME: &'static str = "fresh destination";

    fn compact_class<G: Grouping>(
        pool: &mut ZsPool<G>,
        position: usize,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    ) {
        while pool.freeable(position) != 0 {
            let Some(source) = take_source(pool, position) else {
                return;
            };
            let emptied = empty(pool, position, source, memory);
            if emptied == Some(Stop::SourceEmpty) {
                pool.release_compacted(source, frames);
            } else {
                let damaged = emptied == Some(Stop::SourceDamaged);
                pool.put_back(source, damaged);
            }
            if emptied.is_none() {
                return;
            }
        }
    }
}

/// Takes the head of the emptiest group off its list.
fn take_source<G: Grouping>(pool: &mut ZsPool<G>, position: usize) -> Option<ZspageId> {
    let (lists, zspages) = pool.lists_of(position);
    let (source, zspage) = lists.emptiest_first(zspages).next()?;
    if zspage.pinned != 0 {
        return None;
    }
    lists.remove(zspages, source);
    Some(source)
}

/// Moves a source's objects to as many destinations as they fill; why that
/// ended, `None` for want of a destination.
fn empty<G: Grouping>(
    pool: &mut ZsPool<G>,
    position: usize,
    source: ZspageId,
    memory: &impl Memory,
) -> Option<Stop> {
    loop {
        let (lists, zspages) = pool.lists_of(position);
        let destination = lists.fullest_with_room()?;
        lists.remove(zspages, destination);
        let (_, stop) = pool.move_objects(source, destination, memory);
        pool.put_back(destination, stop == Stop::DestinationDamaged);
        if matches!(stop, Stop::SourceEmpty | Stop::SourceDamaged) {
            return Some(stop);
        }
    }
}
