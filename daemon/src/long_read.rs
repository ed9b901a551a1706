//! Questions over all that radrmd keeps. Their answers are read in parts, and the engine answers others in between.

use radrm_protocol::wire::{PastJob, Request, Response, UsageRow};

use crate::accounting::{AttemptEnd, UsageSums, later_than};
use crate::store::energy;
use crate::store::job_sums::{Ended, JobSums};

/// Most rows of one part: some milliseconds of the engine's time.
pub(crate) const PART: usize = 2000;

/// A question with what was read for it so far.
#[derive(Clone, Debug)]
pub(crate) enum LongRead {
    /// Figures over jobs that are over.
    Stats { all: bool, since_ms: u64, sums: JobSums, after: Ended },
    /// GPU time of users.
    Usage { user: Option<String>, sums: UsageSums, after: AttemptEnd },
    /// The energy of the users of these rows, once their GPU time is known.
    Energy { rows: Vec<UsageRow>, sums: energy::Sums },
    /// GPUs and attempts at an earlier time.
    Past { at_ms: u64, jobs: Vec<PastJob>, after: AttemptEnd },
}

/// Result of one part.
#[derive(Debug)]
pub(crate) enum Progress {
    /// There is more to read.
    More(LongRead),
    Done(Response),
}

impl LongRead {
    /// Begins to answer a request; gives back one that needs no long read.
    pub(crate) fn of(request: Request) -> Result<Self, Request> {
        Ok(match request {
            Request::Stats { all, since_ms } => {
                Self::Stats { all, since_ms, sums: JobSums::default(), after: JobSums::since(since_ms) }
            }
            Request::Usage { user, from_ms, to_ms } => {
                Self::Usage { user, sums: UsageSums::new(from_ms, to_ms), after: later_than(from_ms) }
            }
            Request::Past { at_ms } => Self::Past { at_ms, jobs: Vec::new(), after: later_than(at_ms) },
            other => return Err(other),
        })
    }
}
