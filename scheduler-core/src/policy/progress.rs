//! Progress of the jobs of a device.

use crate::host::HostEffect;
use crate::interference::both;
use crate::reason::Score;
use crate::units::Permille;

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
    pub(super) fn on_host(self, host: &HostEffect) -> Self {
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

    pub(super) fn score(self) -> Score {
        let [gain, speed, slowest] = [self.gain, self.speed, self.slowest].map(Permille);
        Score::Progress { gain, speed, slowest }
    }
}
