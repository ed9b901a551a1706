//! Text of what was asked for with a job, for people.

use radrm_base::signal;
use radrm_protocol::asked::OptionValue;
use radrm_protocol::wire::Asked;

use super::text::{bytes, time};

/// The options of `radrm submit` that say it, with their values.
pub(super) fn text(asked: &Asked) -> String {
    let words = asked.options().into_iter().map(|(option, value)| {
        let value = match value {
            OptionValue::Switch => return option.to_owned(),
            OptionValue::Bytes(amount) => bytes(amount),
            OptionValue::Time(ms) => time(ms),
            OptionValue::Percent(parts) => format!("{}%", f64::from(parts) / 10.0),
            OptionValue::Part(parts) => (f64::from(parts) / 1000.0).to_string(),
            OptionValue::Signal(0) => "0".to_owned(),
            OptionValue::Signal(number) => signal::name(number),
            OptionValue::Count(count) => count.to_string(),
            OptionValue::Text(text) => text,
            OptionValue::Texts(texts) => texts.join(&format!(" {option} ")),
        };
        format!("{option} {value}")
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::queue;
    use radrm_need::UserEstimate;
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
            total_steps: Some(36_000),
            checkpoint_signal: Some(10),
            grace_ms: Some(30_000),
            batch: Some(8),
            ..Spec::default()
        };
        let said = text(&Asked::of(&spec));
        for part in [
            "--gpu-mem 10.0 GiB, --gpu-mem-upper 12.0 GiB, --fixed-shapes, --gpu-share 30.5%, --latency p99=20ms, --min-speed 0.8, --exclusive",
            "--gpu-model A100",
            "--attempts 1, --preemptible, --slot ",
            "--expected ",
            "--total-steps 36000",
            "--checkpoint-signal SIGUSR1, --grace ",
            "--batch-size 8",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(text(&Asked::default()), "");
        let estimate =
            UserEstimate { bytes: Bytes(7 << 30), upper: Bytes(7 << 30), ..UserEstimate::default() };
        let spec = Spec { estimate: Some(estimate), ..Spec::default() };
        let guessed = Asked::of(&spec);
        assert_eq!(text(&guessed), "--gpu-mem-estimate 7.00 GiB");
    }

    #[test]
    fn a_waiting_job_is_listed_with_the_memory_that_it_asks_for() {
        let asked = Asked { gpu_mem: Some(10 << 30), ..Asked::default() };
        let row = |state| JobRow { state, asked: asked.clone(), ..JobRow::default() };
        let listed = |state| queue::list(&[row(state)], false, false).contains("10.0 GiB");
        let predicted = JobRow { state: JobState::Waiting, need_upper: Some(7 << 30), ..JobRow::default() };
        assert!(queue::list(&[predicted], false, false).contains("~7.00 GiB"));
        assert!(listed(JobState::Waiting) && listed(JobState::Held) && !listed(JobState::Ended));
    }
}
