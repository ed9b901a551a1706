//! `radrm demo`: what radrm-run shows of a small training program, without a GPU and without a program of one's own.

mod driver;
mod train;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use clap::Args;
use thiserror::Error;

use crate::error::FileProblem;
use crate::{Failure, print};

/// Reason that the demonstration stopped.
#[derive(Debug, Error)]
pub(crate) enum DemoError {
    #[error("demo: {0}")]
    Driver(#[from] driver::DriverError),
    #[error("demo: the evaluation: {0}")]
    Evaluation(io::Error),
    #[error("{program}: {status}")]
    Ended { program: String, status: ExitStatus },
    #[error("{program} cannot be started: {error}")]
    Start { program: String, error: io::Error },
}

impl crate::error::CommandError for DemoError {}

/// Role of this process in the demonstration.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The training, which starts the evaluation.
    Train,
    /// The evaluation, on the second GPU if there is one.
    Evaluate,
}

/// Flags of `radrm demo`.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Emulated GPUs, as for radrm-run
    #[arg(long, value_name = "SPEC", default_value = "2xH200")]
    emulate: String,
    /// Use the GPUs of this machine
    #[arg(long, conflicts_with = "emulate")]
    real: bool,
    /// The folder for profile, page and dataset
    #[arg(long, value_name = "FOLDER", default_value = "radrm-demo")]
    folder: PathBuf,
    /// Be a program of the demonstration
    #[arg(long, hide = true)]
    part: Option<Part>,
}

/// Runs the training under radrm-run and writes the page of its report.
///
/// # Errors
/// A program cannot be started or fails, or the folder cannot be written.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    if let Some(part) = flags.part {
        return Ok(train::run(part)?);
    }
    let folder = &flags.folder;
    let at = |problem| Failure::File { path: folder.clone(), problem: FileProblem::Io(problem) };
    fs::create_dir_all(folder).map_err(at)?;
    let own = own_program()?;
    let (profile, page) = (folder.join("demo.radrm"), folder.join("demo.html"));
    let mut watched = Command::new(own.with_file_name("radrm-run"));
    watched.arg("--timeline").arg("-o").arg(&profile).arg("--dataset").arg(folder.join("dataset.db"));
    if !flags.real {
        watched.args(["--emulate", &flags.emulate]);
    }
    watched.arg("--").arg(&own).args(["demo", "--part", "train"]);
    step(watched)?;
    let mut report = Command::new(&own);
    report.arg("report").arg(&profile).arg(OsStr::new(&format!("--html={}", page.display())));
    step(report)?;
    print(&format!(
        "\nThe page with the picture of its memory: {}\nThe same report again:                   radrm report {}\n",
        page.display(),
        profile.display()
    ))
}

fn own_program() -> Result<PathBuf, DemoError> {
    std::env::current_exe().map_err(|error| DemoError::Start { program: "radrm".to_owned(), error })
}

/// Shows a command as it would be typed, and runs it.
fn step(mut command: Command) -> Result<(), Failure> {
    let name = |word: &OsStr| Path::new(word).file_name().unwrap_or(word).to_string_lossy().into_owned();
    let own = own_program()?;
    let word =
        |word: &OsStr| if Path::new(word) == own { name(word) } else { word.to_string_lossy().into_owned() };
    let words: Vec<String> = command.get_args().map(word).collect();
    print(&format!("$ {} {}\n", name(command.get_program()), words.join(" ")))?;
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(DemoError::Ended { program, status }.into()),
        Err(error) => Err(DemoError::Start { program, error }.into()),
    }
}
