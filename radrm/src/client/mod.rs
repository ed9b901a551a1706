//! The commands of `radrm` that talk to `radrmd`.

mod connection;
mod logs;
mod queue;
mod rad;
mod stats;
mod submit;
mod text;
mod top;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::daemon::wire::{Request, Response};
use crate::output;
use crate::run::cli::{Instead, explain};
use crate::show::NAME;
use connection::Connection;

/// What is said of these commands.
pub const HELP: &str = include_str!("help.txt");

/// The command line is wrong.
const USAGE: u8 = 2;

#[derive(Parser, Debug)]
#[command(name = "radrm", version, override_help = HELP, subcommand_required = true)]
struct Flags {
    /// The daemon's socket.
    #[arg(long, value_name = "FILE", global = true)]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
#[command(disable_help_subcommand = true)]
enum Command {
    #[command(override_help = HELP)]
    Submit(Box<submit::Flags>),
    #[command(override_help = HELP)]
    Queue(queue::Flags),
    #[command(override_help = HELP)]
    Show {
        job: u64,
        #[arg(long)]
        json: bool,
    },
    #[command(override_help = HELP)]
    Logs(logs::Flags),
    #[command(override_help = HELP)]
    Cancel {
        #[arg(required = true)]
        jobs: Vec<u64>,
    },
    #[command(override_help = HELP)]
    Hold {
        #[arg(required = true)]
        jobs: Vec<u64>,
        #[arg(long)]
        release: bool,
    },
    #[command(override_help = HELP)]
    Nodes {
        #[arg(long)]
        json: bool,
    },
    #[command(override_help = HELP)]
    Drain {
        gpu: String,
        #[arg(long)]
        resume: bool,
    },
    #[command(override_help = HELP)]
    Top(top::Flags),
    #[command(override_help = HELP)]
    Stats(stats::Flags),
}

/// The commands' words.
pub const WORDS: [&str; 10] =
    ["submit", "queue", "show", "logs", "cancel", "hold", "nodes", "drain", "top", "stats"];

/// Whether a command line is for this module: its first word that is no option is one of ours.
#[must_use]
pub fn is_ours(arguments: &[OsString]) -> bool {
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
    let mut words =
        words.skip_while(|word| word == "--socket" || word.starts_with('-') || word.contains('/'));
    let first = words.next();
    if first.as_deref() == Some("help") {
        return words.next().is_some_and(|word| WORDS.contains(&word.as_ref()));
    }
    first.is_some_and(|word| WORDS.contains(&word.as_ref()))
}

/// Does what the command line asks for.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    if arguments.get(1).is_some_and(|word| word == "help") {
        let _ = output::to_stdout(HELP);
        return ExitCode::SUCCESS;
    }
    let flags = match Flags::try_parse_from(arguments).map_err(|error| explain(&error)) {
        Ok(flags) => flags,
        Err(Instead::Print(text)) => {
            let _ = output::to_stdout(&text);
            return ExitCode::SUCCESS;
        }
        Err(Instead::Wrong(sentence)) => {
            output::say(NAME, &format!("{sentence} (radrm help submit tells more)"));
            return ExitCode::from(USAGE);
        }
    };
    match run(flags) {
        Ok(code) => ExitCode::from(code),
        Err(sentence) => {
            output::say(NAME, &sentence);
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> Result<u8, String> {
    let socket = flags.socket;
    let connect = || Connection::open(socket.as_deref());
    match flags.command {
        Command::Submit(flags) => submit::run(*flags, &connect),
        Command::Queue(flags) => queue::run(&flags, &mut connect()?).map(|()| 0),
        Command::Show { job, json } => queue::show(job, json, &mut connect()?).map(|()| 0),
        Command::Logs(flags) => logs::run(&flags, &mut connect()?).map(|()| 0),
        Command::Cancel { jobs } => connect()?.done(&Request::Cancel { jobs }).map(|()| 0),
        Command::Hold { jobs, release } => {
            connect()?.done(&Request::Hold { jobs, held: !release }).map(|()| 0)
        }
        Command::Nodes { json } => queue::nodes(json, &mut connect()?).map(|()| 0),
        Command::Drain { gpu, resume } => {
            connect()?.done(&Request::Drain { gpu, drained: !resume }).map(|()| 0)
        }
        Command::Top(flags) => top::run(&flags, &mut connect()?).map(|()| 0),
        Command::Stats(flags) => stats::run(&flags, &mut connect()?).map(|()| 0),
    }
}

fn print(text: &str) -> Result<(), String> {
    output::to_stdout(text).map(|_| ()).map_err(|error| format!("standard output cannot be written: {error}"))
}

fn print_json(value: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    print(&format!("{text}\n"))
}

/// An answer that does not belong to its request.
fn odd(response: &Response) -> String {
    match response {
        Response::Refused(sentence) => sentence.clone(),
        _ => "radrmd gave an answer to another question".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn only_the_daemons_commands_are_ours() {
        let ours = |line: &str| is_ours(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(ours("radrm queue") && ours("radrm --socket /run/s queue --why") && ours("radrm help top"));
        assert!(!ours("radrm report x") && !ours("radrm help report") && !ours("radrm --help"));
    }

    #[test]
    fn every_command_and_option_is_explained() {
        for command in Flags::command().get_subcommands() {
            assert!(WORDS.contains(&command.get_name()), "{}", command.get_name());
            assert!(HELP.contains(command.get_name()), "{}", command.get_name());
            for argument in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(HELP.contains(&format!("--{argument}")), "--{argument} is not explained");
            }
        }
        assert!(HELP.lines().all(|line| line.chars().count() <= 80), "wider than a terminal");
    }
}
