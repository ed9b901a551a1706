//! A device that would do, and its rank among those.

use super::Progress;
use crate::reason::Score;
use crate::units::{Bytes, Permille};

/// A device that would do.
pub(crate) struct Candidate {
    /// The device's number: it decides among equals.
    pub(crate) id: i64,
    /// Jobs that it has.
    pub(crate) jobs: usize,
    /// Its SM activity as the monitor sees it; `None`: nothing measures it.
    pub(crate) smact: Option<Permille>,
    /// Its free memory, by the way in which memory is known.
    pub(crate) free: Bytes,
    /// Free memory left beside the job.
    pub(crate) left: Bytes,
    /// Progress with the job; zeros where the policy does not predict.
    pub(crate) progress: Progress,
    /// Its distance from the device whose turn it is.
    pub(crate) turn: usize,
    /// Idle devices of its node, itself included; 0 where it is not idle.
    pub(crate) idle_beside: usize,
}

impl Candidate {
    /// The device that gets most done with the job, by what is predicted of all its jobs.
    pub(super) fn by_gain(&self) -> Fit {
        let score = if self.jobs == 0 { Score::Idle } else { self.progress.score() };
        Fit { rank: (-i64::from(self.progress.gain), self.id, 0), score }
    }

    /// The SM activity there, as a reason.
    pub(super) fn activity(&self) -> Score {
        self.smact.map_or(Score::Unmeasured, |smact| Score::Busy { smact })
    }

    /// The device with most SM activity left beside its jobs: the gain is what is left, in thousandths.
    pub(super) fn by_room(&self) -> Fit {
        let left = self.progress.gain;
        let score = if self.jobs == 0 { Score::Idle } else { Score::Busy { smact: Permille(1000 - left) } };
        Fit { rank: (-i64::from(left), self.id, 0), score }
    }
}

/// Rank of a device: the lowest is taken, and the score is the reason that users see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    pub(crate) rank: (i64, i64, i64),
    pub(crate) score: Score,
}

/// KiB as a number that can be negative.
pub(super) fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0 >> 10).unwrap_or(i64::MAX)
}
