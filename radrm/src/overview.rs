//! The commands of `radrm` by what they are for, as `radrm --help` lists them.

use std::fmt::Write as _;

use clap::Command;
use radrm_term::wrapped;

/// Every command that is not hidden, once.
const GROUPS: [(&str, &[&str]); 7] = [
    ("To begin", &["doctor", "demo", "machines"]),
    ("What was recorded", &["report", "compare", "top", "dataset", "explore", "export", "import-ncu"]),
    ("Estimates and advice", &["estimate", "advise", "calibrate", "train", "evaluate", "replay"]),
    ("Limits and containers", &["quota", "audit", "fence", "cdi"]),
    (
        "Jobs of radrmd",
        &["submit", "queue", "show", "logs", "cancel", "hold", "nodes", "drain", "stats", "usage"],
    ),
    ("Experiments", &["sweep", "share"]),
    ("Slurm", &["sbatch"]),
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

#[cfg(test)]
mod tests {
    use super::GROUPS;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::cli::command();
        let seen =
            command.get_subcommands().filter(|below| !below.is_hide_set()).map(clap::Command::get_name);
        let mut seen: Vec<&str> = seen.collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        seen.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, seen);
    }
}
