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
    assert!(told(set(100, 99)).starts_with("--max: --max, 99 MiB, would be below --high, 100M"));
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
fn max_of_a_group_is_its_own() {
    let (segment, mut fitting) = run(true, faults::MESSAGE);
    let cc = named(&segment, "cc").expect("a group") as usize;
    let mut set = |high: Option<u64>, max: Limit| {
        let changes = Changes {
            group: Some("cc".into()),
            high: high.map(|mib| Limit::Bytes(mib * MIB)),
            max: Some(max),
            ..Changes::default()
        };
        apply(&changes, &segment, &mut fitting)
    };
    // (Below the run's `high`: that is no matter.)
    let mib = |mib: u64| Limit::Bytes(mib * MIB);
    assert_eq!(set(None, mib(24)), Ok(vec!["max: none, now 24M".into()]));
    let lines = ["high: none, now 16M", "max: 24M, now 20M"];
    assert_eq!(set(Some(16), mib(20)), Ok(lines.map(String::from).into()));
    assert_eq!(
        told(set(None, mib(15))),
        "--max: --max, 15 MiB, would be below --high, 16M; change both"
    );
    assert!(told(set(Some(8), mib(7))).contains("7.0 MiB is below the least, 8M"));
    assert_eq!(segment.groups[cc].max.load(Relaxed), 20 * MIB);
    assert_eq!(segment.groups[cc].high.load(Relaxed), 16 * MIB);
    assert_eq!(segment.config().limits.max.load(Relaxed), 0, "the run's");
    assert_eq!(segment.groups[0].max.load(Relaxed), 0);
    // What happens there is the run's.
    let on_max = Changes {
        on_max: Some(on_max::WAIT),
        ..Changes::default()
    };
    assert!(apply(&on_max, &segment, &mut fitting).is_ok());
    let on_max = Changes {
        group: Some("cc".into()),
        ..on_max
    };
    assert!(told(apply(&on_max, &segment, &mut fitting)).contains("is the run's, not a group's"));
    // What stays counts as well.
    let high = Changes {
        group: Some("cc".into()),
        ..high(21)
    };
    assert!(told(apply(&high, &segment, &mut fitting)).starts_with("--high: --max, 20 MiB"));
    // What was set apart before hinders no other change.
    segment.groups[cc].high.store(30 * MIB, Relaxed);
    let swap_max = Changes {
        group: Some("cc".into()),
        swap_max: Some(Limit::Bytes(MIB)),
        ..Changes::default()
    };
    assert!(apply(&swap_max, &segment, &mut fitting).is_ok());
    let none = Changes {
        group: Some("cc".into()),
        max: Some(Limit::None),
        ..Changes::default()
    };
    assert_eq!(
        apply(&none, &segment, &mut fitting),
        Ok(vec!["max: 20M, now none".into()])
    );
    let (without, mut fitting) = run(true, faults::AUTO);
    named(&without, "cc").expect("a group");
    assert!(apply(&none, &without, &mut fitting).is_ok());
}

#[test]
fn processes_find_that_something_has_changed_and_only_then() {
    let (segment, mut fitting) = run(true, faults::AUTO);
    let changes = || segment.config().limits.changes.load(Relaxed);
    assert!(apply(&high(32), &segment, &mut fitting).is_ok());
    assert_eq!(changes(), 1);
    assert!(apply(&high(7), &segment, &mut fitting).is_err());
    assert_eq!(changes(), 1);
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
    let swap_high = Changes {
        swap_high: swap_max.swap_max,
        ..Changes::default()
    };
    let engines = Changes {
        engines: Some("retries=3".into()),
        ..Changes::default()
    };
    for (changes, name) in [(swap_high, "--swap-high"), (engines, "--engines")] {
        assert_eq!(
            told(apply(&changes, &without, &mut fitting)),
            format!(
                "{name}: works with --faults message only, which the run has not; leave it out"
            )
        );
    }
    for changes in [swap_max, high(32)] {
        assert!(apply(&changes, &without, &mut fitting).is_ok());
    }
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

#[test]
fn what_zswap_has_as_parameters_and_swap_high_change() {
    let (segment, mut fitting) = run(true, faults::MESSAGE);
    let mut set = |changes: &Changes| apply(changes, &segment, &mut fitting);
    let all = Changes {
        swap_high: Some(Limit::Bytes(100 * MIB)),
        accept_threshold: Some(50),
        shrinker: Some(false),
        ..Changes::default()
    };
    let lines = [
        "swap.high: none, now 100M",
        "accept-threshold: 90%, now 50%",
        "shrinker: yes, now no",
    ];
    assert_eq!(set(&all), Ok(lines.map(String::from).into()));
    assert_eq!(segment.groups[0].swap_high.load(Relaxed), 100 * MIB + 1);
    let pool = PoolOptions::of(segment.config());
    assert_eq!((pool.accept_percent, pool.shrinker), (50, false));
    let accept = |percent| Changes {
        accept_threshold: Some(percent),
        ..Changes::default()
    };
    for percent in [0, 101] {
        let begin = format!("--accept-threshold: {percent} is not in 1 to 100");
        assert!(told(set(&accept(percent))).starts_with(&begin));
    }
    named(&segment, "cc").expect("a group");
    let of_group = Changes {
        group: Some("cc".into()),
        ..accept(40)
    };
    assert!(told(set(&of_group)).contains("is the run's, not a group's"));
    let swap_high = Changes {
        swap_high: Some(Limit::None),
        ..Changes::default()
    };
    let (apart, mut fitting) = run(false, faults::MESSAGE);
    assert!(told(apply(&swap_high, &apart, &mut fitting)).contains("is --per-process"));
    let (without, mut fitting) = run(true, faults::GUARD);
    assert!(told(apply(&all, &without, &mut fitting)).contains("message only"));
    assert!(apply(&accept(40), &without, &mut fitting).is_ok());
}
