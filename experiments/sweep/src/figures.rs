//! Resources that a run took, from its profile: those of the job and not of the GPU.

use std::path::Path;

use radrm_analyzer::{GpuSummary, Summary};
use radrm_profile::model::Profile;

use crate::attempt::Ended;
use crate::metrics;
use crate::store::{Outcome, State};

/// The features that state SM activity, the more trusted first: by a meter, and by the shape of timed launches.
const SM_ACTIVITY: [&str; 2] = ["sm_active", "sm_active_by_geometry"];

/// Outcome of a run, with what it logged beside its profile and the figures of the profile, if it wrote these.
#[must_use]
pub fn outcome(ended: &Ended, profile: &Path) -> Outcome {
    let state = match ended {
        Ended { timed_out: true, .. } => State::TimedOut,
        Ended { code: Some(0), .. } => State::Finished,
        _ => State::Failed,
    };
    let plain = Outcome {
        state,
        started_ms: ended.started_ms,
        duration_ms: ended.duration_ms,
        exit_code: ended.code,
        signal: ended.signal,
        reason: ended.why.clone(),
        metrics: metrics::read(&profile.with_file_name(metrics::FILE)),
        ..Outcome::default()
    };
    let Ok(read) = Profile::open(profile) else { return plain };
    let summary = Summary::from_profile(&read);
    let mean = |name: &str| {
        let features = summary.processes.iter().flat_map(|process| &process.features);
        let known: Vec<_> = features
            .filter(|feature| feature.name == name)
            .filter_map(|feature| Some((feature.value?, feature.origin)))
            .collect();
        let sum: f64 = known.iter().map(|(value, _)| value).sum();
        known.first().map(|(_, origin)| (sum / known.len() as f64 / 100.0, (*origin).to_owned()))
    };
    let activity = SM_ACTIVITY.into_iter().find_map(mean);
    let duration = summary.outcome.duration_ns.0 / 1_000_000;
    let steps = summary.ranges.iter().flat_map(|ranges| &ranges.steps).map(|steps| steps.per_second);
    let energy: Vec<Energy> = summary.gpus.iter().filter_map(Energy::of).collect();
    Outcome {
        // The program's own time, without that of the recording.
        duration_ms: if duration > 0 { duration } else { plain.duration_ms },
        reason: plain
            .reason
            .or_else(|| summary.outcome.out_of_memory.then(|| "out of GPU memory".to_owned())),
        // What calls took, which is exact: a context is in NVML's figure only where a sample met the run.
        peak_bytes: summary.gpus.iter().map(|gpu| gpu.peak_bytes.0).max().filter(|peak| *peak > 0),
        sm_activity: activity.as_ref().map(|(share, _)| *share),
        sm_origin: activity.map(|(_, origin)| origin),
        steps_per_s: steps.filter(|rate| rate.is_finite()).reduce(f64::max),
        gpu_energy_j: total(&energy),
        energy_part: part(&energy),
        emulated: summary.emulated.is_some(),
        profile: Some(profile.to_owned()),
        ..plain
    }
}

/// Energy of a GPU that a run used.
struct Energy {
    joules: f64,
    /// The run's part of it, if both figures of SM activity are known.
    part: Option<f64>,
}

impl Energy {
    fn of(gpu: &GpuSummary) -> Option<Self> {
        let load = gpu.load.as_ref().filter(|_| gpu.used())?;
        let own = gpu.estimate.and_then(|estimate| estimate.sm_active_share);
        let all = load.sm_active_share.filter(|share| *share > 0.0);
        let part = own.zip(all).map(|(own, all)| (own / all).clamp(0.0, 1.0));
        Some(Self { joules: load.energy_mj? as f64 / 1000.0, part })
    }
}

fn total(of: &[Energy]) -> Option<f64> {
    let sum: f64 = of.iter().map(|one| one.joules).sum();
    (sum > 0.0).then_some(sum)
}

/// The part of all; unknown if it is of one GPU.
fn part(of: &[Energy]) -> Option<f64> {
    let own = of.iter().map(|one| Some(one.joules * one.part?)).sum::<Option<f64>>()?;
    total(of).map(|total| own / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_energy_is_by_sm_activity_on_each_gpu() {
        let one = |joules, part| Energy { joules, part };
        assert_eq!((total(&[]), part(&[])), (None, None));
        let both = [one(100.0, Some(0.5)), one(300.0, Some(0.1))];
        assert_eq!((total(&both), part(&both)), (Some(400.0), Some(0.2)));
        assert_eq!(part(&[one(100.0, Some(0.5)), one(300.0, None)]), None);
    }
}
