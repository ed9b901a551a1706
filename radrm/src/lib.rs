//! The command `radrm`: shows what was recorded, changes limits, and asks the daemon.

mod advise;
mod audit;
mod calibrate;
mod cdi;
mod charts;
pub mod cli;
mod client;
mod container;
mod demo;
mod doctor;
mod error;
mod evaluate;
mod explore;
mod export;
mod fence;
mod generate;
mod import_ncu;
mod live;
mod output;
pub mod overview;
mod quota;
mod replay;
mod reproduce;
mod share;
mod show;
mod slurm;
mod sweep;
mod terminal;
mod train;

use std::process::ExitCode;

use radrm_text::output::say;
use radrm_text::usage;

pub use client::node_need::need_by_node;
pub(crate) use error::Failure;
pub use output::NAME;
pub(crate) use output::{deliver, print, print_json};
pub use replay::OwnPolicy;

/// Does what the command line asks for, and gives the exit code. `help` names the command that explains the line.
#[must_use]
pub fn run(flags: cli::Flags, help: impl Fn() -> String) -> ExitCode {
    report(dispatch(flags), help)
}

/// Runs `radrm replay` with one policy more, `--policy own`: for a program whose command line is that of this command.
#[must_use]
pub fn replay_own(own: OwnPolicy<'_>) -> ExitCode {
    let words = ["radrm".into(), "replay".into()].into_iter().chain(std::env::args_os().skip(1));
    let help = || "--help".to_owned();
    let flags = match cli::parse(words) {
        Ok(flags) => flags,
        Err(instead) => return usage::end(instead, NAME, &help()),
    };
    let done = match flags.command {
        cli::Command::Replay(order) => replay::run(&order, flags.socket.as_deref(), Some(own)).map(|()| 0),
        // The second word is that of the command.
        _ => Ok(0),
    };
    report(done, help)
}

/// Prints what failed, and gives the exit code.
fn report(done: Result<u8, Failure>, help: impl Fn() -> String) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let more = if matches!(failure, Failure::Usage(_) | Failure::Line(_)) {
                format!(" (see `{}`)", help())
            } else {
                String::new()
            };
            say(NAME, &format!("{failure}{more}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(flags: cli::Flags) -> Result<u8, Failure> {
    use cli::Command;
    let socket = flags.socket;
    let done = match flags.command {
        Command::Advise(flags) => advise::run(&flags),
        Command::Calibrate(flags) => calibrate::run(&flags),
        Command::Audit(flags) => return audit::run(&flags),
        Command::Daemon(command) => return client::run(socket.as_deref(), command),
        Command::Doctor { json } => return doctor::run(json),
        Command::Estimate(mut flags) => {
            flags.socket = socket;
            client::estimate::run(*flags)
        }
        Command::Cdi { command: cdi::Command::Generate(flags) } => cdi::generate(&flags),
        Command::Cdi { command: cdi::Command::Apply(flags) } => match container::apply(&flags)? {},
        Command::Completion { shell } => generate::completion(shell),
        Command::Demo(flags) => demo::run(&flags),
        Command::ImportNcu(flags) => import_ncu::run(&flags),
        Command::Generate { folder } => generate::run(&folder),
        Command::Man { command } => generate::manual(&command),
        Command::Terminal(flags) => return Ok(terminal::host::run(&flags)?),
        Command::Train(flags) => train::run(flags),
        Command::Evaluate(flags) => evaluate::run(flags),
        Command::Explore(flags) => explore::run(&flags),
        Command::Export { command } => export::run(&command),
        Command::Replay(flags) => replay::run(&flags, socket.as_deref(), None),
        Command::Reproduce(flags) => reproduce::run(&flags),
        Command::Quota { command } => quota::run(&command),
        Command::Fence { command } => fence::run(&command),
        Command::Sbatch(flags) => return slurm::submit::run(*flags),
        Command::SlurmRetry(flags) => return slurm::retry::run(&flags),
        Command::Share(flags) => return share::run(&flags),
        Command::Sweep(flags) => return sweep::run(*flags, socket.as_deref()),
        Command::SweepRun { folder } => sweep::supervise(folder),
        Command::Report(flags) => show::report::run(&flags),
        Command::Compare(flags) => show::compare::run(&flags),
        Command::Dataset { command } => show::dataset::run(command),
        Command::Machines { json } => show::machines::list(json),
    };
    done.map(|()| 0)
}
