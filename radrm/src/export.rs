//! `radrm export`: runs for trackers of experiments.

use std::env;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use radrm_analyzer::Summary;
use radrm_console::output;
use radrm_export::mlflow::{Artifact, Sent, Server};
use radrm_export::{Credentials, Run};
use radrm_sweep::store::Recorded;
use radrm_term::clean;

use crate::error::{FileProblem, UsageError};
use crate::show::{compare, report};
use crate::{Failure, NAME, print, sweep};

/// The experiment that MLflow's own client takes from the environment.
const EXPERIMENT: &str = "MLFLOW_EXPERIMENT_NAME";
/// Its server.
const SERVER: &str = "MLFLOW_TRACKING_URI";
/// The experiment of profiles that no sweep made.
const DEFAULT: &str = "radrm";

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
    Mlflow(Flags),
}

/// The flags as written.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Profiles, directories of profiles, and files of sweeps
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The server [default: $MLFLOW_TRACKING_URI]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The experiment; made if it is not there [default: $MLFLOW_EXPERIMENT_NAME, the sweep's name, or radrm]
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,
    /// Send neither profiles nor pages
    #[arg(long)]
    no_files: bool,
}

/// A run that is to be sent.
struct Chosen {
    profile: PathBuf,
    experiment: String,
    /// Where a sweep made it.
    recorded: Option<Recorded>,
}

/// Sends runs.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Mlflow(flags) = command;
    let address = flags.server.clone().or_else(|| variable(SERVER)).ok_or(UsageError::NoServer)?;
    let credentials = credentials();
    let chosen = chosen(flags)?;
    let mut server: Option<(&str, Server)> = None;
    for (at, one) in chosen.iter().enumerate() {
        let sent = (|| {
            if server.as_ref().is_none_or(|(experiment, _)| *experiment != one.experiment) {
                server = Some((&one.experiment, Server::open(&address, &credentials, &one.experiment)?));
            }
            let Some((_, server)) = &server else { return Ok(None) };
            send(server, one, flags.no_files).map(Some)
        })();
        match sent {
            Ok(None) => {}
            Ok(Some(line)) => print(&line)?,
            Err(error) => {
                if chosen.len() > 1 {
                    let left = chosen.len() - at;
                    output::say(
                        NAME,
                        &format!("{left} of {} runs are not sent: the same command sends them", chosen.len()),
                    );
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Sends one, and says where it is.
fn send(server: &Server, chosen: &Chosen, no_files: bool) -> Result<String, Failure> {
    let path = &chosen.profile;
    let mut profile = report::open(path)?;
    if profile.outcome.is_none() && radrm_profile::is_being_written(path) {
        return Err(FileProblem::Running.of(path));
    }
    radrm_symbols::fill(&mut profile);
    let summary = Summary::from_profile(&profile);
    let run = with_sweep(Run::of(&profile, &summary), chosen.recorded.as_ref());
    let page = if no_files { String::new() } else { radrm_analyzer::html(&profile, &summary) };
    let files = [Artifact::File(path), Artifact::Text("report.html", &page)];
    let sent = server.send(&run, if no_files { &[] } else { &files })?;
    let name = clean(&run.name).into_owned();
    Ok(match sent {
        Sent::New { url, without_files: None } => format!("{name}: {url}\n"),
        Sent::New { url, without_files: Some(why) } => {
            format!("{name}: {url} (without its files: {})\n", clean(&why))
        }
        Sent::Already { url } => format!("{name}: {url} (was there)\n"),
    })
}

/// A run of a sweep has the sweep's name and parameters.
fn with_sweep(mut run: Run, recorded: Option<&Recorded>) -> Run {
    let Some(recorded) = recorded else { return run };
    run.name.clone_from(&recorded.name);
    run.params.extend(recorded.parameters.clone());
    let tags = [
        ("radrm.sweep.configuration", recorded.configuration.clone()),
        ("radrm.sweep.group", recorded.group.clone()),
        ("radrm.sweep.repetition", recorded.repetition.to_string()),
        ("radrm.sweep.collocation", recorded.collocation.clone()),
        ("radrm.sweep.state", recorded.outcome.state.key().to_owned()),
        ("radrm.sweep.profiled", recorded.profiled.to_string()),
    ];
    run.tags.extend(tags.map(|(name, value)| (name.to_owned(), value)));
    run
}

fn chosen(flags: &Flags) -> Result<Vec<Chosen>, Failure> {
    let named = flags.experiment.clone().or_else(|| variable(EXPERIMENT));
    let mut chosen = Vec::new();
    for file in &flags.files {
        if radrm_sweep::is_sweep(file) {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let experiment = named.clone().unwrap_or(stem);
            for recorded in sweep::recorded(file)? {
                let Some(profile) = recorded.outcome.profile.clone() else { continue };
                chosen.push(Chosen { profile, experiment: experiment.clone(), recorded: Some(recorded) });
            }
        } else {
            let experiment = named.clone().unwrap_or_else(|| DEFAULT.to_owned());
            for profile in compare::profiles(std::slice::from_ref(file))? {
                chosen.push(Chosen { profile, experiment: experiment.clone(), recorded: None });
            }
        }
    }
    Ok(chosen)
}

fn credentials() -> Credentials {
    let name = || Some((variable("MLFLOW_TRACKING_USERNAME")?, variable("MLFLOW_TRACKING_PASSWORD")?));
    match (name(), variable("MLFLOW_TRACKING_TOKEN")) {
        (Some((name, password)), _) => Credentials::Password(name, password),
        (None, Some(token)) => Credentials::Token(token),
        (None, None) => Credentials::None,
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
