//! The runs that a command line names.

use std::path::{Path, PathBuf};

use clap::Args;
use radrm_analyzer::Summary;
use radrm_export::{Metric, Run};
use radrm_profile::model::Profile;
use radrm_sweep::store::Recorded;
use radrm_text::output;

use crate::error::FileProblem;
use crate::show::{compare, report};
use crate::sweep::member::Member;
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
    /// Run of the sweep that made it.
    pub(super) sweep: Option<Member>,
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
                chosen.extend(
                    profiles.into_iter().map(|path| Chosen { sweep: Member::of_profile(&path), path }),
                );
                continue;
            }
            let runs = Member::all(file, &sweep::recorded(file)?);
            let (before, all) = (chosen.len(), runs.len());
            for member in runs {
                let Some(path) = member.run.outcome.profile.clone() else { continue };
                chosen.push(Chosen { path, sweep: Some(member) });
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
    /// Name of the sweep, without the ending of its file.
    pub(super) fn sweep_name(&self) -> Option<String> {
        let file = Path::new(&self.sweep.as_ref()?.sweep);
        file.file_stem().map(|name| name.to_string_lossy().into_owned())
    }

    /// Reads the profile.
    pub(super) fn read(&self) -> Result<Read, Failure> {
        let mut profile = report::open(&self.path)?;
        if profile.outcome.is_none() && radrm_profile::is_being_written(&self.path) {
            return Err(FileProblem::Running.of(&self.path));
        }
        radrm_symbols::fill(&mut profile);
        let own = self.sweep.as_ref().map(Member::summary);
        let summary = Summary::from_profile(&profile).with_own(own);
        let mut run = Run::of(&profile, &summary);
        if let Some(member) = &self.sweep {
            of_sweep(&mut run, &member.run);
        }
        Ok(Read { profile, summary, run })
    }
}

/// A run of a sweep has the sweep's name and parameters, and the figures that its program logged.
fn of_sweep(run: &mut Run, recorded: &Recorded) {
    run.name.clone_from(&recorded.name);
    for (name, value) in &recorded.parameters {
        // What the profile says of the run keeps its name.
        let is_taken = run.params.contains_key(name);
        let name = if is_taken { format!("sweep.{name}") } else { name.clone() };
        run.params.insert(name, value.clone());
    }
    let logged = recorded.outcome.metrics.iter();
    run.metrics
        .extend(logged.map(|(name, logged)| (name.clone(), Metric { last: logged.last, step: logged.step })));
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
