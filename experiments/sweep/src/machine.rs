//! Resources of the machine that a sweep uses: `radrm-run`, and the instances of divided GPUs.

use std::path::PathBuf;

use crate::error::SweepError;
use crate::plan::{Collocation, Group, Run};

/// A MIG instance of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// `MIG-...`.
    pub uuid: String,
    /// The device's name, which ends with its profile.
    pub name: String,
}

/// The instances for the members of a group, by member; `None` for a member without a profile.
///
/// # Errors
/// [`SweepError::NoMig`]: there are too few of a profile.
pub fn instances(group: &Group, all: &[MigInstance]) -> Result<Vec<Option<String>>, SweepError> {
    let mut free: Vec<&MigInstance> = all.iter().collect();
    let mut instance = |run: &Run| {
        let Collocation::Mig(profile) = &run.collocation else { return Ok(None) };
        match free.iter().position(|instance| is_of_profile(&instance.name, profile)) {
            Some(at) => Ok(Some(free.remove(at).uuid.clone())),
            None => Err(SweepError::NoMig { run: run.name.clone(), profile: profile.clone() }),
        }
    };
    group.runs.iter().map(&mut instance).collect()
}

/// Returns true if a device of this name is an instance of a MIG profile.
pub(crate) fn is_of_profile(name: &str, profile: &str) -> bool {
    name.to_ascii_lowercase().ends_with(&format!("mig {profile}"))
}

/// `radrm-run` beside this program.
///
/// # Errors
/// This program's own file is gone.
pub fn launcher() -> Result<PathBuf, SweepError> {
    let own = std::env::current_exe();
    let own = own.map_err(|source| SweepError::Start { program: "radrm-run".to_owned(), source })?;
    Ok(own.with_file_name("radrm-run"))
}
