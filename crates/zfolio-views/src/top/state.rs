//! What `zfolio top` knows: the runs, their rows over time, and what the user chose.

use super::rows::{Key, Row, Sort, rows};
use crate::look::{Look, Seen};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zfolio_host::exit::Failure;
use zfolio_host::find_run::locate;

/// Most values of a curve: more than a screen is wide.
const MOST: usize = 512;
/// Most runs that are looked at.
const RUNS: usize = 64;

/// A row over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct History {
    pub(crate) program: VecDeque<u64>,
    pub(crate) resident: VecDeque<u64>,
    pub(crate) faults: VecDeque<u64>,
    pub(crate) moved_out: VecDeque<u64>,
    pub(crate) moved_in: VecDeque<u64>,
    /// Thousandths.
    pub(crate) stall: VecDeque<u64>,
}

/// A rate as a curve has it.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and drawn a line high"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

impl History {
    fn add(&mut self, row: &Row) {
        let values = [
            (&mut self.program, row.memory.program_bytes),
            (&mut self.resident, row.memory.resident_bytes),
            (&mut self.faults, whole(row.faults)),
            (&mut self.moved_out, whole(row.moved_out)),
            (&mut self.moved_in, whole(row.moved_in)),
            (&mut self.stall, whole(row.stall * 1000.0)),
        ];
        for (curve, value) in values {
            if curve.len() == MOST {
                curve.pop_front();
            }
            curve.push_back(value);
        }
    }
}

/// A run that is looked at.
#[derive(Debug)]
struct Watched {
    look: Look,
    before: Option<Seen>,
    now: Seen,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct State {
    /// The one run that was asked for.
    only: Option<PathBuf>,
    runs: Vec<Watched>,
    /// Runs that ended while we looked.
    pub(crate) ended: usize,
    pub(crate) rows: Vec<Row>,
    history: HashMap<Key, History>,
    pub(crate) sort: Sort,
    selected: Option<Key>,
    pub(crate) help: bool,
}

impl State {
    /// Looks at the named run, or at all.
    ///
    /// # Errors
    /// When the named one is not there.
    pub(crate) fn new(which: Option<&Path>) -> Result<Self, Failure> {
        let only = which.map(|which| locate(Some(which))).transpose()?;
        let mut state = Self {
            only,
            runs: Vec::new(),
            ended: 0,
            rows: Vec::new(),
            history: HashMap::new(),
            sort: Sort::Program,
            selected: None,
            help: false,
        };
        if let Some(path) = which {
            // (That it can be read is told at once.)
            Look::find(Some(path))?;
        }
        state.look();
        Ok(state)
    }

    /// Looks at all runs, those that came among them.
    pub(crate) fn look(&mut self) {
        let before = self.runs.len();
        self.runs.retain(|run| !run.look.has_ended());
        self.ended += before - self.runs.len();
        for run in &mut self.runs {
            let now = run.look.look();
            run.before = Some(std::mem::replace(&mut run.now, now));
        }
        let there = match &self.only {
            Some(path) => vec![path.clone()],
            None => Look::all(),
        };
        for path in there {
            let known = self.runs.iter().any(|run| run.look.path() == path);
            if known || self.runs.len() >= RUNS {
                continue;
            }
            // (One of another version, or that ended just now, is none.)
            if let Ok(mut look) = Look::open(&path)
                && !look.has_ended()
            {
                let now = look.look();
                self.runs.push(Watched {
                    look,
                    before: None,
                    now,
                });
            }
        }
        self.arrange();
        for row in &self.rows {
            self.history.entry(row.key.clone()).or_default().add(row);
        }
        let rows = &self.rows;
        self.history
            .retain(|key, _| rows.iter().any(|row| row.key == *key));
    }

    /// Makes the rows anew, in the order that holds.
    fn arrange(&mut self) {
        let sort = self.sort;
        let all = self.runs.iter().map(|run| {
            let (look, before) = (&run.look, run.before.as_ref());
            rows(look.path(), look.pid(), before, &run.now, sort)
        });
        self.rows = all.flatten().collect();
    }

    /// Goes on to the next order.
    pub(crate) fn sort_next(&mut self) {
        self.sort = self.sort.next();
        self.arrange();
    }

    /// The row that is selected: the first, unless another was chosen and is there.
    pub(crate) fn selected(&self) -> usize {
        let chosen = self.selected.as_ref();
        let at = chosen.and_then(|key| self.rows.iter().position(|row| row.key == *key));
        at.unwrap_or(0)
    }

    /// Selects the row so many below, or above.
    pub(crate) fn select(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        let at = self.selected().saturating_add_signed(by).min(last);
        self.selected = self.rows.get(at).map(|row| row.key.clone());
    }

    /// Of the selected row: itself and how it was.
    pub(crate) fn shown(&self) -> Option<(&Row, &History)> {
        let row = self.rows.get(self.selected())?;
        Some((row, self.history.get(&row.key)?))
    }

    /// How many runs, and how many processes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.runs.len(), self.rows.len() - self.runs.len())
    }
}

/// When to look next: a span after the last, whatever looking took.
pub(crate) fn next(last: Instant, every: Duration) -> Instant {
    (last + every).max(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::segment::{Counter, Who};

    #[test]
    fn rows_are_selected_by_what_they_are_of() {
        let own = crate::example::example();
        let claim = |word| {
            own.claim_for(
                Who {
                    word,
                    namespace: 0,
                    ..Who::is_calling()
                },
                |_| true,
            )
        };
        let (one, two) = (claim(7), claim(8));
        own.slots[one].set(Counter::ProgramBytes, 2 << 20);
        own.slots[two].set(Counter::PoolBytes, 2 << 20);
        let mut state = State::new(Some(own.path())).expect("it is there");
        let names = |state: &State| -> Vec<Option<u64>> {
            state.rows.iter().map(|row| row.key.turn).collect()
        };
        let all = names(&state);
        assert_eq!(all[0], None);
        assert!(all.len() >= 3, "{all:?}");
        assert_eq!(state.selected(), 0);
        state.select(1);
        let chosen = state.rows[state.selected()].key.clone();
        assert_eq!(chosen.turn, Some(3));
        while state.sort != Sort::Pool {
            state.sort_next();
        }
        assert_eq!(state.rows[1].key.turn, Some(4), "the largest pool is first");
        assert_eq!(state.rows[state.selected()].key, chosen);
        state.select(isize::MAX);
        assert_eq!(state.selected(), state.rows.len() - 1);
        state.select(isize::MIN);
        assert_eq!(state.selected(), 0);
        for _ in 0..MOST + 3 {
            state.look();
        }
        assert_eq!(state.shown().expect("a row").1.program.len(), MOST);
        drop(own);
        state.look();
        assert_eq!((state.rows.len(), state.ended), (0, 1));
        assert!(state.shown().is_none());
        state.select(1);
        assert_eq!(state.selected(), 0);
    }
}
