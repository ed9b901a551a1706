//! The commands of `radrm` that talk to `radrmd`.

mod asked;
mod asks;
mod dry_run;
mod logs;
mod queue;
mod rad;
mod stats;
mod submit;
mod text;
mod top;
mod user_limit;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use radrm_console::usage::Instead;
use radrm_console::{output, usage};
use radrm_protocol::connection::{Connection, Unanswered};
use radrm_protocol::wire::Request;

use crate::NAME;

/// What is said of these commands.
pub const HELP: &str = include_str!("help.txt");

/// Why something was not done, as one sentence.
#[derive(Debug)]
enum Failure {
    /// What the options say together cannot be meant. What one of them says is looked at when it is read.
    Usage(String),
    /// It went wrong.
    Work(String),
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Self::Work(sentence)
    }
}

impl From<Unanswered> for Failure {
    fn from(why: Unanswered) -> Self {
        Self::Work(why.into())
    }
}

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
    let mut words = arguments.iter().skip(1).map(|word| word.to_string_lossy());
    let first = loop {
        match words.next() {
            Some(word) if word == "--socket" => drop(words.next()),
            Some(word) if word.starts_with('-') => {}
            first => break first,
        }
    };
    if first.as_deref() == Some("help") {
        return words.next().is_some_and(|word| WORDS.contains(&word.as_ref()));
    }
    first.is_some_and(|word| WORDS.contains(&word.as_ref()))
}

/// Does what the command line asks for.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let words = arguments.iter().map(|word| word.to_string_lossy());
    let command = words.into_iter().find(|word| WORDS.contains(&word.as_ref()));
    let more = format!("radrm help {}", command.as_deref().unwrap_or(WORDS[0]));
    if arguments.get(1).is_some_and(|word| word == "help") {
        return usage::end(Instead::Print(HELP.to_owned()), NAME, &more);
    }
    let flags = match usage::flags::<Flags>(arguments, NAME, &more) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    match run(flags) {
        Ok(code) => ExitCode::from(code),
        Err(Failure::Usage(sentence)) => usage::end(Instead::Wrong(sentence), NAME, &more),
        Err(Failure::Work(sentence)) => {
            output::say(NAME, &sentence);
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> Result<u8, Failure> {
    let socket = flags.socket;
    let connect = || Connection::open(socket.as_deref());
    let done = match flags.command {
        Command::Submit(flags) => return submit::run(*flags, &connect),
        Command::Queue(flags) => queue::run(&flags, &mut connect()?),
        Command::Show { job, json } => queue::show(job, json, &mut connect()?),
        Command::Logs(flags) => logs::run(&flags, &mut connect()?),
        Command::Cancel { jobs } => connect()?.done(&Request::Cancel { jobs }),
        Command::Hold { jobs, release } => connect()?.done(&Request::Hold { jobs, held: !release }),
        Command::Nodes { json } => queue::nodes(json, &mut connect()?),
        Command::Drain { gpu, resume } => connect()?.done(&Request::Drain { gpu, drained: !resume }),
        Command::Top(flags) => top::run(&flags, &mut connect()?),
        Command::Stats(flags) => stats::run(&flags, &mut connect()?),
    };
    done.map(|()| 0).map_err(Failure::Work)
}

fn print(text: &str) -> Result<(), String> {
    output::to_stdout(text).map(|_| ()).map_err(|error| format!("standard output cannot be written: {error}"))
}

fn print_json(value: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    print(&format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn only_the_daemons_commands_are_ours() {
        let ours = |line: &str| is_ours(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(ours("radrm queue") && ours("radrm --socket /run/s queue --why") && ours("radrm help top"));
        assert!(ours("radrm --socket s queue") && ours("radrm --socket=s queue"));
        assert!(!ours("radrm report x") && !ours("radrm help report") && !ours("radrm --help"));
    }

    #[test]
    fn a_bad_value_is_a_wrong_command_line_for_every_command() {
        for (line, part) in [
            ("submit --gpu-mem 3G -- p", "--gpu-mem"),
            ("submit --time x -- p", "--time"),
            ("submit --time 99999999999999999-1 -- p", "--time"),
            ("submit --gpu-share 0 -- p", "--gpu-share"),
            ("submit --cpus -1 -- p", "--cpus"),
            ("submit --cpus many -- p", "--cpus"),
            ("submit --dry-run=0 -- p", "--dry-run"),
            ("submit --checkpoint-signal NONE -- p", "--checkpoint-signal"),
            ("submit --batch-size 0 -- p", "--batch-size"),
            ("submit --gpus x -- p", "--gpus"),
            ("stats --since yesterday", "--since"),
            ("top --every 0", "--every"),
            ("top --every nan", "--every"),
            ("queue --ended x", "--ended"),
            ("cancel x", "x"),
            ("logs", "missing"),
            ("drain", "missing"),
        ] {
            let words = ["radrm"].into_iter().chain(line.split(' ')).map(OsString::from);
            let Err(error) = Flags::try_parse_from(words) else { panic!("{line}") };
            let Instead::Wrong(text) = usage::explain(&error) else { panic!("{line}") };
            assert!(text.to_lowercase().contains(part) && text.lines().count() == 1, "{line}: {text}");
        }
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
