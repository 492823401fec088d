//! A store for `--backing`: what it is, how fast, and what would be lost when.

use super::check::{Check, Level};
use zfolio_host::size::human;
use zfolio_pager::probe::{self, Facts, Node};
use zfolio_pager::spec::Spec;

/// What is to be said of a store.
pub(super) fn checks(spec: &Spec) -> Vec<Check> {
    let facts = match probe::facts(spec) {
        Ok(facts) => facts,
        Err(why) => {
            let mend = "start it, or name another; ZFOLIO_BACKING may hold a password";
            let found = format!("{}: {why}", spec.shown());
            return vec![Check::new("store", Level::Fail, found, mend)];
        }
    };
    let mut checks: Vec<Check> = facts.nodes.iter().map(node).collect();
    if let Some((why, mend)) = facts.unfit(spec) {
        checks.push(Check::new("store for --backing", Level::Fail, why, mend));
    }
    checks.push(match probe::speed(spec) {
        Ok(speed) => {
            let found = format!(
                "a read of 2 KiB p50 {} us, p99 {} us; writes {} a second, reads {} a second",
                speed.read_us.0,
                speed.read_us.1,
                human(speed.write),
                human(speed.read)
            );
            Check::new("store's speed", Level::Ok, found, "")
        }
        Err(why) => Check::new("store's speed", Level::Fail, why, "let it keep values"),
    });
    let (level, found) = losses(spec, &facts);
    checks.push(Check::new(
        "store's losses",
        level,
        found,
        "give copies=2, or wait=1",
    ));
    checks
}

fn node(of: &Node) -> Check {
    let memory = match of.max_memory {
        0 => "no maxmemory".to_owned(),
        max => format!("{} of {} used, {}", human(of.used), human(max), of.policy),
    };
    let found = format!(
        "{} is {}: {memory}; {} replicas{}",
        of.address,
        of.version,
        of.replicas,
        if of.keeps_log { "; keeps a log" } else { "" },
    );
    let (level, mend) = match of.max_memory {
        _ if of.evicts() => (Level::Fail, "set maxmemory-policy noeviction"),
        0 => (
            Level::Warn,
            "set maxmemory, so that it is not ended for want of memory",
        ),
        _ => (Level::Ok, ""),
    };
    Check::new("store", level, found, mend)
}

/// What ends a program with what is asked for.
fn losses(spec: &Spec, facts: &Facts) -> (Level, String) {
    let replicated = facts.nodes.iter().all(|node| node.replicas > 0);
    match (spec.copies, spec.wait, replicated) {
        (1, 0, false) => (
            Level::Warn,
            "one copy, no replica: a node that goes ends the programs whose pages it had".into(),
        ),
        (1, 0, true) => (
            Level::Warn,
            "one copy, replicas not waited for: a primary that goes takes with it what it had \
             not passed on; programs that need that end"
                .into(),
        ),
        (1, ..) => (
            Level::Ok,
            "a primary may go; a program ends if a replica goes with it".into(),
        ),
        (copies, ..) => (
            Level::Ok,
            format!("{} of the nodes may go at any one time", copies - 1),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_lost_is_said() {
        let level = |choices: &str, replicas| {
            let node = Node {
                replicas,
                ..Node::default()
            };
            let facts = Facts {
                is_cluster: true,
                nodes: vec![node; 3],
            };
            losses(
                &Spec::parse(&format!("redis://h{choices}")).unwrap(),
                &facts,
            )
            .0
        };
        assert_eq!(level("", 0), Level::Warn);
        assert_eq!(level("", 1), Level::Warn);
        assert_eq!(level(",wait=1", 1), Level::Ok);
        assert_eq!(level(",copies=2", 0), Level::Ok);
    }
}
