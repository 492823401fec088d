//! Which limits of a run may change while it lasts, to what, and how.
//!
//! Those that processes read again and again: `high`, `swap.max`, `zswap.max` and writeback of
//! the run and its groups, `max` and what happens there, and what the pool takes before it is
//! written back, or without a backing takes nothing more; and attributes of engines that batches read as they begin. Values are held to what `zfolio run` holds them to at the start, and `high` to
//! [`MOST_TIMES`] what the run began with, for which tables are made. A request changes all
//! that it names, or nothing.

use crate::fitting::Fitting;
use crate::options::engines::Engines;
use crate::requests::message::{Changes, Limit, Refused};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::group_state::{GroupState, high_now};
use zfolio_host::size::{MIN_HIGH, human, short};
use zfolio_runtime::segment::run_group::{RUN, all};
use zfolio_runtime::segment::{MOST_TIMES, RunGroup, Segment, faults, on_max};

/// Changes what is asked for, and says what was and what is, a line each.
///
/// # Errors
/// Something cannot be; nothing has changed then.
pub(crate) fn apply(
    changes: &Changes,
    segment: &Segment,
    fitting: &mut Fitting,
) -> Result<Vec<String>, Refused> {
    let index = group(changes, segment)?;
    check_kind(changes, segment)?;
    check_values(changes, segment, index)?;
    let engines = changes.engines.as_deref();
    let engines = engines.map(|text| Engines::of(segment.config()).changed(text));
    let engines = engines
        .transpose()
        .map_err(|why| Refused::new("--engines", why, "leave it out"))?;
    let config = segment.config();
    let group = &segment.groups[index as usize];
    let mut lines = Vec::new();
    let mut say = |name: &str, was: String, is: String| {
        lines.push(format!("{name}: {was}, now {is}"));
    };
    if let Some(high) = changes.high {
        let was = high_of(segment, group, index);
        let bytes = bytes_of(high);
        group.high.store(bytes.unwrap_or(0), Relaxed);
        if let (RUN, Some(bytes)) = (index, bytes) {
            fitting.give(bytes);
        }
        say("high", was, high_of(segment, group, index));
    }
    let mut pool = |name: &str, wanted: Option<Limit>, word: &AtomicU64| {
        if let Some(limit) = wanted {
            let was = words(word.load(Relaxed).checked_sub(1));
            let bytes = bytes_of(limit);
            word.store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Relaxed);
            say(name, was, words(bytes));
        }
    };
    pool("swap.max", changes.swap_max, &group.swap_max);
    pool("zswap.max", changes.zswap_max, &group.zswap_max);
    if let Some(writeback) = changes.writeback {
        let no_writeback = &group.no_writeback;
        let was = no_writeback.swap((!writeback).into(), Relaxed) == 0;
        let yes_no = |yes| String::from(if yes { "yes" } else { "no" });
        say("writeback", yes_no(was), yes_no(writeback));
    }
    if let Some(max) = changes.max {
        let was = config.limits.max.swap(bytes_of(max).unwrap_or(0), Relaxed);
        say("max", words((was > 0).then_some(was)), words(bytes_of(max)));
    }
    if let Some(what) = changes.on_max {
        let was = config.limits.on_max.swap(what, Relaxed);
        say("on-max", on_max_name(was).into(), on_max_name(what).into());
    }
    if let Some(percent) = changes.max_pool {
        let was = match config.pool.percent.swap(percent, Relaxed) {
            0 => "none".into(),
            was => format!("{was}%"),
        };
        say("max-pool", was, format!("{percent}%"));
    }
    if let Some((engines, changed)) = engines {
        for (name, [was, is]) in changed {
            say(name, was, is);
        }
        engines.store_attributes(config);
    }
    Ok(lines)
}

/// The group that is meant.
fn group(changes: &Changes, segment: &Segment) -> Result<u32, Refused> {
    let Some(name) = &changes.group else {
        return Ok(RUN);
    };
    let states = GroupState::all(segment);
    let found = all(segment)
        .zip(&states)
        .find(|(_, state)| state.name == *name);
    found.map(|((index, _), _)| index).ok_or_else(|| {
        let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
        let mend = match names.is_empty() {
            true => "it has no groups".into(),
            false => format!("it has {}", names.join(", ")),
        };
        Refused::new(format!("--group {name}"), "the run has no such group", mend)
    })
}

/// Whether a run of this kind has what is to be changed.
fn check_kind(changes: &Changes, segment: &Segment) -> Result<(), Refused> {
    let config = segment.config();
    let swap_max = ("--swap-max", changes.swap_max.is_some());
    let zswap_max = ("--zswap-max", changes.zswap_max.is_some());
    let writeback = ("--writeback", changes.writeback.is_some());
    let group = ("--group", changes.group.is_some());
    let max = ("--max", changes.max.is_some());
    let on_max = ("--on-max", changes.on_max.is_some());
    let max_pool = ("--max-pool", changes.max_pool.is_some());
    let first = |asked: &[(&'static str, bool)]| {
        let mut given = asked.iter().filter(|(_, given)| *given);
        given.next().map(|(name, _)| *name)
    };
    let shared = config.limits.shared.load(Relaxed) != 0;
    if let Some(name) = first(&[swap_max, zswap_max, writeback, group]).filter(|_| !shared) {
        let why = "the run is --per-process: nothing is shared that this could limit";
        return Err(Refused::new(name, why, "leave it out"));
    }
    if changes.high.is_some()
        && changes.group.is_none()
        && config.limits.slowdown.load(Relaxed) != 0
    {
        let why = "follows what the program loses: the run has --slowdown";
        return Err(Refused::new("--high", why, "leave it out"));
    }
    let by_messages = config.faults.load(Relaxed) == faults::MESSAGE;
    let engines = ("--engines", changes.engines.is_some());
    let of_messages = first(&[swap_max, zswap_max, max, on_max, max_pool, engines]);
    if let Some(name) = of_messages.filter(|_| !by_messages) {
        let why = "works with --faults message only, which the run has not";
        return Err(Refused::new(name, why, "leave it out"));
    }
    let of_run = first(&[max, on_max, max_pool, engines]);
    if let Some(name) = of_run.filter(|_| changes.group.is_some()) {
        let why = "is the run's, not a group's";
        return Err(Refused::new(name, why, "leave --group out"));
    }
    Ok(())
}

/// Whether the values go together, with what stays.
fn check_values(changes: &Changes, segment: &Segment, index: u32) -> Result<(), Refused> {
    let config = segment.config();
    let max = match changes.max {
        Some(limit) => bytes_of(limit),
        None => Some(config.limits.max.load(Relaxed)).filter(|max| *max > 0),
    };
    let high = match (changes.high, index) {
        (Some(Limit::Bytes(bytes)), RUN) => bytes,
        (Some(Limit::None), RUN) => {
            let why = "a run has one always";
            return Err(Refused::new("--high", why, "give a size"));
        }
        _ => high_now(segment),
    };
    if changes.high.is_some() && index == RUN {
        let begun = config.limits.high.load(Relaxed);
        let most = begun.saturating_mul(MOST_TIMES);
        if high < MIN_HIGH {
            let why = format!("{} is below the least, {}", human(high), short(MIN_HIGH));
            return Err(Refused::new("--high", why, "give it more"));
        }
        if high > most {
            let why = format!(
                "{} is more than {MOST_TIMES} times what the run began with, {}: its tables \
                 are made for no more",
                human(high),
                short(begun)
            );
            let mend = format!("give it {} at most", short(most));
            return Err(Refused::new("--high", why, mend));
        }
        Engines::of(config)
            .check(high)
            .map_err(|failure| Refused::new("--high", failure.to_string(), "give it more"))?;
    }
    if let Some(max) = max.filter(|max| *max < high) {
        let why = format!(
            "--max, {}, would be below --high, {}",
            human(max),
            short(high)
        );
        let name = if changes.max.is_some() {
            "--max"
        } else {
            "--high"
        };
        return Err(Refused::new(name, why, "change both"));
    }
    if changes.on_max.is_some() && max.is_none() {
        let why = "the run has no --max";
        return Err(Refused::new("--on-max", why, "give one with it"));
    }
    let percents = changes
        .max_pool
        .filter(|percent| !(1..=90).contains(percent));
    if let Some(percent) = percents {
        let why = format!("{percent} is not in 1 to 90");
        return Err(Refused::new("--max-pool", why, "give another"));
    }
    match changes.on_max {
        Some(what) if what > on_max::ALLOW => {
            let why = format!("{what} is no choice");
            Err(Refused::new("--on-max", why, "give kill, wait or allow"))
        }
        _ => Ok(()),
    }
}

fn bytes_of(limit: Limit) -> Option<u64> {
    match limit {
        Limit::None => None,
        Limit::Bytes(bytes) => Some(bytes),
    }
}

fn high_of(segment: &Segment, group: &RunGroup, index: u32) -> String {
    match (index, group.high.load(Relaxed)) {
        (RUN, _) => short(high_now(segment)),
        (_, 0) => words(None),
        (_, bytes) => short(bytes),
    }
}

fn words(bytes: Option<u64>) -> String {
    bytes.map_or("none".into(), |bytes| match bytes {
        0 => "0".into(),
        bytes => short(bytes),
    })
}

fn on_max_name(what: u32) -> &'static str {
    match what {
        on_max::WAIT => "wait",
        on_max::ALLOW => "allow",
        _ => "kill",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use zfolio_host::segment_file::OwnSegment;
    use zfolio_runtime::segment::run_group::named;

    const MIB: u64 = 1 << 20;

    /// A run of 64 MiB by messages, and what follows its limits.
    fn run(shared: bool, way: u32) -> (OwnSegment, Fitting) {
        let segment = OwnSegment::create(|segment| {
            let config = segment.config();
            config.limits.high.store(64 * MIB, Relaxed);
            config.limits.shared.store(shared.into(), Relaxed);
            config.faults.store(way, Relaxed);
        });
        let fitting = Fitting::find(Some(64 * MIB), Instant::now());
        (segment.expect("a segment"), fitting)
    }

    fn high(mib: u64) -> Changes {
        Changes {
            high: Some(Limit::Bytes(mib * MIB)),
            ..Changes::default()
        }
    }

    fn told(result: Result<Vec<String>, Refused>) -> String {
        let refused = result.expect_err("refused");
        format!("{}: {}; {}", refused.what, refused.why, refused.mend)
    }

    #[test]
    fn high_changes_within_what_tables_are_made_for() {
        let (segment, mut fitting) = run(true, faults::MESSAGE);
        let mut set = |mib| apply(&high(mib), &segment, &mut fitting);
        assert_eq!(set(32), Ok(vec!["high: 64M, now 32M".into()]));
        assert_eq!(high_now(&segment), 32 * MIB);
        assert_eq!(set(256), Ok(vec!["high: 32M, now 256M".into()]));
        assert_eq!(
            told(set(257)),
            "--high: 257 MiB is more than 4 times what the run began with, 64M: its tables are \
             made for no more; give it 256M at most"
        );
        assert_eq!(
            told(set(7)),
            "--high: 7.0 MiB is below the least, 8M; give it more"
        );
        assert_eq!(high_now(&segment), 256 * MIB);
        assert_eq!(
            segment.config().limits.high.load(Relaxed),
            64 * MIB,
            "begun with"
        );
        let none = Changes {
            high: Some(Limit::None),
            ..Changes::default()
        };
        assert!(apply(&none, &segment, &mut fitting).is_err());
    }

    #[test]
    fn max_and_high_go_together_and_all_changes_or_nothing() {
        let (segment, mut fitting) = run(true, faults::MESSAGE);
        let mut set = |high: u64, max: u64| {
            let changes = Changes {
                high: Some(Limit::Bytes(high * MIB)),
                max: Some(Limit::Bytes(max * MIB)),
                swap_max: Some(Limit::Bytes(0)),
                ..Changes::default()
            };
            apply(&changes, &segment, &mut fitting)
        };
        assert!(
            told(set(100, 99)).starts_with("--max: --max, 99 MiB, would be below --high, 100M")
        );
        assert_eq!(segment.groups[0].high.load(Relaxed), 0);
        assert_eq!(segment.groups[0].swap_max.load(Relaxed), 0);
        let lines = [
            "high: 64M, now 100M",
            "swap.max: none, now 0",
            "max: none, now 128M",
        ];
        assert_eq!(set(100, 128), Ok(lines.map(String::from).into()));
        assert_eq!(segment.groups[0].swap_max.load(Relaxed), 1);
        assert_eq!(segment.config().limits.max.load(Relaxed), 128 * MIB);
        // What stays counts as well.
        let alone = apply(&high(200), &segment, &mut fitting);
        assert!(told(alone).starts_with("--high: --max, 128 MiB, would be below"));
        let without = Changes {
            max: Some(Limit::None),
            high: Some(Limit::Bytes(200 * MIB)),
            ..Changes::default()
        };
        assert!(apply(&without, &segment, &mut fitting).is_ok());
        assert_eq!(segment.config().limits.max.load(Relaxed), 0);
    }

    #[test]
    fn what_a_run_lacks_is_refused() {
        let on_max = Changes {
            on_max: Some(on_max::WAIT),
            ..Changes::default()
        };
        let swap_max = Changes {
            swap_max: Some(Limit::None),
            ..Changes::default()
        };
        let group = Changes {
            group: Some("cc".into()),
            ..high(10)
        };
        let (by_messages, mut fitting) = run(true, faults::MESSAGE);
        let mut refused = |changes: &Changes, segment: &OwnSegment| {
            let result = apply(changes, segment, &mut fitting);
            told(result)
        };
        assert!(refused(&on_max, &by_messages).contains("has no --max"));
        assert_eq!(
            refused(&group, &by_messages),
            "--group cc: the run has no such group; it has no groups"
        );
        let (apart, _) = run(false, faults::MESSAGE);
        assert!(refused(&swap_max, &apart).contains("is --per-process"));
        assert!(refused(&group, &apart).contains("--group"));
        let (without, mut fitting) = run(true, faults::AUTO);
        assert!(told(apply(&swap_max, &without, &mut fitting)).contains("message only"));
        assert!(apply(&high(32), &without, &mut fitting).is_ok());
    }

    #[test]
    fn a_pool_has_a_maximum_with_and_without_a_backing() {
        let (segment, mut fitting) = run(true, faults::MESSAGE);
        let mut set = |percent| {
            let changes = Changes {
                max_pool: Some(percent),
                ..Changes::default()
            };
            apply(&changes, &segment, &mut fitting)
        };
        assert_eq!(set(50), Ok(vec!["max-pool: none, now 50%".into()]));
        assert_eq!(set(40), Ok(vec!["max-pool: 50%, now 40%".into()]));
        assert!(told(set(91)).starts_with("--max-pool: 91 is not in 1 to 90"));
        assert_eq!(segment.config().pool.percent.load(Relaxed), 40);
    }

    #[test]
    fn engines_take_what_no_queue_is_made_by() {
        let (segment, mut fitting) = run(true, faults::MESSAGE);
        Engines::parse("2,retries=4")
            .expect("two engines")
            .store(segment.config());
        let mut set = |text: &str| {
            let changes = Changes {
                engines: Some(text.into()),
                ..Changes::default()
            };
            apply(&changes, &segment, &mut fitting)
        };
        assert_eq!(
            set("sync_mode=async,retries=7"),
            Ok(vec![
                "sync_mode: assist, now async".into(),
                "retries: 4, now 7".into()
            ])
        );
        let refused = told(set("retries=8,wqs_per_iaa=2"));
        assert!(
            refused.starts_with("--engines: wqs_per_iaa is what queues are made by"),
            "{refused}"
        );
        assert!(told(set("retries=x")).contains("expected a number"));
        assert!(told(set("retries")).contains("is not ATTRIBUTE=VALUE"));
        assert!(told(set("lanes=2")).contains("there is no attribute `lanes`"));
        let attributes = Engines::of(segment.config()).attributes;
        assert_eq!((attributes.retries, attributes.queues_per_engine), (7, 1));
        let (without, mut fitting) = run(true, faults::MESSAGE);
        let changes = Changes {
            engines: Some("retries=1".into()),
            ..Changes::default()
        };
        assert!(told(apply(&changes, &without, &mut fitting)).contains("has no engines"));
    }

    #[test]
    fn groups_have_their_own() {
        let (segment, mut fitting) = run(true, faults::MESSAGE);
        let index = named(&segment, "build/cc").expect("a group");
        let changes = Changes {
            group: Some("build/cc".into()),
            writeback: Some(false),
            ..high(10)
        };
        let lines = apply(&changes, &segment, &mut fitting).expect("changed");
        assert_eq!(lines, ["high: none, now 10M", "writeback: yes, now no"]);
        let group = &segment.groups[index as usize];
        assert_eq!(group.high.load(Relaxed), 10 * MIB);
        assert_eq!(group.no_writeback.load(Relaxed), 1);
        assert_eq!(high_now(&segment), 64 * MIB);
        let other = Changes {
            group: Some("ld".into()),
            ..changes
        };
        let refused = told(apply(&other, &segment, &mut fitting));
        assert!(refused.ends_with("it has build, build/cc"), "{refused}");
    }
}
