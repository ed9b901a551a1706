//! Where the answer of several dry runs goes.

use std::io;

use radrm_text::output;
use serde_json::{Value, json};
use thiserror::Error;

use crate::cli::{Plan, ReportTo};
use crate::report_file::{self, ReportFileError};

/// Version of the JSON form.
const SCHEMA: u32 = 2;

/// Why an answer was not written, as one sentence.
#[derive(Debug, Error)]
pub(super) enum AnswerError {
    /// The reader of standard output has gone.
    #[error("standard output cannot be written: {}", radrm_base::reason(.0))]
    Output(io::Error),
    /// The file cannot be written.
    #[error(transparent)]
    Report(#[from] ReportFileError),
}

/// Writes an answer where the report goes: as text on standard error, also with `--quiet`, since it is all that was asked
/// for; or as JSON with this value under `name` and the figures of one run under `dry_run`.
///
/// # Errors
/// [`AnswerError`].
pub(super) fn deliver(
    plan: &Plan,
    text: &str,
    (name, value): (&str, Value),
    figures: Option<&Value>,
) -> Result<(), AnswerError> {
    let json = || {
        let command: Vec<_> = plan.command.iter().map(|word| word.to_string_lossy()).collect();
        let whole = json!({ "schema": SCHEMA, "command": command, name: value, "dry_run": figures });
        serde_json::to_string_pretty(&whole).map_or_else(|error| error.to_string(), |text| text + "\n")
    };
    match &plan.report {
        ReportTo::Nowhere | ReportTo::Text { .. } => _ = output::to_stderr(text),
        ReportTo::JsonOnStderr => _ = output::to_stderr(&json()),
        ReportTo::JsonOnStdout => _ = output::to_stdout(&json()).map_err(AnswerError::Output)?,
        ReportTo::JsonFile(file) => report_file::write(file, json())?,
    }
    Ok(())
}
