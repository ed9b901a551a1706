//! Errors by which a program was not started.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use radrm_base::reason;
use radrm_limits::LimitError;
use thiserror::Error;

use crate::child::NotStarted;
use crate::dry_run::setup::SetupError;
use crate::emulated::EmulationError;
use crate::ending::{FAILED, NOT_EXECUTABLE, NOT_FOUND};
use crate::place::PlaceError;
use crate::recording::ChannelError;
use crate::report_file::ReportFileError;

/// Reason that a program was not started, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum LaunchError {
    #[error("an argument contains a zero byte")]
    ZeroByte,
    #[error(transparent)]
    Profile(#[from] PlaceError),
    #[error(transparent)]
    Report(#[from] ReportFileError),
    #[error("signals cannot be held: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Emulation(#[from] EmulationError),
    #[error("{program} cannot be run on emulated GPUs: it {reason}")]
    NotEmulable { program: String, reason: String },
    #[error("this is already inside a job with a limit, which would not see another one")]
    NestedLimit,
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("{what} is asked for that cannot hold for {program}: {reason}")]
    Unlimited { what: &'static str, program: String, reason: String },
    #[error("no limit can hold: {0}")]
    NoSegment(ChannelError),
    #[error(transparent)]
    Share(ChannelError),
    #[error(transparent)]
    DryRun(#[from] SetupError),
    #[error("signal {0} came before the program was started")]
    Interrupted(i32),
    #[error("{program}: there is no such program{}", hint.as_deref().unwrap_or_default())]
    NotFound { program: String, hint: Option<String> },
    #[error("{program} cannot be started: its interpreter or loader is missing")]
    NoInterpreter { program: String },
    #[error("{program} cannot be executed: {}", reason(source))]
    NotExecutable { program: String, source: io::Error },
    #[error("no process for {program}: {}", reason(source))]
    NoProcess { program: String, source: io::Error },
}

impl LaunchError {
    /// Of what came of starting `word`.
    #[must_use]
    pub fn not_started(reason: NotStarted, word: &OsStr) -> Self {
        let program = shown(word);
        match reason {
            NotStarted::NotFound if program.contains('/') && Path::new(word).exists() => {
                Self::NoInterpreter { program }
            }
            NotStarted::NotFound => {
                let hint = hint(&program);
                Self::NotFound { program, hint }
            }
            NotStarted::NotExecutable(source) => Self::NotExecutable { program, source },
            NotStarted::NoProcess(source) => Self::NoProcess { program, source },
        }
    }

    /// The code that this process ends with, as `env` and `timeout` have it: 127 for a program that is not found, 126
    /// for one that cannot be executed, 125 for everything else.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::NotFound { .. } | Self::NoInterpreter { .. } => NOT_FOUND,
            Self::NotExecutable { .. } => NOT_EXECUTABLE,
            Self::ZeroByte
            | Self::Profile(_)
            | Self::Report(_)
            | Self::Signals(_)
            | Self::Emulation(_)
            | Self::NotEmulable { .. }
            | Self::NestedLimit
            | Self::Limit(_)
            | Self::Unlimited { .. }
            | Self::NoSegment(_)
            | Self::Share(_)
            | Self::DryRun(_)
            | Self::Interrupted(_)
            | Self::NoProcess { .. } => FAILED,
        }
    }
}

/// Likely meaning of a program that is not there: a script of this folder, or a value of an option before it.
fn hint(program: &str) -> Option<String> {
    if Path::new(program).is_file() {
        return Some(match program.ends_with(".py") {
            true => format!("; a script is run as: python3 {program}"),
            false => format!("; a file of this folder is run as: ./{program}"),
        });
    }
    let is_range = |(from, to): (&str, &str)| [from, to].iter().all(|part| part.parse::<u64>().is_ok());
    let is_value =
        matches!(program, "tensors" | "allocations") || program.split_once("..").is_some_and(is_range);
    is_value.then(|| format!("; the value of an option follows its =, as in --OPTION={program}"))
}

/// A word of the command line, in messages.
pub(crate) fn shown(word: &OsStr) -> String {
    OsString::from(word).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_missing_from_not_executable() {
        let of = |reason, word: &str| LaunchError::not_started(reason, OsStr::new(word));
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        for (error, code, sentence) in [
            (of(NotStarted::NotFound, "x"), 127, "x: there is no such program"),
            (
                of(NotStarted::NotFound, "Cargo.toml"),
                127,
                "Cargo.toml: there is no such program; a file of this folder",
            ),
            (
                of(NotStarted::NotFound, "1..64"),
                127,
                "1..64: there is no such program; the value of an option follows",
            ),
            (of(NotStarted::NotFound, "/dev/null"), 127, "/dev/null cannot be started: its interpreter"),
            (of(NotStarted::NotExecutable(denied()), "x"), 126, "x cannot be executed: Permission denied"),
            (of(NotStarted::NoProcess(denied()), "x"), 125, "no process for x: Permission denied"),
            (LaunchError::NestedLimit, 125, "this is already inside a job with a limit"),
        ] {
            let text = error.to_string();
            assert_eq!(error.exit_code(), code, "{text}");
            assert!(text.starts_with(sentence) && !text.contains("os error"), "{text}");
        }
    }
}
