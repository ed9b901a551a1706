//! What earlier runs of a program tell of its next one.

use radrm_collector::dataset::{ProgramKey, batch_of};
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::estimator::{Estimator, Features, History, Horus, Run as Seen};
use radrm_scheduler_core::{Activity, Bytes, Millis, Need};

use super::store::Run;

/// What it runs, without the batch size: equal for runs that differ in that only.
pub(crate) fn program(spec: &Spec) -> String {
    ProgramKey::of(&spec.command, &spec.cwd, spec.gpus.into()).to_string()
}

/// The batch size: as the user says it, or as the command line names it.
pub(crate) fn batch(spec: &Spec) -> Option<u32> {
    spec.batch.or_else(|| batch_of(&spec.command))
}

/// What is known of a job before it runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) need: Need,
    /// How long it is expected to run.
    pub(crate) expected: Option<Millis>,
    /// What it does to a GPU alone.
    pub(crate) activity: Option<Activity>,
    /// Where the need comes from, in words.
    pub(crate) from: Option<String>,
    /// No run of the program tells it: nothing holds the job to it.
    pub(crate) guess: bool,
}

/// The need and the running time to expect: from runs of the same program, the newest first, or else from the
/// formula over the model's summary.
pub(crate) fn known(runs: &[Run], spec: &Spec) -> Known {
    let mut history = History::default();
    for run in runs.iter().rev() {
        history.add("", Seen { batch: run.batch, peak: run.peak, complete: run.complete });
    }
    let batch = batch(spec);
    let features = Features { batch, model: spec.summary.clone(), ..Features::default() };
    let expected = usual_time(runs, batch);
    // Another batch size fills the GPU otherwise, but no less alike than nothing at all.
    let known = |run: &Run| run.activity.filter(|_| run.batch == batch);
    let activity = runs.iter().find_map(known).or_else(|| runs.iter().find_map(|run| run.activity));
    let horus = Horus::default();
    let Some(estimate) = history.estimate(&features) else {
        let (need, from) = match (&spec.estimate, horus.estimate(&features)) {
            (Some(guess), _) => (
                Need::Estimated { bytes: Bytes(guess.bytes), upper: Bytes(guess.upper) },
                Some(guess.from.clone()),
            ),
            (None, Some(estimate)) => {
                let figures = figures(&features, horus.startup);
                (estimate.need(), Some(format!("by Horus's formula from the model's summary ({figures})")))
            }
            (None, None) => (Need::Unknown, None),
        };
        let from =
            from.zip(need.claim()).map(|(from, upper)| format!("needs at most {upper} on each GPU, {from}"));
        return Known { need, expected, activity, from, guess: true };
    };
    let ended = runs.iter().any(|run| run.complete);
    let from = match estimate.measured {
        true => "the peak of an equal run".to_owned(),
        _ if !ended => "more than what did not suffice for an equal run".to_owned(),
        _ if runs.iter().all(|run| run.batch == batch) => {
            "the most that equal runs needed, of which some ran out of memory".to_owned()
        }
        _ => format!("at most, by {} runs at other batch sizes", runs.len()),
    };
    let from = Some(format!("needs {} on each GPU: {from}", estimate.upper));
    Known { need: estimate.need(), expected, activity, from, guess: false }
}

/// How long runs of this size took that ended well: the median, as some had more company than others.
fn usual_time(runs: &[Run], batch: Option<u32>) -> Option<Millis> {
    let equal = runs.iter().filter(|run| run.complete && run.batch == batch);
    let mut times: Vec<u64> = equal.map(|run| run.ran_ms).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().map(Millis)
}

/// What went into the formula.
fn figures(features: &Features, startup: Bytes) -> String {
    let model = features.model.clone().unwrap_or_default();
    format!(
        "{} parameters, {} activations a sample, batch size {}, {startup} to start with",
        model.parameters,
        model.activations,
        features.batch.or(model.batch).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::spec::Guess;
    use radrm_scheduler_core::Permille;
    use radrm_scheduler_core::estimator::ModelSummary;

    const GIB: u64 = 1 << 30;

    fn run(batch: u32, gib: u64) -> Run {
        Run { batch: Some(batch), peak: Bytes(gib * GIB), ran_ms: 1000, activity: None, complete: true }
    }

    #[test]
    fn an_equal_run_is_a_measurement_and_others_give_a_line() {
        let runs = [run(8, 3), run(16, 5)];
        let spec = |batch| Spec { batch, ..Spec::default() };
        let equal = known(&runs, &spec(Some(8)));
        assert_eq!((equal.need, equal.expected), (Need::Measured(Bytes(3 * GIB)), Some(Millis(1000))));
        assert!(equal.from.unwrap().contains("needs 3.00 GiB on each GPU: the peak of an equal run"));
        let other = known(&runs, &spec(Some(12)));
        let Need::Estimated { bytes, upper } = other.need else { panic!("{other:?}") };
        assert!(bytes.0.abs_diff(4 * GIB) < 1 << 20 && upper > bytes, "{bytes} {upper}");
        assert_eq!(other.expected, None);
        let nothing = Known { need: Need::Unknown, expected: None, activity: None, from: None, guess: true };
        assert_eq!(known(&[], &spec(None)), nothing);
    }

    #[test]
    fn what_did_not_suffice_is_a_lower_bound_and_says_nothing_of_the_time() {
        let lacking = |gib| Run { complete: false, ran_ms: 5, ..run(8, gib) };
        let spec = |batch| Spec { batch, ..Spec::default() };
        let only = known(&[lacking(6)], &spec(Some(8)));
        assert!(only.need.claim() > Some(Bytes(6 * GIB)) && only.expected.is_none(), "{only:?}");
        assert!(only.from.unwrap().contains("did not suffice"));
        let without = Run { batch: None, ..lacking(6) };
        assert!(known(&[without], &spec(None)).need.claim() > Some(Bytes(6 * GIB)), "no batch size is known");
        // One that was granted more and ended well is the measurement.
        let times =
            [run(8, 7), Run { ran_ms: 9000, ..run(8, 7) }, Run { ran_ms: 2000, ..run(8, 7) }, lacking(6)];
        let both = known(&times, &spec(Some(8)));
        assert_eq!((both.need, both.expected), (Need::Measured(Bytes(7 * GIB)), Some(Millis(2000))));
        let less = known(&[run(8, 5), lacking(6)], &spec(Some(8)));
        assert_eq!(less.need.claim(), Some(Bytes(6 * GIB)));
        assert!(less.from.unwrap().contains("some ran out of memory"));
    }

    #[test]
    fn what_an_equal_run_did_to_a_gpu_comes_before_what_others_did() {
        let seen = |smact| Some(Activity { smact: Permille(smact), ..Activity::default() });
        let runs =
            [Run { activity: seen(300), ..run(8, 3) }, run(16, 5), Run { activity: seen(700), ..run(16, 5) }];
        let of = |batch| known(&runs, &Spec { batch, ..Spec::default() }).activity;
        assert_eq!((of(Some(16)), of(Some(8)), of(Some(99))), (seen(700), seen(300), seen(300)));
    }

    #[test]
    fn a_models_summary_counts_until_a_run_was_measured() {
        let model = ModelSummary { parameters: 1 << 28, activations: 1 << 22, ..ModelSummary::default() };
        let spec = Spec { summary: Some(model), batch: Some(64), ..Spec::default() };
        let formula = known(&[], &spec);
        // 4 bytes of each: parameters once, activations of the batch twice.
        let bytes = Bytes((1 << 30) + (2 << 30) + (600 << 20));
        assert_eq!(formula.need, Need::Estimated { bytes, upper: bytes });
        assert!(formula.from.as_ref().is_some_and(|from| from.contains("Horus's formula")), "{formula:?}");
        assert_eq!(known(&[run(64, 3)], &spec).need, Need::Measured(Bytes(3 * GIB)));
        let without = Spec { batch: None, ..spec.clone() };
        assert_eq!(known(&[], &without).need, Need::Unknown, "no batch size anywhere");
        let estimate = Some(Guess { bytes: GIB, upper: 2 * GIB, from: "as said".to_owned() });
        let said = Spec { estimate, ..spec };
        let guess = known(&[], &said);
        assert_eq!(guess.need, Need::Estimated { bytes: Bytes(GIB), upper: Bytes(2 * GIB) });
        assert!(guess.guess && guess.from.is_some_and(|from| from.ends_with("each GPU, as said")));
        let measured = known(&[run(64, 3)], &said);
        assert_eq!((measured.need, measured.guess), (Need::Measured(Bytes(3 * GIB)), false));
    }
}
