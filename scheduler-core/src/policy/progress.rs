//! Progress of the jobs of a device.

use crate::host::HostEffect;
use crate::interference::both;
use crate::reason::{Forecast, Gain};
use crate::units::Permille;

/// Progress of a device with one job more, thousandths of a lone job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) gain: i32,
    pub(crate) speed: u32,
    /// The slowest of those that were there before.
    pub(crate) slowest: u32,
    /// The slowest of the node's other jobs that it slows on the host; `None`: it slows none there.
    pub(crate) on_host: Option<u32>,
    /// Origin of these figures; `None`: nothing was predicted.
    pub(crate) by: Option<Forecast>,
}

impl Progress {
    /// A job alone.
    pub(crate) const ALONE: Self = Self { gain: 1000, speed: 1000, slowest: 1000, on_host: None, by: None };

    /// Nothing is predicted.
    pub(crate) const UNKNOWN: Self = Self { gain: 0, speed: 0, slowest: 0, on_host: None, by: None };

    /// The same with what happens on the host: slowdowns add, and what the node's jobs lose there is no gain.
    pub(super) fn on_host(self, host: &HostEffect) -> Self {
        if *host == HostEffect::NONE {
            return self;
        }
        let own = f64::from(self.speed) / 1000.0;
        let speed = both(own, host.speed);
        let gain = Gain::from_fraction(f64::from(self.gain) / 1000.0 - (own - speed) - host.lost);
        let slows = (host.slowest < 1.0).then(|| Permille::from_fraction(host.slowest).0);
        Self { gain: gain.0, speed: Permille::from_fraction(speed).0, on_host: slows, ..self }
    }

    /// The lowest speed of a job that the newcomer concerns.
    pub(super) fn lowest(self) -> u32 {
        self.speed.min(self.slowest).min(self.on_host.unwrap_or(u32::MAX))
    }

    /// The gain as ranks count it: a loss is none.
    pub(super) fn worth(self) -> i64 {
        i64::from(self.gain.max(0))
    }
}
