//! `radrm top --at`: GPUs and jobs at an earlier time.

use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::wire::{PastRow, Request, Response};
use radrm_text::{Table, fit, left, right};

use super::text::{ValueError, bytes, span, time};
use crate::{Failure, print};

/// A time as so long ago, ms: `2h`, `90m ago`, `2 h ago`.
pub(super) fn ago(text: &str) -> Result<u64, ValueError> {
    let length = text.trim().strip_suffix("ago").unwrap_or(text);
    span(&length.split_whitespace().collect::<String>()).map_err(|_| ValueError::Time(text.to_owned()))
}

/// Prints what the daemon kept of that time.
pub(super) fn show(connection: &mut Connection, ago_ms: u64) -> Result<(), Failure> {
    let at_ms = radrm_os::time::epoch_ms().saturating_sub(ago_ms);
    match connection.ask(&Request::Past { at_ms })? {
        Response::Past(past) => print(&text(&past, at_ms, ago_ms)),
        other => Err(odd(&other).into()),
    }
}

fn text(past: &PastRow, at_ms: u64, ago_ms: u64) -> String {
    let length = past.span_ms.1.saturating_sub(past.span_ms.0);
    let mut text = format!("{} ago, GPUs over {} around it", time(ago_ms), time(length));
    match &past.emulated {
        Some(spec) => text.push_str(&format!(" (emulated: {})\n\n", fit(spec, 40))),
        None => text.push_str("\n\n"),
    }
    let cell =
        |value: Option<f64>, unit: &str| value.map_or("-".to_owned(), |value| format!("{value:.0}{unit}"));
    let columns = [left("GPU"), right("MEAN MEMORY"), right("MOST"), right("SMACT"), right("POWER")];
    let mut gpus = Table::new(columns);
    for gpu in &past.gpus {
        gpus.row([
            gpu.gpu.clone(),
            bytes(gpu.mean_used as u64),
            gpu.peak_used.map_or("-".to_owned(), bytes),
            cell(gpu.mean_smact.map(|part| part * 100.0), "%"),
            cell(gpu.mean_power_w, " W"),
        ]);
    }
    if gpus.is_empty() {
        text.push_str("radrmd has no figures of that time\n");
    } else {
        text.push_str(&gpus.to_string());
    }
    let mut jobs =
        Table::new([right("JOB"), left("USER"), right("GPUS"), right("RAN SINCE"), right("AND FOR")]);
    for job in &past.jobs {
        jobs.row([
            job.job.to_string(),
            fit(&job.user, 32),
            job.gpus.to_string(),
            time(at_ms.saturating_sub(job.start_ms)),
            time(job.end_ms.saturating_sub(at_ms)),
        ]);
    }
    if !jobs.is_empty() {
        text.push_str(&format!("\n{jobs}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::wire::{GpuStats, PastJob};

    #[test]
    fn a_time_is_so_long_ago() {
        for text in ["2h", "2 h ago", "2h ago", "120m", "2:00:00 ago"] {
            assert_eq!(ago(text), Ok(7_200_000), "{text}");
        }
        assert_eq!(ago("long ago"), Err(ValueError::Time("long ago".into())));
    }

    #[test]
    fn gpus_and_jobs_of_that_time_are_shown() {
        let gpu = GpuStats {
            gpu: "GPU-a".into(),
            samples: 300,
            mean_used: 3e9,
            peak_used: Some(4 << 30),
            mean_smact: Some(0.4),
            ..GpuStats::default()
        };
        let job = PastJob { job: 12, user: "ann".into(), gpus: 2, start_ms: 0, end_ms: 7_200_000 };
        let past =
            PastRow { span_ms: (3_600_000, 3_900_000), gpus: vec![gpu], jobs: vec![job], emulated: None };
        let shown = text(&past, 3_600_000, 3_600_000);
        assert!(shown.contains("GPU-a") && shown.contains("40%") && shown.contains("4.00 GiB"), "{shown}");
        assert!(shown.contains("12") && shown.contains("ann"), "{shown}");
        let none = text(&PastRow::default(), 0, 0);
        assert!(none.contains("no figures of that time"), "{none}");
    }
}
