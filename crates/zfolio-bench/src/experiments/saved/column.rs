//! A configuration's runs of a program, and what they come to.

use super::config::{Config, Held};
use super::search::{Judged, Search};
use super::workload::Program;
use crate::output::ministat::Summary;
use crate::output::workload_report::Told;
use crate::rig::{self, Ran};

/// A run without a limit, which others of its round are judged by.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Native {
    /// Seconds of all of it, and what its work took ([`Program::took`]).
    pub(super) wall: f64,
    pub(super) took: f64,
    /// Processor time of all of it, seconds.
    pub(super) cpu: f64,
    /// Most memory of its largest process; and charged to its group, files that it read included,
    /// where there is a group. Bytes.
    pub(super) memory: u64,
    pub(super) charged: Option<u64>,
}

impl Native {
    /// # Errors
    /// A run that did not say what its work took.
    pub(super) fn of(program: &Program, ran: &Ran) -> Result<Self, String> {
        Ok(Self {
            wall: ran.wall,
            took: program.took(&program.told(&ran.stdout), ran.wall)?,
            cpu: ran.user + ran.sys,
            memory: ran.high_water,
            charged: ran.charged,
        })
    }

    /// What a run of `config` is compared with.
    pub(super) fn need(&self, config: &Config) -> Option<u64> {
        if config.is_kernel() {
            self.charged
        } else {
            Some(self.memory)
        }
    }
}

/// Two runs without a limit at once: what the second took, times the first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Alike {
    pub(super) work: f64,
    /// Processor time of all of it.
    pub(super) cpu: f64,
}

/// A run with a limit: what counts of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    /// What its work took, times that of the run without a limit; infinite if it was ended
    /// because that was certain to be too much.
    pub(super) times: f64,
    /// Most memory used, and of it `zfolio run` itself; bytes. 0 if it was ended.
    pub(super) used: u64,
    pub(super) own: u64,
    /// What was stored to its frames of the pool, when most was; `None` when
    /// nothing was, or it is not known.
    pub(super) ratio: Option<f64>,
}

impl Judged for Sample {
    fn figure(&self) -> f64 {
        self.times
    }
}

/// A run of `--slowdown`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Controlled {
    /// All of it, its work, and the processor time of it and of all of `zfolio run`, times that of the
    /// run without a limit.
    pub(super) wall: f64,
    pub(super) work: f64,
    pub(super) cpu: f64,
    /// What it thinks itself, percent.
    pub(super) estimated: f64,
    /// Means since memory was first taken, bytes: what it would have had and what it had; 0 where none
    /// was taken. And of the whole run.
    pub(super) needed: u64,
    pub(super) resident: u64,
    pub(super) needed_whole: u64,
    pub(super) resident_whole: u64,
}

impl Controlled {
    fn percent(needed: u64, resident: u64) -> f64 {
        if needed == 0 {
            return 0.0;
        }
        (1.0 - resident as f64 / needed as f64) * 100.0
    }

    /// Memory saved since it was first taken, and of the whole run, percent.
    pub(super) fn saved(&self) -> f64 {
        Self::percent(self.needed, self.resident)
    }

    pub(super) fn saved_whole(&self) -> f64 {
        Self::percent(self.needed_whole, self.resident_whole)
    }
}

#[derive(Debug)]
pub(super) enum Runs {
    Searched(Search<Sample>),
    /// So many are made.
    Controlled {
        runs: Vec<Controlled>,
        most: usize,
    },
}

/// A configuration's runs of a program.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) config: &'static Config,
    /// What limits are tried in parts of, bytes: the need, as first measured.
    pub(super) scale: u64,
    pub(super) runs: Runs,
    /// Why there are no more.
    pub(super) failed: Option<String>,
}

impl Column {
    /// With a search that begins, or with `most` runs of the controller.
    pub(super) fn new(
        config: &'static Config,
        scale: u64,
        search: Search<Sample>,
        most: usize,
    ) -> Self {
        let runs = match config.held {
            Held::Slowdown => Runs::Controlled {
                runs: Vec::new(),
                most,
            },
            _ => Runs::Searched(search),
        };
        Self {
            config,
            scale,
            runs,
            failed: None,
        }
    }

    /// The step of the limit to run at next; 0 where nothing is searched.
    pub(super) fn step(&self) -> Option<u32> {
        let next = match &self.runs {
            Runs::Searched(search) => search.next(),
            Runs::Controlled { runs, most } => (runs.len() < *most).then_some(0),
        };
        next.filter(|_| self.failed.is_none())
    }

    /// Runs that are made at most.
    pub(super) fn most(&self, searched: usize) -> usize {
        match &self.runs {
            Runs::Searched(_) => searched,
            Runs::Controlled { most, .. } => *most,
        }
    }

    pub(super) fn search(&self) -> Option<&Search<Sample>> {
        match &self.runs {
            Runs::Searched(search) => Some(search),
            Runs::Controlled { .. } => None,
        }
    }

    pub(super) fn controlled(&self) -> &[Controlled] {
        match &self.runs {
            Runs::Searched(_) => &[],
            Runs::Controlled { runs, .. } => runs,
        }
    }

    /// Takes a run that stands beside `native`. One that was ended
    /// early was too slow, if `early` is what it was ended for.
    pub(super) fn add(
        &mut self,
        program: &Program,
        ran: Result<Ran, String>,
        native: &Native,
        told: &Told,
        early: bool,
    ) {
        let config = self.config;
        let took = |ran: &Ran| {
            let now = program.told(&ran.stdout);
            now.agrees(told)?;
            Ok(program.took(&now, ran.wall)? / native.took.max(1e-9))
        };
        let added = match (&mut self.runs, ran) {
            (Runs::Searched(search), Ok(ran)) => took(&ran)
                .and_then(|times| Sample::of(config, &ran, times))
                .map(|sample| search.add(sample)),
            (Runs::Searched(search), Err(why)) if early && why.starts_with(rig::ENDED) => {
                search.add(Sample {
                    times: f64::INFINITY,
                    used: 0,
                    own: 0,
                    ratio: None,
                });
                Ok(())
            }
            (Runs::Controlled { runs, .. }, Ok(ran)) => took(&ran)
                .and_then(|work| Controlled::of(&ran, native, work))
                .map(|run| runs.push(run)),
            (_, Err(why)) => Err(why),
        };
        self.failed = added.err();
    }
}

impl Sample {
    /// # Errors
    /// Statistics without the figure.
    fn of(config: &Config, ran: &Ran, times: f64) -> Result<Self, String> {
        if config.is_kernel() {
            let used = ran.used().ok_or("there is no control group to say it")?;
            return Ok(Self {
                times,
                used,
                own: 0,
                ratio: None,
            });
        }
        let most = ran.stats["usage"]["max_rss_bytes"].as_u64();
        let most = most.ok_or("its statistics cannot be read")?;
        Ok(Self {
            times,
            used: most + ran.first,
            own: ran.first,
            ratio: ran.stats["total"]["most_held"]["ratio_pool"].as_f64(),
        })
    }
}

impl Controlled {
    /// # Errors
    /// Statistics without the figures.
    fn of(ran: &Ran, native: &Native, work: f64) -> Result<Self, String> {
        let told = &ran.stats["slowdown"];
        let bytes = |name: &str| {
            let found = told[name].as_u64();
            found.ok_or_else(|| format!("its statistics have no {name}"))
        };
        Ok(Self {
            wall: ran.wall / native.wall.max(1e-9),
            work,
            cpu: (ran.user + ran.sys) / native.cpu.max(1e-9),
            estimated: told["estimated_percent"].as_f64().unwrap_or_default(),
            needed: bytes("needed_since_bytes")?,
            resident: bytes("resident_since_bytes")?,
            needed_whole: bytes("needed_mean_bytes")?,
            resident_whole: bytes("resident_mean_bytes")?,
        })
    }
}

/// What the smallest limit within the slowdown comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Saved {
    /// Bytes: the limit, the median of what was used, and how much less that is
    /// than without a limit (which may be less than nothing).
    pub(super) high: u64,
    pub(super) used: u64,
    pub(super) bytes: i64,
    /// Of what is used without a limit.
    pub(super) percent: f64,
    pub(super) ratio: Option<f64>,
    /// Percent: by the curve, and of the runs with it.
    pub(super) slowdown: f64,
    pub(super) spread: Summary,
}

/// What the controller comes to: medians.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Kept {
    /// Percent saved since memory was first taken, and of the whole run.
    pub(super) percent: f64,
    pub(super) whole: f64,
    /// Bytes: what it had since then, on average.
    pub(super) resident: u64,
    /// Percent slower, of the whole run; and what it thought itself.
    pub(super) slowdown: Summary,
    pub(super) estimated: f64,
    /// Of its work alone.
    pub(super) work: f64,
    /// More processor time, percent.
    pub(super) cpu: Summary,
    /// Runs, and those that were at most a fifth more slowed down than was asked for; and by processor
    /// time.
    pub(super) runs: usize,
    pub(super) kept: usize,
    pub(super) kept_by_cpu: usize,
}

impl Kept {
    /// `asked`: percent.
    pub(super) fn of(runs: &[Controlled], asked: f64) -> Option<Self> {
        let middle = |figure: &dyn Fn(&Controlled) -> f64| {
            let all: Vec<f64> = runs.iter().map(figure).collect();
            Summary::of(&all)
        };
        let slower = |times: f64| (times - 1.0) * 100.0;
        let kept = |times: &dyn Fn(&Controlled) -> f64| {
            let all = runs.iter().map(times);
            all.filter(|times| slower(*times) <= asked * 1.2).count()
        };
        Some(Self {
            percent: middle(&Controlled::saved)?.median,
            whole: middle(&Controlled::saved_whole)?.median,
            resident: median(runs.iter().map(|run| run.resident))?,
            slowdown: middle(&|run| slower(run.wall))?,
            estimated: middle(&|run| run.estimated)?.median,
            work: middle(&|run| slower(run.work))?.median,
            runs: runs.len(),
            cpu: middle(&|run| slower(run.cpu))?,
            kept: kept(&|run| run.wall),
            kept_by_cpu: kept(&|run| run.cpu),
        })
    }
}

/// The median, of the two in the middle the greater: what is used is not to be
/// made less of.
pub(super) fn median(of: impl Iterator<Item = u64>) -> Option<u64> {
    let mut all: Vec<u64> = of.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(wall: f64, resident: u64) -> Controlled {
        Controlled {
            wall,
            work: wall,
            cpu: wall - 0.01,
            estimated: 4.0,
            needed: 200,
            resident,
            needed_whole: 100,
            resident_whole: 90,
        }
    }

    #[test]
    fn a_promise_is_kept_within_a_fifth_of_it() {
        let runs = [run(1.03, 150), run(1.059, 140), run(1.062, 130)];
        let kept = Kept::of(&runs, 5.0).expect("three runs");
        assert_eq!((kept.kept, kept.runs, kept.resident), (2, 3, 140));
        assert_eq!(kept.kept_by_cpu, 3);
        assert!((kept.cpu.median - 4.9).abs() < 1e-9);
        assert!((kept.percent - 30.0).abs() < 1e-9 && (kept.whole - 10.0).abs() < 1e-9);
        assert!((kept.slowdown.median - 5.9).abs() < 1e-9);
        assert_eq!(Kept::of(&[], 5.0), None);
    }

    #[test]
    fn where_none_was_taken_none_is_saved() {
        let mut none = run(1.0, 0);
        none.needed = 0;
        assert!(none.saved().abs() < 1e-9);
    }
}
