//! The command lines of what shows a run.

use crate::address::Address;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Whom a command is about.
#[derive(Args, Debug, Default)]
pub struct Which {
    /// Process id of a `zfolio run` or of a program under it, or the path of
    /// a control segment; default: the newest
    #[arg(value_name = "PID|FILE")]
    pub which: Option<PathBuf>,
}

/// `zfolio stat`.
#[derive(Args, Debug)]
pub struct Stat {
    /// Whom.
    #[command(flatten)]
    pub which: Which,
    /// Print JSON: every figure that --stats FILE has, as it is now
    #[arg(long)]
    pub json: bool,
    /// Print each pool's table of classes as well, as /sys/kernel/debug/zsmalloc has it
    #[arg(long, conflicts_with = "json")]
    pub classes: bool,
    /// Again and again, every SECONDS (1 by default), until the run ends; with --json an
    /// object a line
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = seconds)]
    pub watch: Option<Duration>,
}

/// Options of `zfolio run` about what is shown while it lasts.
#[derive(Args, Debug, Default)]
pub struct WhileRunning {
    /// Serve the figures as OpenMetrics text over HTTP while the program runs: at an address
    /// (127.0.0.1:9464), at a port of this machine alone (9464; 0: any), or at a socket
    /// that you alone may use (unix:PATH)
    #[arg(long, value_name = "ADDR|unix:PATH", value_parser = Address::parse)]
    pub metrics: Option<Address>,
    /// Write a line of figures a second to FILE (zfolio plot draws it); what grows too
    /// long is thinned
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// `zfolio plot`.
#[derive(Args, Debug)]
pub struct Plot {
    /// What `zfolio run --record` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The picture, SVG or PNG by its name's ending
    #[arg(short, long, value_name = "OUT.svg|OUT.png")]
    pub output: PathBuf,
}

/// `zfolio top`.
#[derive(Args, Debug)]
pub struct Top {
    /// Process id of a `zfolio run` or of a program under it, or the path of
    /// a control segment; default: all runs of yours
    #[arg(value_name = "PID|FILE")]
    pub which: Option<PathBuf>,
    /// Print the table once as plain text (as where standard output is no terminal)
    #[arg(long)]
    pub once: bool,
    /// Between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub every: Duration,
}

/// A span as people write it: seconds, a tenth at least and a day at most.
///
/// # Errors
/// What is wrong with it.
fn seconds(text: &str) -> Result<Duration, String> {
    const LIMITS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;
    match text.parse::<f64>() {
        Ok(value) if LIMITS.contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err("a number of seconds, 0.1 to 86400".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_seconds_within_reason() {
        assert_eq!(seconds("1"), Ok(Duration::from_secs(1)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "NaN", "inf", "1e9", "soon", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
