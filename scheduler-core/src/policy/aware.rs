//! `aware`: the place where the devices get most done in sum, by memory fit and predicted slowdown together.

use super::{Candidate, Company, DecidedBy, Fit, Progress, Rules, signed};
use crate::host::HostEffect;
use crate::reason::{Forecast, Gain, Shortfall, Wait};
use crate::settings::Settings;
use crate::units::Permille;

/// Steps of progress, thousandths: within one the tighter memory fit wins, so that large holes stay.
const STEP: i64 = 20;

pub(super) struct Aware;

impl Rules for Aware {
    fn rank(&self, place: &Candidate) -> Fit {
        let progress = place.progress;
        let (tight, score) = if place.jobs == 0 {
            // First where the fewest others are idle, so that gangs find machines.
            (i64::try_from(place.idle_beside).unwrap_or(i64::MAX), place.idle())
        } else {
            (signed(place.left), place.predicted())
        };
        Fit { rank: (-(progress.worth() / STEP), tight, place.id), score }
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Prediction
    }

    /// A job always may have an idle device: it waits for none of the host. Of several nodes the one whose cores are free comes first.
    fn idle(&self, host: &HostEffect) -> Progress {
        Progress::ALONE.on_host(host)
    }

    /// The GPU is looked at first: what happens on the host is the reason only where the GPU would do.
    fn judge(&self, company: &mut Company<'_>) -> Result<Progress, Wait> {
        let on_gpu = company.estimated()?;
        let (settings, by) = (company.settings, company.forecast());
        let progress = on_gpu.on_host(company.host);
        for (progress, by) in [(on_gpu, by), (progress, Forecast::Host)] {
            if let Some(shortfall) = shortfall(settings, progress) {
                return Err(Wait::Slowdown { shortfall, by });
            }
        }
        Ok(progress)
    }
}

/// Threshold that the progress does not reach.
fn shortfall(settings: &Settings, progress: Progress) -> Option<Shortfall> {
    let (gain, least) = (Gain(progress.gain), settings.min_gain);
    let (speed, lowest) = (Permille(progress.lowest()), settings.min_speed);
    match (gain.part() < least, speed < lowest) {
        (true, _) => Some(Shortfall::MinGain { gain, least }),
        (false, true) => Some(Shortfall::MinSpeed { speed, least: lowest }),
        (false, false) => None,
    }
}
