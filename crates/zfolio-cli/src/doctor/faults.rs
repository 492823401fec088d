//! Which ways of telling faults work here, what each of the others lacks, and what mends it.

use super::check::{Check, FOR_MESSAGES, Level};
use super::regions::GRANT_REGIONS;
use crate::options::run_args::Faults;
use zfolio_host::machine::{kernel_release, kernel_version, status_field};
use zfolio_host::uffd_probe::words;
use zfolio_inthread::start::{Refused, try_way};
use zfolio_runtime::segment::faults;
use zfolio_sys::syscall::Errno;

/// The names of the rows, by the way's number.
const ROWS: [&str; 5] = [
    "",
    "faults by message",
    "faults in-thread",
    "faults by guard",
    "faults by protect",
];

/// What of this machine decides about a mend.
struct Here {
    kernel: Option<(u32, u32)>,
    /// A filter of system calls is in force.
    filtered: bool,
}

impl Here {
    fn find() -> Self {
        Self {
            kernel: kernel_version(&kernel_release()),
            filtered: status_field("Seccomp").as_deref() == Some("2"),
        }
    }

    /// What would make a way work that was refused.
    fn mend(&self, way: u32, (what, errno): Refused) -> String {
        let needs = match way {
            faults::IN_THREAD => (6, 8),
            faults::GUARD => (6, 13),
            _ => (5, 11),
        };
        if self.kernel.is_some_and(|kernel| kernel < needs) {
            return format!("install Linux {}.{} or newer and boot it", needs.0, needs.1);
        }
        let missing = errno.0 == 38;
        match what {
            "Syscall User Dispatch" if self.filtered => {
                "a seccomp profile that allows prctl(PR_SET_SYSCALL_USER_DISPATCH)".into()
            }
            "Syscall User Dispatch" => "run it on Linux itself: a sandbox with a kernel of its \
                                        own, as gVisor's, does not have it"
                .into(),
            "reserving memory" => "raise the limit of address space (ulimit -v)".into(),
            _ if what.starts_with("opening /proc") || what == "the page map" => {
                "mount /proc, and let the process read its own files there".into()
            }
            _ if way != faults::IN_THREAD => {
                let kernel = format!("{}.{}", needs.0, needs.1);
                format!("a kernel of Linux {kernel} or newer, and a filter that lets madvise be")
            }
            _ if self.filtered && (missing || errno == Errno::PERM) => GRANT_REGIONS.into(),
            _ if missing => "boot a kernel with CONFIG_USERFAULTFD=y".into(),
            _ if errno == Errno::PERM => {
                "let the security module (SELinux, AppArmor) allow this user userfaultfd".into()
            }
            _ => "install Linux 6.8 or newer and boot it".into(),
        }
    }
}

/// A way's number, and what was refused.
type Tried = (u32, Result<(), Refused>);

/// Adds a row for each way, and returns the one that `zfolio run` takes, if one works. What
/// is only for messages is no failure where another does.
pub(super) fn judge(checks: &mut Vec<Check>) -> Option<&'static str> {
    let others = Faults::BY_PREFERENCE.map(Faults::number);
    let others = others.into_iter().filter(|way| *way != faults::MESSAGE);
    let tried: Vec<Tried> = others.map(|way| (way, try_way(way))).collect();
    judge_those(checks, &tried, &Here::find())
}

/// Those that come before the one that is taken, best first: number and name.
pub(super) fn better(checks: &[Check]) -> Vec<(u32, &'static str)> {
    let works = |way: u32| {
        let name = ROWS[way as usize];
        let mut ok = checks.iter().filter(|check| check.level == Level::Ok);
        ok.any(|check| check.name == name)
    };
    Faults::BY_PREFERENCE
        .map(Faults::number)
        .into_iter()
        .take_while(|way| !works(*way))
        .map(|way| (way, faults::NAMES[way as usize]))
        .collect()
}

fn judge_those(checks: &mut Vec<Check>, others: &[Tried], here: &Here) -> Option<&'static str> {
    let for_messages = |check: &Check| FOR_MESSAGES.contains(&check.name);
    let failing = checks
        .iter()
        .find(|check| check.level == Level::Fail && for_messages(check));
    let message = failing.map(|check| {
        let found = format!("{}: {}", check.name, check.found);
        (found, check.mend.clone())
    });
    let others = others.iter().map(|(way, result)| {
        let refused = result.err().map(|(what, errno)| {
            let found = format!("{what}: {}", words(errno));
            (found, here.mend(*way, (what, errno)))
        });
        (*way, refused)
    });
    let mut all: Vec<_> = others.chain([(faults::MESSAGE, message)]).collect();
    all.sort_by_key(|(way, _)| {
        Faults::BY_PREFERENCE
            .iter()
            .position(|of| of.number() == *way)
    });
    let taken = all.iter().find(|(_, refused)| refused.is_none());
    let taken = taken.map(|(way, _)| faults::NAMES[*way as usize]);
    let lacking = if taken.is_some() {
        for check in checks.iter_mut().filter(|check| for_messages(check)) {
            if check.level == Level::Fail {
                check.level = Level::Warn;
            }
        }
        Level::Warn
    } else {
        Level::Fail
    };
    for (way, refused) in all {
        let name = faults::NAMES[way as usize];
        checks.push(match refused {
            None => {
                let found = format!("--faults {name} works");
                Check::new(ROWS[way as usize], Level::Ok, found, "")
            }
            Some((why, mend)) => {
                let found = format!("--faults {name} does not: {why}");
                Check::new(ROWS[way as usize], lacking, found, mend)
            }
        });
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here {
        kernel: Some((6, 18)),
        filtered: false,
    };
    const CONTAINER: Here = Here {
        kernel: Some((6, 12)),
        filtered: true,
    };

    fn others(in_thread: Result<(), Refused>) -> [(u32, Result<(), Refused>); 3] {
        [
            (faults::IN_THREAD, in_thread),
            (faults::GUARD, Ok(())),
            (faults::PROTECT, Ok(())),
        ]
    }

    fn row<'a>(checks: &'a [Check], name: &str) -> &'a Check {
        let mut rows = checks.iter().filter(|check| check.name == name);
        rows.next().expect(name)
    }

    #[test]
    fn each_way_has_a_row_and_in_thread_comes_first() {
        let mut checks = vec![Check::new("userfaultfd", Level::Ok, "can be had", "")];
        let taken = judge_those(&mut checks, &others(Ok(())), &HERE);
        assert_eq!(taken, Some("in-thread"));
        assert!(better(&checks).is_empty());
        assert_eq!(checks.len(), 5);
        assert!(checks.iter().all(|check| check.level == Level::Ok));
        assert_eq!(
            row(&checks, "faults by guard").found,
            "--faults guard works"
        );
    }

    #[test]
    fn where_messages_are_refused_another_way_makes_that_a_warning() {
        let refused = Check::new("userfaultfd", Level::Fail, "not permitted", "be root");
        let mut checks = vec![refused.clone()];
        let no = Err(("userfaultfd for user faults", Errno::PERM));
        assert_eq!(
            judge_those(&mut checks, &others(no), &CONTAINER),
            Some("guard")
        );
        assert_eq!(checks[0].level, Level::Warn);
        let message = row(&checks, "faults by message");
        assert_eq!(message.level, Level::Warn);
        assert_eq!(message.mend, "be root");
        let names = better(&checks).into_iter().map(|(_, name)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["in-thread", "message"]);
        assert!(message.found.ends_with("userfaultfd: not permitted"));
        let in_thread = row(&checks, "faults in-thread");
        assert_eq!(
            (in_thread.level, &*in_thread.mend),
            (Level::Warn, GRANT_REGIONS)
        );

        let mut checks = vec![refused];
        let all = others(Ok(())).map(|(way, _)| (way, Err(("Syscall User Dispatch", Errno(22)))));
        assert_eq!(judge_those(&mut checks, &all, &HERE), None);
        assert!(checks.iter().all(|check| check.level == Level::Fail));
        assert!(row(&checks, "faults by protect").mend.contains("gVisor"));
    }

    #[test]
    fn what_mends_a_way_follows_from_what_it_lacks() {
        let old = |minor| Here {
            kernel: Some((6, minor)),
            filtered: false,
        };
        let closing = ("closing a page", Errno::INVAL);
        let user = |number| ("userfaultfd for user faults", Errno(number));
        for (here, way, refused, words) in [
            (old(12), faults::GUARD, closing, "Linux 6.13 or newer"),
            (old(1), faults::IN_THREAD, user(22), "Linux 6.8 or newer"),
            (old(18), faults::IN_THREAD, user(38), "CONFIG_USERFAULTFD"),
            (old(18), faults::IN_THREAD, user(1), "security module"),
            (CONTAINER, faults::IN_THREAD, user(38), "seccomp"),
            (
                CONTAINER,
                faults::PROTECT,
                ("Syscall User Dispatch", Errno(1)),
                "prctl",
            ),
            (
                HERE,
                faults::GUARD,
                ("opening /proc/self/mem", Errno(2)),
                "mount /proc",
            ),
        ] {
            let mend = here.mend(way, refused);
            assert!(mend.contains(words), "{mend}");
        }
    }
}
