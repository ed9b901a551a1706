//! `--why JOB`: what was decided for a job of the trace, and why.

use std::fmt::Write as _;
use std::path::Path;

use radrm_scheduler_core::replay::{Followed, TraceJob};
use radrm_scheduler_core::{Action, DeviceId, Reason};
use radrm_text::clean;

use super::ReplayError;
use super::outcome::{Outcome, Traced};

/// Place in the trace of the job that was named, by its number or by its name.
pub(super) fn place(job: &str, jobs: &[TraceJob], trace: &Path) -> Result<u32, ReplayError> {
    let number = job.parse().ok().filter(|number| *number < jobs.len());
    let found = number.or_else(|| jobs.iter().position(|one| one.name == job));
    let place = found.and_then(|found| u32::try_from(found).ok());
    place.ok_or_else(|| ReplayError::NoJob { trace: trace.into(), job: job.to_owned(), jobs: jobs.len() })
}

/// A paragraph for each policy.
pub(super) fn text(traces: &[Traced], outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let Some(trace) = traces.get(outcome.trace) else { continue };
        let Some(job) = trace.followed else { continue };
        let name = trace.jobs.get(job as usize).map_or("", |job| &job.name);
        let _ =
            writeln!(text, "\n{}: job {job} ({}) under {}", clean(&trace.name), clean(name), outcome.policy);
        for Followed { at, action, reason } in &outcome.first.followed {
            let what = words(action.as_ref(), reason);
            let _ = writeln!(text, "  {:>10.1} s  {}", at.as_secs_f64(), clean(&what));
        }
    }
    text
}

fn words(action: Option<&Action>, reason: &Reason) -> String {
    let on = |devices: &[DeviceId]| {
        let numbers: Vec<String> = devices.iter().map(DeviceId::to_string).collect();
        if numbers.is_empty() { String::new() } else { format!(" on GPU {}", numbers.join(", ")) }
    };
    let what = match action {
        None => "waits".to_owned(),
        Some(Action::Start { devices, attempt: 1, .. }) => format!("starts{}", on(devices)),
        Some(Action::Start { devices, attempt, .. }) => format!("starts{}, attempt {attempt}", on(devices)),
        Some(Action::Resume { devices, .. }) => format!("comes back{}", on(devices)),
        Some(Action::Requeue { .. }) => "goes back to the queue".to_owned(),
        Some(Action::Ready { .. }) => "may start".to_owned(),
        Some(Action::SetAside { reserved, .. }) => format!("reserves {reserved}"),
        Some(Action::SetBudget { .. }) => "gets another launch budget".to_owned(),
        Some(Action::Signal { .. }) => "is asked to stop".to_owned(),
        Some(Action::Suspend { .. }) => "is suspended".to_owned(),
        Some(Action::End { .. } | Action::WakeAt { .. }) => "ends".to_owned(),
    };
    format!("{what}: {reason}")
}
