//! Choice of a device among those that would do: one file for each policy, and the list of them.

mod aware;
mod best_fit;
mod candidate;
mod company;
mod exclusive;
mod first_fit;
mod horus;
mod kace;
mod lucid;
mod lug;
mod magm;
mod miso;
mod mug;
mod muri;
mod name;
mod progress;
mod round_robin;
mod rules;
mod tiresias;
mod worst_fit;
mod xu;

pub(crate) use candidate::{Candidate, Fit};
pub(crate) use company::Company;
pub(crate) use miso::best as best_slices;
pub use name::{NoSuchPolicy, Policy};
pub(crate) use progress::Progress;
pub(crate) use rules::{DecidedBy, DeviceUse, Rules};

use candidate::signed;
use rules::{at_once, crowded, shortest_first};

impl Policy {
    /// Returns true if it is compared as one of the thesis's (RAD-RM): what a comparison is against does not change with
    /// a policy that is added.
    #[must_use]
    pub fn is_thesis(self) -> bool {
        matches!(
            self,
            Self::Exclusive
                | Self::RoundRobin
                | Self::Magm
                | Self::Lug
                | Self::Mug
                | Self::FirstFit
                | Self::BestFit
                | Self::WorstFit
        )
    }

    /// Returns true if what jobs do to each other decides.
    #[must_use]
    pub fn predicts(self) -> bool {
        self.rules().decided_by() == DecidedBy::Prediction
    }

    /// Returns true if jobs share devices.
    pub(crate) fn shares(self) -> bool {
        matches!(self.rules().device_use(), DeviceUse::Shared | DeviceUse::Sliced)
    }

    /// Reason that its own rule lets a job join no other, in words.
    pub(crate) fn refusal(self) -> &'static str {
        self.rules().refusal()
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
            Self::Kace => &kace::Kace,
            Self::Aware => &aware::Aware,
        }
    }
}
