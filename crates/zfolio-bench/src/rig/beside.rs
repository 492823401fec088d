//! A run beside another of the same program that has no limit: at once, on half of the processors each
//! ([`halves`]).
//!
//! Who ends first is followed by another run without a limit, which is ended with the other, so that
//! neither has the machine to itself.

use super::halves::{self, Half, Pair};
use super::job::{Job, Ran, Side};
use super::program::{ENDED, ended};
use super::set_up::Rig;
use std::thread;
use std::time::Duration;

impl Rig {
    /// Whether two runs can go on at once.
    pub(crate) fn can_pair() -> bool {
        halves::are_there()
    }

    /// Runs `job` by `side`, and `native` without a limit at the same time. The first is ended once
    /// it has taken `most` times as long, and two seconds. As [`Rig::run`], again if a program fails in
    /// a group of version 1.
    ///
    /// # Errors
    /// What could not be set up, or how the one without a limit failed; within it, how the other
    /// did.
    pub(crate) fn beside(
        &mut self,
        native: &Job<'_>,
        (side, job): (&Side, &Job<'_>),
        most: f64,
    ) -> Result<(Ran, Result<Ran, String>), String> {
        for _ in 0..self.again(side) {
            let ran = self.beside_once(native, (side, job), most)?;
            match &ran.1 {
                Err(why) if !why.starts_with(ENDED) => {
                    eprintln!("zfolio: bench: {}: {why}; tried again", side.name());
                }
                _ => return Ok(ran),
            }
        }
        self.beside_once(native, (side, job), most)
    }

    fn beside_once(
        &mut self,
        native: &Job<'_>,
        (side, job): (&Side, &Job<'_>),
        most: f64,
    ) -> Result<(Ran, Result<Ran, String>), String> {
        self.with_set_up([(side, job), (&Side::Native, native)], |rig, places| {
            let [mut place, mut free] = places;
            let pair = Pair::new(most)?;
            thread::scope(|scope| {
                let first = scope.spawn(|| {
                    let ran = rig.measure(&mut free, Some(pair.half(0)));
                    rig.filled(ran, native, pair.half(0), job.timeout)
                });
                let second = rig.measure(&mut place, Some(pair.half(1)));
                let second = rig.filled(second, native, pair.half(1), native.timeout);
                let first = first
                    .join()
                    .unwrap_or_else(|_| Err("it panicked".to_owned()));
                let first = first.map_err(|why| format!("it fails without a limit: {why}"))?;
                Ok((first, second))
            })
        })
    }

    /// Notes that one of the two has ended, as `ran` says, and lets runs of `native` follow until the
    /// other has, which takes at most `limit`.
    fn filled(
        &self,
        ran: Result<Ran, String>,
        native: &Job<'_>,
        mut half: Half<'_>,
        limit: Duration,
    ) -> Result<Ran, String> {
        half.end();
        while ran.is_ok() && !half.other_has_ended() && half.elapsed() < limit {
            let mut command = self.child();
            command.arg("--").args(native.command);
            let followed = ended(&mut command, limit, false, |pid| {
                let next = half.look(pid);
                next.filter(|_| !half.other_has_ended())
            });
            if followed.is_err() {
                break;
            }
            half.end();
        }
        ran
    }
}
