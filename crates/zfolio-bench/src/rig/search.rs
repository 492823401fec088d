//! The limit with which a row uses as much memory as the others.

use super::job::{Job, Ran, Side};
use super::program::ENDED;
use super::set_up::Rig;
use zfolio_host::size::MIN_HIGH;

/// How far from the total a searched limit's use may be, percent.
const TOLERANCE: u64 = 3;
/// What a row may use of the total at most, percent.
const FITS: u64 = 110;
/// Runs of a search.
const TRIES: usize = 6;

/// What is known of a row's use before it was run.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// The limit bounds what is not compressed; the pool is outside it. Bytes the
    /// program needs without one.
    Beside(u64),
    /// The limit bounds all but a little: other processes of the row, the kernel's own
    /// memory, files that another group has read.
    Within,
}

/// Why there is no limit for a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unfound {
    pub(crate) why: String,
    /// A run of ours failed otherwise than by lasting too long, or went wrong. (One in a
    /// group of the kernel's may, with a limit that is only a guess.)
    pub(crate) broken: bool,
}

impl Rig {
    /// The limit with which `job` uses `total`, for a program that needs `need` without
    /// one; bytes. The total itself for rows of ours when there are no groups to say
    /// what they use. `check` looks at what the program put out.
    ///
    /// # Errors
    /// When it does not fit, or the program or `check` fails.
    pub(crate) fn search(
        &mut self,
        side: &Side,
        job: &Job<'_>,
        total: u64,
        need: u64,
        check: impl Fn(&Ran) -> Result<(), String>,
    ) -> Result<u64, Unfound> {
        let expected = if self.pool_is_outside(side) {
            Expected::Beside(need)
        } else if side.is_kernel() || !self.has_groups() {
            return Ok(total);
        } else {
            Expected::Within
        };
        let mut tried: Vec<(u64, u64)> = Vec::new();
        while tried.len() < TRIES {
            let Some(limit) = next_limit(total, expected, &tried) else {
                break;
            };
            let unfound = |why: String| Unfound {
                why: format!("with a limit of {} MiB: {why}", limit >> 20),
                broken: !side.is_kernel() && !why.starts_with(ENDED),
            };
            let ran = self
                .run(side, &Job { limit, ..*job })
                .and_then(|ran| check(&ran).map(|()| ran))
                .map_err(unfound)?;
            let used = match (expected, ran.used()) {
                (Expected::Beside(_), used) => used.unwrap_or(0).max(limit + ran.pool),
                (Expected::Within, Some(used)) => used,
                (Expected::Within, None) => return Ok(total),
            };
            tried.push((limit, used));
            if used.abs_diff(total) <= total * TOLERANCE / 100 {
                break;
            }
        }
        let nearest = tried.iter().min_by_key(|(_, used)| used.abs_diff(total));
        let why = match nearest {
            Some((limit, used)) if *used <= total * FITS / 100 => return Ok(*limit),
            Some((limit, used)) => format!(
                "it does not fit: with a limit of {} MiB it uses {} MiB",
                limit >> 20,
                used >> 20
            ),
            None => "no limit was tried".to_owned(),
        };
        Err(Unfound { why, broken: false })
    }
}

/// The limit to try next so that `total` is used, all bytes: limits that were tried,
/// and what was used with them. `None` when no limit is small enough; below
/// [`least`] a program does little but swap.
///
/// A pool outside shrinks by less than the limit grows, so that the sum grows with the
/// limit: the secant through the last two, else a pool of 2.5 to 1.
fn next_limit(total: u64, expected: Expected, tried: &[(u64, u64)]) -> Option<u64> {
    let whole = total as f64;
    let above = |(limit, used): (u64, u64)| (limit as f64, used as f64 - whole);
    let (first, slope, least, most) = match expected {
        Expected::Beside(need) => {
            let first = (whole - need as f64 / 2.5) / 0.6;
            (first.max(whole * 0.4), 0.6, least(total), whole)
        }
        Expected::Within => (whole, 1.0, MIN_HIGH, whole * 1.2),
    };
    let next = match *tried {
        [] => first,
        [only] => {
            let (limit, above) = above(only);
            limit - above / slope
        }
        [.., before, last] => {
            let (before, last) = (above(before), above(last));
            let rise = (last.1 - before.1) / (last.0 - before.0);
            // Noise must not throw it far.
            last.0 - last.1 / rise.clamp(slope / 2.0, slope * 2.0)
        }
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the least and a little above the total"
    )]
    let next = (next.clamp(least as f64, most) / 4096.0) as u64 * 4096;
    // Tried before: nothing new would come of it.
    (!tried.iter().any(|(limit, _)| *limit == next)).then_some(next)
}

/// The least limit tried where the pool is outside, bytes.
fn least(total: u64) -> u64 {
    (total / 8).max(6 << 20) / 4096 * 4096
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A pool that holds what is above the limit at a constant ratio.
        #[test]
        fn the_search_comes_to_the_total(
            need in 100_u64..4000, share in 30_u64..95, ratio in 1.2..8.0_f64,
        ) {
            let (need, total) = (need << 20, (need << 20) * share / 100);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a model")]
            let pool = |limit: u64| (need.saturating_sub(limit) as f64 / ratio) as u64;
            let mut tried = Vec::new();
            while let Some(limit) = next_limit(total, Expected::Beside(need), &tried) {
                let sum = limit + pool(limit);
                tried.push((limit, sum));
                if sum.abs_diff(total) <= total / 50 {
                    return Ok(());
                }
                prop_assert!(tried.len() < 12, "{tried:?} for {total}");
            }
            // Then it does not fit, whatever the limit.
            let least = least(total);
            prop_assert!(pool(least) + least > total, "{tried:?} for {total}");
        }

        /// A row that uses a constant more or less than its limit, and a part of it.
        #[test]
        fn what_a_limit_does_not_bound_is_made_up_for(
            total in 20_u64..4000, beyond in -8_i64..10, part in 0.9..1.05_f64,
        ) {
            let total = total << 20;
            #[allow(
                clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a model"
            )]
            let used = |limit: u64| {
                (limit as f64 * part + (beyond << 20) as f64).max(0.0) as u64
            };
            let mut tried = Vec::new();
            while let Some(limit) = next_limit(total, Expected::Within, &tried) {
                tried.push((limit, used(limit)));
                if used(limit).abs_diff(total) <= total * TOLERANCE / 100 {
                    return Ok(());
                }
                prop_assert!(tried.len() < TRIES, "{tried:?} for {total}");
            }
            // It may have less than its limit by no more than a fifth.
            prop_assert!(used(total * 6 / 5) < total, "{tried:?} for {total}");
        }
    }
}
