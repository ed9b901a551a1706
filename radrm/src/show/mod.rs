//! `radrm`: what was recorded, shown.

pub mod cli;
pub mod compare;
pub mod dataset;
pub mod machines;
pub mod report;

use std::path::Path;

use radrm_console::output::Delivery;
use radrm_console::{output, usage};
use radrm_launcher::report_file;

use crate::{Failure, NAME, audit, quota, replay};

/// Does what the command line asks for and gives the exit code.
#[must_use]
pub fn run(command: &cli::Command) -> i32 {
    if let Some(Err(error)) = written(command).map(report_file::spares_profile) {
        output::say(NAME, &error.to_string());
        return usage::WRONG.into();
    }
    let done = match command {
        cli::Command::Audit(order) => match audit::run(order) {
            Ok(code) => return code,
            Err(sentence) => Err(sentence),
        },
        cli::Command::Replay(order) => replay::run(order),
        cli::Command::Quota(order) => quota::run(order),
        cli::Command::Report(report) => report::run(report),
        cli::Command::Compare(order) => compare::run(order),
        cli::Command::DatasetList(list) => dataset::list(list),
        cli::Command::Machines { json } => machines::list(*json),
    };
    match done {
        Ok(()) => 0,
        Err(sentence) => {
            output::say(NAME, &sentence);
            1
        }
    }
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

/// Prints to standard output; a reader who has gone is content.
fn print(text: &str) -> Result<(), Failure> {
    deliver(text).map(|_| ())
}

/// Prints a part of what there is to print, and says whether anybody still reads.
fn deliver(text: &str) -> Result<Delivery, Failure> {
    output::to_stdout(text).map_err(|error| format!("standard output cannot be written: {error}"))
}
