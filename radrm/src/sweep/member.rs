//! Runs of sweeps by their profiles, with the figures that are their own: for commands that show runs one by one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use radrm_analyzer::OwnSummary;
use radrm_sweep::company::{Own, own};
use radrm_sweep::folder::Folder;
use radrm_sweep::store::Recorded;

use super::recorded;
use crate::Failure;

/// A run of a sweep.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Member {
    /// Name of the sweep's file.
    pub(crate) sweep: String,
    pub(crate) run: Recorded,
    /// Figures that are its own among all runs of the sweep.
    pub(crate) own: Own,
}

impl Member {
    /// All runs of a sweep, by their recorded form.
    pub(crate) fn all(file: &Path, runs: &[Recorded]) -> Vec<Self> {
        let sweep = file.file_name().unwrap_or_default().to_string_lossy();
        let member = |(run, own): (&Recorded, Own)| Self { sweep: sweep.to_string(), run: run.clone(), own };
        runs.iter().zip(own(runs)).map(member).collect()
    }

    /// The run that a profile is of; `None` if no sweep of this user made it, or the sweep's file no longer has the run.
    pub(crate) fn of_profile(profile: &Path) -> Option<Self> {
        let profile = profile.canonicalize().ok()?;
        let file = Folder::file_of(&profile)?;
        let runs = recorded(&file).ok()?;
        Self::all(&file, &runs).into_iter().find(|member| member.is_of(&profile))
    }

    fn is_of(&self, profile: &Path) -> bool {
        let own = self.run.outcome.profile.as_deref();
        own.and_then(|own| own.canonicalize().ok()).is_some_and(|own| own == profile)
    }

    /// Its own figures, for the report of the run.
    pub(crate) fn summary(&self) -> OwnSummary {
        let Own { beside, sm_activity, sm_origin, energy_j, energy_origin, .. } = &self.own;
        OwnSummary {
            sweep: self.sweep.as_str().into(),
            sm_active_share: *sm_activity,
            sm_active_origin: sm_origin.clone(),
            energy_j: *energy_j,
            energy_origin: energy_origin.clone(),
            overlap_s: beside.map(|beside| beside.overlap_s),
        }
    }
}

/// Sweeps whose runs are looked up without being named.
const MAX_SWEEPS: usize = 64;

/// Runs of sweeps by the paths of their profiles: of the named ones, and of those in whose folders other profiles lie. A sweep
/// that cannot be read, and is not named, is left out.
pub(crate) fn by_profile<'p>(
    named: &[(PathBuf, Vec<Recorded>)],
    profiles: impl Iterator<Item = &'p Path>,
) -> BTreeMap<PathBuf, Member> {
    let mut found = BTreeMap::new();
    let mut add = |file: &Path, runs: &[Recorded]| {
        for member in Member::all(file, runs) {
            let Some(path) = &member.run.outcome.profile else { continue };
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            found.insert(path, member);
        }
    };
    let mut known: Vec<PathBuf> = Vec::new();
    for (file, runs) in named {
        add(file, runs);
        known.extend(file.canonicalize().ok());
    }
    // Runs of one sweep are side by side in a dataset: a look at the last ones spares most.
    let mut last = None;
    for profile in profiles {
        let folder = profile.ancestors().nth(3);
        if folder == last {
            continue;
        }
        last = folder;
        let Some(file) = Folder::file_of(profile).filter(|file| !known.contains(file)) else { continue };
        if known.len() >= named.len() + MAX_SWEEPS {
            break;
        }
        if let Ok(runs) = recorded(&file) {
            add(&file, &runs);
        }
        known.push(file);
    }
    found
}

/// Runs of a sweep that is named.
pub(crate) fn named(file: &Path) -> Result<(PathBuf, Vec<Recorded>), Failure> {
    Ok((file.to_owned(), recorded(file)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_sweep::company::Beside;
    use radrm_sweep::store::{Outcome, State};

    fn run(key: &str, profile: &Path) -> Recorded {
        Recorded {
            key: key.into(),
            group: "g".into(),
            repetition: 1,
            collocation: "-".into(),
            outcome: Outcome {
                state: State::Finished,
                started_ms: 1000,
                duration_ms: 20_000,
                gpu_sm_activity: Some(0.8),
                gpu_sm_origin: Some("gpm".into()),
                launch_sm_activity: Some(0.9),
                gpu_energy_j: Some(400.0),
                profile: Some(profile.to_owned()),
                ..Outcome::default()
            },
            ..Recorded::default()
        }
    }

    #[test]
    fn a_run_has_its_own_figures_wherever_it_is_found_by_its_profile() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        let runs: Vec<_> = paths.iter().map(|path| run(&path.to_string_lossy(), path)).collect();
        let named = [(dir.path().join("pair.toml"), runs)];
        let found = by_profile(&named, std::iter::once(Path::new("/no/such.toml.sweep/1/1/profile.radrm")));
        assert_eq!(found.len(), 2);
        for path in &paths {
            let member = &found[path];
            let beside = Some(Beside { overlap_s: 20.0, part: Some(0.5) });
            assert_eq!((member.sweep.as_str(), member.own.beside), ("pair.toml", beside));
            let own = member.summary();
            assert_eq!(
                (own.sm_active_share, own.energy_j, own.overlap_s),
                (Some(0.4), Some(200.0), Some(20.0))
            );
            assert_eq!(own.sm_active_origin.as_deref(), Some("part by launches of gpm"));
        }
        assert_eq!(Member::of_profile(&paths[0]), None, "it lies in no sweep's folder");
    }
}
