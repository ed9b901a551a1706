//! What a job is to keep beside others, and how much of a device's time they get for it.
//!
//! A job with a target is latency-sensitive; the jobs beside it that have none are its *fillers*: they get what it
//! leaves. How much that is follows from what is observed, by additive increase and multiplicative decrease:
//!
//! ```text
//! pressure = observed latency / limit          (of a lowest speed: lowest / observed)
//! fill'    = fill * clamp(GUARD / pressure, 1/2, 9/10)   if pressure > 1
//!          = fill                                        if pressure > GUARD
//!          = fill + step                                 else
//! ```
//!
//! `fill` is the sum of the fillers' shares of the time in which they may launch. Between [`GUARD`] and 1 nothing changes,
//! so it settles below the limit and does not swing around it. A window that misses by a factor of two or more halves
//! it: from all of a device for one filler to a twentieth it takes five windows at most.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::job::JobId;
use crate::units::{Millis, Permille};

/// The part of its limit up to which a job leaves its fillers more, thousandths.
pub const GUARD: u32 = 900;
/// What fillers get together at first, thousandths of the time.
pub const START: Permille = Permille(200);
/// The shortest and the longest period of fillers' launch slots.
const PERIODS: (Millis, Millis) = (Millis(10), Millis(100));

/// A bound on the time that steps of a job take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyTarget {
    /// The part of the steps that is to be within the limit, thousandths: 990 is p99.
    pub quantile: Permille,
    /// Nanoseconds.
    pub limit_ns: u64,
    /// The name of the ranges that count; `None`: its steps, else its outermost ranges, else its timed launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// What is wrong with the text of a target.
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

/// What a job is to keep beside others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether all figures are in their ranges: what comes over a socket was not read from text.
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

    /// Whether nothing is to be kept.
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

/// What was observed of a job in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetObservation {
    /// The time of its steps at the quantile of its target, ns; 0: it made none and none is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
    /// Its speed against running alone, held back or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Permille>,
    /// Why one of them is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unseen>,
}

/// Why a job's latency or speed is not known.
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
    /// What was observed against what is to be kept, thousandths: above 1000 it is missed. The worse of the two where both
    /// are to be kept; `None`: neither is known.
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

/// The fillers' part after a window, thousandths of the time, from the one before.
#[must_use]
pub fn next_fill(fill: Permille, pressure: u32, step: Permille, least: Permille, most: Permille) -> Permille {
    let next = match pressure {
        0..=GUARD => fill.0.saturating_add(step.0.max(1)),
        kept if kept <= 1000 => fill.0,
        missed => {
            let factor = (u64::from(GUARD) * 1000 / u64::from(missed)).clamp(500, 900);
            u32::try_from(u64::from(fill.0) * factor / 1000).unwrap_or(u32::MAX)
        }
    };
    Permille(next.clamp(least.0.min(most.0), most.0))
}

/// How a job with a target stands, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What it is to keep.
    pub target: Target,
    /// What was observed last.
    pub seen: TargetObservation,
    /// What its fillers get together; `None`: they are not held back.
    pub fill: Option<Permille>,
    /// How many there are.
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
            (_, 1, Some(fill)) => write!(f, "; the job beside it launches in {fill} of the time"),
            (_, many, Some(fill)) => {
                let each = Permille(fill.0 / many);
                write!(f, "; the {many} jobs beside it launch in {each} of the time each")
            }
        }
    }
}

/// The jobs' shares by max-min fairness: the fastest gets less while it is ahead of the slowest by more than the band,
/// all get more while they are close. `jobs`: speed against running alone, and share.
#[must_use]
pub fn max_min(
    jobs: &[(JobId, Permille, Permille)],
    step: Permille,
    least: Permille,
) -> Vec<(JobId, Permille)> {
    let Some(slowest) = jobs.iter().map(|job| job.1.0).min() else { return Vec::new() };
    let Some(fastest) = jobs.iter().max_by_key(|job| (job.1.0, job.2.0, job.0)) else { return Vec::new() };
    if fastest.1.0 > slowest.saturating_add(BAND) {
        // In proportion to how far ahead it is, by a tenth to a half.
        let factor = (u64::from(slowest) * 1000 / u64::from(fastest.1.0.max(1))).clamp(500, 900);
        let share = u32::try_from(u64::from(fastest.2.0) * factor / 1000).unwrap_or(fastest.2.0);
        return vec![(fastest.0, Permille(share.max(least.0).min(fastest.2.0)))];
    }
    jobs.iter().map(|(job, _, share)| (*job, share.plus(step).min(Permille::WHOLE))).collect()
}

/// Speeds that differ by less are equal, thousandths.
const BAND: u32 = 50;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            unseen: None,
        };
        assert_eq!(target.pressure(&seen(Some(5_000_000), Some(400))), Some(2000));
        assert_eq!(target.pressure(&seen(Some(15_000_000), Some(1000))), Some(1500));
        assert_eq!(target.pressure(&seen(None, None)), None);
        assert_eq!(Target::default().pressure(&seen(Some(1), Some(1))), None);
    }

    const STEP: Permille = Permille(50);
    const LEAST: Permille = Permille(50);

    fn next(fill: Permille, pressure: u32, most: u32) -> Permille {
        next_fill(fill, pressure, STEP, LEAST, Permille(most))
    }

    #[test]
    fn fillers_give_way_within_five_windows() {
        let mut fill = Permille(1000);
        let windows = (1..).find(|_| {
            fill = next(fill, 2000, 1000);
            fill == LEAST
        });
        assert_eq!(windows, Some(5));
    }

    proptest! {
        #[test]
        fn a_miss_takes_and_ease_gives_within_the_bounds(
            fill in 50..4000u32, pressure in 0..10_000u32, most in 1000..4000u32,
        ) {
            let fill = Permille(fill.min(most));
            let after = next(fill, pressure, most);
            prop_assert!((LEAST.0..=most).contains(&after.0));
            match pressure {
                0..=GUARD => prop_assert!(after > fill || after.0 == most),
                kept if kept <= 1000 => prop_assert_eq!(after, fill),
                _ => prop_assert!(after < fill || after == LEAST),
            }
            prop_assert!(after.0 >= fill.0 / 2, "never more than half at once");
        }

        #[test]
        fn more_pressure_never_gives_more(fill in 50..2000u32, one in 0..5000u32, other in 0..5000u32) {
            let (low, high) = (one.min(other), one.max(other));
            prop_assert!(next(Permille(fill), high, 2000) <= next(Permille(fill), low, 2000));
        }

        /// A step takes `alone` of its limit alone and, as on a GPU whose time is sliced, the longer the more of it
        /// fillers have: `alone / (1 - fill / 2)`.
        #[test]
        fn it_settles_within_the_limit_and_near_the_most_that_keeps_it(alone in 300..850u32, start in 50..1000u32) {
            let latency = |fill: Permille| alone as f64 / (1.0 - fill.fraction() / 2.0);
            let mut fill = Permille(start);
            for _ in 0..60 {
                fill = next(fill, latency(fill).ceil() as u32, 1000);
            }
            let settled = fill;
            for _ in 0..20 {
                fill = next(fill, latency(fill).ceil() as u32, 1000);
                prop_assert!(latency(fill) <= 1000.0, "{} at {fill}", latency(fill));
            }
            // What keeps nine tenths of the limit, or all there is.
            let best = (2.0 * (1.0 - f64::from(alone) / f64::from(GUARD))).min(1.0);
            prop_assert!(settled.fraction() >= best - 0.001, "{settled} of {best}");
        }

        #[test]
        fn max_min_brings_speeds_together(demands in prop::collection::vec(100..1000u32, 2..5)) {
            // A job's speed is its share of the time, as far as it has use for it.
            let mut shares: Vec<u32> = vec![1000; demands.len()];
            let speeds = |shares: &[u32]| -> Vec<u32> {
                let sum: u32 = shares.iter().sum::<u32>().max(1000);
                shares.iter().zip(&demands).map(|(share, demand)| (share * 1000 / sum * 1000 / demand).min(1000)).collect()
            };
            for _ in 0..400 {
                let now = speeds(&shares);
                let jobs: Vec<_> = (0..shares.len())
                    .map(|at| (JobId(at as u64), Permille(now[at]), Permille(shares[at])))
                    .collect();
                for (job, share) in max_min(&jobs, Permille(10), LEAST) {
                    shares[job.0 as usize] = share.0;
                }
            }
            let (before, after) = (speeds(&vec![1000; demands.len()]), speeds(&shares));
            let least = |speeds: &[u32]| speeds.iter().copied().min().unwrap_or(0);
            prop_assert!(least(&after) + 60 >= least(&before), "{before:?} {after:?}");
            prop_assert!(after.iter().max().unwrap() - least(&after) <= 250, "{after:?}");
        }
    }
}
