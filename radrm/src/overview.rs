//! The commands of `radrm` by what they are for, as `radrm --help` lists them.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Command;
use radrm_text::wrapped;

/// Every command that is not hidden, once.
const GROUPS: [(&str, &[&str]); 8] = [
    ("To begin", &["doctor", "demo", "machines"]),
    ("What was recorded", &["report", "compare", "top", "dataset", "explore", "export", "import-ncu"]),
    (
        "Estimates and advice",
        &["estimate", "advise", "calibrate", "train", "evaluate", "replay", "reproduce"],
    ),
    ("Limits and containers", &["quota", "audit", "fence", "cdi"]),
    (
        "Jobs of radrmd",
        &[
            "submit", "queue", "show", "logs", "attach", "cancel", "hold", "limits", "nodes", "drain",
            "admin", "stats", "usage",
        ],
    ),
    ("Experiments", &["sweep", "share"]),
    ("Slurm", &["sbatch"]),
    ("Help in shells", &["completion", "man"]),
];

/// Columns of a command's name, with the space before and after it.
const NAME: usize = 14;

/// The same command line, whose help lists the commands by group in lines of so many columns.
pub fn grouped(command: Command, width: usize) -> Command {
    let list = list(&command, width);
    command
        .mut_subcommands(|below| below.hide(true))
        .override_usage("radrm [OPTIONS] <COMMAND>")
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{{all-args}}{{after-help}}"
        ))
}

fn list(command: &Command, width: usize) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{heading}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            for (number, line) in wrapped(&about, width - NAME).iter().enumerate() {
                let name = if number == 0 { name } else { "" };
                let _ = writeln!(text, "  {name:<12}{line}");
            }
        }
        text.push('\n');
    }
    text
}

/// The command that explains this line: `radrm quota set --help` for one that begins with `radrm quota set`.
#[must_use]
pub fn help_of(mut command: Command, arguments: impl IntoIterator<Item = OsString>) -> String {
    let mut words = arguments.into_iter().skip(1);
    let mut text = command.get_name().to_owned();
    while let Some(word) = words.next() {
        if word == "--socket" {
            words.next();
        } else if word == "--" {
            break;
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            let Some(found) = command.find_subcommand(&word) else { break };
            text = format!("{text} {}", found.get_name());
            command = found.clone();
        }
    }
    text + " --help"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::cli::command();
        let seen = command.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
        let mut seen: Vec<&str> = seen.collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        seen.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, seen);
    }

    #[test]
    fn a_wrong_line_names_the_help_of_its_own_command() {
        for (line, expected) in [
            ("", "radrm --help"),
            ("bogus", "radrm --help"),
            ("report f --bogus", "radrm report --help"),
            ("dataset bogus", "radrm dataset --help"),
            ("--socket queue quota set 4711", "radrm quota set --help"),
            ("submit -- report", "radrm submit --help"),
        ] {
            let words = line.split(' ').filter(|word| !word.is_empty());
            let line_of = ["radrm"].into_iter().chain(words).map(OsString::from);
            assert_eq!(help_of(crate::cli::command(), line_of), expected, "{line}");
        }
    }
}
