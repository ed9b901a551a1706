//! The rules of a policy, and what those of other systems have in common.

use super::{Candidate, Company, Fit, Policy, Progress};
use crate::host::HostEffect;
use crate::reason::Wait;
use crate::settings::{Memory, Settings, Unknown};
use crate::units::{Bytes, Millis};

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
        Ok(company.estimated()?.on_host(company.host))
    }

    /// Progress that a device without jobs makes with the newcomer.
    fn idle(&self, _host: &HostEffect) -> Progress {
        Progress::ALONE
    }

    /// Reason that [`Rules::judge`] lets a job join no other by a rule of the policy's own, in words.
    fn refusal(&self) -> &'static str {
        "its rule lets no job join those of a device"
    }

    /// Changes the settings where its published form differs from that of most, see [`Settings::published`].
    fn as_published(&self, _settings: &mut Settings) {}
}

/// A policy's own rule lets no job join.
pub(super) fn crowded(policy: Policy) -> Wait {
    Wait::Rule { policy }
}

/// A policy of another system than the thesis's: it decides at once, on needs that were measured, and reserves them.
pub(super) fn at_once(settings: &mut Settings) {
    (settings.order.pace, settings.order.pace_shared) = (Millis::ZERO, Millis::ZERO);
    settings.order.backfill = true;
    (settings.memory, settings.unknown) = (Memory::Reserved, Unknown::Exclusive);
    settings.preconditions.smact = None;
    settings.preconditions.margin = Bytes::ZERO;
}

/// The order of the queue is that of run times, whenever jobs were submitted.
pub(super) fn shortest_first(settings: &mut Settings) {
    (settings.order.shortest, settings.order.shortest_most) = (1_000_000, Millis(1 << 50));
}
