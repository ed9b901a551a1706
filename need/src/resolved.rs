//! Need of a job, as resolved.

use std::fmt;

use radrm_base::{Bytes, HostUse, Millis, Permille, SeenActivity};
use serde::{Deserialize, Serialize};

use super::Source;

/// Part of the runs that need no more than an equal one.
pub(super) const EQUAL: Permille = Permille(990);

/// GPU memory that a job needs on each of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Need {
    /// The figure to expect.
    pub bytes: Bytes,
    /// The bound; it is reserved for the job.
    pub upper: Bytes,
    /// Part of the runs that stay at or under the bound, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Permille>,
    /// Source of the need.
    pub source: Source,
    /// The bound is enforced as the job's limit. An estimate that no run confirmed is not: a limit at a figure that is
    /// too low breaks a program that would have fitted.
    pub enforce: bool,
}

impl Need {
    /// A need from a source, which decides whether the bound is enforced.
    #[must_use]
    pub fn new(bytes: Bytes, upper: Bytes, confidence: Option<Permille>, source: Source) -> Self {
        let enforce = source.is_confirmed();
        Self { bytes, upper: upper.max(bytes), confidence, source, enforce }
    }

    /// As the user declares it.
    #[must_use]
    pub fn declared(bytes: Bytes) -> Self {
        Self::new(bytes, bytes, None, Source::Declared)
    }

    /// The peak of an equal run.
    #[must_use]
    pub fn measured(peak: Bytes) -> Self {
        Self::new(peak, peak, Some(EQUAL), Source::EqualRuns { runs: 1 })
    }

    /// Returns true if a job would be treated alike with both: they may come from other runs, and differ by at most 1 %,
    /// which is less than the slack that is set aside on top of what was measured.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        let is_close = |one: Bytes, other: Bytes| one.0.abs_diff(other.0).saturating_mul(100) <= one.0;
        let kind = |need: &Self| (need.enforce, need.is_measured());
        is_close(self.bytes, other.bytes) && is_close(self.upper, other.upper) && kind(self) == kind(other)
    }

    /// Memory to reserve for it on each device, the largest of which has `largest`.
    /// A measured need gets slack, because no two runs are alike to the byte; but no slack may make a job impossible
    /// that ran on such a device before.
    #[must_use]
    pub fn reserved(&self, slack: Permille, largest: Bytes) -> Bytes {
        match self.is_measured() {
            true => self.upper.plus(self.upper.part(slack)).min(largest.max(self.upper)),
            false => self.upper,
        }
    }

    /// Why the upper bound is none, by the dry run that it comes from; `None` where it is one.
    #[must_use]
    pub fn no_bound(&self) -> Option<&str> {
        self.source.dry_run()?.0.no_bound.as_deref()
    }

    /// Rate at which runs stay at or under the bound, as shown beside it. A measured need is a peak and no bound, and a
    /// bound that is none has no rate.
    #[must_use]
    pub fn shown_confidence(&self) -> Option<Permille> {
        self.confidence.filter(|_| !self.is_measured() && self.no_bound().is_none())
    }

    /// Returns true if equal runs were measured and none needed more: no guess, so it is not cut to the largest device.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        matches!(self.source, Source::EqualRuns { .. })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, upper, source, .. } = self;
        let verb = if *source == Source::Declared { "requested" } else { "needs" };
        write!(f, "{verb} {bytes} on each GPU")?;
        match self.no_bound() {
            Some(why) => write!(f, ", without a bound ({why})")?,
            None if upper > bytes => write!(f, ", at most {upper}")?,
            None => {}
        }
        if let Some(confidence) = self.shown_confidence() {
            write!(f, " ({confidence} confidence)")?;
        }
        if *source == Source::Declared { Ok(()) } else { write!(f, ": {source}") }
    }
}

/// Bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound<T> {
    /// Lower end.
    pub low: T,
    /// Upper end.
    pub high: T,
    /// Part of such figures that lie within their bounds, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Permille>,
}

/// A figure other than memory, and what it is concluded from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known<T> {
    /// The figure.
    pub value: T,
    /// Bound of a prediction; `None`: it was stated or measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound<T>>,
    /// Source of the need.
    pub source: Source,
}

/// All that is resolved of a job. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Needs {
    /// GPU memory on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Need>,
    /// Activity alone on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Known<SeenActivity>>,
    /// Run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_time: Option<Known<Millis>>,
    /// Host use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Known<HostUse>>,
}
