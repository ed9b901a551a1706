//! Sums of operations, and steps that wait for the host.
//!
//! Streams, overlap and order are the emulator's: it hands over operations whose times add up. A [`Step`] adds their
//! bounds up too, as the error of a card is common to its operations and does not average out.

use crate::Prediction;

/// Factor by which the host's time in a dry run may lie below that of a real run: stand-ins return at once (2.4 to 3.9 were
/// measured).
pub const MAX_HOST_FACTOR: f64 = 4.0;

/// Time of the host for a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostTime {
    /// Not known.
    Unknown,
    /// CPU time of the step in a dry run, seconds: a real run takes at least that.
    AtLeast(f64),
    /// Learned on this host, seconds.
    Learned {
        /// Expected time.
        time: f64,
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
}

/// Resource that a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The GPU.
    Gpu,
    /// The host: launches come too late.
    Host,
    /// One or the other: the bounds overlap, or the host's time is not known.
    Unclear,
}

/// Predicted time of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// Expected time, seconds; `None` if only a lower end is known.
    pub time: Option<f64>,
    /// Lower end, seconds: "at least".
    pub low: f64,
    /// Upper end, seconds; `None` with unknown operations or an unknown host.
    pub high: Option<f64>,
    /// Resource that the step waits for.
    pub limit: Limit,
}

/// Operations of a step whose times add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Predicted time of the known operations, seconds.
    pub time: f64,
    /// Lower end, seconds.
    pub low: f64,
    /// Upper end, seconds.
    pub high: f64,
    /// Energy of the known operations, J, with its lower and upper end.
    pub energy: [f64; 3],
    /// Part of `time` that is assumed ([`crate::assumed`]), seconds.
    pub assumed: f64,
    /// Known operations.
    pub known: u64,
    /// Operations without a predicted time.
    pub unknown: u64,
    sm_seconds: f64,
    dram_seconds: f64,
}

impl Step {
    /// Adds `count` operations of one prediction; `None` stands for operations of which no time is known.
    pub fn add(&mut self, prediction: Option<&Prediction>, count: u64) {
        let Some(one) = prediction else {
            self.unknown += count;
            return;
        };
        let times = count as f64;
        self.known += count;
        self.time += times * one.time;
        self.low += times * one.low;
        self.high += times * one.high;
        for (sum, of_one) in self.energy.iter_mut().zip([one.energy, one.energy_low, one.energy_high]) {
            *sum += times * of_one;
        }
        self.sm_seconds += times * one.time * one.sm_share;
        self.dram_seconds += times * one.time * one.dram_share;
    }

    /// Adds `count` operations of one assumed time.
    pub fn add_assumed(&mut self, assumed: Option<&Prediction>, count: u64) {
        self.add(assumed, count);
        self.assumed += assumed.map_or(0.0, |one| count as f64 * one.time);
    }

    /// SM and DRAM activity over a step that takes `seconds`, 0 to 1: that of the known operations.
    #[must_use]
    pub fn activity(&self, seconds: f64) -> (f64, f64) {
        let share = |busy: f64| if seconds > 0.0 { (busy / seconds).clamp(0.0, 1.0) } else { 0.0 };
        (share(self.sm_seconds), share(self.dram_seconds))
    }

    /// Time of the step beside the host's.
    #[must_use]
    pub fn beside(&self, host: HostTime) -> StepTime {
        let complete = (self.unknown == 0).then_some(());
        let (time, high) = (complete.map(|()| self.time), complete.map(|()| self.high));
        match host {
            HostTime::Unknown => StepTime { time: None, low: self.low, high: None, limit: Limit::Unclear },
            HostTime::AtLeast(host) if host > self.high => {
                // Unknown operations may still make the GPU the slower one.
                let limit = if complete.is_some() { Limit::Host } else { Limit::Unclear };
                StepTime { time: None, low: host, high: None, limit }
            }
            HostTime::AtLeast(host) if host * MAX_HOST_FACTOR < self.low => {
                StepTime { time, low: self.low, high, limit: Limit::Gpu }
            }
            HostTime::AtLeast(host) => {
                StepTime { time: None, low: self.low.max(host), high: None, limit: Limit::Unclear }
            }
            HostTime::Learned { time: host, low, high: host_high } => {
                let limit = if low > self.high && complete.is_some() {
                    Limit::Host
                } else if host_high < self.low {
                    Limit::Gpu
                } else {
                    Limit::Unclear
                };
                StepTime {
                    time: time.map(|time| time.max(host)),
                    low: self.low.max(low),
                    high: high.map(|high| high.max(host_high)),
                    limit,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(unknown: u64) -> Step {
        let one = Prediction {
            time: 1e-3,
            low: 0.8e-3,
            high: 1.25e-3,
            coverage: 0.9,
            card_measured: true,
            sm_share: 0.5,
            dram_share: 0.2,
            energy: 0.3,
            energy_low: 0.2,
            energy_high: 0.4,
        };
        let mut step = Step::default();
        step.add(Some(&one), 10);
        step.add(None, unknown);
        step
    }

    #[test]
    fn a_host_bound_step_says_at_least() {
        let found = step(0).beside(HostTime::AtLeast(0.050));
        assert_eq!(found, StepTime { time: None, low: 0.050, high: None, limit: Limit::Host });
        let near = step(0).beside(HostTime::AtLeast(0.005));
        assert_eq!((near.time, near.limit), (None, Limit::Unclear));
        let found = step(0).beside(HostTime::AtLeast(0.001));
        assert_eq!((found.limit, found.time.is_some(), found.high.is_some()), (Limit::Gpu, true, true));
        assert_eq!(step(0).beside(HostTime::Unknown).limit, Limit::Unclear);
    }

    #[test]
    fn unknown_operations_leave_no_upper_end() {
        let found = step(3).beside(HostTime::AtLeast(0.0001));
        assert_eq!((found.time, found.high), (None, None));
        assert!(found.low > 0.0079);
        assert_eq!(step(3).beside(HostTime::AtLeast(1.0)).limit, Limit::Unclear);
        let learned = HostTime::Learned { time: 0.02, low: 0.018, high: 0.03 };
        assert_eq!(step(3).beside(learned).high, None);
        assert_eq!(step(0).beside(learned).time, Some(0.02));
        assert_eq!(step(0).beside(learned).limit, Limit::Host);
    }

    #[test]
    fn bounds_of_operations_add_up() {
        let step = step(0);
        assert!((step.high / step.time - 1.25).abs() < 1e-9, "errors of a card do not average out");
        assert_eq!((step.known, step.unknown), (10, 0));
        let per_operation = step.energy.map(|joules| joules / 10.0);
        assert!(per_operation.iter().zip([0.3, 0.2, 0.4]).all(|(a, b)| (a - b).abs() < 1e-9));
        let (sm, dram) = step.activity(0.02);
        assert!((sm - 0.25).abs() < 1e-9 && (dram - 0.1).abs() < 1e-9);
    }
}
