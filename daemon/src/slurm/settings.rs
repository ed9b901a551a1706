//! The section `[slurm]` of the configuration.

use std::path::PathBuf;

use serde::Deserialize;

/// The section `[slurm]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SlurmSettings {
    /// True if Slurm places this node's jobs, and radrmd only watches them.
    pub(crate) engine: bool,
    /// The folder of the SPANK plug-in: `state=` in `plugstack.conf`.
    pub(crate) state: PathBuf,
    /// True if a job's `AdminComment` gets its peak and a recommendation.
    pub(crate) comment: bool,
}

impl Default for SlurmSettings {
    fn default() -> Self {
        Self { engine: false, state: "/run/radrm-slurm".into(), comment: true }
    }
}
