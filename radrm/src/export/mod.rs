//! `radrm export`: runs for trackers of experiments, for OpenTelemetry, and as tables.

mod mlflow;
mod otlp;
mod table;

use std::env;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use radrm_analyzer::Summary;
use radrm_export::Run;
use radrm_profile::model::Profile;
use radrm_sweep::store::Recorded;
use radrm_text::output;

use crate::error::FileProblem;
use crate::show::{compare, report};
use crate::{Failure, NAME, print, sweep};

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Send runs to a server of MLflow: parameters, figures, curves, and the profile with its page
    ///
    /// A run that is there already is left as it is, so the same command sends what an earlier call could not. The server
    /// stores what it receives, command lines among it. As MLflow's own client, a token is taken from
    /// MLFLOW_TRACKING_TOKEN, or a name and a password from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
    #[command(after_long_help = "\
Examples:
  radrm export mlflow --server http://localhost:5000 train.4711.radrm
  radrm export mlflow --server https://mlflow.example.org grid.toml
  radrm export mlflow --experiment resnet runs/")]
    Mlflow(mlflow::Flags),
    /// Send figures and curves to a receiver of OpenTelemetry (OTLP over HTTP)
    ///
    /// Metrics of GPUs have the names of the semantic conventions for hardware (hw.gpu.memory.usage), the others begin
    /// with `radrm.`. Values keep the times at which they were measured. Headers, a token among them, are taken from
    /// OTEL_EXPORTER_OTLP_HEADERS (NAME=VALUE,...).
    #[command(after_long_help = "\
Examples:
  radrm export otlp --server http://localhost:4318 train.4711.radrm
  radrm export otlp runs/")]
    Otlp(otlp::Flags),
    /// Write a table as CSV: a row for each run, or for each point of their curves
    #[command(after_long_help = "\
Examples:
  radrm export csv grid.toml -o runs.csv
  radrm export csv --curves train.4711.radrm | head")]
    Csv(table::Flags),
    /// Write a table as Parquet, for pandas and polars: a row for each run, or for each point of their curves
    #[command(after_long_help = "\
Examples:
  radrm export parquet grid.toml -o runs.parquet
  radrm export parquet --curves runs/ -o curves.parquet")]
    Parquet(table::Flags),
}

/// What is exported.
#[derive(Args, Debug)]
struct Files {
    /// Profiles, directories of profiles, and files of sweeps
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Exports runs.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Mlflow(flags) => mlflow::run(flags),
        Command::Otlp(flags) => otlp::run(flags),
        Command::Csv(flags) => table::run(flags, radrm_export::table::Table::csv),
        Command::Parquet(flags) => table::run(flags, radrm_export::table::Table::parquet),
    }
}

/// A run that is to be exported.
struct Chosen {
    path: PathBuf,
    /// The sweep's name, and what it knows, where a sweep made it.
    sweep: Option<(String, Recorded)>,
}

/// A run that was read.
struct Read {
    profile: Profile,
    summary: Summary,
    run: Run,
}

impl Files {
    /// The profiles.
    fn chosen(&self) -> Result<Vec<Chosen>, Failure> {
        let mut chosen = Vec::new();
        for file in &self.files {
            if !radrm_sweep::is_sweep(file) {
                let profiles = compare::profiles(std::slice::from_ref(file))?;
                chosen.extend(profiles.into_iter().map(|path| Chosen { path, sweep: None }));
                continue;
            }
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let runs = sweep::recorded(file)?;
            let (before, all) = (chosen.len(), runs.len());
            for recorded in runs {
                let Some(path) = recorded.outcome.profile.clone() else { continue };
                chosen.push(Chosen { path, sweep: Some((name.clone(), recorded)) });
            }
            match chosen.len() - before {
                0 => return Err(FileProblem::Nothing("runs with a profile").of(file)),
                some if some < all => {
                    let left = all - some;
                    let text =
                        format!("{}: {left} of {all} runs have no profile and are left out", file.display());
                    output::say(NAME, &text);
                }
                _ => {}
            }
        }
        Ok(chosen)
    }
}

impl Chosen {
    /// Reads the profile.
    fn read(&self) -> Result<Read, Failure> {
        let mut profile = report::open(&self.path)?;
        if profile.outcome.is_none() && radrm_profile::is_being_written(&self.path) {
            return Err(FileProblem::Running.of(&self.path));
        }
        radrm_symbols::fill(&mut profile);
        let summary = Summary::from_profile(&profile);
        let mut run = Run::of(&profile, &summary);
        if let Some((_, recorded)) = &self.sweep {
            of_sweep(&mut run, recorded);
        }
        Ok(Read { profile, summary, run })
    }
}

/// A run of a sweep has the sweep's name and parameters.
fn of_sweep(run: &mut Run, recorded: &Recorded) {
    run.name.clone_from(&recorded.name);
    for (name, value) in &recorded.parameters {
        // What the profile says of the run keeps its name.
        let is_taken = run.params.contains_key(name);
        let name = if is_taken { format!("sweep.{name}") } else { name.clone() };
        run.params.insert(name, value.clone());
    }
    let tags = [
        ("radrm.sweep.configuration", recorded.configuration.clone()),
        ("radrm.sweep.group", recorded.group.clone()),
        ("radrm.sweep.repetition", recorded.repetition.to_string()),
        ("radrm.sweep.collocation", recorded.collocation.clone()),
        ("radrm.sweep.state", recorded.outcome.state.key().to_owned()),
        ("radrm.sweep.profiled", recorded.profiled.to_string()),
    ];
    run.tags.extend(tags.map(|(name, value)| (name.to_owned(), value)));
}

/// Sends one after the other, and says of each what became of it. Where one fails, the rest is not sent.
fn send_all(
    chosen: &[Chosen],
    mut send: impl FnMut(&Chosen) -> Result<String, Failure>,
) -> Result<(), Failure> {
    for (at, one) in chosen.iter().enumerate() {
        match send(one) {
            Ok(line) => print(&line)?,
            Err(error) => {
                if chosen.len() > 1 {
                    let (left, of) = (chosen.len() - at, chosen.len());
                    let text = format!("{left} of {of} runs are not sent: the same command sends them");
                    output::say(NAME, &text);
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
