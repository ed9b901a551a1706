//! Targets of jobs beside others, what was observed of such a job, and how it stands.
//! Shares of its fillers: [`crate::fill`].

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{Millis, Permille};

/// The shortest and the longest period of fillers' launch slots.
const PERIODS: (Millis, Millis) = (Millis(10), Millis(100));

/// A bound on the time that steps of a job take.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LatencyTarget {
    /// The part of the steps that is to be within the limit, thousandths: 990 is p99.
    pub quantile: Permille,
    /// Nanoseconds.
    pub limit_ns: u64,
    /// The name of the ranges that count; `None`: its steps, else its outermost ranges, else its timed launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// Error of a text that is no latency target: the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTarget(pub String);

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no latency target: write p99=20ms, or request:p99=20ms for ranges of that name",
            self.0
        )
    }
}

impl std::error::Error for NoTarget {}

/// Limits from a microsecond to an hour.
const LIMITS_NS: RangeInclusive<u64> = 1_000..=3_600_000_000_000;

/// The longest name of ranges in a target, bytes: as long as the recorder keeps names.
const MAX_NAME: usize = 128;

impl FromStr for LatencyTarget {
    type Err = NoTarget;

    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let wrong = || NoTarget(text.chars().take(80).collect());
        let (of, target) = match text.rsplit_once(':') {
            Some((of, target)) => {
                (Some(Some(of.trim()).filter(|of| !of.is_empty()).ok_or_else(wrong)?), target)
            }
            None => (None, text),
        };
        let (quantile, limit) = target.split_once('=').ok_or_else(wrong)?;
        let quantile: f64 = quantile
            .trim()
            .strip_prefix(['p', 'P'])
            .and_then(|number| number.parse().ok())
            .filter(|quantile| (1.0..=99.9).contains(quantile))
            .ok_or_else(wrong)?;
        let limit_ns = span_ns(limit.trim()).ok_or_else(wrong)?;
        if of.is_some_and(|of: &str| of.len() > MAX_NAME || of.contains(char::is_control)) {
            return Err(wrong());
        }
        Ok(Self { quantile: Permille((quantile * 10.0).round() as u32), limit_ns, of: of.map(str::to_owned) })
    }
}

/// A time with its unit, from a microsecond to an hour.
fn span_ns(text: &str) -> Option<u64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ')?;
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return None,
    };
    let ns = number.trim().parse::<f64>().ok()? * unit;
    Some(ns.round() as u64).filter(|ns| LIMITS_NS.contains(ns))
}

/// A time as people write it.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            ns if ns < 1_000_000 => (ns as f64 / 1e3, "us"),
            ns if ns < 1_000_000_000 => (ns as f64 / 1e6, "ms"),
            ns => (ns as f64 / 1e9, "s"),
        };
        // Three digits say enough.
        let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
        let text = format!("{value:.digits$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        write!(f, "{text}{unit}")
    }
}

impl LatencyTarget {
    /// The quantile's name, as p99 or p99.9.
    #[must_use]
    pub fn name(&self) -> String {
        let per_cent = f64::from(self.quantile.0) / 10.0;
        format!("p{per_cent}")
    }

    /// The quantile of observed times; `None` without any.
    #[must_use]
    pub fn observed(&self, times: &mut [u64]) -> Option<u64> {
        let last = times.len().checked_sub(1)?;
        let rank = (times.len() as u64 * u64::from(self.quantile.0)).div_ceil(1000).saturating_sub(1);
        let rank = usize::try_from(rank).unwrap_or(last).min(last);
        Some(*times.select_nth_unstable(rank).1)
    }
}

impl fmt::Display for LatencyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(of) = &self.of {
            write!(f, "{of}:")?;
        }
        write!(f, "{}={}", self.name(), Span(self.limit_ns))
    }
}

/// Target that a job keeps beside others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Target {
    /// A bound on the time of its steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyTarget>,
    /// The lowest speed, against running alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Permille>,
}

impl Target {
    /// Returns true if all figures are in their ranges: what comes over a socket was not read from text.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let latency = self.latency.as_ref().is_none_or(|target| {
            let of = target.of.as_deref().unwrap_or_default();
            (10..=999).contains(&target.quantile.0)
                && LIMITS_NS.contains(&target.limit_ns)
                && of.len() <= MAX_NAME
                && !of.contains(char::is_control)
        });
        latency && self.speed.is_none_or(|speed| (1..=1000).contains(&speed.0))
    }

    /// Returns true if nothing is to be kept.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The period of its fillers' launch slots: with half of its limit at most a step meets slots and gaps alike.
    #[must_use]
    pub fn period(&self) -> Option<Millis> {
        let limit = self.latency.as_ref()?.limit_ns;
        Some(Millis(limit / 2_000_000).clamp(PERIODS.0, PERIODS.1))
    }
}

/// Observation of a job in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetObservation {
    /// The time of its steps at the quantile of its target, ns; 0: it made none and none is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
    /// Its speed against running alone, held back or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Permille>,
    /// The part of the window in which a request was under way; `None`: requests are not seen to begin and end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<Permille>,
    /// Reason that the latency or the speed is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unseen>,
}

/// Reason that a job's latency or speed is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unseen {
    /// It has not used a GPU under the shim.
    NoShim,
    /// It marks no steps or ranges, and its launches are not timed.
    NoSteps,
    /// It has made no range of the name that counts.
    NoSuchRange,
    /// It was never alone on its GPUs for long enough.
    NeverAlone,
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoShim => "it has not used a GPU under the shim yet",
            Self::NoSteps => "it has marked no steps or ranges yet, and its launches are not timed",
            Self::NoSuchRange => "it has made no range of that name yet",
            Self::NeverAlone => "its speed alone is not known: it was never alone on its GPUs for five polls",
        })
    }
}

impl Target {
    /// Pressure on the target, thousandths: what was observed against what is to be kept; above 1000 it is missed.
    /// The worse of the two where both are to be kept; `None`: neither is known.
    #[must_use]
    pub fn pressure(&self, seen: &TargetObservation) -> Option<u32> {
        let part = |value: u64, of: u64| {
            // Rounded up: a miss by the least is one.
            u32::try_from((u128::from(value) * 1000).div_ceil(u128::from(of.max(1)))).unwrap_or(u32::MAX)
        };
        let latency =
            self.latency.as_ref().zip(seen.latency_ns).map(|(target, ns)| part(ns, target.limit_ns));
        let speed = self.speed.zip(seen.speed).map(|(least, speed)| part(least.0.into(), speed.0.into()));
        latency.max(speed)
    }
}

/// Progress of a job against its target, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Target of the job.
    pub target: Target,
    /// Last observation.
    pub seen: TargetObservation,
    /// Launch share of its fillers together; `None`: they are not throttled.
    pub fill: Option<Permille>,
    /// They launch between its requests.
    #[serde(default)]
    pub between: bool,
    /// Number of fillers.
    pub fillers: u32,
    /// The objective is another one, so nothing is done for the target.
    pub ignored: bool,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(target) = &self.target.latency {
            parts.push(match self.seen.latency_ns {
                Some(0) => format!("{target}: no steps at the moment"),
                Some(ns) => format!("{target}: {} now", Span(ns)),
                None => format!("{target} is not kept"),
            });
        }
        if let Some(least) = self.target.speed {
            parts.push(match self.seen.speed {
                Some(speed) => format!("speed {speed} of at least {least}"),
                None => format!("a speed of {least} is not kept"),
            });
        }
        f.write_str(&parts.join(", "))?;
        if let Some(unseen) = self.seen.unseen {
            write!(f, ": {unseen}")?;
        }
        match (self.ignored, self.fillers, self.fill) {
            (true, ..) => f.write_str("; targets count for nothing with the objective max-min"),
            (_, 0, _) => f.write_str("; no other job to hold back"),
            (_, _, None) => f.write_str("; the jobs beside it are not held back"),
            (_, many, Some(fill)) if self.between => {
                let each = Permille((fill.0 / many).min(1000));
                let (jobs, launch) = if many == 1 { ("job", "launches") } else { ("jobs", "launch") };
                write!(
                    f,
                    "; the {jobs} beside it {launch} between its requests, {each} of the most at a time"
                )
            }
            (_, 1, Some(fill)) => write!(f, "; the job beside it launches in {fill} of the time"),
            (_, many, Some(fill)) => {
                let each = Permille(fill.0 / many);
                write!(f, "; the {many} jobs beside it launch in {each} of the time each")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_people_write_it() {
        let read = |text: &str| text.parse::<LatencyTarget>();
        let target = read("p99=20ms").unwrap();
        assert_eq!((target.quantile, target.limit_ns, target.of), (Permille(990), 20_000_000, None));
        assert_eq!(read("request:p99.9=1.5s").unwrap().of.as_deref(), Some("request"));
        assert_eq!(read("a:b:p50=800us").unwrap().of.as_deref(), Some("a:b"));
        for text in ["p99=20ms", "request:p99.9=1.5s", "p50=800us", "p95=2s"] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for text in [
            "", "p99", "p99=", "p99=20", "99=20ms", "p0=1ms", "p100=1ms", "p99=0ms", ":p99=1ms", "p99=-1ms",
            "p99=2h",
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("p99=20ms"), "{text}: {error}");
        }
    }

    #[test]
    fn a_quantile_of_few_times_is_their_largest() {
        let target: LatencyTarget = "p99=1ms".parse().unwrap();
        assert_eq!(target.observed(&mut []), None);
        assert_eq!(target.observed(&mut [3, 9, 1]), Some(9));
        let mut many: Vec<u64> = (1..=200).rev().collect();
        assert_eq!(target.observed(&mut many), Some(198));
    }

    #[test]
    fn the_worse_of_latency_and_speed_counts() {
        let target = Target { latency: "p99=10ms".parse().ok(), speed: Some(Permille(800)) };
        let seen = |latency_ns, speed: Option<u32>| TargetObservation {
            latency_ns,
            speed: speed.map(Permille),
            under_way: None,
            unseen: None,
        };
        assert_eq!(target.pressure(&seen(Some(5_000_000), Some(400))), Some(2000));
        assert_eq!(target.pressure(&seen(Some(15_000_000), Some(1000))), Some(1500));
        assert_eq!(target.pressure(&seen(None, None)), None);
        assert_eq!(Target::default().pressure(&seen(Some(1), Some(1))), None);
    }
}
