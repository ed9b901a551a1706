//! What earlier runs of a program tell of its next one.

use radrm_scheduler_core::estimator::{Estimator, Features, History, Run as Seen};
use radrm_scheduler_core::{Millis, Need};

use super::spec::Spec;
use super::store::Run;

/// Options by which programs are told their batch size.
const NAMES: [&str; 8] = [
    "--batch-size",
    "--batch_size",
    "--batchsize",
    "--bs",
    "-b",
    "--per_device_train_batch_size",
    "--train-batch-size",
    "batch_size",
];

/// What it runs, without the batch size: equal for runs that differ in that only.
pub(crate) fn program(spec: &Spec) -> String {
    let mut words = spec.command.clone();
    for at in 0..words.len() {
        let named = at > 0 && NAMES.contains(&words[at - 1].as_str());
        if named && words[at].parse::<u32>().is_ok() {
            words[at] = "#".to_owned();
        } else if let Some((name, value)) = words[at].split_once('=')
            && NAMES.contains(&name)
            && value.parse::<u32>().is_ok()
        {
            words[at] = format!("{name}=#");
        }
    }
    serde_json::to_string(&(words, &spec.cwd, spec.gpus)).unwrap_or_default()
}

/// The batch size: as the user says it, or as the command line names it.
pub(crate) fn batch(spec: &Spec) -> Option<u32> {
    let pairs = spec.command.windows(2).map(|two| (two[0].as_str(), two[1].as_str()));
    let joined = spec.command.iter().filter_map(|word| word.split_once('='));
    let named = pairs.chain(joined).filter(|(name, _)| NAMES.contains(name));
    spec.batch.or_else(|| named.filter_map(|(_, value)| value.parse().ok()).next())
}

/// The need and the running time to expect, from runs of the same program, the newest first.
pub(crate) fn known(runs: &[Run], batch: Option<u32>) -> (Need, Option<Millis>) {
    let mut history = History::default();
    for run in runs.iter().rev() {
        history.add("", Seen { batch: run.batch, peak: run.peak, complete: true });
    }
    let features = Features { batch, ..Features::default() };
    let need = history.estimate(&features).map_or(Need::Unknown, |estimate| estimate.need());
    let equal = runs.iter().find(|run| run.batch == batch);
    (need, equal.map(|run| Millis(run.ran_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_scheduler_core::Bytes;

    const GIB: u64 = 1 << 30;

    fn run(batch: u32, gib: u64) -> Run {
        Run { batch: Some(batch), peak: Bytes(gib * GIB), ran_ms: 1000 }
    }

    #[test]
    fn an_equal_run_is_a_measurement_and_others_give_a_line() {
        let runs = [run(8, 3), run(16, 5)];
        assert_eq!(known(&runs, Some(8)), (Need::Measured(Bytes(3 * GIB)), Some(Millis(1000))));
        let (need, expected) = known(&runs, Some(12));
        let Need::Estimated { bytes, upper } = need else { panic!("{need:?}") };
        assert!(bytes.0.abs_diff(4 * GIB) < 1 << 20 && upper > bytes, "{bytes} {upper}");
        assert_eq!(expected, None);
        assert_eq!(known(&[], None), (Need::Unknown, None));
    }

    #[test]
    fn the_batch_size_is_read_from_the_command_line_and_nothing_else_is_left_out() {
        let spec = |line: &str| Spec {
            command: line.split(' ').map(str::to_owned).collect(),
            cwd: "/".into(),
            ..Spec::default()
        };
        for (line, size) in [("python t.py --batch-size 64", Some(64)), ("t --bs=8", Some(8)), ("t 64", None)]
        {
            assert_eq!(batch(&spec(line)), size, "{line}");
        }
        assert_eq!(program(&spec("t --bs=8 -e 3")), program(&spec("t --bs=16 -e 3")));
        assert_ne!(program(&spec("t --hidden 8")), program(&spec("t --hidden 16")));
    }
}
