//! What a need is concluded from.

use std::fmt;

use radrm_base::ProgramKind;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Permille};

/// What one of several sources said.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Said {
    /// Which.
    pub source: Source,
    /// The figure to expect by it alone.
    pub bytes: Bytes,
    /// Its weight in the combined figure.
    pub weight: Permille,
}

/// What a need is concluded from, as data; its text is the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The user declared it.
    Declared,
    /// Equal runs were measured.
    EqualRuns {
        /// How many that ended well.
        runs: u32,
    },
    /// Equal runs were measured, of which some ran out of memory with more than the others needed.
    EqualRunsAndOutOfMemory {
        /// How many that ended well.
        runs: u32,
    },
    /// Equal runs ran out of memory: more than they had.
    OutOfMemory,
    /// Runs at other batch sizes.
    OtherBatchSizes {
        /// At how many.
        sizes: u32,
    },
    /// A dry run on an emulated GPU.
    DryRun {
        /// Its steps; 0: not recorded.
        steps: u64,
        /// The GPU's model.
        gpu: String,
        /// What it held there; zero in logs of older versions.
        #[serde(default, skip_serializing_if = "is_zero")]
        held: Bytes,
        /// The kind of program; none in logs of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<ProgramKind>,
        /// By how many runs of dry-run programs the figure was corrected.
        #[serde(default, skip_serializing_if = "is_none")]
        runs: u32,
        /// The daemon made it by itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        background: bool,
    },
    /// One or more of these, by a memory model.
    Combined {
        /// What each said.
        said: Vec<Said>,
        /// The factor for the model's margin that this node's jobs taught.
        stretch: Permille,
    },
    /// The user estimates it.
    UserEstimate,
    /// What the user states, and what the user's earlier jobs took of what was stated for them.
    EarlierStatements {
        /// What the user states.
        stated: Bytes,
        /// How many jobs.
        jobs: u32,
    },
    /// An estimate that came without its origin as data, in words.
    Stated(String),
    /// An estimate in the job's file.
    File {
        /// Of which estimator.
        estimator: String,
    },
    /// Measured networks with such layers.
    Networks {
        /// Parameters of the network.
        parameters: u64,
        /// Activations of one sample.
        activations: u64,
        /// Samples in a batch.
        batch: u32,
    },
    /// Horus's formula over the model's summary.
    Formula {
        /// Parameters of the model.
        parameters: u64,
        /// Activations of one sample.
        activations: u64,
        /// Samples in a batch.
        batch: u32,
        /// What a process holds before the first layer.
        startup: Bytes,
    },
}

impl Source {
    /// Whether a run, or the user's own word, stands for it: such a bound is enforced.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        match self {
            Self::Declared
            | Self::EqualRuns { .. }
            | Self::EqualRunsAndOutOfMemory { .. }
            | Self::OutOfMemory
            | Self::OtherBatchSizes { .. } => true,
            Self::Combined { said, .. } => said.iter().any(|said| said.source.is_confirmed()),
            Self::DryRun { .. }
            | Self::UserEstimate
            | Self::EarlierStatements { .. }
            | Self::Stated(_)
            | Self::File { .. }
            | Self::Networks { .. }
            | Self::Formula { .. } => false,
        }
    }
}

// Serde passes references.
fn is_zero(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared => f.write_str("declared by its user"),
            Self::EqualRuns { runs: 1 } => f.write_str("measured in an equal run"),
            Self::EqualRuns { runs } => write!(f, "measured in {runs} equal runs"),
            Self::EqualRunsAndOutOfMemory { runs } => {
                write!(f, "{runs} equal run{} ended well, others ran out of memory", plural(u64::from(*runs)))
            }
            Self::OutOfMemory => f.write_str("equal runs ran out of memory with less"),
            Self::OtherBatchSizes { sizes } => {
                write!(f, "extrapolated from {sizes} other batch size{}", plural(u64::from(*sizes)))
            }
            Self::DryRun { steps, gpu, runs, background, .. } => {
                f.write_str("dry run")?;
                if *steps > 0 {
                    write!(f, " of {steps} step{}", plural(*steps))?;
                }
                if *background {
                    f.write_str(" in the background")?;
                }
                write!(f, " on an emulated {gpu}")?;
                match runs {
                    0 => Ok(()),
                    _ => write!(f, ", corrected by {runs} run{} here", plural(u64::from(*runs))),
                }
            }
            Self::Combined { said, stretch } => {
                for (at, Said { source, bytes, .. }) in said.iter().enumerate() {
                    match said.len() {
                        1 => write!(f, "{source}")?,
                        _ => write!(f, "{}{source} ({bytes})", if at == 0 { "" } else { ", " })?,
                    }
                }
                if *stretch == Permille::WHOLE {
                    return Ok(());
                }
                write!(f, "; margin x {:.2} after this node's jobs", f64::from(stretch.0) / 1000.0)
            }
            Self::UserEstimate => f.write_str("estimated by its user"),
            Self::EarlierStatements { stated, jobs } => {
                write!(f, "{stated} stated, by what {jobs} earlier jobs of its user took")
            }
            Self::Stated(text) => f.write_str(text),
            Self::File { estimator } => write!(f, "{estimator}'s figure in the job's file"),
            Self::Networks { parameters, activations, batch } => write!(
                f,
                "learned from measured networks ({parameters} parameters, {activations} activations a sample, batch \
                 size {batch})"
            ),
            Self::Formula { parameters, activations, batch, startup } => write!(
                f,
                "Horus's formula over the model summary ({parameters} parameters, {activations} activations a \
                 sample, batch size {batch}, {startup} to start with)"
            ),
        }
    }
}
