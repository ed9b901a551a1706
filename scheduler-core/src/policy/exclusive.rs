//! `exclusive`: each job has its devices to itself.

use super::{Candidate, DeviceUse, Fit, Rules};
use crate::settings::Settings;
use crate::units::Millis;

pub(super) struct Exclusive;

impl Rules for Exclusive {
    fn rank(&self, place: &Candidate) -> Fit {
        Fit { rank: (0, 0, place.id), score: place.idle() }
    }

    fn device_use(&self) -> DeviceUse {
        DeviceUse::Exclusive
    }

    fn as_published(&self, settings: &mut Settings) {
        settings.order.pace_shared = Millis::ZERO;
    }
}
