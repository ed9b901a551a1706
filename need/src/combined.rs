//! Own runs at other batch sizes and a dry run, combined by a memory model of the estimator.

use radrm_estimator::memory::{Known, Point, Source as By};

use super::{
    DryRun, Estimator, Features, Known as Answer, LeftOut, Need, Said, Source, StepPrediction, Trained,
    history,
};
use radrm_base::{Bytes, Millis, Permille, SeenActivity};

/// Estimates by a memory model; time and activity by the predicted step of the dry run.
#[derive(Clone, Debug, Default)]
pub struct Combined(pub Trained);

/// Predicted step of the dry run, where it is one on the GPU that the job runs on, and that GPU's model.
fn step<'a>(job: &Features<'a>) -> Option<(StepPrediction, &'a str)> {
    let run = job.dry_run.filter(|_| !job.on_other_gpu)?;
    Some((*run.step.as_deref()?, &run.gpu))
}

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
        let here = job.dry_run.zip(job.calibration).and_then(|(run, site)| site.dry_runs(user, run));
        let known = Known {
            points: &points,
            batch: job.batch.map(f64::from),
            dry_run: job.dry_run.map(DryRun::figure),
            here,
        };
        let stretch = job.calibration.map_or(Permille::WHOLE, super::Calibration::stretch);
        let answer = self.0.get().estimate(&known, f64::from(stretch.0) / 1000.0)?;
        // A dry run alone that was corrected has a margin of its own.
        let stretch = if answer.is_stretched { stretch } else { Permille::WHOLE };
        let runs = u32::try_from(answer.corrected_by).unwrap_or(u32::MAX);
        let said = answer.said.iter().filter_map(|(by, value, weight)| {
            let source = match by {
                By::Own => Source::OtherBatchSizes { sizes: u32::try_from(sizes.len()).unwrap_or(u32::MAX) },
                By::Dry => Source::DryRun {
                    // A step says nothing of the memory.
                    run: DryRun { step: None, ..job.dry_run?.clone() },
                    runs,
                    left_out: LeftOut::of(&answer.left_out),
                },
                By::Learned => return None,
            };
            // A conversion from a float saturates.
            Some(Said { source, bytes: Bytes(*value as u64), weight: Permille::from_fraction(*weight) })
        });
        let source = Source::Combined { said: said.collect(), stretch };
        let least = history::least(job);
        let card = job.dry_run.and_then(|run| run.card).unwrap_or(Bytes::MAX);
        let [bytes, upper] =
            [answer.value, answer.bound].map(|value| Bytes(value as u64).min(card).max(least));
        Some(Need::new(bytes, upper, Some(Permille::from_fraction(answer.level)), source))
    }

    fn activity(&self, job: &Features<'_>) -> Option<Answer<SeenActivity>> {
        let (step, gpu) = step(job)?;
        Some(step.activity(gpu))
    }

    fn run_time(&self, job: &Features<'_>) -> Option<Answer<Millis>> {
        let (step, gpu) = step(job)?;
        step.run_time(job.total_steps?, gpu)
    }
}
