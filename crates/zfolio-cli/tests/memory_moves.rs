//! Every byte of a program stays what the program made it, while its memory
//! goes out and comes back under everything a program does to it.

mod memory;
mod support;

use memory::Case;

/// Processors that this process may run on, as the manager counts them.
fn processors() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let mask = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed:"));
    let digits = mask.into_iter().flat_map(str::chars);
    digits
        .filter_map(|c| c.to_digit(16))
        .map(u32::count_ones)
        .sum()
}

#[test]
fn threads_fault_at_once() {
    Case::new("faults", &[]).run_until(|output| {
        // The control thread serves some of them where there are two processors.
        let helped = output.counter("control_faults") > 0;
        support::check(helped == (processors() == 2), || output.stats.to_string())
    });
}

#[test]
fn present_pages_do_not_stop_who_reads_on() {
    let case = Case {
        high: "32M",
        ..Case::new("reads", &[])
    };
    case.run_until(|output| {
        let faults = |kind: &str| output.stats["total"]["faults"][kind]["count"].as_u64();
        // Windows cut short by a present page; 700 to 1,500 when each was.
        let (page, batch) = (faults("page"), faults("batch"));
        support::check(page > Some(1000) && batch < Some(600), || {
            format!("{page:?} by the page, {batch:?} by the batch")
        })
    });
}

/// The kernel makes one mapping of two that nothing tells apart. That of both was left
/// in memory for ever, or a stack of the manager's registered with the program's.
#[test]
fn mappings_that_became_one_with_the_managers() {
    Case::new("beside", &[]).run();
}

#[test]
fn system_calls_see_what_is_moved_out() {
    Case::new("syscalls", &[]).run();
}

#[test]
fn discarding_parts() {
    for (case, events) in [
        ("unmapped", "unmaps"),
        ("mapped_over", "unmaps"),
        ("discarded", "removes"),
        ("freed", "removes"),
    ] {
        if let Some(output) = Case::new("discard", &[case]).run() {
            assert!(output.counter(events) >= 7, "{case}: seven parts");
        }
    }
}

#[test]
fn protecting_and_locking_parts() {
    for case in ["protected", "locked"] {
        Case::new("discard", &[case]).run();
    }
}

#[test]
fn the_heap_grows_and_shrinks() {
    if let Some(output) = Case::new("discard", &["heap"]).run() {
        assert!(output.counter("unmaps") > 0);
    }
}

#[test]
fn remapping() {
    if let Some(output) = Case::new("remap", &[]).run() {
        assert!(output.counter("remaps") >= 12, "{}", output.stats);
    }
}

/// Whether there are huge pages here and they may be counted on to move whole; or why not.
fn huge_pages_stay_whole() -> Result<(), &'static str> {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !enabled.is_ok_and(|text| !text.contains("[never]")) {
        return Err("no huge pages here");
    }
    // An empty page table splits what is moved there; Linux 6.14 is the first to free them.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok());
    if (number(), number()) < (Some(6), Some(14)) {
        return Err("huge pages seldom move whole before Linux 6.14: not counted");
    }
    Ok(())
}

#[test]
fn huge_pages_go_and_come_whole_or_in_part() {
    // Twice 40 huge pages and the ballast do not fit; one set does.
    let case = Case {
        high: "56M",
        ..Case::new("huge", &[])
    };
    let whole = huge_pages_stay_whole();
    if let Err(why) = &whole {
        support::skip(why);
    }
    let output = case.run_until(|output| {
        let counters: &[_] = match whole {
            Ok(()) => &["thp_swpout", "thp_swpin"],
            Err(_) => &[],
        };
        counters.iter().try_for_each(|counter| {
            let moved = output.counter(counter) > 0;
            support::check(moved, || format!("{counter}: {}", output.stats))
        })
    });
    if let Some(output) = output {
        assert!(output.counter("removes") >= 40);
    }
}

/// The series' case in which folios of 2 MiB are split to pages before they are stored.
#[test]
fn huge_pages_are_split_where_that_is_asked_for() {
    let whole = huge_pages_stay_whole();
    if let Err(why) = &whole {
        support::skip(why);
    }
    let case = Case {
        high: "56M",
        options: &["--folio", "4K", "--split-huge-pages"],
        ..Case::new("huge", &[])
    };
    case.run_until(|output| {
        let folios = &output.stats["total"]["folios"];
        let of = |size: &str, name: &str| {
            let count = folios[format!("hugepages-{size}")][name].as_u64();
            count.unwrap_or_else(|| panic!("{size} {name}: {folios}"))
        };
        assert_eq!(output.stats["config"]["split_huge_pages"], true);
        assert_eq!(output.counter("thp_swpout"), 0, "{}", output.stats);
        for size in ["8kB", "64kB", "2048kB"] {
            assert_eq!(of(size, "zswpout"), 0, "{size}: {folios}");
        }
        let split = of("2048kB", "split");
        assert_eq!(split, of("2048kB", "swpout_fallback"), "{folios}");
        assert!(split <= output.counter("thp_swpout_fallback"));
        support::check(split > 0 || whole.is_err(), || folios.to_string())
    });
}

/// Huge pages that were touched at random are made one again once all of each is there, and
/// not where that is switched off.
#[test]
fn huge_pages_that_came_back_in_pieces_are_whole_again() {
    let whole = huge_pages_stay_whole();
    if let Err(why) = &whole {
        support::skip(why);
    }
    for (options, assembled) in [(&["--huge-page-assembly"][..], true), (&[], false)] {
        let case = Case {
            high: "64M",
            options,
            ..Case::new("whole_again", &[])
        };
        case.run_until(|output| {
            assert_eq!(output.stats["config"]["huge_page_assembly"], assembled);
            let made = output.counter("thp_collapse_alloc");
            let right = if assembled { made > 0 } else { made == 0 };
            support::check(right || whole.is_err(), || output.stats.to_string())
        });
    }
}

/// Read-ahead fixed as by the kernel's page-cluster: a fault brings its own page, or what is
/// stored of its 8.
#[test]
fn read_ahead_is_fixed_where_that_is_asked_for() {
    for (cluster, most) in [("0", 0), ("3", 7)] {
        let case = Case {
            high: "32M",
            options: &["--page-cluster", cluster],
            ..Case::new("reads", &[])
        };
        if let Some(output) = case.run() {
            let (ahead, faults) = (output.counter("swap_ra"), output.counter("pgmajfault"));
            assert!(ahead <= most * faults, "{ahead} of {faults}");
            assert_eq!(ahead > 0, most > 0, "{}", output.stats);
        }
    }
}

#[test]
fn stacks_and_signal_stacks() {
    Case::new("stacks", &[]).run();
}

#[test]
fn addresses_are_used_again_at_once() {
    if let Some(output) = Case::new("churn", &["6"]).run() {
        assert!(output.counter("unmaps") > 100, "{}", output.stats);
    }
}

#[test]
fn every_codec_and_folio_size() {
    // Not `none`: what does not get smaller does not fit.
    for options in [
        &["--compressor", "zstd", "--folio", "64K"][..],
        &["--compressor", "lz4", "--folio", "4K"],
        &["--compressor", "lz4", "--folio", "2M"],
    ] {
        let case = Case {
            options,
            ..Case::new("faults", &[])
        };
        case.run();
    }
}

/// What was discarded here and there leaves holes in the pool, which is compacted
/// while the program runs and forks.
#[test]
fn the_pool_is_compacted() {
    Case::new("fragment", &[]).run_until(|output| {
        let counters = &output.stats["processes"][0]["counters"];
        let freed = counters["pages_compacted"].as_u64() > Some(1000);
        let moved = counters["objs_moved"].as_u64() > Some(500);
        support::check(freed && moved, || counters.to_string())
    });
}

/// What is kept of the pool lies scattered over the arena; it is carried together
/// while threads read, write and discard.
#[test]
fn zspages_are_carried_together() {
    if let Some(output) = Case::new("scatter", &[]).run() {
        // Whether it pays is for the policy to say; the bytes must be right.
        if output.counter("pgmigrate_success") == 0 {
            support::skip("nothing had to be carried together in this run");
        }
    }
}

/// What does not fit in `high` whatever is done: usage goes beyond it by what
/// there is to keep, compressed, and the program goes on.
#[test]
fn more_than_can_be_kept_within_high() {
    for (args, most) in [(["noise"], 64), (["half"], 40), (["locked"], 48)] {
        let case = Case {
            high: "16M",
            ..Case::new("beyond", &args)
        };
        case.run_until(|output| {
            // (Not what came before there was a manager.)
            let resident = output.counter("resident_peak_steady_bytes") >> 20;
            let pressed = output.counter("high") > 0;
            support::check((17..most).contains(&resident) && pressed, || {
                format!("{args:?}: {resident} MiB; {}", output.stats)
            })
        });
    }
}

#[test]
fn threads_that_end_are_joined() {
    Case::new("exits", &[]).run();
}

#[test]
fn what_the_kernel_keeps_by_reference() {
    for case in ["pipe", "socket", "guard", "kept", "read_only", "wiped"] {
        Case::new("references", &[case]).run();
    }
}

#[test]
fn locks_that_the_kernel_walks() {
    for case in ["early", "huge", "late", "child", "raw"] {
        Case::new("locks", &[case]).run();
    }
}

/// Clean or changed since they came, discarded, exchanged, seen by a child: what a random
/// read brought goes out again as what it is now.
#[test]
fn pages_go_out_again_as_they_came_or_changed() {
    Case::new("again", &[]).run();
}

/// A page in each of 6,000 mappings, which the hand looks at many at a time.
#[test]
fn many_small_mappings() {
    Case {
        high: "24M",
        ..Case::new("small_mappings", &["apart"])
    }
    .run();
}
