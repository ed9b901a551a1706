//! Own runs at other batch sizes and a dry run, combined by a memory model of the estimator.

use radrm_estimator::memory::{Known, Point, Source as By};

use super::{Estimator, Features, Need, Said, Source, Trained, history};
use radrm_base::{Bytes, Permille};

/// Estimates by a memory model.
#[derive(Clone, Debug, Default)]
pub struct Combined(pub Trained);

impl Estimator for Combined {
    fn name(&self) -> &'static str {
        "combined"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let sizes = history::sizes(job);
        if job.dry_run.is_none() && (sizes.is_empty() || job.batch.is_none()) {
            return None;
        }
        let point =
            |(batch, peak): (&u32, &Bytes)| Point { batch: f64::from((*batch).max(1)), peak: peak.0 as f64 };
        let points: Vec<Point> = sizes.iter().map(point).collect();
        let user = job.user.unwrap_or_default();
        let here = job.dry_run.zip(job.calibration).and_then(|(run, site)| site.dry_runs(user, &run.gpu));
        let known = Known {
            points: &points,
            batch: job.batch.map(f64::from),
            dry_run: job.dry_run.map(super::DryRun::figure),
            here,
        };
        // A dry run alone that was corrected has a margin of its own.
        let has_own_margin = here.is_some() && (sizes.is_empty() || job.batch.is_none());
        let stretch = job.calibration.filter(|_| !has_own_margin);
        let stretch = stretch.map_or(Permille::WHOLE, super::Calibration::stretch);
        let answer = self.0.get().estimate(&known, f64::from(stretch.0) / 1000.0)?;
        let said = answer.said.iter().filter_map(|(by, value, weight)| {
            let source = match by {
                By::Own => Source::OtherBatchSizes { sizes: u32::try_from(sizes.len()).unwrap_or(u32::MAX) },
                By::Dry => {
                    let runs = here.map_or(0, |here| u32::try_from(here.seen()).unwrap_or(u32::MAX));
                    Source::DryRun { run: job.dry_run?.clone(), runs }
                }
                By::Learned => return None,
            };
            // A conversion from a float saturates.
            Some(Said { source, bytes: Bytes(*value as u64), weight: Permille::from_fraction(*weight) })
        });
        let source = Source::Combined { said: said.collect(), stretch };
        let least = history::least(job);
        let [bytes, upper] = [answer.value, answer.bound].map(|value| Bytes(value as u64).max(least));
        Some(Need::new(bytes, upper, Some(Permille::from_fraction(answer.level)), source))
    }
}
