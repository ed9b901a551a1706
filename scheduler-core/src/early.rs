//! Evidence from a running job's first optimizer steps, and why it bounds what the job will need.

use std::fmt;

pub use radrm_estimator::early::{Course, STEP};
use radrm_estimator::early::{Shapes, shapes};
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A running job after its first optimizer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstSteps {
    /// Steps that it has made.
    pub steps: u32,
    /// The most that it has held on one of its devices.
    pub held: Bytes,
    /// Evidence that all that follows takes no more than what was seen.
    /// `None`: there is none, and the bound of before stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<FixedBy>,
}

/// Returns the evidence that all that follows after `steps` steps takes no more.
/// The evidence is `stated` by the user, or shown by the program's earlier runs.
#[must_use]
pub fn fixed_by(steps: u32, stated: bool, earlier: &[Course]) -> Option<FixedBy> {
    let shown = shapes(steps, false, earlier) == Shapes::Fixed;
    match shapes(steps, stated, earlier) {
        Shapes::Open => None,
        Shapes::Fixed if shown => {
            let runs = earlier.iter().filter(|course| (STEP..=steps).contains(&course.steps)).count();
            Some(FixedBy::EarlierRuns { runs: u32::try_from(runs).unwrap_or(u32::MAX) })
        }
        Shapes::Fixed => Some(FixedBy::User),
    }
}

/// Evidence that all steps of a job have the same shapes, and that no later phase takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum FixedBy {
    /// The user.
    User,
    /// Earlier runs of its program: none took more later.
    EarlierRuns {
        /// Number of such runs.
        runs: u32,
    },
}

impl fmt::Display for FixedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("its user states fixed shapes"),
            Self::EarlierRuns { runs: 1 } => f.write_str("an earlier run of its program took no more later"),
            Self::EarlierRuns { runs } => write!(f, "{runs} earlier runs of its program took no more later"),
        }
    }
}

/// The bound by which a running job's memory was set aside anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyBound {
    /// Bound that the job is expected to stay under.
    pub(crate) bound: Bytes,
    /// Reservation of before: it applies again if the job takes more than expected.
    pub(crate) prior: Bytes,
}
