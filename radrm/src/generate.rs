//! Manual pages, completions for shells and the reference of commands in the book, from the command lines of all three
//! programs.
//!
//! Packages and book call `radrm generate`, users `radrm completion` and `radrm man`; no copy of the output is kept anywhere.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{self, Stdio};

use clap::Command;
use clap_complete::Shell;
use radrm_text::did_you_mean;
use radrm_text::usage::Instead;

use crate::error::FileProblem;
use crate::{Failure, cli, print};

/// The programs: section of the manual, command line without the commands that only print help.
fn programs() -> [(&'static str, Command); 3] {
    [("1", cli::command()), ("1", radrm_launcher::cli::command()), ("8", radrm_daemon::command())].map(
        |(section, command)| {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            (section, command)
        },
    )
}

/// Paths of a shell's completions below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Writes `share/`, as it lies below a prefix, and `commands.md` into a folder.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    write(folder).map_err(|error| Failure::File { path: folder.to_owned(), problem: FileProblem::Io(error) })
}

fn write(folder: &Path) -> io::Result<()> {
    let share = folder.join("share");
    let mut reference = String::from("# Commands\n\nWhat `--help` prints.\n");
    for (section, mut command) in programs() {
        for (shell, below) in COMPLETIONS {
            fs::create_dir_all(share.join(below))?;
            let name = command.get_name().to_owned();
            clap_complete::generate_to(shell, &mut command, name, share.join(below))?;
        }
        let manual = share.join(format!("man/man{section}"));
        fs::create_dir_all(&manual)?;
        for mut page in with_subcommands(&command) {
            describe(&mut reference, &mut page);
            page_of(page, section).generate_to(&manual)?;
        }
    }
    fs::write(folder.join("commands.md"), reference)
}

fn page_of(command: Command, section: &str) -> clap_mangen::Man {
    clap_mangen::Man::new(command).section(section).source(concat!("radrm ", env!("CARGO_PKG_VERSION")))
}

/// Prints the completions of all programs for one shell.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn completion(shell: Shell) -> Result<(), Failure> {
    print(&completions(shell))
}

fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    for (_, mut command) in programs() {
        let name = command.get_name().to_owned();
        clap_complete::generate(shell, &mut command, name, &mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Shows the manual page of a command in a terminal, or prints its source.
///
/// # Errors
/// There is no such command, or standard output cannot be written.
pub(crate) fn manual(words: &[String]) -> Result<(), Failure> {
    let page = source_of(words)?;
    if io::stdout().is_terminal() && shown(&page) { Ok(()) } else { print(&page) }
}

/// Source of a command's manual page.
fn source_of(words: &[String]) -> Result<String, Failure> {
    let programs = programs();
    let named =
        words.first().and_then(|word| programs.iter().find(|(_, program)| program.get_name() == word));
    let (section, program) = named.unwrap_or(&programs[0]);
    let mut command: &Command = program;
    for word in &words[usize::from(named.is_some())..] {
        command = command.find_subcommand(word).ok_or_else(|| {
            let known = command.get_subcommands().filter(|below| !below.is_hide_set());
            let hint = did_you_mean(word, known.map(Command::get_name));
            Failure::Line(Instead::Wrong(format!("there is no command {word}{hint}")))
        })?;
    }
    let mut text = Vec::new();
    page_of(command.clone(), section).render(&mut text).map_err(Failure::Output)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns true if `man` has shown a page.
fn shown(page: &str) -> bool {
    let started = process::Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let Ok(mut man) = started else { return false };
    if let Some(mut input) = man.stdin.take() {
        // A reader who leaves the page early closes the pipe.
        let _ = input.write_all(page.as_bytes());
    }
    man.wait().is_ok_and(|status| status.success())
}

/// A built command, then all below it that `--help` shows.
fn with_subcommands(command: &Command) -> Vec<Command> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    [command.clone()].into_iter().chain(below.flat_map(with_subcommands)).collect()
}

fn describe(reference: &mut String, command: &mut Command) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    reference.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text as it stands in a page.
    fn roff(text: &str) -> String {
        text.replace('-', "\\-").replace('\'', "\\*(Aq")
    }

    #[test]
    fn each_subcommand_has_a_page_with_an_about_line() {
        let place = tempfile::tempdir().unwrap();
        run(place.path()).unwrap();
        let reference = fs::read_to_string(place.path().join("commands.md")).unwrap();
        for (section, command) in programs() {
            for command in with_subcommands(&command) {
                let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
                let page = place.path().join(format!("share/man/man{section}/{name}.{section}"));
                let page = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{name}: {error}"));
                let about =
                    command.get_about().unwrap_or_else(|| panic!("{name}: no about line")).to_string();
                let mut lines = page.lines().skip_while(|line| *line != ".SH NAME").skip(1);
                let line = lines.next().unwrap_or_default();
                assert_eq!(line, format!("{} \\- {}", roff(&name), roff(&about)), "{page}");
                let heading = format!("\n## {}\n", command.get_bin_name().unwrap_or(&name));
                assert!(reference.contains(&heading), "{heading}");
            }
        }
    }

    #[test]
    fn a_manual_page_is_found_by_the_words_of_its_command() {
        let page = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            source_of(&words).map_err(|error| error.to_string())
        };
        for (words, title) in [
            ("", "radrm"),
            ("quota set", "radrm\\-quota\\-set"),
            ("radrm-run", "radrm\\-run"),
            ("radrmd", "radrmd"),
        ] {
            let text = page(words).unwrap();
            assert!(text.contains(&format!("\n{title} \\- ")), "{words}: {text}");
        }
        assert_eq!(page("quota sett"), Err("there is no command sett; did you mean set?".to_owned()));
    }

    #[test]
    fn completions_for_a_shell_are_of_all_programs() {
        let text = completions(Shell::Bash);
        for (_, command) in programs() {
            assert!(text.contains(&format!(" -o default {}\n", command.get_name())), "{text}");
        }
    }

    #[test]
    fn each_program_has_completions_for_three_shells() {
        let place = tempfile::tempdir().unwrap();
        run(place.path()).unwrap();
        for (_, command) in programs() {
            let name = command.get_name();
            for file in [
                format!("bash-completion/completions/{name}.bash"),
                format!("zsh/site-functions/_{name}"),
                format!("fish/vendor_completions.d/{name}.fish"),
            ] {
                let text = fs::read_to_string(place.path().join("share").join(&file)).unwrap();
                assert!(text.contains("--help") || text.contains("-l help"), "{file}: {text}");
            }
        }
    }
}
