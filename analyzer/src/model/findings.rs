//! Results of a run's analysis that the dataset keeps.

use radrm_profile::findings::{Features, Figure, Findings, ProcessFeatures};

use super::features::Feature;
use super::footprint::footprint;
use super::{ProcessSummary, Summary};

/// Of so many processes, those that launched most, the dataset keeps features.
const PROCESSES: usize = 16;

/// Findings of the run that a summary is of.
#[must_use]
pub fn findings(summary: &Summary) -> Findings {
    let needed = footprint(summary);
    Findings {
        footprint: needed.oom.or(needed.peak),
        oom_request: needed.oom_request,
        step_ns: step_ns(summary),
        features: features(summary),
    }
}

/// Mean time of a step of an optimizer, as dry runs predict it. In a dry run and on an emulated GPU nothing was computed.
fn step_ns(summary: &Summary) -> Option<u64> {
    let is_real = summary.dry_run.is_none() && summary.emulated.is_none();
    let steps = summary.ranges.as_ref().filter(|_| is_real)?.optimizer_steps.as_ref()?;
    // A conversion from a float saturates.
    (steps.per_second > 0.0).then(|| (1e9 / steps.per_second) as u64)
}

/// Features of its processes: enough to learn from, and no more however many there are.
fn features(summary: &Summary) -> Features {
    let process = |process: &ProcessSummary| {
        let figure = |feature: &Feature| Figure::new(feature.value?, feature.origin);
        let features = process.features.iter().map(|feature| (feature.name.to_owned(), figure(feature)));
        ProcessFeatures { pid: process.pid, features: features.collect() }
    };
    let processes: Vec<_> = summary.busiest(PROCESSES).into_iter().map(process).collect();
    let all = summary.processes.len() as u64 + summary.processes_not_kept;
    Features { left_out: all.saturating_sub(processes.len() as u64), processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DryRunSummary, RangesSummary, StepsSummary};
    use radrm_base::step;
    use radrm_profile::model::{Job, Process, RangeName, Ranges};
    use radrm_profile::{Nanos, Profile};

    #[test]
    fn only_steps_that_a_gpu_computed_have_a_time() {
        let mut summary = Summary::from_profile(&Profile::new(Job::default()));
        let of = |summary: &Summary| findings(summary).step_ns;
        assert_eq!(of(&summary), None, "no steps were marked");
        let steps = StepsSummary { per_second: 4.0, ..StepsSummary::default() };
        summary.ranges = Some(RangesSummary { optimizer_steps: Some(steps), ..RangesSummary::default() });
        assert_eq!(of(&summary), Some(250_000_000));
        let emulated = Summary { emulated: Some("1xT4".into()), ..summary.clone() };
        let dry_run = Summary { dry_run: Some(DryRunSummary::default()), ..summary };
        assert_eq!([emulated, dry_run].map(|summary| of(&summary)), [None, None]);
    }

    #[test]
    fn the_time_of_a_step_is_that_of_the_optimizers_steps() {
        let name = |name: &str, ranges: u64, marks: u64| RangeName {
            name: name.into(),
            ranges,
            marks,
            first: Nanos::from_secs(1),
            last: Nanos::from_secs(2),
            ..RangeName::default()
        };
        let of = |names: &[RangeName]| {
            let mut profile = Profile::new(Job::default());
            let ranges = Ranges { names: names.to_vec(), ..Ranges::default() };
            profile.processes = vec![Process { ranges: Some(ranges), ..Process::default() }];
            findings(&Summary::from_profile(&profile)).step_ns
        };
        let (batch, step) = (name("batch", 101, 0), name("train_step", 51, 0));
        let hook = name(step::STEP_BY_HOOK, 0, 26);
        assert_eq!(of(&[batch.clone(), step.clone(), hook]), Some(40_000_000), "four batches make a step");
        assert_eq!(of(&[batch.clone(), step]), Some(20_000_000));
        assert_eq!(of(&[batch, name("iteration", 11, 0)]), None, "how many make a step is not known");
    }

    #[test]
    fn what_a_row_keeps_of_features_does_not_grow_with_the_job() {
        let kept = |processes: u32| {
            let mut profile = Profile::new(Job::default());
            profile.processes_not_kept = 5;
            profile.processes = (0..processes)
                .map(|pid| {
                    let mut process = Process::default();
                    process.identity.pid = pid;
                    process.state.launches = u64::from(pid);
                    process
                })
                .collect();
            features(&Summary::from_profile(&profile))
        };
        let (few, many) = (kept(3), kept(600));
        assert_eq!((few.processes.len(), few.left_out), (3, 5));
        assert_eq!((many.processes.len(), many.left_out), (PROCESSES, 600 + 5 - PROCESSES as u64));
        let kept: Vec<u32> = many.processes.iter().map(|process| process.pid).collect();
        assert_eq!(kept, (600 - PROCESSES as u32..600).rev().collect::<Vec<_>>(), "those that launched most");
        // Were every feature known, to the last digit and by the longest word.
        let mut full = many;
        let figures = full.processes.iter_mut().flat_map(|process| process.features.values_mut());
        figures.for_each(|figure| *figure = Figure::new(-f64::MAX / 3.0, "estimated"));
        let text = serde_json::to_string(&full).unwrap();
        assert!(text.len() < 64 << 10, "{} bytes", text.len());
    }
}
