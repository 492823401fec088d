//! Which way faults are told in a run, why not another, and which options go with it.
//!
//! Two questions, asked before the program starts: what works on this machine ([`Works`]), and
//! what the command line needs ([`needs_messages`]). An option without effect would be worse
//! than a refusal, so there is none: what a way lacks is refused with a line.
//!
//! | asked for | an option needs messages | taken |
//! |---|---|---|
//! | auto | no | in-thread, else messages where they are permitted, else guard, else protect |
//! | auto | yes | messages, or status 71 |
//! | message | | messages, or status 71 |
//! | another | no | that one, or status 71 |
//! | another | yes | status 2 |

use crate::options::run_args::{Faults, Run};
use crate::options::shown::FaultsShown;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::uffd_probe;
use zfolio_inthread::LARGEST_FOLIO;
use zfolio_inthread::start::try_way;
use zfolio_runtime::segment::Segment;

/// What to do about a way that does not work.
const MEND: &str = "zfolio doctor says what would mend it";

/// Each way that was tried, in the order in which `auto` takes them; `None` for one that works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Works(Vec<(Faults, Option<String>)>);

impl Works {
    /// Tries those that `asked` allows: `auto` stops at the first that works.
    pub(crate) fn here(asked: Faults) -> Self {
        let mut tried = Vec::new();
        for way in Faults::BY_PREFERENCE {
            if asked != Faults::Auto && asked != way {
                continue;
            }
            let refused = refused(way);
            let works = refused.is_none();
            tried.push((way, refused));
            if works {
                break;
            }
        }
        Self(tried)
    }

    /// The first that works.
    fn first(&self) -> Option<Faults> {
        let mut tried = self.0.iter();
        let found = tried.find(|(_, refused)| refused.is_none());
        found.map(|(way, _)| *way)
    }

    /// Why one does not work; `None` if it does, or was not tried.
    fn refused(&self, way: Faults) -> Option<&str> {
        let tried = self.0.iter().find(|(tried, _)| *tried == way);
        tried.and_then(|(_, refused)| refused.as_deref())
    }

    /// Those that do not work, with the reasons.
    fn all_refused(&self) -> impl Iterator<Item = (Faults, &str)> {
        let tried = self.0.iter();
        tried.filter_map(|(way, refused)| Some((*way, refused.as_deref()?)))
    }
}

/// Why a way does not work here.
fn refused(way: Faults) -> Option<String> {
    if way == Faults::Message {
        return uffd_probe::usable().err();
    }
    let (what, errno) = try_way(way.number()).err()?;
    Some(format!("{what}: {}", uffd_probe::words(errno)))
}

/// What a run takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// What was asked for.
    pub(crate) asked: Faults,
    /// The way; `Auto` where none works and the program is to run all the same.
    pub(crate) way: Faults,
    /// What was tried.
    pub(crate) works: Works,
}

impl Taken {
    /// Decides.
    ///
    /// # Errors
    /// Nothing works that was asked for, or an option does not go with it.
    pub(crate) fn of(args: &Run) -> Result<Self, Failure> {
        let needs = needs_messages(args);
        Self::among(args.work.faults, needs, args.allow_unmanaged, Works::here)
    }

    fn among(
        asked: Faults,
        needs: Option<&str>,
        allow_unmanaged: bool,
        works: impl FnOnce(Faults) -> Works,
    ) -> Result<Self, Failure> {
        let to_try = match (needs, asked) {
            (None, asked) => asked,
            (Some(_), Faults::Auto | Faults::Message) => Faults::Message,
            (Some(option), way) => return Err(contradicts(option, way)),
        };
        let works = works(to_try);
        let way = match works.first() {
            Some(way) => way,
            None if allow_unmanaged => to_try,
            None => return Err(not_here(asked, needs, &works)),
        };
        Ok(Self { asked, way, works })
    }

    /// The way that works; `None` where nothing does and the program runs unmanaged.
    pub(crate) fn found(&self) -> Option<Faults> {
        self.works.first()
    }

    /// For the JSON: the way, what was asked for, and what was refused before.
    pub(crate) fn shown(&self) -> FaultsShown {
        let refused = self.works.all_refused();
        let taken = self.found().map(Faults::name);
        FaultsShown {
            faults: taken,
            faults_asked: self.asked.name(),
            faults_refused: refused
                .map(|(way, why)| (way.name(), why.to_owned()))
                .collect(),
        }
    }

    /// What the processes of the run are told. With `auto`, not by messages, each takes the
    /// first that works where it is: what the program starts may be in a sandbox that allows
    /// less.
    pub(crate) fn for_processes(&self) -> Faults {
        match (self.asked, self.way) {
            (_, Faults::Message) => Faults::Message,
            (asked, _) => asked,
        }
    }
}

/// The first option of a command line that only messages have.
fn needs_messages(args: &Run) -> Option<&'static str> {
    let is_large = args.moved.folio.is_some_and(|folio| folio > LARGEST_FOLIO);
    // (No more is moved at a time.)
    let most = LARGEST_FOLIO.get();
    let is_wide = args.moved.page_cluster.is_some_and(|of| of > most);
    let asked = [
        // (Threads of ours beside the program's.)
        ("--engines", args.work.engines.count > 0),
        ("--folio above 256K", is_large),
        // (Whoever faults is to wait there, in a thread of ours.)
        ("--swap-high", args.group.swap_high.is_some()),
        ("--page-cluster above 6", is_wide),
        ("--huge-page-assembly", args.moved.huge_page_assembly),
    ];
    let mut given = asked.into_iter().filter(|(_, given)| *given);
    given.next().map(|(option, _)| option)
}

/// Checks the options of a group that joins the run around, whose way stands.
///
/// # Errors
/// It is not the one asked for.
pub(crate) fn check_within(args: &Run, around: &Segment) -> Result<(), Failure> {
    if args.paid.slowdown.is_some() {
        let why = "is the run's, not a group's within it";
        return Err(Failure::new(
            Status::Usage,
            "--slowdown",
            why,
            "leave it out",
        ));
    }
    let number = around.config().faults.load(Relaxed);
    let Some(way) = Faults::from_number(number) else {
        return Ok(());
    };
    if args.work.faults != Faults::Auto && args.work.faults != way {
        let why = format!("the run around has --faults {}", way.name());
        let what = format!("--faults {}", args.work.faults.name());
        return Err(Failure::new(Status::Usage, what, why, "leave it out"));
    }
    if args.group.swap_high.is_some() && way != Faults::Message {
        let why = "works with --faults message only, which the run around has not";
        return Err(Failure::new(
            Status::Usage,
            "--swap-high",
            why,
            "leave it out",
        ));
    }
    Ok(())
}

fn contradicts(option: &str, way: Faults) -> Failure {
    let why = format!("works with --faults message only, not with {}", way.name());
    Failure::new(Status::Usage, option, why, "leave one of them out")
}

fn not_here(asked: Faults, needs: Option<&str>, works: &Works) -> Failure {
    let what = format!("--faults {}", asked.name());
    let message = || works.refused(Faults::Message).unwrap_or("not tried");
    match (needs, asked) {
        (Some(option), _) => {
            let why = format!(
                "works with --faults message only, which cannot be had here ({})",
                message()
            );
            let mend = format!("leave it out; {MEND}");
            Failure::new(Status::Machine, option, why, mend)
        }
        (None, Faults::Auto) => {
            let tried = works.all_refused();
            let tried: Vec<String> = tried
                .map(|(way, why)| format!("{} ({why})", way.name()))
                .collect();
            let why = format!("no way works here: {}", tried.join(", "));
            Failure::new(Status::Machine, what, why, MEND)
        }
        (None, way) => {
            let why = works.refused(way).unwrap_or("it is not in this build");
            let mend = format!("leave it out; {MEND}");
            Failure::new(Status::Machine, what, why, mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Taken {
        /// As where messages are permitted.
        pub(crate) fn by_messages() -> Self {
            Self {
                asked: Auto,
                way: Message,
                works: Works(vec![(Message, None)]),
            }
        }
    }

    use Faults::{Auto, Guard, InThread, Message, Protect};

    /// A machine on which `works` do.
    fn machine(works: &[Faults]) -> impl Fn(Faults) -> Works {
        move |asked| {
            let mut tried = Vec::new();
            for way in Faults::BY_PREFERENCE {
                if asked != Auto && asked != way {
                    continue;
                }
                let refused = (!works.contains(&way)).then(|| format!("no {}", way.name()));
                tried.push((way, refused));
            }
            Works(tried)
        }
    }

    fn taken(asked: Faults, needs: Option<&str>, works: &[Faults]) -> Result<Faults, Status> {
        let taken = Taken::among(asked, needs, false, machine(works));
        taken
            .map(|taken| taken.way)
            .map_err(|failure| failure.status)
    }

    #[test]
    fn the_first_that_works_is_taken_or_the_one_asked_for() {
        let all = [Message, InThread, Guard, Protect];
        assert_eq!(taken(Auto, None, &all), Ok(InThread));
        assert_eq!(taken(Auto, None, &[Message, Guard]), Ok(Message));
        assert_eq!(taken(Auto, None, &[Guard, Protect]), Ok(Guard));
        assert_eq!(taken(Message, None, &all), Ok(Message));
        assert_eq!(taken(Auto, None, &[Protect]), Ok(Protect));
        assert_eq!(taken(Guard, None, &all), Ok(Guard));
        for asked in [Auto, Message, Guard] {
            assert_eq!(taken(asked, None, &[]), Err(Status::Machine), "{asked:?}");
        }
        assert_eq!(taken(Guard, None, &[Message]), Err(Status::Machine));
    }

    #[test]
    fn an_option_that_needs_messages_has_them_or_is_refused() {
        let all = [Message, InThread, Guard, Protect];
        let needs = Some("--engines");
        for asked in [Auto, Message] {
            assert_eq!(taken(asked, needs, &all), Ok(Message));
            assert_eq!(taken(asked, needs, &all[1..]), Err(Status::Machine));
        }
        for asked in [InThread, Guard, Protect] {
            assert_eq!(taken(asked, needs, &all), Err(Status::Usage));
        }
        let told = |asked, works: &[Faults]| {
            let taken = Taken::among(asked, needs, false, machine(works));
            taken.expect_err("refused").to_string()
        };
        assert_eq!(
            told(Guard, &all),
            "zfolio: --engines: works with --faults message only, not with guard; leave one of \
             them out"
        );
        assert_eq!(
            told(Auto, &all[1..]),
            "zfolio: --engines: works with --faults message only, which cannot be had here \
             (no message); leave it out; zfolio doctor says what would mend it"
        );
    }

    #[test]
    fn where_nothing_works_a_program_may_run_all_the_same() {
        let told = Taken::among(Auto, None, false, machine(&[])).expect_err("refused");
        assert_eq!(
            told.to_string(),
            "zfolio: --faults auto: no way works here: in-thread (no in-thread), message (no \
             message), guard (no guard), protect (no protect); zfolio doctor says what would \
             mend it"
        );
        for asked in [Auto, Message, Guard] {
            let taken = Taken::among(asked, None, true, machine(&[])).expect("unmanaged");
            assert_eq!((taken.way, taken.for_processes()), (asked, asked));
            assert_eq!(taken.shown().faults, None);
        }
    }

    #[test]
    fn what_was_taken_and_what_was_refused_is_in_the_json() {
        let taken = Taken::among(Auto, None, false, machine(&[Guard, Protect])).expect("a way");
        assert_eq!(taken.for_processes(), Auto, "each process looks for itself");
        let shown = taken.shown();
        assert_eq!((shown.faults, shown.faults_asked), (Some("guard"), "auto"));
        assert_eq!(shown.faults_refused["message"], "no message");
        assert_eq!(shown.faults_refused["in-thread"], "no in-thread");
        let by_messages = Taken::among(Auto, None, false, machine(&[Message])).expect("a way");
        assert_eq!(by_messages.for_processes(), Message);
    }
}
