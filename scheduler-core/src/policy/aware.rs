//! `aware`: the place where the devices get most done in sum, by memory fit and predicted slowdown together.

use super::{Candidate, Company, DecidedBy, Fit, Progress, Rules, signed};
use crate::host::HostEffect;
use crate::reason::{Score, Wait};
use crate::sharing_mode::SharingMode;
use crate::units::Permille;

/// Steps of progress, thousandths: within one the tighter memory fit wins, so that large holes stay.
const STEP: i64 = 20;

pub(super) struct Aware;

impl Rules for Aware {
    fn rank(&self, place: &Candidate) -> Fit {
        let progress = place.progress;
        let (tight, score) = if place.jobs == 0 {
            // First where the fewest others are idle, so that gangs find machines.
            (i64::try_from(place.idle_beside).unwrap_or(i64::MAX), Score::Idle)
        } else {
            (signed(place.left), progress.score())
        };
        Fit { rank: (-(i64::from(progress.gain) / STEP), tight, place.id), score }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    /// A job always may have an idle device: it waits for none of the host. Of several nodes the one whose cores are free comes first.
    fn idle(&self, host: &HostEffect) -> Progress {
        Progress::ALONE.on_host(host)
    }

    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let progress = company.estimated()?;
        let settings = company.settings;
        let slowest = progress.speed.min(progress.slowest);
        match progress.gain < settings.min_gain.0 || slowest < settings.min_speed.0 {
            true => {
                let slices = settings.sharing_of(company.device) == SharingMode::TimeSlices;
                Err(Wait::Slowdown { gain: Permille(progress.gain), slices, basis: company.basis })
            }
            false => Ok(progress),
        }
    }
}
