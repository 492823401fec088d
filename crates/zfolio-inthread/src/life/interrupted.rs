//! Calls that a signal of ours interrupts.
//!
//! The kernel goes by the first signal that it hands out whether a call that was interrupted is made again. Where
//! that is one of ours it is no signal of the program's perhaps (a tick, one that the program has blocked or
//! ignores), so ours all have SA_RESTART. Whose handler then ends the call, without SA_RESTART, the call is ended
//! here: by what its return address and its result become.
//!
//! (Calls that no SA_RESTART has made again, such as poll and nanosleep, end in any case.)

use crate::cancel;
use crate::raw::{self, OURS, is_made_again, nr};
use crate::signal::actions::{Action, IGNORE, RESTART, SIGNALS};
use crate::signal::context::{Context, SAVED, at};
use crate::signal::pieces;
use crate::signal::sent::bit;

/// Signals that the kernel hands out before others: of faults.
const FIRST: u64 = bit(4) | bit(5) | bit(8);

/// Ends a call that would be made again after our handler where a signal of the program's waits,
/// whose handler ends calls. All signals are blocked.
pub(super) fn settle(context: &mut Context, actions: &[Action; SIGNALS]) {
    if call_made_again(context).is_none() {
        return;
    }
    let mut pending = 0_u64;
    // (All are blocked here, so all that wait are told.)
    raw::own(nr::RT_SIGPENDING, [(&raw mut pending) as usize, 8, 0]);
    if ends_calls(pending & !context[SAVED], actions) {
        end_call(context);
    }
}

/// Whether the first of `pending` that has a handler of the program's ends calls.
fn ends_calls(pending: u64, actions: &[Action; SIGNALS]) -> bool {
    let first = |of: u64| {
        let mut signals = (1..SIGNALS).filter(|signal| of >> (signal - 1) & 1 != 0);
        signals.find(|signal| actions[*signal].handler > IGNORE)
    };
    let found = first(pending & FIRST).or_else(|| first(pending & !OURS));
    found.is_some_and(|signal| actions[signal].flags & RESTART == 0)
}

/// Where a call of the program's returns to that is made again after our handler.
#[allow(clippy::cast_possible_truncation, reason = "64 bits")]
fn call_made_again(context: &Context) -> Option<usize> {
    let (pc, rcx) = (context[at::RIP] as usize, context[at::RCX] as usize);
    let places = [
        raw::after_call(),
        cancel::after_call(),
        pieces::after_call(),
    ];
    places
        .into_iter()
        .find(|after| is_made_again(pc, rcx, *after))
}

/// Ends such a call: it returns EINTR.
pub(super) fn end_call(context: &mut Context) {
    if let Some(after) = call_made_again(context) {
        context[at::RIP] = after as u64;
        context[at::RAX] = i64::from(-cancel::EINTR).cast_unsigned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program_memory::Plain;
    use crate::signal::actions::DEFAULT;

    fn actions(of: &[(usize, u64, u64)]) -> [Action; SIGNALS] {
        let mut actions = [Action::ZERO; SIGNALS];
        for (signal, handler, flags) in of {
            (actions[*signal].handler, actions[*signal].flags) = (*handler, *flags);
        }
        actions
    }

    const fn bits(of: &[u64]) -> u64 {
        let (mut bits, mut at) = (0, 0);
        while at < of.len() {
            bits |= 1 << (of[at] - 1);
            at += 1;
        }
        bits
    }

    #[test]
    fn the_handler_that_comes_first_says_whether_a_call_ends() {
        let all = actions(&[
            (8, 0x1000, 0),
            (10, 0x1000, RESTART),
            (14, 0x1000, 0),
            (17, DEFAULT, 0),
            (31, 0x1000, 0),
        ]);
        assert!(!ends_calls(0, &all), "nothing of the program's has come");
        assert!(ends_calls(bits(&[14]), &all));
        assert!(!ends_calls(bits(&[10, 14]), &all), "the lower number first");
        assert!(ends_calls(bits(&[8, 10]), &all), "but those of faults");
        assert!(!ends_calls(bits(&[17]), &all), "no handler");
        assert!(ends_calls(bits(&[14, 17]), &all));
        assert!(!ends_calls(bits(&[31]), &all), "ours is not the program's");
    }

    #[test]
    fn only_a_call_that_was_begun_is_ended() {
        for after in [
            raw::after_call(),
            cancel::after_call(),
            pieces::after_call(),
        ] {
            let mut context = [0_u64; 64];
            // About to be made.
            context[at::RIP] = after as u64 - 2;
            end_call(&mut context);
            assert_eq!(context[at::RIP], after as u64 - 2);
            // Made, and to be made again.
            context[at::RCX] = after as u64;
            context[at::RAX] = 7;
            end_call(&mut context);
            assert_eq!(context[at::RIP], after as u64);
            assert_eq!(context[at::RAX].cast_signed(), -4);
            // Made, with a result.
            context[at::RAX] = 7;
            end_call(&mut context);
            assert_eq!(context[at::RAX], 7);
        }
    }
}
