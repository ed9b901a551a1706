//! The runs that a command line names.

use std::path::PathBuf;

use clap::Args;
use radrm_analyzer::Summary;
use radrm_export::Run;
use radrm_profile::model::Profile;
use radrm_sweep::store::Recorded;
use radrm_text::output;

use crate::error::FileProblem;
use crate::show::{compare, report};
use crate::{Failure, NAME, sweep};

/// Profiles and rows to export.
#[derive(Args, Debug)]
pub(super) struct Files {
    /// Profiles, directories of profiles, and files of sweeps
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A run that is to be exported.
pub(super) struct Chosen {
    pub(super) path: PathBuf,
    /// The sweep's name, and what it knows, where a sweep made it.
    pub(super) sweep: Option<(String, Recorded)>,
}

/// A run that was read.
pub(super) struct Read {
    pub(super) profile: Profile,
    pub(super) summary: Summary,
    pub(super) run: Run,
}

impl Files {
    /// The profiles.
    pub(super) fn chosen(&self) -> Result<Vec<Chosen>, Failure> {
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
    pub(super) fn read(&self) -> Result<Read, Failure> {
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
