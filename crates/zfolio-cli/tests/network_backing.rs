//! A Redis store behind the pool, in every way in which faults are told: pages go there and come
//! back byte for byte, also when servers are killed, stopped, full or changed by somebody; and
//! nothing can be read there.
//!
//! [`scenarios`] is the table of what happens, and in which ways it is tried: in all of them, or in
//! two where it takes long and is the pager's doing or the server's in each.

mod memory;
mod nobody;
mod servers;
mod store_scenarios;
mod support;

use nobody::Nobody;
use store_scenarios::place::Place;
use store_scenarios::{both, content, ends, programs, servers_end};

const MESSAGE: &str = "message";
const IN_THREAD: &str = "in-thread";
const GUARD: &str = "guard";
const PROTECT: &str = "protect";
const ALL: [&str; 4] = [MESSAGE, IN_THREAD, GUARD, PROTECT];
/// By messages, and by a thread that serves itself.
const TWO: [&str; 2] = [MESSAGE, IN_THREAD];
/// The other ways in which a thread serves itself.
const OTHERS: [&str; 2] = [GUARD, PROTECT];

macro_rules! scenarios {
    ($($name:ident in $ways:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $name() {
                in_each_way(&$ways, $scenario);
            }
        )*
    };
}

scenarios! {
    what_is_sent_comes_back_and_nothing_is_left in ALL: content::comes_back;
    forks_threads_and_other_programs in ALL: programs::forks_and_threads;
    a_file_is_filled_before_the_store in ALL: both::in_order;
    forks_with_a_file_before_the_store in TWO: both::forks;
    a_full_disk_before_a_store_is_passed_by in TWO: both::disk_is_full;
    who_waits_holds_nobody_else_up in ALL: programs::one_waits;
    signals_come_to_who_waits in ALL: programs::signals;
    nothing_can_be_read_in_the_store_or_its_files in TWO: content::is_secret;
    a_value_that_was_changed_ends_the_program in ALL: |of| ends::altered(of, ends::CHANGED);
    a_value_that_is_anothers_ends_the_program in TWO: |of| ends::altered(of, ends::ANOTHERS);
    a_value_that_has_gone_ends_the_program in OTHERS: |of| ends::altered(of, ends::GONE);
    a_full_store_leaves_pages_where_they_are in ALL: servers_end::full;
    a_server_that_stands_still_ends_the_program_in_time in ALL: ends::no_answer_in_time;
    a_server_that_stands_still_is_waited_for in TWO: |of| servers_end::stands(of, ",deadline=20", 2000);
    a_server_is_waited_for_beyond_the_deadline in OTHERS:
        |of| servers_end::stands(of, ",deadline=1,on-lost=wait", 3000);
    a_pager_that_is_killed_has_a_successor in ALL: servers_end::pager_killed;
    a_server_that_is_killed_is_done_without in ALL: servers_end::killed;
}

/// Calls `with` for each of the ways that there is here.
fn in_each_way(ways: &[&'static str], with: impl Fn(&Place<'_>)) {
    let Some(nobody) = Nobody::new() else { return };
    for way in ways {
        if let Some(place) = Place::new(way, &nobody) {
            with(&place);
        }
    }
}

/// The pager's doing: in two ways, each with what makes a cluster safe.
#[test]
fn a_cluster_loses_a_primary() {
    let Some(mut nodes) = servers::cluster() else {
        return;
    };
    let Some(nobody) = Nobody::new() else { return };
    for (way, choices) in [(MESSAGE, ",wait=1"), (IN_THREAD, ",copies=2")] {
        if let Some(place) = Place::new(way, &nobody) {
            servers_end::primary_killed(&place, &mut nodes, choices);
        }
    }
}

#[test]
fn a_store_that_would_lose_pages_is_refused() {
    let Some(z) = support::real() else { return };
    servers_end::refused(z);
}

#[test]
fn a_wrong_order_is_refused() {
    let Some(z) = support::real() else { return };
    both::refused(z);
}
