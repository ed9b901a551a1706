//! The command `radrm`: shows what was recorded, changes limits, and asks the daemon.

pub mod audit;
pub mod cli;
pub mod client;
pub mod doctor;
mod error;
pub mod quota;
pub mod replay;
pub mod show;

use std::path::Path;
use std::process::ExitCode;

use radrm_console::output::{self, Delivery};
use radrm_console::usage;
use radrm_launcher::report_file;

pub use error::Failure;

/// The program's name in messages.
pub const NAME: &str = "radrm";

/// Does what the command line asks for, and gives the exit code.
#[must_use]
pub fn run(command: cli::Command) -> ExitCode {
    if let Some(Err(error)) = written(&command).map(report_file::spares_profile) {
        output::say(NAME, &error.to_string());
        return ExitCode::from(usage::WRONG);
    }
    match dispatch(command) {
        Ok(code) => ExitCode::from(code),
        Err(Failure::Usage(sentence)) => usage::end(usage::Instead::Wrong(sentence), NAME, "radrm --help"),
        Err(failure) => {
            output::say(NAME, &failure.to_string());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(command: cli::Command) -> Result<u8, Failure> {
    use cli::Command;
    use show::{compare, dataset, machines, report};
    let done = match command {
        Command::Audit(order) => return audit::run(&order),
        Command::Daemon { socket, command } => return client::run(socket.as_deref(), command),
        Command::Doctor { json } => return doctor::run(json),
        Command::Estimate(flags) => client::estimate::run(*flags),
        Command::Replay(order) => replay::run(&order),
        Command::Quota(order) => Ok(quota::run(&order)?),
        Command::Report(report) => report::run(&report),
        Command::Compare(order) => compare::run(&order),
        Command::DatasetList(list) => dataset::list(&list),
        Command::DatasetBackup { file, dataset } => dataset::backup(dataset, &file),
        Command::DatasetCheck { dataset } => dataset::check(dataset),
        Command::Machines { json } => machines::list(json),
    };
    done.map(|()| 0)
}

/// The file that a command writes, if it writes one.
fn written(command: &cli::Command) -> Option<&Path> {
    match command {
        cli::Command::Report(report) => match &report.form {
            cli::Form::Html(out) | cli::Form::Perfetto(out) => out.as_deref(),
            _ => None,
        },
        cli::Command::Replay(order) => order.html.as_deref(),
        _ => None,
    }
}

/// Prints to standard output; a reader who stopped reading is no error.
fn print(text: &str) -> Result<(), Failure> {
    deliver(text).map(|_| ())
}

/// Prints a part, and returns whether the reader is still there.
fn deliver(text: &str) -> Result<Delivery, Failure> {
    output::to_stdout(text).map_err(Failure::Output)
}

/// Prints a value as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    print(&format!("{text}\n"))
}
