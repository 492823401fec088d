//! Which limits of a run may change while it lasts, to what, and how.
//!
//! Those that processes read again and again: `high`, `max`, `swap.high`, `swap.max`, `zswap.max` and
//! writeback of the run and its groups, what happens at `max`, how large the pool may be and
//! whether it is written back before; and attributes of engines that batches read as they begin.
//! Values are held to what `zfolio run` holds them to at the start, and `high` to [`MOST_TIMES`] what
//! the run began with, for which tables are made. A request changes all that it names, or nothing.

use crate::fitting::Fitting;
use crate::options::engines::Engines;
use crate::requests::message::{Changes, Limit, Refused};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use zfolio_host::group_state::{GroupState, high_now};
use zfolio_host::size::{MIN_HIGH, human, short};
use zfolio_runtime::options::PoolOptions;
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
    let yes_no = |yes| String::from(if yes { "yes" } else { "no" });
    let mut pool = |name: &str, wanted: Option<Limit>, word: &AtomicU64| {
        if let Some(limit) = wanted {
            let was = words(word.load(Relaxed).checked_sub(1));
            let bytes = bytes_of(limit);
            word.store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Relaxed);
            say(name, was, words(bytes));
        }
    };
    pool("swap.max", changes.swap_max, &group.swap_max);
    pool("swap.high", changes.swap_high, &group.swap_high);
    pool("zswap.max", changes.zswap_max, &group.zswap_max);
    if let Some(writeback) = changes.writeback {
        let no_writeback = &group.no_writeback;
        let was = no_writeback.swap((!writeback).into(), Relaxed) == 0;
        say("writeback", yes_no(was), yes_no(writeback));
    }
    if let Some(max) = changes.max {
        let was = max_word(segment, index).swap(bytes_of(max).unwrap_or(0), Relaxed);
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
    if let Some(percent) = changes.accept_threshold {
        let was = PoolOptions::of(config).accept_percent;
        config.pool.accept_percent.store(percent, Relaxed);
        say("accept-threshold", format!("{was}%"), format!("{percent}%"));
    }
    if let Some(shrinker) = changes.shrinker {
        let was = config.pool.no_shrinker.swap((!shrinker).into(), Relaxed) == 0;
        say("shrinker", yes_no(was), yes_no(shrinker));
    }
    if let Some((engines, changed)) = engines {
        for (name, [was, is]) in changed {
            say(name, was, is);
        }
        engines.store_attributes(config);
    }
    // (Whoever finds it finds what has changed.)
    config.limits.changes.fetch_add(1, Release);
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
    let swap_high = ("--swap-high", changes.swap_high.is_some());
    let zswap_max = ("--zswap-max", changes.zswap_max.is_some());
    let writeback = ("--writeback", changes.writeback.is_some());
    let group = ("--group", changes.group.is_some());
    let on_max = ("--on-max", changes.on_max.is_some());
    let max_pool = ("--max-pool", changes.max_pool.is_some());
    let accept = ("--accept-threshold", changes.accept_threshold.is_some());
    let shrinker = ("--shrinker", changes.shrinker.is_some());
    let first = |asked: &[(&'static str, bool)]| {
        let mut given = asked.iter().filter(|(_, given)| *given);
        given.next().map(|(name, _)| *name)
    };
    let shared = config.limits.shared.load(Relaxed) != 0;
    if let Some(name) =
        first(&[swap_high, swap_max, zswap_max, writeback, group]).filter(|_| !shared)
    {
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
    let of_run = [on_max, max_pool, accept, shrinker, engines];
    if let Some(name) = first(&[swap_high, engines]).filter(|_| !by_messages) {
        let why = "works with --faults message only, which the run has not";
        return Err(Refused::new(name, why, "leave it out"));
    }
    if let Some(name) = first(&of_run).filter(|_| changes.group.is_some()) {
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
        None => Some(max_word(segment, index).load(Relaxed)).filter(|max| *max > 0),
    };
    let high = match (changes.high, index) {
        (Some(Limit::Bytes(bytes)), RUN) => bytes,
        (Some(Limit::None), RUN) => {
            let why = "a run has one always";
            return Err(Refused::new("--high", why, "give a size"));
        }
        (_, RUN) => high_now(segment),
        // (A group without one has 0: nothing that its `max` could be below.)
        (Some(limit), _) => bytes_of(limit).unwrap_or(0),
        (None, _) => segment.groups[index as usize].high.load(Relaxed),
    };
    if let (Some(Limit::Bytes(max)), true) = (changes.max, index != RUN)
        && max < MIN_HIGH
    {
        let why = format!("{} is below the least, {}", human(max), short(MIN_HIGH));
        return Err(Refused::new("--max", why, "give it more"));
    }
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
    // (Of a group both may have been set apart, by two commands that joined it.)
    let either = changes.max.is_some() || changes.high.is_some();
    if let Some(max) = max.filter(|max| either && *max < high) {
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
    let of_a_group = || all(segment).any(|(_, group)| group.max.load(Relaxed) > 0);
    if changes.on_max.is_some() && max.is_none() && !of_a_group() {
        let why = "the run has no --max";
        return Err(Refused::new("--on-max", why, "give one with it"));
    }
    for (name, percent, most) in [
        ("--max-pool", changes.max_pool, 90),
        ("--accept-threshold", changes.accept_threshold, 100),
    ] {
        if let Some(percent) = percent.filter(|percent| !(1..=most).contains(percent)) {
            let why = format!("{percent} is not in 1 to {most}");
            return Err(Refused::new(name, why, "give another"));
        }
    }
    match changes.on_max {
        Some(what) if what > on_max::ALLOW => {
            let why = format!("{what} is no choice");
            Err(Refused::new("--on-max", why, "give kill, wait or allow"))
        }
        _ => Ok(()),
    }
}

/// Where `max` of a group is, or of the run.
fn max_word(segment: &Segment, index: u32) -> &AtomicU64 {
    match index {
        RUN => &segment.config().limits.max,
        _ => &segment.groups[index as usize].max,
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
mod tests;
