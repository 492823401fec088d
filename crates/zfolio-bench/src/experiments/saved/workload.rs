//! The programs: each builds its data and then works on a tenth of it, with a
//! cold tail, except the compiler, which does what it does.

use crate::output::workload_report::Told;
use crate::rig::{Rig, is_installed};
use crate::workloads::objects;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// How much the programs are given to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Bytes of data, about.
    pub(super) size: u64,
    /// What they take without a limit, about.
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// Bytes a customer of the object graphs needs, and a row of the table.
const BYTES_PER_OBJECT: u64 = 1300;
const BYTES_PER_JS_OBJECT: u64 = 440;
const BYTES_PER_JAVA_OBJECT: u64 = 200;
const BYTES_PER_ROW: u64 = 125;
/// Bytes redis needs for a key.
const BYTES_PER_KEY: u64 = 1350;

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Python,
    Sqlite,
    Node,
    Java,
    Redis,
    Compile,
    Memory,
    /// A command of the user's.
    Own,
}

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// What is tried first to find out how much it does in a second.
    pub(super) first: u64,
    /// The phase that is its work, apart from building its data, as it tells it; what takes
    /// the time where there is none is the whole run.
    pub(super) work: Option<&'static str>,
    kind: Kind,
}

/// A command of the user's: as much work as it does, and all that it prints is its result.
pub(super) const OWN: Program = Program {
    name: "command",
    first: 0,
    work: None,
    kind: Kind::Own,
};

pub(super) const PROGRAMS: [Program; 7] = [
    Program {
        name: "python",
        first: 300_000,
        work: Some("part"),
        kind: Kind::Python,
    },
    Program {
        name: "sqlite",
        first: 300_000,
        work: Some("part"),
        kind: Kind::Sqlite,
    },
    Program {
        name: "node",
        first: 5_000_000,
        work: Some("part"),
        kind: Kind::Node,
    },
    Program {
        name: "java",
        first: 5_000_000,
        work: Some("part"),
        kind: Kind::Java,
    },
    Program {
        name: "redis",
        first: 20_000,
        work: Some("requests"),
        kind: Kind::Redis,
    },
    Program {
        name: "compile",
        first: 500,
        work: None,
        kind: Kind::Compile,
    },
    Program {
        name: "memory",
        first: 30_000_000,
        work: Some("tail"),
        kind: Kind::Memory,
    },
];

impl Program {
    /// Why it cannot be run here.
    pub(super) fn missing(&self) -> Option<String> {
        let program = match self.kind {
            Kind::Memory | Kind::Own => return None,
            Kind::Java => "javac",
            Kind::Redis => "redis-server",
            Kind::Python => "python3",
            Kind::Sqlite => "sqlite3",
            Kind::Node => "node",
            Kind::Compile => "cc",
        };
        (!is_installed(program)).then(|| format!("{program} is not installed"))
    }

    pub(super) fn is_own(&self) -> bool {
        self.kind == Kind::Own
    }

    /// Makes what it is run from.
    ///
    /// # Errors
    /// How that fails, in a sentence.
    pub(super) fn prepare(&self, rig: &Rig) -> Result<(), String> {
        if self.kind != Kind::Java {
            return Ok(());
        }
        let source = rig.scratch().join("Objects.java");
        std::fs::write(&source, objects::JAVA)
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let mut javac = Command::new("javac");
        match javac.arg("-d").arg(rig.scratch()).arg(&source).output() {
            Ok(made) if made.status.success() => Ok(()),
            Ok(made) => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
            Err(error) => Err(format!("javac: {error}")),
        }
    }

    /// What a run put out: the figures it told, and its result.
    pub(super) fn told(&self, stdout: &str) -> Told {
        let mut told = Told::read(stdout);
        if self.is_own() {
            told.checks = vec![stdout.to_owned()];
        }
        told
    }

    /// What it is judged by, less is faster: what its work took, or else the whole run, in seconds.
    ///
    /// # Errors
    /// A run that did not say what its work took.
    pub(super) fn took(&self, told: &Told, wall: f64) -> Result<f64, String> {
        let Some(work) = self.work else {
            return Ok(wall);
        };
        let found = told.phases.iter().find(|(phase, _, _)| phase == work);
        let (_, value, unit) = found.ok_or_else(|| format!("it does not tell its {work}"))?;
        Ok(if unit.ends_with("/s") {
            1.0 / value.max(1e-9)
        } else {
            *value
        })
    }

    /// The program and its arguments: data as `load` says, and `amount` of work on it. The compiler
    /// has functions for both. What it writes is in `dir`.
    pub(super) fn command(&self, rig: &Rig, dir: &Path, load: Load, amount: u64) -> Vec<OsString> {
        let Load { size, seed, .. } = load;
        let number = |n: u64| OsString::from(n.to_string());
        let mut own: Vec<OsString> = vec![rig.exe().into(), "bench-work".into()];
        match self.kind {
            Kind::Python => ["python3", "-c", objects::PYTHON]
                .map(OsString::from)
                .into_iter()
                .chain([number(size / BYTES_PER_OBJECT), number(amount)])
                .collect(),
            Kind::Node => ["node", "-e", objects::JAVASCRIPT]
                .map(OsString::from)
                .into_iter()
                .chain([number(size / BYTES_PER_JS_OBJECT), number(amount)])
                .collect(),
            Kind::Java => ["java", "-XX:+UseSerialGC", "-Xmn16m"]
                .map(OsString::from)
                .into_iter()
                .chain([
                    format!("-Xmx{}m", ((size + size / 4) >> 20) + 32).into(),
                    "-cp".into(),
                ])
                .chain([rig.scratch().into(), "Objects".into()])
                .chain([number(size / BYTES_PER_JAVA_OBJECT), number(amount)])
                .collect(),
            Kind::Redis => {
                own.extend(["redis", "--dir"].map(OsString::from));
                own.push(dir.into());
                let keys = size / BYTES_PER_KEY;
                for (option, value) in [("--keys", keys), ("--requests", amount), ("--seed", seed)]
                {
                    own.extend([option.into(), number(value)]);
                }
                own
            }
            Kind::Own => Vec::new(),
            Kind::Sqlite => ["sqlite3".into(), ":memory:".into()]
                .into_iter()
                .chain([queries(size / BYTES_PER_ROW, amount).into()])
                .collect(),
            Kind::Compile => {
                own.extend(["compile", "--dir"].map(OsString::from));
                own.push(dir.into());
                own.extend(["--functions".into(), number(amount)]);
                own
            }
            Kind::Memory => {
                own.extend(["memory", "--phases", "fill,tail"].map(OsString::from));
                for (option, value) in [("--size", size), ("--reads", amount), ("--seed", seed)] {
                    own.extend([option.into(), number(value)]);
                }
                own
            }
        }
    }
}

/// A table in memory, and as many look-ups by key: of 1000 one anywhere, the
/// others in a tenth.
fn queries(rows: u64, lookups: u64) -> String {
    let hot = rows / 10;
    format!(
        "CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, address TEXT, balance REAL);
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows})
INSERT INTO customer SELECT i, printf('customer %09d', i),
    printf('%d street %d, city %d, order %x item %x price %d delivered',
        i % 97, i % 1000, i % 89, i * 2654435761, i * 40503, i % 997),
    i * 0.5 FROM n;
CREATE TABLE clock(at REAL);
INSERT INTO clock VALUES (julianday('now'));
WITH RECURSIVE q(i, k) AS (SELECT 0, 0 UNION ALL
    SELECT i + 1, (k * 1103515245 + 12345 + i) % (CASE WHEN i % 1000 = 0 THEN {rows} ELSE {hot} END)
    FROM q WHERE i < {lookups})
SELECT printf('{{\"check\":\"%d %d\"}}', count(*), sum(length(address) + balance))
    FROM q JOIN customer ON id = k;
SELECT printf('{{\"phase\":\"part\",\"value\":%.3f,\"unit\":\"s\"}}', (julianday('now') - at) * 86400) FROM clock;"
    )
}

/// The amount of work with which a program takes `seconds`, from what it takes for
/// none and for `first`, which is raised until it can be told apart.
///
/// # Errors
/// As `run` says.
pub(super) fn amount(
    seconds: f64,
    first: u64,
    mut run: impl FnMut(u64) -> Result<f64, String>,
) -> Result<u64, String> {
    let none = run(0)?;
    let mut tried = first;
    let mut more = run(tried)? - none;
    for _ in 0..4 {
        if more >= seconds / 8.0 {
            break;
        }
        tried *= 4;
        more = run(tried)? - none;
    }
    let wanted = (seconds - none).max(seconds / 4.0);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of steps"
    )]
    let amount = (tried as f64 * wanted / more.max(1e-3)) as u64;
    Ok(amount.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<&str> = PROGRAMS.iter().map(|p| p.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
    }

    /// A program that needs `none` seconds and `each` for a unit of work.
    fn found(seconds: f64, first: u64, none: f64, each: f64) -> f64 {
        let amount = amount(seconds, first, |amount| Ok(none + amount as f64 * each));
        none + amount.expect("it runs") as f64 * each
    }

    #[test]
    fn it_takes_as_long_as_it_should() {
        for (seconds, none, each) in [(6.0, 1.0, 1e-6), (6.0, 0.0, 2e-3), (1.0, 0.3, 1e-7)] {
            let took = found(seconds, 300_000, none, each);
            assert!((took - seconds).abs() < 0.01, "{took} for {seconds}");
        }
        // Even the most that is tried takes no time worth mentioning.
        assert!((found(6.0, 1, 1.0, 1e-3) - 6.0).abs() < 0.01);
        // Building alone takes longer: a quarter of the time is for the work.
        assert!((found(4.0, 1000, 5.0, 1e-3) - 6.0).abs() < 0.01);
        let failed = amount(1.0, 1, |_| Err("no".to_owned()));
        assert_eq!(failed, Err("no".to_owned()));
    }

    #[test]
    fn a_rate_is_what_each_took() {
        let told = Told::read("{\"phase\":\"requests\",\"value\":4.0,\"unit\":\"/s\"}");
        let redis = PROGRAMS.iter().find(|p| p.name == "redis").expect("one");
        assert_eq!(redis.took(&told, 9.0), Ok(0.25));
        assert!(
            PROGRAMS[0].took(&told, 9.0).is_err(),
            "it has another phase"
        );
        assert_eq!(OWN.took(&told, 9.0), Ok(9.0));
        assert_eq!(OWN.told("1\n2\n").checks, ["1\n2\n"]);
    }

    #[test]
    fn every_program_has_a_result_that_depends_on_its_work() {
        let rig = Rig::own().expect("a directory");
        for program in &PROGRAMS {
            if let Some(why) = program.missing() {
                eprintln!("SKIPPED: {why}");
                continue;
            }
            // The command of the tests is another program.
            if matches!(program.kind, Kind::Compile | Kind::Memory | Kind::Redis) {
                continue;
            }
            program.prepare(&rig).expect("prepared");
            let load = Load {
                size: 2 << 20,
                seconds: 1.0,
                seed: 1,
            };
            let checks = |amount| {
                let command = program.command(&rig, rig.scratch(), load, amount);
                let ran = Command::new(&command[0]).args(&command[1..]).output();
                let ran = ran.expect("it starts");
                let told = Told::read(&String::from_utf8_lossy(&ran.stdout));
                assert!(ran.status.success(), "{}: {ran:?}", program.name);
                assert_eq!(told.checks.len(), 1, "{}: {ran:?}", program.name);
                let took = program
                    .took(&told, 60.0)
                    .expect("it says what its work took");
                assert!((0.0..60.0).contains(&took), "{}: {took}", program.name);
                told.checks
            };
            assert_ne!(checks(500), checks(20_500), "{}", program.name);
            assert_eq!(checks(500), checks(500), "{}", program.name);
        }
    }
}
