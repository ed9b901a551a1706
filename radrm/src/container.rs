//! `radrm cdi apply`: what a Slurm step brings into its container.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use clap::Args;
use radrm_base::reason;
use radrm_cdi::bundle::{self, BundleError};
use radrm_limits::program::given::{CONTAINER_VARIABLE, Given};
use radrm_text::output::say;
use thiserror::Error;

use crate::NAME;

/// Flags of `radrm cdi apply`.
#[derive(Args, Debug)]
pub(crate) struct ApplyFlags {
    /// The folder with config.json
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// The runtime and its arguments
    #[arg(value_name = "RUNTIME", last = true, required = true)]
    runtime: Vec<OsString>,
}

/// Reason that a container was not started, as one sentence.
#[derive(Debug, Error)]
pub(crate) enum ContainerError {
    #[error("the container is not started: {0}")]
    Bundle(#[from] BundleError),
    #[error(
        "the container is not started: {} is not what Slurm's plug-in of this version writes",
        CONTAINER_VARIABLE
    )]
    Given,
    #[error("{} cannot be executed: {}", runtime.display(), reason(source))]
    Runtime { runtime: OsString, source: io::Error },
}

impl crate::error::CommandError for ContainerError {
    /// The runtime was not started: as that of `radrm-run`.
    const EXIT_CODE: u8 = 125;
}

/// Changes the bundle and becomes the runtime.
///
/// # Errors
/// The container is not started.
pub(crate) fn apply(flags: &ApplyFlags) -> Result<Infallible, ContainerError> {
    if let Some(text) = env::var_os(CONTAINER_VARIABLE).filter(|text| !text.is_empty()) {
        let given = Given::parse(text.as_bytes()).ok_or(ContainerError::Given)?;
        match bundle::apply(&flags.bundle, &given) {
            Err(error) if given.is_limited => return Err(error.into()),
            Err(error) => say(NAME, &format!("{error}; nothing of the container is recorded")),
            Ok(()) => {}
        }
    }
    let Some((runtime, arguments)) = flags.runtime.split_first() else { return Err(ContainerError::Given) };
    let source = process::Command::new(runtime).args(arguments).env_remove(CONTAINER_VARIABLE).exec();
    Err(ContainerError::Runtime { runtime: runtime.clone(), source })
}
