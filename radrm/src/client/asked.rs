//! What was asked for with a job, for people.

use radrm_base::signal;
use radrm_protocol::wire::Asked;

use super::text::{bytes, time};

/// The options of `radrm submit` that say it, with their values.
pub(super) fn text(asked: &Asked) -> String {
    let percent = |parts: u32| format!("{}%", f64::from(parts) / 10.0);
    // The upper bound of an estimate that has none of its own is the estimate.
    let upper = asked.gpu_mem_upper.filter(|upper| Some(*upper) != asked.gpu_mem_estimate);
    let options = [
        ("--gpu-mem", asked.gpu_mem.map(bytes)),
        ("--gpu-mem-estimate", asked.gpu_mem_estimate.map(bytes)),
        ("--gpu-mem-upper", upper.map(bytes)),
        ("--fixed-shapes", asked.fixed_shapes.then(String::new)),
        ("--gpu-share", asked.gpu_share.map(percent)),
        ("--latency", asked.latency.clone()),
        ("--min-speed", asked.min_speed.map(|speed| (f64::from(speed) / 1000.0).to_string())),
        ("--mps", asked.mps.then(String::new)),
        ("--exclusive", asked.exclusive.then(String::new)),
        ("--gpu-model", asked.gpu_model.clone()),
        ("--attempts", asked.attempts.map(|count| count.to_string())),
        ("--preemptible", asked.preemptible.then(String::new)),
        ("--slot", asked.slot_ms.map(time)),
        ("--expected", asked.expected_ms.map(time)),
        ("--checkpoint-signal", asked.checkpoint_signal.map(signal::name)),
        ("--grace", asked.grace_ms.map(time)),
        ("--batch-size", asked.batch_size.map(|size| size.to_string())),
        ("--after", (!asked.after.is_empty()).then(|| asked.after.join(" --after "))),
    ];
    let said = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let words = said.map(|(name, value)| format!("{name} {value}").trim_end().to_owned());
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::queue;
    use radrm_need::{NeedResolver, UserEstimate};
    use radrm_protocol::spec::Spec;
    use radrm_protocol::wire::JobRow;
    use radrm_scheduler_core::{Bytes, JobState, Permille, Target};

    #[test]
    fn all_that_was_asked_for_is_told() {
        let spec = Spec {
            mem: Some(10 << 30),
            mem_upper: Some(12 << 30),
            fixed_shapes: true,
            share: Some(305),
            target: Target { latency: "p99=20ms".parse().ok(), speed: Some(Permille(800)) },
            exclusive: true,
            model: Some("A100".into()),
            attempts: Some(1),
            preemptible: true,
            slot_ms: Some(3_600_000),
            expected_ms: Some(7_200_000),
            checkpoint_signal: Some(10),
            grace_ms: Some(30_000),
            batch: Some(8),
            ..Spec::default()
        };
        let said = text(&Asked::of(&spec, None));
        for part in [
            "--gpu-mem 10.0 GiB, --gpu-mem-upper 12.0 GiB, --fixed-shapes, --gpu-share 30.5%, --latency p99=20ms, --min-speed 0.8, --exclusive",
            "--gpu-model A100",
            "--attempts 1, --preemptible, --slot ",
            "--expected ",
            "--checkpoint-signal SIGUSR1, --grace ",
            "--batch-size 8",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(text(&Asked::default()), "");
        let estimate =
            UserEstimate { bytes: Bytes(7 << 30), upper: Bytes(7 << 30), ..UserEstimate::default() };
        let spec = Spec { estimate: Some(estimate), ..Spec::default() };
        let needs = NeedResolver::default().resolve(&spec.features(&[]));
        let guessed = Asked::of(&spec, Some(&needs));
        assert_eq!(text(&guessed), "--gpu-mem-estimate 7.00 GiB");
    }

    #[test]
    fn a_waiting_job_is_listed_with_the_memory_that_it_asks_for() {
        let asked = Asked { gpu_mem: Some(10 << 30), ..Asked::default() };
        let row = |state| JobRow { state, asked: asked.clone(), ..JobRow::default() };
        let listed = |state| queue::list(&[row(state)], false, false).contains("10.0 GiB");
        assert!(listed(JobState::Waiting) && listed(JobState::Held) && !listed(JobState::Ended));
    }
}
