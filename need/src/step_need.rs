//! Run time and activity of a job whose steps are like a predicted one.

use radrm_base::{Millis, Permille, SeenActivity};

use super::{Bound, Known, Source, StepPrediction};

impl StepPrediction {
    /// Activity of a job whose steps are like this one. Where only an upper end is known, it counts.
    ///
    /// Occupancy is not predicted. How often the bound of an activity holds was not measured.
    pub(super) fn activity(&self, gpu: &str) -> Known<SeenActivity> {
        let part = |busy: u64, of: u64| busy as f64 / of.max(1) as f64;
        // The bytes and the multiprocessors' work are those of the operations: only the time may differ.
        let [low, value, high] = match self.time {
            Some([shortest, time, longest]) => {
                let busy = self.gpu[1];
                [part(busy, longest), part(busy, time), part(busy, shortest)]
            }
            // The host may be slower by any factor.
            None => [0.0, part(self.gpu[2], self.low), part(self.gpu[2], self.low)],
        }
        .map(|of| {
            let share = |part: Permille| Permille::from_fraction((part.fraction() * of).clamp(0.0, 1.0));
            SeenActivity { smact: share(self.smact), smocc: None, drama: Some(share(self.drama)) }
        });
        let source = Source::PredictedStep { gpu: gpu.to_owned(), steps: 0, runs: self.runs };
        Known { value, bound: Some(Bound { low, high, confidence: None }), source }
    }

    /// Run time of a training of so many steps like this one; `None` where the step has a lower end only.
    pub(super) fn run_time(&self, steps: u64, gpu: &str) -> Option<Known<Millis>> {
        let [low, value, high] = self.time?.map(|ns| Millis(ns.saturating_mul(steps) / 1_000_000));
        let source = Source::PredictedStep { gpu: gpu.to_owned(), steps, runs: self.runs };
        let bound = Some(Bound { low, high, confidence: self.confidence });
        (value > Millis::ZERO && low <= value && value <= high).then_some(Known { value, bound, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DryRun, Features, NeedResolver, StepFigures};

    /// A step of 100 ms (80 to 125 ms) that the GPU limits, with 60 % of its multiprocessors and 30 % of its memory rate.
    fn figures() -> StepFigures {
        StepFigures {
            seconds: Some(0.1),
            low: 0.08,
            high: Some(0.125),
            coverage: 0.9,
            gpu_seconds: [0.1, 0.08, 0.125],
            activity: [0.6, 0.3],
            ..StepFigures::default()
        }
    }

    fn step(figures: &StepFigures) -> Option<StepPrediction> {
        StepPrediction::of(figures, Some(0.01), true)
    }

    fn dry_run(figures: &StepFigures) -> DryRun {
        DryRun { gpu: "L4".to_owned(), step: step(figures).map(Box::new), ..DryRun::default() }
    }

    /// SM activity and DRAM activity: lower end, figure and upper end.
    fn shares(step: &StepPrediction) -> [[u32; 3]; 2] {
        let known = step.activity("L4");
        let bound = known.bound.unwrap();
        let of = |part: fn(&SeenActivity) -> u32| [&bound.low, &known.value, &bound.high].map(part);
        [of(|activity| activity.smact.0), of(|activity| activity.drama.unwrap().0)]
    }

    #[test]
    fn a_gpu_bound_step_gives_time_and_activity_with_bounds() {
        let step = step(&figures()).unwrap();
        assert_eq!(step.time, Some([80_000_000, 100_000_000, 125_000_000]));
        assert_eq!((step.confidence, step.host), (Some(Permille(900)), Some(10_000_000)));
        assert_eq!(shares(&step), [[480, 600, 750], [240, 300, 375]]);
    }

    #[test]
    fn a_host_bound_step_has_no_time_and_an_upper_end_of_its_activity() {
        let figures = StepFigures { seconds: None, high: None, low: 0.5, ..figures() };
        let step = step(&figures).unwrap();
        assert_eq!((step.time, step.confidence), (None, None));
        assert_eq!(shares(&step), [[0, 150, 150], [0, 75, 75]]);
        assert_eq!(step.run_time(1000, "L4"), None);
    }

    #[test]
    fn unknown_work_leaves_no_prediction() {
        assert_eq!(StepPrediction::of(&figures(), None, false), None);
        assert_eq!(step(&StepFigures { without_time: 1, ..figures() }), None);
        for bad in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            let of = StepFigures { gpu_seconds: [bad; 3], ..figures() };
            assert_eq!(step(&of), None, "{bad}");
        }
    }

    #[test]
    fn a_bound_that_is_mostly_assumed_has_no_confidence() {
        let step = step(&StepFigures { assumed: 0.5, ..figures() }).unwrap();
        assert!(step.time.is_some() && step.confidence.is_none());
    }

    #[test]
    fn a_job_that_never_ran_gets_time_and_activity_of_its_dry_run() {
        let run = dry_run(&figures());
        let of = |job: Features<'_>| NeedResolver::default().resolve(&job);
        let job = Features { dry_run: Some(&run), total_steps: Some(36_000), ..Features::default() };
        let needs = of(job);
        let time = needs.run_time.unwrap();
        assert_eq!(time.value, Millis::from_secs(3600));
        let bound = time.bound.unwrap();
        assert_eq!((bound.low, bound.high), (Millis::from_secs(2880), Millis::from_secs(4500)));
        assert_eq!(bound.confidence, Some(Permille(900)));
        assert!(time.source.is_predicted() && !time.source.is_confirmed());
        assert!(time.source.to_string().starts_with("predicted"), "{}", time.source);
        let activity = needs.activity.unwrap();
        assert_eq!((activity.value.smact, activity.value.drama), (Permille(600), Some(Permille(300))));
        assert_eq!(activity.bound.unwrap().confidence, None, "its coverage was not measured");
        assert_eq!(of(Features { total_steps: None, ..job }).run_time, None);
        let declared = Some(Millis(7));
        let stated = of(Features { declared_time: declared, ..job }).run_time.unwrap();
        assert_eq!((stated.value, stated.bound), (Millis(7), None), "the user's word comes first");
        let elsewhere = of(Features { on_other_gpu: true, ..job });
        assert_eq!((elsewhere.run_time, elsewhere.activity), (None, None));
    }

    #[test]
    fn a_stated_step_of_any_size_gives_no_more_than_a_whole_gpu() {
        let step = StepPrediction {
            gpu: [1, u64::MAX, u64::MAX],
            host: Some(u64::MAX),
            low: 0,
            time: Some([1, u64::MAX, u64::MAX]),
            confidence: None,
            smact: Permille(u32::MAX),
            drama: Permille(u32::MAX),
            runs: u32::MAX,
        };
        assert_eq!(step.activity("L4").value.smact, Permille::WHOLE);
        assert_eq!(step.run_time(u64::MAX, "L4").unwrap().value, Millis(u64::MAX / 1_000_000));
        let wrong = StepPrediction { time: Some([9_000_000, 5_000_000, 7_000_000]), ..step };
        assert_eq!(wrong.run_time(1, "L4"), None);
        assert_eq!(StepPrediction { time: None, ..step }.activity("L4").value.drama, Some(Permille::WHOLE));
    }
}
