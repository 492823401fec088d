//! What is wrong with a command line, and what mends it.

use clap::Command;
use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;
use zfolio_host::exit::{Failure, Status, one_line};

/// What clap says of `words`, a command line that `definition` defines, in one line.
pub(crate) fn failure(error: &clap::Error, words: &[OsString], definition: &Command) -> Failure {
    let rendered = error.render().to_string();
    // clap's first paragraph is the error, the rest is usage; a missing
    // subcommand is told by its help alone.
    let first = rendered.split("\n\n").next().unwrap_or_default();
    let told: Vec<&str> = first.split_whitespace().collect();
    let told = one_line(&told.join(" "));
    let told = match told.strip_prefix("error: ") {
        Some(told) => told.to_owned(),
        None => "no command given".to_owned(),
    };
    let mend = mend(error, words, definition);
    Failure::new(Status::Usage, "command line", told, mend)
}

/// What is near to what was typed, and where it is told: the help of the command that was meant.
fn mend(error: &clap::Error, words: &[OsString], definition: &Command) -> String {
    let (mut typed, mut command) = (String::from("zfolio"), definition);
    for word in words.iter().skip(1) {
        let below = word.to_str().and_then(|word| command.find_subcommand(word));
        let Some(below) = below else { break };
        typed = format!("{typed} {}", below.get_name());
        command = below;
    }
    let suggested = [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ];
    let suggested = suggested.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(word) => Some(word.clone()),
        // (The nearest is the last.)
        ContextValue::Strings(words) => words.last().cloned(),
        _ => None,
    });
    // (Clap finds none for words as short as `rn`.)
    let suggested = suggested.or_else(|| match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(word) => {
            let shown = command.get_subcommands().filter(|of| !of.is_hide_set());
            near(word, shown.map(Command::get_name)).map(str::to_owned)
        }
        _ => None,
    });
    let help = format!("see {typed} --help");
    suggested.map_or(help.clone(), |word| format!("did you mean {word}? {help}"))
}

/// The name that may have been meant; `None`: none is near.
pub(crate) fn near<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let all = names.map(|name| (strsim::damerau_levenshtein(name, typed), name));
    let (far, name) = all.min()?;
    (far <= typed.len().max(3) / 2).then_some(name)
}
