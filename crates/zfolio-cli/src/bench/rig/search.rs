//! The limit of a control group whose pool is outside it.

use super::{Job, Rig, Side};

/// How far from the total a searched limit and its pool may be, percent.
const TOLERANCE: u64 = 3;
/// What a row may use of the total at most, percent.
const FITS: u64 = 110;
/// Runs of a search.
const TRIES: usize = 6;

impl Rig {
    /// The group's limit with which limit and pool come to `total`, for a program
    /// that needs `need` without one; bytes.
    ///
    /// # Errors
    /// When it does not fit, or the program fails.
    pub(in crate::bench) fn search(
        &mut self,
        side: &Side,
        job: &Job<'_>,
        total: u64,
        need: u64,
    ) -> Result<u64, String> {
        let mut tried: Vec<(u64, u64)> = Vec::new();
        // The one whose use came nearest: how near, limit, use.
        let mut nearest: Option<(u64, u64, u64)> = None;
        while tried.len() < TRIES {
            let Some(limit) = next_limit(total, need, &tried) else {
                break;
            };
            let ran = self
                .run(side, &Job { limit, ..*job })
                .map_err(|why| format!("in {} MiB and a pool: {why}", limit >> 20))?;
            let used = ran.used().unwrap_or(0).max(limit + ran.pool);
            tried.push((limit, used - limit));
            let off = used.abs_diff(total);
            if nearest.is_none_or(|(nearer, ..)| off < nearer) {
                nearest = Some((off, limit, used));
            }
            if off <= total * TOLERANCE / 100 {
                break;
            }
        }
        match nearest {
            Some((_, limit, used)) if used <= total * FITS / 100 => Ok(limit),
            Some((_, limit, used)) => Err(format!(
                "it does not fit: with a limit of {} MiB it uses {} MiB",
                limit >> 20,
                used >> 20
            )),
            None => Err("no limit was tried".to_owned()),
        }
    }
}

/// The limit to try next so that it and the pool outside it come to `total`,
/// all bytes: what was tried, and how large the pool was. `None` when no limit
/// is small enough; below [`least`] a program does little but swap.
///
/// The pool shrinks by less than the limit grows, so that the sum grows with the
/// limit: the secant through the last two, else a pool of 2.5 to 1.
fn next_limit(total: u64, need: u64, tried: &[(u64, u64)]) -> Option<u64> {
    let least = least(total);
    let (total, need) = (total as f64, need as f64);
    let sum = |(limit, pool): (u64, u64)| limit as f64 + pool as f64 - total;
    let next = match *tried {
        [] => ((total - need / 2.5) / 0.6).max(total * 0.4),
        [only] => only.0 as f64 - sum(only) / 0.6,
        [.., before, last] => {
            let rise = (sum(last) - sum(before)) / (last.0 as f64 - before.0 as f64);
            // Noise must not throw it far.
            last.0 as f64 - sum(last) / rise.clamp(0.3, 1.2)
        }
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the least and the total"
    )]
    let next = (next.clamp(least as f64, total) / 4096.0) as u64 * 4096;
    // Tried before: nothing new would come of it.
    (!tried.iter().any(|(limit, _)| *limit == next)).then_some(next)
}

/// The least limit tried, bytes.
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
            while let Some(limit) = next_limit(total, need, &tried) {
                tried.push((limit, pool(limit)));
                let sum = limit + pool(limit);
                if sum.abs_diff(total) <= total / 50 {
                    return Ok(());
                }
                prop_assert!(tried.len() < 12, "{tried:?} for {total}");
            }
            // Then it does not fit, whatever the limit.
            let least = least(total);
            prop_assert!(pool(least) + least > total, "{tried:?} for {total}");
        }
    }
}
