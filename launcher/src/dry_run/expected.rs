//! What a dry run's figure stands for on a real GPU: corrected by what real runs of dry-run programs took here.

use std::path::PathBuf;

use radrm_collector::dataset::{self, Dataset, DatasetError, DryRunPairs, PastDryRun};
use radrm_estimator::memory::{DryRun, DryRuns, Known, MemoryModel};
use radrm_profile::model::Expected;
use radrm_profile::model::dry_run::{DryRunFigures, GpuFigures};
use radrm_profile::{Bytes, Profile};

use super::NO_BOUND;
use crate::cli::RowTo;

/// Of a dry run that succeeded; `None` if its figures show no need. The runs here are those of the dataset that its row
/// goes to: a dataset that cannot be read corrects nothing, and is reported when the row is added.
#[must_use]
pub fn of(profile: &Profile, to: &RowTo) -> Option<Expected> {
    let figures = profile.dry_run.as_ref().filter(|figures| figures.out_of_memory == 0)?;
    let largest = largest(figures)?;
    let like = PastDryRun {
        held: Bytes(largest.held_peak),
        kind: figures.kind(),
        gpu_model: Some(largest.name.clone()),
        framework: dataset::framework_list(profile),
    };
    let pairs = file(to).and_then(|file| pairs(file, &like).ok()).unwrap_or_default();
    by(figures, &pairs)
}

/// The GPU that needs most.
fn largest(figures: &DryRunFigures) -> Option<&GpuFigures> {
    figures.gpus.iter().max_by_key(|gpu| gpu.held_peak).filter(|gpu| gpu.held_peak > 0)
}

fn file(to: &RowTo) -> Option<PathBuf> {
    match to {
        RowTo::Nowhere => None,
        RowTo::File(file) => Some(file.clone()),
        RowTo::Default => dataset::default_path(),
    }
}

fn pairs(file: PathBuf, like: &PastDryRun) -> Result<DryRunPairs, DatasetError> {
    Dataset::open_existing(&file)?.dry_run_pairs(like, None)
}

fn by(figures: &DryRunFigures, found: &DryRunPairs) -> Option<Expected> {
    let held = largest(figures)?.held_peak;
    let mut here = DryRuns::default();
    for pair in &found.pairs {
        here.observe(DryRun { held: pair.held.0 as f64, kind: pair.kind }, pair.peak.0 as f64);
    }
    let dry_run = DryRun { held: held as f64, kind: figures.kind() };
    let known = Known { dry_run: Some(dry_run), here: Some(&here), ..Known::default() };
    let answer = MemoryModel::shipped().estimate(&known, 1.0)?;
    let has_bound = !figures.remarks.iter().any(|remark| remark.starts_with(NO_BOUND));
    // A conversion from a float saturates.
    Some(Expected {
        bytes: answer.value as u64,
        upper: has_bound.then_some(answer.bound as u64),
        confidence: answer.level,
        runs: here.seen() as u64,
        gpu_model: found.gpu_model.clone().filter(|_| here.seen() > 0),
    })
}

#[cfg(test)]
mod tests {
    use radrm_collector::dataset::DryRunPair;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn figures(remarks: &[&str]) -> DryRunFigures {
        let gpu = |mib: u64| GpuFigures { held_peak: mib * MIB, ..GpuFigures::default() };
        DryRunFigures {
            gpus: vec![gpu(500), gpu(4000)],
            remarks: remarks.iter().map(|remark| (*remark).to_owned()).collect(),
            ..DryRunFigures::default()
        }
    }

    fn pairs(count: u64) -> DryRunPairs {
        let mib = |mib: u64| Bytes(mib * MIB);
        let pair = |n: u64| DryRunPair { held: mib(900 + 500 * n), kind: None, peak: mib(1000 + 500 * n) };
        DryRunPairs { gpu_model: Some("A100".into()), pairs: (0..count).map(pair).collect() }
    }

    #[test]
    fn runs_here_correct_the_figure_of_the_gpu_that_needs_most() {
        let shipped = by(&figures(&[]), &DryRunPairs::default()).unwrap();
        assert_eq!((shipped.runs, &shipped.gpu_model), (0, &None));
        assert!(shipped.bytes > 4000 * MIB && shipped.upper > Some(shipped.bytes), "{shipped:?}");
        let few = by(&figures(&[]), &pairs(9)).unwrap();
        assert!(few.bytes.abs_diff(4100 * MIB) < 40 * MIB && few.upper == shipped.upper, "{few:?}");
        let enough = by(&figures(&[]), &pairs(12)).unwrap();
        assert_eq!((enough.runs, enough.gpu_model.as_deref()), (12, Some("A100")));
        assert!(enough.upper.unwrap() < 4400 * MIB && enough.confidence > 0.9, "{enough:?}");
    }

    #[test]
    fn a_figure_without_a_bound_gets_none() {
        let found = by(&figures(&["no bound: torch.backends.cudnn.benchmark is on"]), &pairs(12)).unwrap();
        assert_eq!(found.upper, None);
        assert_eq!(by(&DryRunFigures::default(), &pairs(12)), None, "figures that were withheld");
    }
}
