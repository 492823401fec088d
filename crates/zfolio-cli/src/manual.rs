//! `zfolio man` and `zfolio completions`: what a package installs beside the command,
//! made from the command line's own definition.

use crate::options::args::{Cli, Completions, Man};
use clap::{Command, CommandFactory};
use std::fs;
use std::io;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::standard_output::print;

/// Writes `zfolio.1` and a page for each command, `zfolio-run.1` and so on.
///
/// # Errors
/// [`Status::CannotCreate`].
pub(crate) fn man(args: &Man) -> Result<ExitCode, Failure> {
    let failed = |error| {
        let mend = "name a directory you may write";
        Failure::new(Status::CannotCreate, args.dir.display(), error, mend)
    };
    for (name, page) in pages(&definition()).map_err(failed)? {
        fs::write(args.dir.join(name), page).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a shell's completions.
///
/// # Errors
/// They cannot be written.
pub(crate) fn completions(args: &Completions) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "zfolio", &mut text);
    print(&String::from_utf8_lossy(&text)).map(|_| ExitCode::SUCCESS)
}

/// The command line that users see: without what the command calls itself by.
fn definition() -> Command {
    let whole = Cli::command();
    let shown: Vec<Command> = whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .cloned()
        .collect();
    let mut definition = Command::new("zfolio")
        .version(crate::own::version())
        .subcommand_required(true)
        .subcommands(shown);
    if let Some(about) = whole.get_about() {
        definition = definition.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        definition = definition.after_help(after.clone());
    }
    definition.build();
    definition
}

/// The pages of a command and of all below it: file names and contents.
fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(
        command
            .clone()
            .name(name.clone())
            .bin_name(name.replace('-', " ")),
    );
    man.render(&mut page)?;
    let mut pages = vec![(format!("{name}.1"), page)];
    for below in command.get_subcommands() {
        if !below.is_hide_set() && below.get_name() != "help" {
            pages.extend(self::pages(below)?);
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use clap_complete::Shell;

    /// Every command, with its page's name, and the options of each that are shown.
    fn each(command: &Command, page: &str, found: &mut Vec<(String, Vec<String>)>) {
        let options = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let options = options.filter_map(|arg| arg.get_long()).map(str::to_owned);
        found.push((page.to_owned(), options.collect()));
        for below in command.get_subcommands() {
            if !below.is_hide_set() && below.get_name() != "help" {
                each(below, &format!("{page}-{}", below.get_name()), found);
            }
        }
    }

    fn all() -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        // (Not `definition`: nothing of the command line may be lost in that.)
        each(&Cli::command(), "zfolio", &mut found);
        assert!(found.len() > 10, "{found:?}");
        found
    }

    #[test]
    fn pages_have_every_command_and_option() {
        let dir = tempfile::tempdir().unwrap();
        man(&Man {
            dir: dir.path().into(),
        })
        .unwrap();
        let mut count = 0;
        for (page, options) in all() {
            let path = dir.path().join(format!("{page}.1"));
            let text = fs::read_to_string(&path).unwrap_or_else(|_| panic!("no {page}.1"));
            let text = text.replace("\\-", "-");
            assert!(text.contains(&format!(".TH {page} 1")), "{text}");
            for option in options {
                count += 1;
                assert!(text.contains(&format!("--{option}")), "{page}: --{option}");
            }
        }
        assert!(count > 30, "{count}");
        assert!(!dir.path().join("zfolio-bench-work.1").exists());
        let missing = dir.path().join("none");
        assert_eq!(
            man(&Man { dir: missing }).unwrap_err().status,
            Status::CannotCreate
        );
    }

    #[test]
    fn shells_complete_every_command_and_option() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(Shell::value_variants().contains(&shell));
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut definition(), "zfolio", &mut text);
            let text = String::from_utf8(text).unwrap();
            for (page, options) in all() {
                let name = page.rsplit('-').next().unwrap();
                assert!(text.contains(name), "{shell}: {name}");
                for option in options {
                    let written = match shell {
                        Shell::Fish => format!("-l {option}"),
                        _ => format!("--{option}"),
                    };
                    assert!(text.contains(&written), "{shell}: {page} {written}");
                }
            }
            assert!(!text.contains("demo-work"), "{shell}: a hidden command");
        }
    }
}
