//! A device that would do, and its rank among those.

use super::Progress;
use crate::reason::{Basis, Forecast, Gain, Score};
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
    /// Memory that is held there outside of jobs.
    pub(crate) outside: Bytes,
    /// Free memory left beside the job.
    pub(crate) left: Bytes,
    /// Progress with the job; [`Progress::UNKNOWN`] where the policy does not predict.
    pub(crate) progress: Progress,
    /// Its distance from the device whose turn it is.
    pub(crate) turn: usize,
    /// Idle devices of its node, itself included; 0 where it is not idle.
    pub(crate) idle_beside: usize,
}

impl Candidate {
    /// The device that gets most done with the job, by what is predicted of all its jobs.
    pub(super) fn by_gain(&self) -> Fit {
        Fit { rank: (-self.progress.worth(), self.id, 0), score: self.predicted() }
    }

    /// A device without jobs, as a reason.
    pub(super) fn idle(&self) -> Score {
        Score::Idle { outside: self.outside }
    }

    /// Prediction for the device's jobs, as a reason.
    pub(super) fn predicted(&self) -> Score {
        let Progress { gain, speed, slowest, on_host, by } = self.progress;
        match by {
            Some(forecast) if self.jobs > 0 => Score::Progress {
                gain: Gain(gain),
                speed: Permille(speed),
                slowest: Permille(slowest),
                on_host: on_host.map(Permille),
                forecast,
            },
            _ => self.idle(),
        }
    }

    /// The SM activity there, as a reason.
    pub(super) fn activity(&self) -> Score {
        match self.smact {
            // A device that jobs have just left may not be measured since.
            Some(Permille::ZERO) if self.jobs == 0 => self.idle(),
            Some(smact) => Score::Busy { smact },
            None => Score::Unmeasured,
        }
    }

    /// The device with most SM activity left beside its jobs: the gain is what is left, in thousandths.
    pub(super) fn by_room(&self) -> Fit {
        let left = self.progress.worth();
        let activity = match self.progress.by {
            Some(
                Forecast::Gpu { activity, .. }
                | Forecast::Rule { activity, .. }
                | Forecast::Predictor { activity },
            ) => activity,
            Some(Forecast::Host) | None => Basis::default(),
        };
        let room = Score::Room { left: Gain(self.progress.gain).part(), activity };
        let score = if self.jobs == 0 { self.idle() } else { room };
        Fit { rank: (-left, self.id, 0), score }
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
