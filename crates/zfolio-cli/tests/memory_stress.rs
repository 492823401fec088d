//! Random operations of several threads against a model, for half a minute;
//! `ZFOLIO_STRESS_SECONDS` makes it longer, `ZFOLIO_STRESS_SEED` repeats one.

mod memory;
mod support;

use memory::Case;
use std::time::Duration;

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => otherwise,
    }
}

#[test]
fn random_operations() {
    let seconds = number("ZFOLIO_STRESS_SECONDS", 30);
    let seed = number("ZFOLIO_STRESS_SEED", u64::from(std::process::id()));
    // Without forks the events themselves meet; with them, everything does.
    for (share, without) in [(1, &["fork"][..]), (2, &[])] {
        let (seconds, seed) = ((seconds * share / 3).to_string(), seed.to_string());
        eprintln!("stress {seconds} {seed} 4 {without:?}");
        let args: Vec<&str> = [&[&*seconds, &*seed, "4"], without].concat();
        let case = Case {
            high: "64M",
            limit: Duration::from_secs(60)
                + Duration::from_secs(number("ZFOLIO_STRESS_SECONDS", 30)),
            ..Case::new("stress", &args)
        };
        if let Some(output) = case.run() {
            for name in ["removes", "unmaps", "remaps"] {
                assert!(output.counter(name) > 0, "{name}");
            }
        }
    }
}
