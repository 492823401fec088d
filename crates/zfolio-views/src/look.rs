//! Looking at a run, again and again.
//!
//! Gauges of a process that was killed stand in its slot still; who is over is known from the
//! kernel ([`Owners`]), and what is *now* is of those that live.

use crate::config::Config;
use rustix::fs::{FlockOperation, flock};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::find_run::locate;
use zfolio_host::group_state::GroupState;
use zfolio_host::owners::{Owners, Sight};
use zfolio_host::segment_file::{SharedSegment, directories, list};
use zfolio_host::slots::used;
use zfolio_host::statistics::{Figures, Process, Tree};
use zfolio_host::store_totals::StoreTotals;
use zfolio_runtime::segment::{MEMBERS, Segment, run_group};

/// A run that can be looked at.
#[derive(Debug)]
pub struct Look {
    path: PathBuf,
    file: File,
    segment: SharedSegment,
    owners: Owners,
    sight: Sight,
    ended: Option<EndedTotal>,
}

/// What those counted whose slots are others' by now; `zfolio run` alone has it. Whoever moves
/// figures from a slot to it holds the lock all the while, so that who holds it sees them once.
pub type EndedTotal = Arc<Mutex<Figures>>;

/// What is known of a process besides its figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which claim of the segment it is: no other process ever has the same; 0: the shared slot.
    pub turn: u64,
    /// It is not over.
    pub lives: bool,
    /// Name of its group; empty: the run itself.
    pub group: String,
}

/// What was seen at one look.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// What was asked for.
    pub config: Config,
    /// Figures.
    pub tree: Tree,
    /// Of each process of the tree, in the same order.
    pub places: Vec<Place>,
    /// The figures of those that live, added up.
    pub now: Figures,
    /// What went to a store, where one is behind the pool.
    pub store: Option<StoreTotals>,
}

impl Seen {
    /// The processes with their places.
    pub fn processes(&self) -> impl Iterator<Item = (&Process, &Place)> {
        self.tree.processes.iter().zip(&self.places)
    }
}

impl Look {
    /// Opens the run that is named, or the newest.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn find(which: Option<&Path>) -> Result<Self, Failure> {
        let path = locate(which)?;
        Self::open(&path).map_err(|error| {
            Failure::new(
                Status::Internal,
                path.display(),
                error,
                "name a running zfolio run, or its segment",
            )
        })
    }

    /// Opens a segment.
    ///
    /// # Errors
    /// When it cannot be read, or is none of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            file: File::open(path)?,
            segment: SharedSegment::open(path)?,
            owners: Owners::default(),
            sight: Sight::is_ours(),
            ended: None,
        })
    }

    /// The same, with those in the totals whose slots are others' by now.
    #[must_use]
    pub fn with(mut self, ended: EndedTotal) -> Self {
        self.ended = Some(ended);
        self
    }

    /// Every run of this user that is there, oldest first. (Files that are none are left out.)
    pub fn all() -> Vec<PathBuf> {
        let mut all: Vec<_> = directories().iter().flat_map(|dir| list(dir)).collect();
        all.sort();
        all.into_iter().map(|(_, path)| path).collect()
    }

    /// Where its segment is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Process id of its `zfolio run`, from the name of the file; `None` for a file of
    /// another name.
    pub fn pid(&self) -> Option<u32> {
        let name = self.path.file_name()?.to_str()?;
        name.strip_prefix("zfolio-")?
            .split_once('-')?
            .0
            .parse()
            .ok()
    }

    /// The segment itself.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether its `zfolio run` has ended: the file is gone, or another lies there, or nobody holds its lock.
    pub fn has_ended(&self) -> bool {
        let same = || -> io::Result<bool> {
            use std::os::unix::fs::MetadataExt;
            let (ours, there) = (self.file.metadata()?, self.path.metadata()?);
            Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        if !same().unwrap_or(false) {
            return true;
        }
        let free = flock(&self.file, FlockOperation::NonBlockingLockShared).is_ok();
        if free {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
        free
    }

    /// Looks once.
    pub fn look(&mut self) -> Seen {
        let segment: &Segment = &self.segment;
        let at = Instant::now();
        let ended = self.ended.as_ref().map(|ended| ended.lock());
        let all = used(segment);
        let mut tree = Tree::of(segment, &all);
        if let Some(ended) = ended {
            tree.total
                .add(&ended.unwrap_or_else(PoisonError::into_inner));
        }
        let owned: Vec<_> = all
            .iter()
            .map(|used| segment.owners[used.index].owned())
            .collect();
        self.owners.begin(owned.iter().copied().flatten());
        let groups = groups(segment);
        let places: Vec<Place> = all
            .iter()
            .zip(owned)
            .map(|(used, owned)| {
                let is_same = owned.filter(|owned| owned.turn == used.turn);
                Place {
                    turn: used.turn,
                    // (Of the shared slot nobody can say; another's by now: its process is over.)
                    lives: match is_same {
                        None => used.turn == 0,
                        Some(owned) => !self.owners.is_over(used.index, owned, self.sight),
                    },
                    group: is_same
                        .and_then(|owned| groups.get(&owned.who.word).cloned())
                        .unwrap_or_default(),
                }
            })
            .collect();
        let mut now = Figures::default();
        for (process, place) in tree.processes.iter().zip(&places) {
            if place.lives {
                now.add(&process.figures);
            }
        }
        Seen {
            at,
            config: Config::read(segment),
            tree,
            places,
            now,
            store: StoreTotals::of_run(segment.config()),
        }
    }
}

/// The name of the group of each member, by the member's number.
fn groups(segment: &Segment) -> HashMap<u64, String> {
    let names: HashMap<u32, String> = run_group::all(segment)
        .map(|(index, group)| (index, GroupState::read(group).name))
        .collect();
    if names.is_empty() {
        return HashMap::new();
    }
    let count = (segment.sharing.members_used.load(Relaxed) as usize).min(MEMBERS);
    let members = segment.sharing.members[..count].iter();
    let named = members.filter_map(|member| {
        let name = names.get(&member.group.load(Relaxed))?;
        Some((member.owner.owned()?.who.word, name.clone()))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::segment::{Counter, Who};

    /// Where those of the example lie, a process that lives, and who reads it.
    fn with_a_living_one() -> (zfolio_host::segment_file::OwnSegment, Look) {
        let own = crate::example::example();
        let who = Who {
            pid: std::process::id(),
            ..Who::is_calling()
        };
        let index = own.claim_for(Who { word: 77, ..who }, |_| true);
        own.slots[index].set(Counter::ResidentBytes, 5 << 20);
        let look = Look::open(own.path()).expect("it is there");
        (own, look)
    }

    #[test]
    fn what_is_now_is_of_those_that_live() {
        let (own, mut look) = with_a_living_one();
        // (Gauges that a process left when it was killed; no process has this id.)
        let gone = Who {
            word: 78,
            pid: i32::MAX.unsigned_abs(),
            ..Who::is_calling()
        };
        let index = own.claim_for(gone, |_| true);
        own.slots[index].set(Counter::ResidentBytes, 9 << 20);
        let seen = look.look();
        assert_eq!(seen.places.len(), seen.tree.processes.len());
        let lives = |pid: u32| {
            let mut all = seen.processes();
            all.find(|(process, _)| process.pid == pid)
                .map(|(_, place)| place.lives)
        };
        assert_eq!(lives(std::process::id()), Some(true));
        assert_eq!(lives(i32::MAX.unsigned_abs()), Some(false));
        assert_eq!(seen.tree.total.get(Counter::ResidentBytes), 14 << 20);
        assert!(seen.now.get(Counter::ResidentBytes) < 14 << 20);
        assert!(seen.now.get(Counter::ResidentBytes) >= 5 << 20);
    }

    #[test]
    fn processes_have_the_names_of_their_groups() {
        let (own, mut look) = with_a_living_one();
        let group = run_group::named(&own, "build/cc").expect("a group");
        let member = &own.sharing.members[0];
        let who = Who {
            word: 77,
            ..Who::is_calling()
        };
        assert!(member.owner.take(0, who, own.next_turn()));
        member.group.store(group, Relaxed);
        own.sharing.members_used.store(1, Relaxed);
        let seen = look.look();
        let named: Vec<&str> = seen.places.iter().map(|one| one.group.as_str()).collect();
        assert_eq!(named, ["", "", "build/cc"]);
    }

    #[test]
    fn the_end_of_a_run_is_seen() {
        let (own, look) = with_a_living_one();
        assert!(!look.has_ended());
        assert_eq!(look.pid(), Some(std::process::id()));
        assert!(Look::all().iter().any(|path| path == own.path()));
        drop(own);
        assert!(look.has_ended());
    }
}
