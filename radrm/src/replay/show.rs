//! Results of a replay, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use radrm_scheduler_core::replay::{Interval, Metrics, Model};
use radrm_text::{Table, clean, left, right};
use serde_json::json;

use super::Flags;
use super::outcome::{Outcome, Traced, conditions};

/// A column: its head, what it shows, and with how many digits.
pub(super) type Column = (&'static str, fn(&Metrics) -> f64, usize);

pub(super) const COLUMNS: [Column; 11] = [
    ("makespan", |m| m.makespan_s / 3600.0, 2),
    ("mean JCT", |m| m.jct_mean_s / 3600.0, 2),
    ("p95 JCT", |m| m.jct_p95_s / 3600.0, 2),
    ("wait", |m| m.wait_mean_s / 3600.0, 2),
    ("exec", |m| m.exec_mean_s / 3600.0, 2),
    ("OOMs", |m| m.ooms, 1),
    ("harmed", |m| m.harmed, 1),
    ("failed", |m| m.failed, 1),
    ("SMACT", |m| m.smact, 2),
    ("mem GiB", |m| m.memory_gib, 1),
    ("MJ", |m| m.energy_mj, 2),
];

pub(super) fn interval(outcome: &Outcome, of: fn(&Metrics) -> f64) -> Interval {
    Interval::of(&outcome.metrics.iter().map(of).collect::<Vec<_>>())
}

/// `7.48 ±0.05`; without an interval only the mean.
pub(super) fn cell(interval: Interval, digits: usize) -> String {
    let half = format!("{:.digits$}", interval.half);
    if half.bytes().all(|byte| byte == b'0' || byte == b'.') {
        return format!("{:.digits$}", interval.mean);
    }
    format!("{:.digits$} ±{half}", interval.mean)
}

/// The line above what came out of a trace.
pub(super) fn heading(trace: &Traced, order: &Flags, devices: usize, gpus: usize) -> String {
    let what = conditions(order, devices, gpus);
    let mut text = format!("{}: {} jobs on {what}\n", clean(&trace.name), trace.jobs.len());
    if trace.left_out.rows() > 0 {
        let _ = writeln!(text, "  not replayed: {} rows ({})", trace.left_out.rows(), trace.left_out);
    }
    let jobs = |count: usize| if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
    if trace.assumed() > 0 {
        let _ = writeln!(
            text,
            "  run times assumed: of {}, {} min each (--unnamed)",
            jobs(trace.assumed()),
            order.unnamed
        );
    }
    if trace.without_activity() > 0 {
        let _ =
            writeln!(text, "  SM activity assumed: of {}, {}", jobs(trace.without_activity()), trace.unknown);
    }
    if trace.never > 0 {
        let _ = writeln!(
            text,
            "  never run: {}, too large for these GPUs; means and (bound) are without them",
            jobs(trace.never)
        );
    }
    text
}

pub(super) fn table(
    traces: &[Traced],
    outcomes: &[Outcome],
    order: &Flags,
    devices: usize,
    gpus: usize,
) -> String {
    let mut text = String::new();
    for (number, trace) in traces.iter().enumerate() {
        text.push_str(&heading(trace, order, devices, gpus));
        let titles = COLUMNS.iter().map(|column| right(column.0));
        let mut table = Table::new(std::iter::once(left("policy")).chain(titles)).indented(2);
        for outcome in outcomes.iter().filter(|outcome| outcome.trace == number) {
            let mut row = vec![outcome.policy.to_string()];
            row.extend(COLUMNS.iter().map(|column| cell(interval(outcome, column.1), column.2)));
            table.row(row);
        }
        let hours = |seconds: f64| format!("{:.2}", seconds / 3600.0);
        table.row(["(bound)", &hours(trace.bounds.makespan_s), &hours(trace.bounds.jct_mean_s)]);
        text.push_str(&table.to_string());
        for outcome in outcomes.iter().filter(|outcome| outcome.trace == number) {
            text.push_str(&never_ran(outcome, trace.never));
            if outcome.calls > 0 {
                let _ = writeln!(
                    text,
                    "  {}: {} calls of Python, slower than a policy in Rust",
                    outcome.policy, outcome.calls
                );
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Line on the jobs that a policy never ran although these GPUs could hold them.
fn never_ran(outcome: &Outcome, too_large: usize) -> String {
    let count = interval(outcome, |metrics| metrics.never_ran).mean - too_large as f64;
    let decimals = usize::from((count - count.round()).abs() >= 0.05);
    match count >= 0.05 {
        true => {
            format!("  {} never ran {count:.decimals$} more; its means are without them\n", outcome.policy)
        }
        false => String::new(),
    }
}

pub(super) fn json(traces: &[Traced], outcomes: &[Outcome], order: &Flags, model: &Model) -> String {
    let of = |(number, trace): (usize, &Traced)| {
        let policies: Vec<_> = outcomes
            .iter()
            .filter(|outcome| outcome.trace == number)
            .map(|outcome| {
                json!({
                    "policy": outcome.policy.to_string(),
                    "interference": outcome.factor,
                    "python_calls": outcome.calls,
                    "seeds": outcome.metrics,
                    "why": outcome.first.followed,
                })
            })
            .collect();
        json!({
            "trace": trace.name,
            "jobs": trace.jobs.len(),
            "left_out": trace.left_out.reasons().collect::<std::collections::BTreeMap<_, _>>(),
            "bound": trace.bounds,
            "run_times_assumed": trace.assumed(),
            "activities_assumed": trace.without_activity(),
            "never_run": trace.never,
            "policies": policies,
        })
    };
    let all = json!({
        "schema": 1,
        "gpus": order.gpus,
        "model": model,
        "traces": traces.iter().enumerate().map(of).collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_shown_where_there_is_one() {
        assert_eq!(cell(Interval { mean: 7.481, half: 0.052 }, 2), "7.48 ±0.05");
        assert_eq!(cell(Interval { mean: 7.481, half: 0.004 }, 2), "7.48");
    }
}
