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
    use clap_complete::Shell;
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::Write;

    /// A command: what is typed for it, its options that are shown, and the others.
    type Found = (Vec<String>, BTreeSet<String>, BTreeSet<String>);

    /// A command, and all below it.
    fn each(command: &Command, typed: &[String], found: &mut Vec<Found>) {
        let options = |hidden| {
            let of = command
                .get_arguments()
                .filter(move |arg| arg.is_hide_set() == hidden);
            of.filter_map(|arg| arg.get_long())
                .map(str::to_owned)
                .collect()
        };
        found.push((typed.to_vec(), options(false), options(true)));
        for below in command.get_subcommands() {
            if !below.is_hide_set() && below.get_name() != "help" {
                each(below, &[typed, &[below.get_name().into()]].concat(), found);
            }
        }
    }

    fn all() -> Vec<Found> {
        let mut found = Vec::new();
        // (Not `definition`: nothing of the command line may be lost in that.)
        each(&Cli::command(), &["zfolio".into()], &mut found);
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
        for (typed, options, _) in all() {
            let page = typed.join("-");
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

    fn completions_of(shell: Shell) -> String {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut definition(), "zfolio", &mut text);
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("demo-work"), "{shell}: a hidden command");
        text
    }

    /// That each command has its own options, and no other's; `of` is what the shell completes. (Which is
    /// those that are hidden as well.)
    fn completes(shell: Shell, mut of: impl FnMut(&[String]) -> BTreeSet<String>) {
        let mut count = 0;
        for (typed, options, hidden) in all() {
            let mut found = of(&typed);
            assert!(found.remove("help"), "{shell}: {typed:?}: {found:?}");
            if typed.len() == 1 {
                assert!(found.remove("version"), "{shell}: {found:?}");
            }
            let found: BTreeSet<String> = found.difference(&hidden).cloned().collect();
            assert_eq!(found, options, "{shell}: {typed:?}");
            count += found.len();
        }
        assert!(count > 30, "{count}");
    }

    /// What bash, which has loaded the completions, completes each of the lines to: the last word of them.
    fn bash(lines: &[String]) -> Option<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("zfolio"), completions_of(Shell::Bash)).unwrap();
        // As readline calls it. (The blank before the end is an empty word.)
        fs::write(dir.path().join("lines"), lines.join("\n") + "\n").unwrap();
        let script = r#"source ./zfolio && complete -p zfolio >/dev/null || exit
            while IFS= read -r line; do
                read -r -a COMP_WORDS <<<"$line"
                [[ $line != *" " ]] || COMP_WORDS+=("")
                COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
                _zfolio zfolio "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
                echo "${COMPREPLY[*]}"
            done <lines"#;
        let mut command = std::process::Command::new("bash");
        command.args(["--norc", "--noprofile", "-c", script]);
        let Ok(output) = command.current_dir(dir.path()).output() else {
            skip("the completions of bash: there is none");
            return None;
        };
        let told = String::from_utf8(output.stdout).unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && wrong.is_empty(), "{wrong}");
        let found: Vec<String> = told.lines().map(str::to_owned).collect();
        assert_eq!(found.len(), lines.len(), "{told}");
        Some(found)
    }

    /// Past the harness's capture.
    fn skip(what: &str) {
        let _ = writeln!(io::stderr().lock(), "SKIPPED: {what}");
    }

    fn long(text: &str) -> BTreeSet<String> {
        let words = text.split(' ').filter_map(|word| word.strip_prefix("--"));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_what_is_typed() {
        let typed = [
            ("zfolio run --hi", "--high"),
            ("zfolio stat --wa", "--watch"),
            ("zfolio compa", "compact"),
            ("zfolio bench compr", "compressors"),
            ("zfolio run --on-max ", "kill wait allow"),
            ("zfolio compact --hi", ""),
        ];
        let Some(found) = bash(&typed.map(|(line, _)| line.to_owned())) else {
            return;
        };
        for ((line, completed), found) in typed.iter().zip(found) {
            assert_eq!(found, *completed, "{line}");
        }
        let lines: Vec<String> = all()
            .iter()
            .map(|(typed, ..)| typed.join(" ") + " --")
            .collect();
        let mut found = bash(&lines).unwrap().into_iter();
        completes(Shell::Bash, |_| long(&found.next().unwrap()));
    }

    #[test]
    fn zsh_completes_every_option_of_each_command() {
        let text = completions_of(Shell::Zsh);
        // Where options of a command are, of whose choices: `case $line[1] in`, `(saved)`.
        let mut page = "zfolio".to_owned();
        let (mut above, mut cases) = (page.clone(), Vec::new());
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in text.lines().map(str::trim) {
            let name = line
                .strip_prefix('(')
                .and_then(|rest| rest.strip_suffix(')'));
            if let Some((_, rest)) = line.split_once("%:*:*}:") {
                above = rest.split_once("-command-").expect(line).0.to_owned();
            } else if line.starts_with("case ") {
                cases.push((line.contains("$line[1]")).then(|| above.clone()));
            } else if line == "esac" {
                cases.pop().expect("a case");
            } else if let (Some(name), Some(Some(above))) = (name, cases.last()) {
                page = format!("{above}-{name}");
            } else if let Some(option) = line.strip_prefix('\'') {
                // Maybe after those that it cannot stand beside.
                let option = match option.strip_prefix('(') {
                    Some(rest) => rest.split_once(')').expect(line).1,
                    None => option,
                };
                let Some(option) = option.trim_start_matches('*').strip_prefix("--") else {
                    continue;
                };
                let name = option.split(['=', '[']).next().unwrap_or(option);
                found.entry(page.clone()).or_default().insert(name.into());
            }
        }
        completes(Shell::Zsh, |typed| {
            found.remove(&typed.join("-")).unwrap_or_default()
        });
        reads("zsh", &text);
    }

    #[test]
    fn fish_completes_every_option_of_each_command() {
        let text = completions_of(Shell::Fish);
        completes(Shell::Fish, |typed| {
            // (One that has others below it says that none of them was typed.)
            let conditions = match typed {
                [_] => ["__fish_zfolio_needs_command\" ".to_owned(), "-".into()],
                [_, name] => ["\" ", "; and not "]
                    .map(|end| format!("__fish_zfolio_using_subcommand {name}{end}")),
                [_, above, name] => ["\" ", " "].map(|end| {
                    format!("__fish_zfolio_using_subcommand {above}; and __fish_seen_subcommand_from {name}{end}")
                }),
                _ => panic!("{typed:?}"),
            };
            let of = |line: &str| {
                let condition = line.strip_prefix("complete -c zfolio -n \"")?;
                conditions.iter().find(|is| condition.starts_with(*is))?;
                let (options, _) = line.split_once(" -d '")?;
                Some(options.split_once(" -l ")?.1.split(' ').next()?.to_owned())
            };
            text.lines().filter_map(of).collect()
        });
        reads("fish", &text);
    }

    /// That the shell can read it.
    fn reads(shell: &str, text: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("completions");
        fs::write(&path, text).unwrap();
        let Ok(output) = std::process::Command::new(shell)
            .arg("-n")
            .arg(path)
            .output()
        else {
            return skip(&format!(
                "{shell} -n of its completions: there is no {shell}"
            ));
        };
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && wrong.is_empty(),
            "{shell}: {wrong}"
        );
    }
}
