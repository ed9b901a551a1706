//! The profile of one of several runs, at the place where the user wants it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use radrm_profile::{Profile, name};
use thiserror::Error;

use crate::cli::Plan;
use crate::place::{self, Place, PlaceError};

/// Reason that the profile was not kept, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum KeptError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("no profile at {}: {}", path.display(), radrm_base::reason(source))]
    NoProfile { path: PathBuf, source: io::Error },
}

/// Copies a run's profile from the file `from` to where the plan wants it; gives that place, if there is one.
///
/// # Errors
/// [`KeptError`]
pub fn keep(
    plan: &Plan,
    place: &Place,
    profile: &Profile,
    from: &Path,
) -> Result<Option<PathBuf>, KeptError> {
    let path = match place {
        Place::Nowhere => return Ok(None),
        Place::File(named) => named.path().to_owned(),
        Place::Usual => {
            let name = name::file_name(&plan.command, profile.job.pid);
            place::claim(&name)?.path
        }
    };
    let written = fs::read(from).and_then(|bytes| fs::write(&path, bytes));
    written.map_err(|source| KeptError::NoProfile { path: path.clone(), source })?;
    if let Some(mode) = plan.profile_mode {
        place::set_mode(&path, mode)?;
    }
    Ok(Some(path))
}
