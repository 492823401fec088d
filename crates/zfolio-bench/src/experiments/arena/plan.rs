//! What is run: how much memory, in which arenas, how often.

use crate::args::BenchArena;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, short};
use zfolio_mm::Order;

/// How many addresses the arena has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Addresses {
    /// Eight times `high`, 1 GiB at least.
    Usual,
    /// Twice `high`, 64 MiB at least: what is left where RLIMIT_AS is set.
    Limited,
}

impl Addresses {
    pub(super) const ALL: [Self; 2] = [Self::Usual, Self::Limited];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Limited => "limited",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Usual => "Arena of the usual size: 8 * high, 1 GiB at least",
            Self::Limited => "Arena where addresses are limited: 2 * high, 64 MiB at least",
        }
    }
}

/// What to do.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) size: u64,
    pub(super) high: u64,
    /// In which all leaves, huge pages too; `None`: these leave whole.
    pub(super) folio: Option<Order>,
    pub(super) rounds: u64,
    pub(super) runs: u64,
    pub(super) seed: u64,
    pub(super) timeout: Duration,
}

impl Plan {
    pub(super) fn of(args: &BenchArena) -> Result<Self, Failure> {
        let memory = machine::mem_total();
        let size = args.size.bytes(memory);
        let high = args.high.map_or(size / 2, |high| high.bytes(memory));
        let wrong = |why: String, mend| Err(Failure::new(Status::Usage, "bench arena", why, mend));
        if high < MIN_HIGH || high >= size {
            let why = format!("--size {} in --high {}", short(size), short(high));
            return wrong(why, "choose 8M <= high < size");
        }
        if size > machine::available() / 2 {
            let why = format!("{} is more than half of the memory", short(size));
            return wrong(why, "give it less");
        }
        Ok(Self {
            size,
            high,
            folio: args.folio,
            rounds: args.rounds,
            runs: args.runs,
            seed: args.seed,
            timeout: Duration::from_secs(args.limit),
        })
    }
}
