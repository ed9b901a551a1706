//! `radrm report`.

use std::io::IsTerminal;
use std::path::Path;

use radrm_analyzer::{Summary, TextOptions};
use radrm_console::output::{self, width};
use radrm_launcher::layout::text_options;
use radrm_launcher::report_file;
use radrm_profile::ReadError;
use radrm_profile::model::Profile;

use crate::cli::{Form, Report};
use crate::{Failure, print};

/// Shows a profile.
///
/// # Errors
/// One sentence: the file cannot be read, is not a profile, or the page cannot be written.
pub fn run(report: &Report) -> Result<(), Failure> {
    let open = || {
        Profile::open(&report.file).map_err(|error| format!("{}: {}", report.file.display(), told(&error)))
    };
    let mut profile = open()?;
    let is_running = profile.outcome.is_none() && radrm_profile::is_being_written(&report.file);
    if profile.outcome.is_none() && !is_running {
        // It may have ended after it was read.
        profile = open()?;
    }
    let summary = if is_running { Summary::of_running(&profile) } else { Summary::from_profile(&profile) };
    match &report.form {
        Form::Text { timeline, features } => {
            let out = std::io::stdout();
            let options = text_options(out.is_terminal(), width(&out), *timeline, Some(&report.file));
            let options = TextOptions { features: *features, ..options };
            print(&radrm_analyzer::text(&profile, &summary, &options))
        }
        Form::Oom => {
            let out = std::io::stdout();
            let options = text_options(out.is_terminal(), width(&out), false, None);
            print(&radrm_analyzer::oom_text(&summary, &options))
        }
        Form::OomJson => print(&radrm_analyzer::oom_json(&summary)),
        Form::Json => print(&radrm_analyzer::json(&summary)),
        Form::Html(None) => print(&radrm_analyzer::html(&profile, &summary)),
        Form::Html(Some(out)) => written(out, &radrm_analyzer::html(&profile, &summary)),
        Form::Perfetto(None) => print(&radrm_analyzer::perfetto(&profile, &summary)),
        Form::Perfetto(Some(out)) => written(out, &radrm_analyzer::perfetto(&profile, &summary)),
    }
}

/// Writes a file and names it.
fn written(out: &Path, text: &str) -> Result<(), Failure> {
    report_file::write(out, text)?;
    print(&format!("{}\n", out.display()))
}

pub(super) fn told(error: &ReadError) -> String {
    match error {
        ReadError::Io(error) => output::reason(error),
        other => other.to_string(),
    }
}
