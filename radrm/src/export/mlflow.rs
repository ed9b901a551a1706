//! `radrm export mlflow`.

use std::collections::BTreeMap;

use clap::Args;
use radrm_export::Credentials;
use radrm_export::mlflow::{Artifact, PARENT, Sent, Server};
use radrm_sweep::link;
use radrm_text::clean;

use super::chosen::{Chosen, Files, Read};
use super::send::{send_all, variable};
use crate::Failure;
use crate::error::UsageError;
use crate::sweep::member::Member;

/// The experiment that MLflow's own client takes from the environment.
const EXPERIMENT: &str = "MLFLOW_EXPERIMENT_NAME";
/// Its server.
const SERVER: &str = "MLFLOW_TRACKING_URI";
/// The experiment of profiles that no sweep made.
const DEFAULT: &str = "radrm";

/// The flags as written.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    files: Files,
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

/// Sends runs.
pub(super) fn run(flags: &Flags) -> Result<(), Failure> {
    let address = flags.server.clone().or_else(|| variable(SERVER)).ok_or(UsageError::NoServer(SERVER))?;
    let credentials = credentials();
    let named = flags.experiment.clone().or_else(|| variable(EXPERIMENT));
    let mut server: Option<(String, Server)> = None;
    let all = flags.files.chosen()?;
    let groups = Groups::of(&all);
    send_all(&all, |chosen| {
        let of_sweep = chosen.sweep_name();
        let experiment = named.as_deref().or(of_sweep.as_deref()).unwrap_or(DEFAULT);
        let (_, server) = match server.take().filter(|(known, _)| known == experiment) {
            Some(open) => server.insert(open),
            None => {
                let open = Server::open(&address, &credentials, experiment)?;
                server.insert((experiment.to_owned(), open))
            }
        };
        send(server, chosen, &groups, flags.no_files)
    })
}

/// Members of a sweep that started together: the sweep, the group and the repetition.
type Group<'c> = (&'c str, &'c str, u32);

/// Keys of the runs of each group.
struct Groups<'c>(BTreeMap<Group<'c>, Vec<String>>);

impl<'c> Groups<'c> {
    fn of(all: &'c [Chosen]) -> Self {
        let mut groups: BTreeMap<Group<'c>, Vec<String>> = BTreeMap::new();
        for member in all.iter().filter_map(|chosen| chosen.sweep.as_ref()) {
            groups.entry(group(member)).or_default().push(link::tag(&member.run));
        }
        Self(groups)
    }

    /// Distinguishes a group of several runs from all others.
    fn id(&self, member: &Member) -> Option<String> {
        let keys = self.0.get(&group(member)).filter(|keys| keys.len() > 1)?;
        Some(format!("group {}", keys.iter().min()?))
    }
}

fn group(member: &Member) -> Group<'_> {
    (&member.sweep, &member.run.group, member.run.repetition)
}

/// Sends one, and says where it is.
fn send(server: &Server, chosen: &Chosen, groups: &Groups<'_>, no_files: bool) -> Result<String, Failure> {
    let Read { profile, summary, mut run } = chosen.read()?;
    if let Some(member) = &chosen.sweep
        && let Some(id) = groups.id(member)
    {
        let parent = server.parent(&id, &member.run.group, &run)?;
        run.tags.insert(PARENT.to_owned(), parent);
    }
    let page = || radrm_analyzer::html(&profile, &summary);
    let files = [Artifact::File(&chosen.path), Artifact::Text("report.html", &page)];
    let sent = server.send(&run, if no_files { &[] } else { &files })?;
    if let Some(member) = &chosen.sweep {
        server.adopt(&run, link::TAG, &link::tag(&member.run))?;
    }
    let name = clean(&run.name).into_owned();
    // The server chose the run's id, which is in it.
    let shown = |url: String| clean(&url).into_owned();
    Ok(match sent {
        Sent::New { url, without_files: None } => format!("{name}: {}\n", shown(url)),
        Sent::New { url, without_files: Some(why) } => {
            format!("{name}: {} (without its files: {})\n", shown(url), clean(&why))
        }
        Sent::Already { url, added: 0 } => format!("{name}: {} (was there)\n", shown(url)),
        Sent::Already { url, added } => {
            let files = if added == 1 { "file" } else { "files" };
            format!("{name}: {} (was there, {added} {files} added)\n", shown(url))
        }
    })
}

fn credentials() -> Credentials {
    let name = || Some((variable("MLFLOW_TRACKING_USERNAME")?, variable("MLFLOW_TRACKING_PASSWORD")?));
    match (name(), variable("MLFLOW_TRACKING_TOKEN")) {
        (Some((name, password)), _) => Credentials::Password(name, password),
        (None, Some(token)) => Credentials::Token(token),
        (None, None) => Credentials::None,
    }
}
