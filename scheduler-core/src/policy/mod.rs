//! Choice of a device among those that would do: one file for each policy, and the list of them.

mod aware;
mod best_fit;
mod company;
mod exclusive;
mod first_fit;
mod horus;
mod lucid;
mod lug;
mod magm;
mod miso;
mod mug;
mod muri;
mod name;
mod round_robin;
mod tiresias;
mod worst_fit;
mod xu;

pub(crate) use company::Company;
pub(crate) use miso::best as best_slices;
pub use name::{NoSuchPolicy, Policy};

use crate::host::HostEffect;
use crate::interference::both;
use crate::reason::{Score, Wait};
use crate::settings::{Memory, Settings, Unknown};
use crate::units::{Bytes, Millis, Permille};

/// Basis of the choice among devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecidedBy {
    /// Free memory of each device.
    FreeMemory,
    /// The measured load of each device.
    Load,
    /// The turn, which passes on to the next device with each job.
    Turn,
    /// Interference between jobs: [`Rules::judge`] predicts it.
    Prediction,
}

/// Number of jobs that a device has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceUse {
    /// One.
    Exclusive,
    /// One, which is taken off for others: a replay takes all jobs for ones that can be suspended.
    Preemptive,
    /// Several.
    Shared,
    /// Several, each on a slice that is made for the company that it has: [`Company::claims`] are there then.
    Sliced,
}

/// Rules of a policy. The provided methods are those of a policy that shares devices and ranks them by free memory.
pub(crate) trait Rules: Sync {
    /// Ranks a device that would do: of several, the lowest rank is taken.
    fn rank(&self, place: &Candidate) -> Fit;

    /// Basis of the choice.
    fn decided_by(&self) -> DecidedBy {
        DecidedBy::FreeMemory
    }

    /// Number of jobs that a device has.
    fn device_use(&self) -> DeviceUse {
        DeviceUse::Shared
    }

    /// Estimates the progress of a device's jobs with the newcomer by this policy's own rule.
    ///
    /// # Errors
    /// Why it waits.
    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        company.estimated()
    }

    /// Progress that a device without jobs makes with the newcomer.
    fn idle(&self, _host: &HostEffect) -> Progress {
        Progress::ALONE
    }

    /// Changes the settings where its published form differs from that of most, see [`Settings::published`].
    fn as_published(&self, _settings: &mut Settings) {}
}

/// A policy's own rule lets no job join.
const CROWDED: Wait = Wait::Slowdown { gain: Permille(0), slices: false };

/// A policy of another system than the thesis's: it decides at once, on needs that were measured, and reserves them.
fn at_once(settings: &mut Settings) {
    (settings.order.pace, settings.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    settings.order.backfill = true;
    (settings.memory, settings.unknown) = (Memory::Reserved, Unknown::Exclusive);
    settings.preconditions.smact = None;
    settings.preconditions.margin = Bytes::ZERO;
}

/// The order of the queue is that of run times, whenever jobs were submitted.
fn shortest_first(settings: &mut Settings) {
    (settings.order.shortest, settings.order.shortest_most) = (1_000_000, Millis(1 << 50));
}

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
    fn by_gain(&self) -> Fit {
        let score = if self.jobs == 0 { Score::Idle } else { self.progress.score() };
        Fit { rank: (-i64::from(self.progress.gain), self.id, 0), score }
    }

    /// The SM activity there, as a reason.
    fn activity(&self) -> Score {
        self.smact.map_or(Score::Unmeasured, |smact| Score::Busy { smact })
    }

    /// The device with most SM activity left beside its jobs: the gain is what is left, in thousandths.
    fn by_room(&self) -> Fit {
        let left = self.progress.gain;
        let score = if self.jobs == 0 { Score::Idle } else { Score::Busy { smact: Permille(1000 - left) } };
        Fit { rank: (-i64::from(left), self.id, 0), score }
    }
}

/// Progress of a device with one job more, thousandths of a lone job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) gain: u32,
    pub(crate) speed: u32,
    pub(crate) slowest: u32,
}

impl Progress {
    /// A job alone.
    pub(crate) const ALONE: Self = Self { gain: 1000, speed: 1000, slowest: 1000 };

    /// The same with what happens on the host: slowdowns add, and what the node's jobs lose there is no gain.
    fn on_host(self, host: &HostEffect) -> Self {
        if *host == HostEffect::NONE {
            return self;
        }
        let own = f64::from(self.speed) / 1000.0;
        let speed = both(own, host.speed);
        let gain = f64::from(self.gain) / 1000.0 - (own - speed) - host.lost;
        let [gain, speed, slowest] =
            [gain.max(0.0), speed, host.slowest.min(speed)].map(|part| Permille::from_fraction(part).0);
        Self { gain, speed, slowest: slowest.min(self.slowest) }
    }

    fn score(self) -> Score {
        let [gain, speed, slowest] = [self.gain, self.speed, self.slowest].map(Permille);
        Score::Progress { gain, speed, slowest }
    }
}

/// Rank of a device: the lowest is taken, and the score is the reason that users see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    pub(crate) rank: (i64, i64, i64),
    pub(crate) score: Score,
}

/// KiB as a number that can be negative.
fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0 >> 10).unwrap_or(i64::MAX)
}

impl Policy {
    /// Returns true if it is one of the thesis's (RAD-RM).
    /// Those of other systems and this project's own predict, or take jobs off their devices.
    #[must_use]
    pub fn is_thesis(self) -> bool {
        !self.predicts() && self.rules().device_use() != DeviceUse::Preemptive
    }

    /// Returns true if what jobs do to each other decides.
    pub(crate) fn predicts(self) -> bool {
        self.rules().decided_by() == DecidedBy::Prediction
    }

    /// Returns true if jobs share devices.
    pub(crate) fn shares(self) -> bool {
        matches!(self.rules().device_use(), DeviceUse::Shared | DeviceUse::Sliced)
    }

    pub(crate) fn rules(self) -> &'static dyn Rules {
        match self {
            Self::Exclusive => &exclusive::Exclusive,
            Self::RoundRobin => &round_robin::RoundRobin,
            Self::Magm => &magm::Magm,
            Self::Lug => &lug::Lug,
            Self::Mug => &mug::Mug,
            Self::FirstFit => &first_fit::FirstFit,
            Self::BestFit => &best_fit::BestFit,
            Self::WorstFit => &worst_fit::WorstFit,
            Self::Horus => &horus::Horus,
            Self::Xu => &xu::Xu,
            Self::Lucid => &lucid::Lucid,
            Self::Muri => &muri::Muri,
            Self::Tiresias => &tiresias::Tiresias,
            Self::Miso => &miso::Miso,
            Self::Aware => &aware::Aware,
        }
    }
}
