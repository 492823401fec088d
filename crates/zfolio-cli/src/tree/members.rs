//! Places among those that share `high`, of processes that are over.
//!
//! A member counts as long as it says again what it has, and two seconds longer; one that has
//! no thread to say so counts until its place is nobody's. `zfolio run` sees the end of a
//! process whatever namespaces it is in, and frees its place at once: what it had is
//! the others'. Should it be wrong, or be misled, the process takes a place again when it
//! says next what it has.

use std::sync::atomic::Ordering::Acquire;
use zfolio_host::owners::{Owners, Sight};
use zfolio_runtime::segment::{MEMBERS, Owned, Segment};

/// Sees which members are over.
#[derive(Debug, Default)]
pub(crate) struct Members(Owners);

impl Members {
    /// Looks once.
    pub(crate) fn look(&mut self, segment: &Segment, sight: Sight) {
        let count = (segment.sharing.members_used.load(Acquire) as usize).min(MEMBERS);
        let places = segment.sharing.members[..count].iter().enumerate();
        let owned: Vec<(usize, Owned)> = places
            .filter_map(|(index, member)| Some((index, member.owner.owned()?)))
            .collect();
        self.0.begin(owned.iter().map(|(_, owned)| *owned));
        for (index, owned) in owned {
            if self.0.is_over(index, owned, sight) {
                segment.sharing.members[index].owner.free_from(owned);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, SystemTime};
    use zfolio_host::segment_file::OwnSegment;
    use zfolio_runtime::fair_share::{Having, Membership};
    use zfolio_runtime::segment::run_group::{self, RUN};
    use zfolio_runtime::segment::{LIVES, Who};

    /// `high`, pages.
    const HIGH: usize = 100_000;
    const ELSEWHERE: u64 = 12;

    fn segment() -> OwnSegment {
        OwnSegment::create(|segment| segment.config().limits.shared.store(1, Relaxed)).unwrap()
    }

    fn having(owner: u64) -> Having {
        Having {
            owner,
            resident: HIGH,
            needs: HIGH,
            ..Having::default()
        }
    }

    fn now_ns() -> u64 {
        let since: Duration = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        u64::try_from(since.as_nanos()).unwrap()
    }

    /// Takes a place for another process, which said just now what it has, or lives.
    fn member(segment: &Segment, at: usize, pid: u32, namespace: u64, lives: bool) {
        let one = &segment.sharing.members[at];
        let who = Who {
            word: at as u64 + 1000,
            namespace,
            pid,
        };
        assert!(one.owner.take(0, who, segment.next_turn()));
        one.resident_bytes.store(1 << 20, Relaxed);
        one.needed_bytes.store(400 << 20, Relaxed);
        one.updated_ns
            .store(if lives { LIVES } else { now_ns() }, Relaxed);
        let used = u32::try_from(at + 1).unwrap();
        segment.sharing.members_used.fetch_max(used, Relaxed);
    }

    /// One that has just ended, and one that lives.
    fn children() -> (u32, Child) {
        let spawn = || Command::new("sleep").arg("1000").spawn().unwrap();
        let (mut gone, lives) = (spawn(), spawn());
        gone.kill().unwrap();
        gone.wait().unwrap();
        (gone.id(), lives)
    }

    fn ends(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn before_it_says_what_it_has_a_process_has_the_least_high_of_its_groups() {
        let segment = segment();
        let group = run_group::named(&segment, "one/two").unwrap();
        let above = run_group::named(&segment, "one").unwrap();
        let (of_run, of_group) = (Membership::of(RUN), Membership::of(group));
        let most = |one: &Membership| one.most_of(&segment, HIGH);
        assert_eq!([most(&of_run), most(&of_group)], [HIGH; 2]);
        segment.groups[above as usize].high.store(80 << 20, Relaxed);
        assert_eq!([most(&of_run), most(&of_group)], [HIGH, 20480]);
        segment.groups[group as usize].high.store(40 << 20, Relaxed);
        assert_eq!([most(&of_run), most(&of_group)], [HIGH, 10240]);
        // (One that is too small to be a member as well.)
        let small = Having {
            resident: 1,
            ..having(1)
        };
        let allowed = of_group.update(&segment, small, HIGH);
        assert_eq!([allowed.high, allowed.assured], [10240; 2]);
        assert_eq!(of_run.update(&segment, small, HIGH).high, HIGH);
        segment.config().limits.shared.store(0, Relaxed);
        assert_eq!(most(&of_group), HIGH, "each on its own");
    }

    #[test]
    fn where_all_places_are_taken_those_of_the_ended_are_had() {
        let (segment, here) = (segment(), zfolio_sys::process::pid_namespace());
        let (gone, child) = children();
        for at in 0..MEMBERS {
            let pid = if at == 700 { gone } else { child.id() };
            member(&segment, at, pid, here, at % 2 == 0);
        }
        let late = Membership::of(RUN);
        late.update(&segment, having(1), HIGH);
        assert_eq!(segment.sharing.members[700].owner.word.load(Relaxed), 1);
        // No other is over: who comes now has the least, and not all.
        let allowed = Membership::of(RUN).update(&segment, having(2), HIGH);
        assert!(allowed.high < HIGH / 10, "{allowed:?}");
        ends(child);
    }

    #[test]
    fn who_is_small_beside_high_as_it_is_now_is_no_member() {
        let (segment, now) = (segment(), HIGH / 2);
        segment.groups[0].high.store((now * 4096) as u64, Relaxed);
        let me = Membership::of(RUN);
        let has = |resident: usize| Having {
            resident,
            ..having(1)
        };
        assert_eq!(me.update(&segment, has(now / 64 - 1), HIGH).high, now);
        assert!(segment.sharing.members[0].owner.is_free());
        assert_eq!(me.update(&segment, has(now / 64 + 1), HIGH).high, now);
        assert_eq!(segment.sharing.members[0].owner.word.load(Relaxed), 1);
    }

    #[test]
    fn a_member_of_another_namespace_counts_until_it_is_freed() {
        let (segment, here) = (segment(), zfolio_sys::process::pid_namespace());
        let (gone, child) = children();
        let (sight, mut members) = (Sight::is_ours(), Members::default());
        // Which ids are there says nothing of a process that has its own elsewhere.
        member(&segment, 0, gone, ELSEWHERE, true);
        member(&segment, 1, child.id(), here, true);
        let me = Membership::of(RUN);
        let high = |me: &Membership| me.update(&segment, having(1), HIGH).high;
        // (Beside two who have hardly anything it keeps nearly all.)
        assert!(high(&me) < HIGH, "{}", high(&me));
        assert!(me.resident_of_others(&segment) >= 512);
        for _ in 0..3 {
            members.look(&segment, sight);
        }
        assert!(
            segment.sharing.members[0].owner.is_free(),
            "nobody is in there"
        );
        assert!(!segment.sharing.members[1].owner.is_free());
        ends(child);
        for _ in 0..3 {
            members.look(&segment, sight);
        }
        assert!(segment.sharing.members[1].owner.is_free());
        assert_eq!(high(&me), HIGH);
    }
}
