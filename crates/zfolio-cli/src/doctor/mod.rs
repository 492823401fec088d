//! `zfolio doctor`: what this machine allows, and what would mend the rest.

mod backing;
mod check;
mod faults;
mod machine;
mod messages;
mod place;
mod regions;
pub(crate) mod seccomp_profile;
pub(crate) mod shown;
mod store;

use check::{Check, Level};
use place::Place;
use regions::Regions;
use shown::DoctorShown;

use crate::options::backings::Backings;
use crate::preload;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::segment_file;
use zfolio_host::size::human;
use zfolio_host::standard_output::print;
use zfolio_runtime::segment::Segment;

/// Looks, prints, and says by the status whether programs can be managed.
///
/// # Errors
/// What was found cannot be written.
pub(crate) fn doctor(json: bool, asked: &[Backings]) -> Result<ExitCode, Failure> {
    let regions = Regions::find();
    let mut checks = examine(&regions);
    let way = faults::judge(&mut checks);
    checks.extend(backing::checks(asked));
    let usable = checks.iter().all(|check| check.level != Level::Fail);
    let place = Place::here();
    let next = next(&checks, way, &place);
    let text = if json {
        let found = DoctorShown {
            usable,
            faults: way,
            regions: regions.shown(),
            checks: &checks,
            place: place.words(),
            next: &next,
        };
        format!("{:#}\n", json!(found))
    } else {
        let mut lines: Vec<String> = checks.iter().map(Check::to_string).collect();
        match way.filter(|_| usable) {
            Some(way) => {
                lines.push(format!(
                    "This machine can run managed programs (`zfolio run`), by --faults {way}."
                ));
                lines.push(regions.sentence());
                let better = faults::better(&checks).into_iter();
                lines.extend(better.map(|(other, name)| {
                    format!("--faults {name} would need: {}", place.grant(other))
                }));
            }
            None => {
                lines.push("This machine cannot run managed programs (`zfolio run`).".into());
                lines.push(regions.sentence());
            }
        }
        // (The last line, so that it is what a reader finds.)
        lines.push(format!("Next: {next}\n"));
        lines.join("\n")
    };
    print(&text)?;
    Ok(ExitCode::from(if usable {
        0
    } else {
        Status::Doctor.code()
    }))
}

/// The one command to type next: that mends the first of what prevents running, or a run.
fn next(checks: &[Check], way: Option<&str>, place: &Place) -> String {
    let failing = checks.iter().find(|check| check.level == Level::Fail);
    match (failing, way) {
        (Some(check), _) => check.mend.clone(),
        (None, Some(way)) => place.next(way, machine::memory_limit().is_some()),
        (None, None) => "zfolio run --allow-unmanaged -- CMD".into(),
    }
}

fn examine(regions: &Regions) -> Vec<Check> {
    let mut checks = messages::abilities();
    checks.insert(2, regions.check());
    checks.extend([library(), segment_directory()]);
    checks.extend(messages::permissions());
    checks.extend(machine::checks());
    checks
}

fn library() -> Check {
    match preload::find() {
        Ok(library) => {
            let mut found = format!("{} ({})", library.path.display(), library.from.words());
            for other in &library.passed_over {
                found.push_str(&format!("; {} is of another build", other.display()));
            }
            Check::new("preload library", Level::Ok, found, "")
        }
        Err(failure) => {
            let mend = format!("install it beside zfolio, or set {}", preload::ENV_PRELOAD);
            Check::new("preload library", Level::Fail, failure.to_string(), mend)
        }
    }
}

fn segment_directory() -> Check {
    const NAME: &str = "control segment";
    match segment_file::OwnSegment::create(|_| {}) {
        Err(failure) => Check::new(
            NAME,
            Level::Fail,
            failure.to_string(),
            "chmod 1777 /dev/shm",
        ),
        Ok(made) => {
            let dir = made
                .path()
                .parent()
                .unwrap_or(Path::new("/"))
                .display()
                .to_string();
            let size = human(Segment::BYTES as u64);
            if dir == "/dev/shm" {
                Check::new(
                    NAME,
                    Level::Ok,
                    format!("{dir} is writable ({size} a run)"),
                    "",
                )
            } else {
                let found = format!("/dev/shm cannot be used; {dir} is ({size} a run)");
                Check::new(
                    NAME,
                    Level::Warn,
                    found,
                    "docker run --shm-size 64m; chmod 1777 /dev/shm",
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::error::Unavailable;
    use zfolio_sys::syscall::Errno;

    #[test]
    fn a_check_tells_what_mends_it_only_when_something_is_wrong() {
        let fine = Check::new("a", Level::Ok, "found", "do this");
        assert_eq!(fine.to_string(), format!("{:<5} {:<26} found", "ok", "a"));
        let bad = Check::new("a", Level::Fail, "found", "do this");
        assert!(bad.to_string().ends_with("\n      mend: do this"));
        assert_eq!(json!(bad)["level"], "FAIL");
    }

    #[test]
    fn how_regions_work_is_said_with_the_reason() {
        let refused = Regions::Refused(Unavailable {
            what: "taking memory aside",
            errno: Errno::NOMEM,
        });
        for (regions, level, words) in [
            (Regions::Moving, Level::Ok, "by userfaultfd"),
            (
                Regions::Protected(Errno::PERM),
                Level::Warn,
                "not permitted",
            ),
            (refused, Level::Warn, "taking memory aside: Cannot allocate"),
        ] {
            assert!(regions.sentence().contains(words), "{}", regions.sentence());
            let check = regions.check();
            assert!(
                check.level == level && check.found.contains(words),
                "{check}"
            );
        }
    }

    #[test]
    fn what_to_type_next_mends_what_fails_first() {
        let fails = |name, mend| Check::new(name, Level::Fail, "found", mend);
        let all = [fails("a", "do this"), fails("b", "do that")];
        assert_eq!(next(&all, None, &Place::Host), "do this");
        let next = next(&[], Some("guard"), &Place::Slurm);
        assert!(next.starts_with("srun zfolio run "), "{next}");
    }

    #[test]
    fn every_check_that_is_not_ok_has_a_mend() {
        for check in examine(&Regions::find()) {
            assert!(
                check.level == Level::Ok || !check.mend.is_empty(),
                "{check}"
            );
        }
    }
}
