//! Estimates that stand in the job's file.

use super::{Estimator, Features, Need, Source, Trained, measured};
use radrm_base::{Bytes, Permille};

/// Estimates that are bounds, the better one first, and how often they held.
const BOUNDS: [(&str, &str, Permille); 2] =
    [("gpumemnet", "GPUMemNet", measured::GPUMEMNET), ("horus", "Horus", measured::HORUS)];
/// One that counts tensors only: too low for 44 of the 52, and by half on average for 5085 others. The memory model has the
/// line from it to peaks.
const FLOOR: (&str, &str) = ("faketensor", "FakeTensor");

/// The best estimate of a file: a bound if it is above what the tensors alone take, else the peak that the tensors stand for.
#[derive(Clone, Debug, Default)]
pub struct FileEstimate(pub Trained);

impl Estimator for FileEstimate {
    fn name(&self) -> &'static str {
        "job's file"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let estimates = job.file?;
        let floor = estimates.get(FLOOR.0).copied();
        let mut bounds = BOUNDS.iter();
        let bound =
            bounds.find_map(|(key, name, how_often)| Some((*estimates.get(*key)?, *name, *how_often)));
        let source = |estimator: &str| Source::File { estimator: estimator.to_owned() };
        match (bound, floor) {
            (Some((bytes, name, how_often)), floor) if floor.is_none_or(|least| bytes >= least) => {
                Some(Need::new(bytes, bytes, Some(how_often), source(name)))
            }
            (_, Some(tensors)) => {
                let found = self.0.get().from_tensors(tensors.0 as f64)?;
                let [bytes, upper] = [found.value, found.bound].map(|value| Bytes(value as u64));
                let level = Permille::from_fraction(found.level).min(measured::TENSORS);
                Some(Need::new(bytes, upper, Some(level), source(FLOOR.1)))
            }
            (_, None) => None,
        }
    }
}

/// One estimate of the file, by its name and as it stands there: for comparing estimators in a replay.
#[derive(Clone, Debug)]
pub struct NamedEstimate(pub String);

impl Estimator for NamedEstimate {
    fn name(&self) -> &'static str {
        "named estimate"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let bytes: Bytes = *job.file?.get(&self.0)?;
        Some(Need::new(bytes, bytes, None, Source::File { estimator: self.0.clone() }))
    }
}
