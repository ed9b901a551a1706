//! Needs of jobs, resolved once and in one place: GPU memory, run time, GPU activity and host use.
//!
//! A [`NeedResolver`] asks its [`Estimator`]s in order of trust and takes the first answer for each resource. What they
//! are asked about are [`Features`]: what the job states, and what past runs say of it. The runs come from a
//! [`RunHistory`], which the dataset and the replay implement, and [`Evidence`] reads them the same way for every caller.
//! So for the same job, history and memory model, radrmd, the commands and a dry run's report give the same need.

mod calibration;
mod combined;
mod declared;
mod dry_run;
mod estimator;
mod file;
mod formula;
mod history;
mod learned;
mod measured;
mod order;
mod pairing;
mod past;
mod predicted;
mod resolved;
mod resolver;
mod source;
mod statements;
mod step_need;
mod step_times;
mod summary;
mod trained;
mod user_estimate;

pub use radrm_estimator::memory::MemoryModel;

pub use calibration::Calibration;
pub use combined::Combined;
pub use declared::Declared;
pub use dry_run::DryRun;
pub use estimator::{Estimator, Features};
pub use file::{FileEstimate, NamedEstimate};
pub use formula::Horus;
pub use history::{History, MAX_RUNS, OutOfMemory};
pub use learned::LearnedEstimate;
pub use order::{ORDER, UnknownEstimator};
pub use pairing::{REPLACED, Stack};
pub use past::{Asked, DryRunPair, DryRunPairs, Evidence, Prediction, RunFilter, RunHistory};
pub use predicted::{Interval, StepFigures, StepPrediction};
pub use resolved::{Bound, Known, Need, Needs};
pub use resolver::NeedResolver;
pub use source::{LeftOut, Said, Source};
pub use statements::EarlierStatements;
use step_times::StepTimes;
pub use summary::{Layer, ModelSummary, SummaryError};
pub use trained::Trained;
pub use user_estimate::UserEstimate;

#[cfg(test)]
mod tests;
