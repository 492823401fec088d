//! `zfolio set`: limits of a run, changed while it lasts.

use crate::options::asking::{Set, YesNo};
use crate::requests::client::ask;
use crate::requests::message::{Answer, Changes, Limit, Request};
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status, one_line};
use zfolio_host::find_run::locate;
use zfolio_host::machine::mem_total;
use zfolio_host::size::Size;
use zfolio_host::standard_output::print;

/// Asks the run to change what is given, and prints what was and what is.
///
/// # Errors
/// There is no such run, nothing is given, or the run refuses.
pub(crate) fn set(args: &Set) -> Result<ExitCode, Failure> {
    let changes = changes(args);
    let group = changes.group.clone();
    if changes
        == (Changes {
            group,
            ..Changes::default()
        })
    {
        let (why, mend) = ("nothing to change is given", "see zfolio set --help");
        return Err(Failure::new(Status::Usage, "command line", why, mend));
    }
    let control = locate(Some(&args.which))?;
    if let Answer::Changed(lines) = ask(&control, &Request::Set(changes))? {
        let lines = lines.iter().map(|line| one_line(line) + "\n");
        print(&lines.collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn changes(args: &Set) -> Changes {
    let limit = |of: Option<Option<Size>>| {
        of.map(|size| match size {
            None => Limit::None,
            Some(size) => Limit::Bytes(size.bytes(mem_total())),
        })
    };
    Changes {
        group: args.group.clone(),
        high: limit(args.high.map(|of| of.0)),
        swap_max: limit(args.swap_max.map(|of| of.0)),
        swap_high: limit(args.swap_high.map(|of| of.0)),
        zswap_max: limit(args.zswap_max.map(|of| of.0)),
        writeback: args.writeback.map(YesNo::is_yes),
        max: limit(args.max.map(|of| of.0)),
        on_max: args.on_max.map(|what| what.number()),
        max_pool: args.pool.max_pool,
        accept_threshold: args.pool.accept_threshold,
        shrinker: args.pool.shrinker.map(YesNo::is_yes),
        engines: args.engines.clone(),
    }
}
