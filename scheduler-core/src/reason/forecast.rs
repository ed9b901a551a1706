//! Origin of a predicted speed or gain: what it was computed from, and what of that is only assumed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::sharing_mode::SharingMode;
use crate::units::Permille;

/// Knowledge of the activity of jobs: of several the weakest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// It was stated, or measured of the job by itself.
    #[default]
    Measured,
    /// Other jobs of its program run and do so much.
    Program,
    /// It is the job's part of what all jobs of a device do together.
    Together,
    /// A dry run predicts it: no GPU has shown it.
    Predicted,
    /// Nothing is known of it.
    Assumed,
}

/// Origin of the constants of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConstantsFrom {
    /// They come with radrmd: nothing was measured on GPUs of this model.
    #[default]
    Shipped,
    /// The settings state them.
    Settings,
    /// They begin with those and follow what jobs that shared GPUs of this model were seen to do.
    Observed {
        /// Observed companies of jobs.
        companies: u32,
    },
}

/// Origin of a predicted slowdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "kebab-case")]
pub enum Forecast {
    /// Jobs of one GPU slow each other.
    Gpu {
        /// Mode in which they are taken to share it.
        sharing: SharingMode,
        /// Origin of the constants of that mode.
        constants: ConstantsFrom,
        /// Weakest knowledge of the SM activity of one of them.
        activity: Basis,
    },
    /// A predictor of the caller's, in place of this project's own.
    Predictor {
        /// Weakest knowledge of the SM activity of one of the jobs.
        activity: Basis,
    },
    /// The policy has a rule of its own.
    Rule {
        /// The policy.
        policy: Policy,
        /// Weakest knowledge of the SM activity of one of the jobs.
        activity: Basis,
    },
    /// Threads and memory traffic of the node's jobs slow each other.
    Host,
}

impl Basis {
    /// Words for it in a forecast; `None`: the jobs' own activities were measured or stated.
    pub(super) fn words(self) -> Option<&'static str> {
        match self {
            Self::Measured => None,
            Self::Program => Some("SM activity by other jobs of the same program"),
            Self::Together => Some("SM activity by what all jobs there were seen to do together"),
            Self::Predicted => Some("SM activity by dry runs, as no GPU has shown that of each job"),
            Self::Assumed => Some("SM activity assumed, as it is not known of each job"),
        }
    }
}

/// As it stands in parentheses behind a predicted figure.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let activity = match self {
            Self::Gpu { sharing, constants, activity } => {
                let mode = match sharing {
                    SharingMode::Mps => "MPS",
                    SharingMode::TimeSlices => "time slices",
                    SharingMode::Partitions => "SM partitions",
                };
                match (constants, sharing) {
                    (ConstantsFrom::Shipped, SharingMode::Mps) => {
                        write!(f, "constants of {mode} on an A100 40 GB, not calibrated on this GPU")?;
                    }
                    (ConstantsFrom::Shipped, _) => {
                        write!(f, "constants of {mode}, not calibrated on this GPU")?;
                    }
                    (ConstantsFrom::Settings, _) => write!(f, "constants of {mode} by the settings")?,
                    (ConstantsFrom::Observed { companies: 1 }, _) => {
                        write!(f, "constants of {mode}, corrected by one observed company of jobs")?;
                    }
                    (ConstantsFrom::Observed { companies }, _) => {
                        write!(
                            f,
                            "constants of {mode}, corrected by {companies} observed companies of jobs"
                        )?;
                    }
                }
                *activity
            }
            Self::Predictor { activity } => {
                f.write_str("by the predictor that was given")?;
                *activity
            }
            Self::Rule { policy, activity } => {
                write!(f, "rule of {policy}")?;
                *activity
            }
            Self::Host => return f.write_str("contention for cores and memory bandwidth of the host"),
        };
        activity.words().map_or(Ok(()), |words| write!(f, "; {words}"))
    }
}

/// A predicted gain of work, thousandths of what one job alone does on a GPU: below zero the jobs get less done together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gain(pub i32);

impl Gain {
    /// From a fraction of one.
    #[must_use]
    pub fn from_fraction(fraction: f64) -> Self {
        // Rounded as parts are ([`Permille::from_fraction`]). A cast from float saturates, and sends NaN to zero.
        Self((fraction * 1000.0 + 0.5).floor() as i32)
    }

    /// As a part: a loss is none.
    #[must_use]
    pub fn part(self) -> Permille {
        Permille(u32::try_from(self.0).unwrap_or(0))
    }
}

/// `15 %`, or `-4.5 %`.
impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        f.pad(&format!("{sign}{}", Permille(self.0.unsigned_abs())))
    }
}

/// Threshold of the settings that a prediction does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "under", rename_all = "snake_case")]
pub enum Shortfall {
    /// `min_gain`.
    MinGain {
        /// Predicted.
        gain: Gain,
        /// Asked for.
        least: Permille,
    },
    /// `min_speed`.
    MinSpeed {
        /// Predicted for the slowest job.
        speed: Permille,
        /// Lowest speed that is allowed.
        least: Permille,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Score;

    #[test]
    fn a_loss_is_printed_as_one() {
        let texts = [150, 0, -45, -1000].map(|gain| Gain(gain).to_string());
        assert_eq!(texts, ["15 %", "0 %", "-4.5 %", "-100 %"]);
        assert_eq!((Gain::from_fraction(-0.0451), Gain(-45).part()), (Gain(-45), Permille::ZERO));
        assert_eq!((Gain::from_fraction(f64::NAN), Gain::from_fraction(0.15)), (Gain(0), Gain(150)));
    }

    #[test]
    fn room_on_a_device_names_what_its_activity_rests_on() {
        let text = |activity| Score::Room { left: Permille(300), activity }.to_string();
        let measured = "30 % SM activity left by the sum of what each job does alone, its own included";
        assert_eq!(text(Basis::Measured), measured);
        for (basis, words) in [
            (Basis::Program, "by other jobs of the same program"),
            (Basis::Together, "by what all jobs there were seen to do together"),
            (Basis::Predicted, "by dry runs"),
            (Basis::Assumed, "assumed"),
        ] {
            let text = text(basis);
            assert!(text.starts_with(measured) && text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_forecast_names_constants_that_were_not_measured_on_this_gpu() {
        let gpu = |sharing, constants, activity| Forecast::Gpu { sharing, constants, activity }.to_string();
        let of = |sharing| gpu(sharing, ConstantsFrom::Shipped, Basis::Measured);
        assert_eq!(of(SharingMode::TimeSlices), "constants of time slices, not calibrated on this GPU");
        assert_eq!(of(SharingMode::Mps), "constants of MPS on an A100 40 GB, not calibrated on this GPU");
        let observed = gpu(SharingMode::Mps, ConstantsFrom::Observed { companies: 12 }, Basis::Assumed);
        assert!(
            observed.contains("corrected by 12 observed") && observed.contains("activity assumed"),
            "{observed}"
        );
        let own = Forecast::Predictor { activity: Basis::Measured }.to_string();
        assert_eq!(own, "by the predictor that was given", "its constants are not these");
        let stated = gpu(SharingMode::TimeSlices, ConstantsFrom::Settings, Basis::Program);
        assert!(
            stated.contains("by the settings; SM activity by other jobs of the same program"),
            "{stated}"
        );
    }
}
