//! What a run took, from its profile: of the job and not of the GPU.

use std::path::Path;

use radrm_analyzer::Summary;
use radrm_profile::model::Profile;

use crate::attempt::Ended;
use crate::store::{Outcome, State};

/// The features that state SM activity, the more trusted first: by a meter, and by the shape of timed launches.
const SM_ACTIVITY: [&str; 2] = ["sm_active", "sm_active_by_geometry"];

/// How a run ended, with the figures of its profile if it wrote one.
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
        emulated: summary.emulated.is_some(),
        profile: Some(profile.to_owned()),
        ..plain
    }
}
