//! What a workload tells: lines of JSON among others ([`crate::workloads`]).

use serde_json::Value;

/// What a run printed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Told {
    /// Name, figure, unit.
    pub(crate) phases: Vec<(String, f64, String)>,
    pub(crate) checks: Vec<String>,
}

impl Told {
    pub(crate) fn read(stdout: &str) -> Self {
        let lines = stdout.lines();
        let lines: Vec<Value> = lines.filter_map(|l| serde_json::from_str(l).ok()).collect();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            phases: lines
                .iter()
                .filter_map(|line| {
                    let value = line["value"].as_f64()?;
                    Some((text(&line["phase"])?, value, text(&line["unit"])?))
                })
                .collect(),
            checks: lines.iter().filter_map(|l| text(&l["check"])).collect(),
        }
    }

    /// Whether the checks are those of a run without a limit.
    ///
    /// # Errors
    /// Both, in a sentence.
    pub(crate) fn agrees(&self, native: &Self) -> Result<(), String> {
        if self.checks == native.checks {
            return Ok(());
        }
        Err(format!(
            "its result is {:?}, without a limit it is {:?}",
            self.checks, native.checks
        ))
    }

    /// The unit of each phase.
    pub(crate) fn units(&self) -> Vec<(String, String)> {
        let units = self.phases.iter();
        units
            .map(|(phase, _, unit)| (phase.clone(), unit.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_passed_over() {
        let text = "hello\n{\"phase\":\"fill\",\"value\":3.5,\"unit\":\"MB/s\"}\n{}\n{\"check\":\"a\"}\n[1";
        let told = Told::read(text);
        assert_eq!(told.phases, [("fill".to_owned(), 3.5, "MB/s".to_owned())]);
        assert_eq!(told.checks, ["a"]);
    }
}
