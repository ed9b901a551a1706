//! What a job needs, resolved once and in one place: GPU memory, run time and what it does to a GPU.
//!
//! A [`NeedResolver`] asks its [`Estimator`]s in order of trust and takes the first answer for each resource. What they
//! are asked about are [`Features`]: what the job states, and what past runs say of it. The runs come from a
//! [`RunHistory`], which the dataset and the replay implement, and [`Evidence`] reads them the same way for every caller.
//! So for the same job, history and memory model, radrmd, the commands and a dry run's report give the same need.

mod calibration;
mod combined;
mod declared;
mod dry_run;
mod file;
mod formula;
mod history;
mod learned;
mod past;
mod source;
mod statements;
mod summary;

use std::collections::BTreeMap;
use std::fmt;

use radrm_base::{Activity, Bytes, HostUse, Millis, PastRun, Permille, UserId};
pub use radrm_estimator::memory::MemoryModel;
use serde::{Deserialize, Serialize};

pub use calibration::Calibration;
pub use combined::{Combined, Trained};
pub use declared::{Declared, UserEstimate};
pub use dry_run::DryRun;
pub use file::{FileEstimate, NamedEstimate};
pub use formula::Horus;
pub use history::{History, MAX_RUNS, OutOfMemory};
pub use learned::LearnedEstimate;
pub use past::{Asked, DryRunPair, DryRunPairs, Evidence, Prediction, RunFilter, RunHistory};
pub use source::{Said, Source};
pub use statements::EarlierStatements;
pub use summary::{Layer, ModelSummary, SummaryError};

/// GPU memory that a job needs on each of its devices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Need {
    /// The figure to expect.
    pub bytes: Bytes,
    /// The bound; it is reserved for the job.
    pub upper: Bytes,
    /// How often runs stay at or under the bound, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Permille>,
    /// What it is concluded from.
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
        Self::new(peak, peak, Some(history::EQUAL), Source::EqualRuns { runs: 1 })
    }

    /// Whether a job would be treated alike with both: they may come from other runs.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        let of = |need: &Self| (need.bytes, need.upper, need.enforce, need.is_measured());
        of(self) == of(other)
    }

    /// What is reserved for it on each device, the largest of which has so much. A measured need gets slack, because no
    /// two runs are alike to the byte; but no slack may make a job impossible that ran on such a device before.
    #[must_use]
    pub fn reserved(&self, slack: Permille, largest: Bytes) -> Bytes {
        match self.is_measured() {
            true => self.upper.plus(self.upper.part(slack)).min(largest.max(self.upper)),
            false => self.upper,
        }
    }

    /// Whether equal runs were measured and none needed more: no guess, so it is not cut to the largest device.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        matches!(self.source, Source::EqualRuns { .. })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, upper, confidence, source, .. } = self;
        let verb = if *source == Source::Declared { "requested" } else { "needs" };
        write!(f, "{verb} {bytes} on each GPU")?;
        if upper > bytes {
            write!(f, ", at most {upper}")?;
        }
        if let Some(confidence) = confidence.filter(|_| !self.is_measured()) {
            write!(f, " ({confidence} confidence)")?;
        }
        if *source == Source::Declared { Ok(()) } else { write!(f, ": {source}") }
    }
}

/// A figure other than memory, and what it is concluded from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known<T> {
    /// The figure.
    pub value: T,
    /// What it is concluded from.
    pub source: Source,
}

/// All that is resolved of a job. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Needs {
    /// GPU memory on each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Need>,
    /// What it does to a GPU when it is alone there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Known<Activity>>,
    /// How long it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_time: Option<Known<Millis>>,
    /// What it takes of its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Known<HostUse>>,
}

/// What is known of a job before it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features<'a> {
    /// GPU memory that the user declares, and its upper bound.
    pub declared: Option<Bytes>,
    /// See `declared`; alone it is both.
    pub declared_upper: Option<Bytes>,
    /// Run time that the user declares.
    pub declared_time: Option<Millis>,
    /// Earlier runs of the same program, the newest first. At most [`MAX_RUNS`] are read.
    pub runs: &'a [PastRun],
    /// A dry run of it.
    pub dry_run: Option<&'a DryRun>,
    /// An estimate of the user.
    pub estimate: Option<&'a UserEstimate>,
    /// Estimates in the job's file, by name of the estimator.
    pub file: Option<&'a BTreeMap<String, Bytes>>,
    /// The summary of the model that it trains.
    pub summary: Option<&'a ModelSummary>,
    /// Samples in a batch, on each GPU.
    pub batch: Option<u32>,
    /// Whose it is.
    pub user: Option<UserId>,
    /// How earlier bounds held where the job will run.
    pub calibration: Option<&'a Calibration>,
}

/// Something that estimates.
pub trait Estimator {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// GPU memory, or `None` if it has no answer for such a job.
    fn memory(&self, _: &Features<'_>) -> Option<Need> {
        None
    }

    /// What the job does to a GPU alone.
    fn activity(&self, _: &Features<'_>) -> Option<Known<Activity>> {
        None
    }

    /// How long the job runs.
    fn run_time(&self, _: &Features<'_>) -> Option<Known<Millis>> {
        None
    }

    /// What the job takes of its host.
    fn host(&self, _: &Features<'_>) -> Option<Known<HostUse>> {
        None
    }
}

/// Estimators in order of trust; the first that has an answer gives it.
pub struct NeedResolver(Vec<Box<dyn Estimator + Send + Sync>>);

impl fmt::Debug for NeedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|estimator| estimator.name())).finish()
    }
}

impl Default for NeedResolver {
    fn default() -> Self {
        Self::with(&Trained::default())
    }
}

impl NeedResolver {
    /// The usual order with this memory model.
    #[must_use]
    pub fn with(model: &Trained) -> Self {
        Self(vec![
            Box::new(Declared),
            Box::new(History),
            Box::new(Combined(model.clone())),
            Box::new(OutOfMemory),
            Box::new(EarlierStatements),
            Box::new(UserEstimate::default()),
            Box::new(FileEstimate(model.clone())),
            Box::new(LearnedEstimate(model.clone())),
            Box::new(Horus::default()),
        ])
    }

    /// One that asks these, in order.
    #[must_use]
    pub fn new(estimators: Vec<Box<dyn Estimator + Send + Sync>>) -> Self {
        Self(estimators)
    }

    /// What each estimator says of the job's memory, in order of trust: the first is what is resolved.
    #[must_use]
    pub fn answers(&self, job: &Features<'_>) -> Vec<(String, Need)> {
        let answers =
            self.0.iter().map(|estimator| Some((estimator.name().to_owned(), estimator.memory(job)?)));
        answers.flatten().collect()
    }

    /// All that is known.
    #[must_use]
    pub fn resolve(&self, job: &Features<'_>) -> Needs {
        Needs {
            memory: self.0.iter().find_map(|estimator| estimator.memory(job)),
            activity: self.0.iter().find_map(|estimator| estimator.activity(job)),
            run_time: self.0.iter().find_map(|estimator| estimator.run_time(job)),
            host: self.0.iter().find_map(|estimator| estimator.host(job)),
        }
    }
}

#[cfg(test)]
mod tests;
