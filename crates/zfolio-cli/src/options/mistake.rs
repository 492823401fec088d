//! What is wrong with a command line, and what mends it.

use clap::error::{ContextKind, ContextValue};
use zfolio_host::exit::{Failure, Status, one_line};

/// What clap says, in one line.
pub(crate) fn failure(error: &clap::Error) -> Failure {
    let rendered = error.render().to_string();
    // clap's first paragraph is the error, the rest is usage; a missing
    // subcommand is told by its help alone.
    let first = rendered.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let told = one_line(&words.join(" "));
    let told = match told.strip_prefix("error: ") {
        Some(told) => told.to_owned(),
        None => "no command given".to_owned(),
    };
    Failure::new(Status::Usage, "command line", told, mend(error, &rendered))
}

/// What is near to what was typed, and where it is told: the help of the command that was meant.
fn mend(error: &clap::Error, rendered: &str) -> String {
    let near = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ];
    let near = near.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(word) => Some(word.clone()),
        // (The nearest is the last.)
        ContextValue::Strings(words) => words.last().cloned(),
        _ => None,
    });
    let usage = rendered
        .split_once("Usage: zfolio")
        .map_or("", |(_, it)| it);
    let command: String = usage
        .split_whitespace()
        .take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))
        .flat_map(|word| [" ", word])
        .collect();
    let help = format!("see zfolio{command} --help");
    near.map_or(help.clone(), |word| format!("did you mean {word}? {help}"))
}
