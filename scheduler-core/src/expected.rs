//! Start of a waiting job, as far as it can be expected.

use crate::job::JobId;
use crate::units::Millis;

/// Start of a waiting job as far as it can be expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedStart {
    /// When jobs before it are likely to have left.
    At(Millis),
    /// It waits for a job of which no end is known.
    NoEnd {
        /// That job.
        job: JobId,
    },
    /// Devices that it could use are kept for a job whose start is not known.
    Behind {
        /// That job.
        job: JobId,
    },
    /// The plan of the jobs before it took as much work as an answer may.
    Unplanned,
}

impl ExpectedStart {
    /// Reason that the time is not known, as a part of a sentence.
    #[must_use]
    pub fn why_unknown(self) -> Option<String> {
        match self {
            Self::At(_) => None,
            Self::NoEnd { job } => {
                Some(format!("job {job} before it has no time limit and no known run time"))
            }
            Self::Unplanned => Some("too many jobs and GPUs would have to be planned before it".to_owned()),
            Self::Behind { job } => Some(format!("GPUs are kept for job {job}, whose start is not known")),
        }
    }
}
