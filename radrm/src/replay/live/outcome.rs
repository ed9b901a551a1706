//! Result of a trace that was played, in the figures of a replay.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use radrm_protocol::wire::{JobRow, NodeRow};
use radrm_scheduler_core::Millis;
use radrm_scheduler_core::replay::{Curve, JobResult, Metrics, Report};
use radrm_text::{Table, clean, left, right};
use serde_json::{Value, json};

use super::super::Flags;
use super::super::outcome::gpu_count;
use super::super::show::{COLUMNS, Column};
use super::plan::Plan;

/// Figures of radrmd's GPUs while the trace was played.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    used_samples: f64,
    used: f64,
    smact: f64,
    smact_samples: f64,
    /// Energy counters of each GPU, mJ, first and last.
    energy: BTreeMap<String, (u64, u64)>,
}

impl Gpus {
    /// Adds what radrmd's monitor has at this moment.
    pub(super) fn add(&mut self, node: &NodeRow) {
        for gpu in node.gpus.iter().filter(|gpu| !gpu.lost) {
            if let Some(used) = gpu.used {
                self.used += used as f64;
                self.used_samples += 1.0;
            }
            if node.emulated.is_some() {
                // Modelled activity and energy say nothing of the time that passed.
                continue;
            }
            if let Some(part) = gpu.smact {
                self.smact += f64::from(part) / 1000.0;
                self.smact_samples += 1.0;
            }
            if let Some(now) = gpu.energy_mj {
                let (_, last) = self.energy.entry(gpu.uuid.clone()).or_insert((now, now));
                *last = now.max(*last);
            }
        }
    }

    fn memory(&self) -> Option<f64> {
        (self.used_samples > 0.0).then(|| self.used / self.used_samples)
    }

    fn smact(&self) -> Option<f64> {
        (self.smact_samples > 0.0).then(|| self.smact / self.smact_samples)
    }

    /// J.
    fn energy(&self) -> Option<f64> {
        let sum: u64 = self.energy.values().map(|(first, last)| last - first).sum();
        (!self.energy.is_empty()).then(|| sum as f64 / 1000.0)
    }
}

/// A trace that was played.
pub(super) struct Played<'a> {
    pub(super) plan: &'a Plan,
    pub(super) node: &'a NodeRow,
    pub(super) rows: &'a BTreeMap<usize, JobRow>,
    pub(super) refused: &'a BTreeMap<String, usize>,
    pub(super) gpus: &'a Gpus,
    pub(super) order: &'a Flags,
}

impl Played<'_> {
    /// Figures in the time of the trace.
    fn metrics(&self) -> Metrics {
        let first = self.rows.values().map(|row| row.submitted_ms).min().unwrap_or(0);
        let scaled = |ms: u64| Millis((ms as f64 * self.order.speed).round() as u64);
        let since = |ms: u64| scaled(ms.saturating_sub(first));
        let job = |row: &JobRow| JobResult {
            arrival: since(row.submitted_ms),
            start: row.started_ms.map(since),
            end: row.ended_ms.map(since),
            ran: scaled(row.ran_ms),
            attempts: row.attempts,
            ooms: row.ooms,
            harmed: 0,
            success: row.verdict.is_some_and(|verdict| verdict.is_success()),
        };
        let jobs: Vec<JobResult> = self.rows.values().map(job).collect();
        let report = Report {
            makespan: jobs.iter().filter_map(|job| job.end).max().unwrap_or_default(),
            jobs,
            smact: self.gpus.smact().unwrap_or_default(),
            memory: self.gpus.memory().unwrap_or_default(),
            energy: self.gpus.energy().unwrap_or_default() * self.order.speed,
            watts: 0.0,
            bars: Vec::new(),
            curve: Curve::default(),
            devices: Vec::new(),
            steps: Vec::new(),
            followed: Vec::new(),
        };
        report.metrics()
    }

    /// Returns true if a figure is not known of a live node.
    fn is_unknown(&self, column: &str) -> bool {
        match column {
            "harmed" => true,
            "SMACT" => self.gpus.smact().is_none(),
            "mem GiB" => self.gpus.memory().is_none(),
            "MJ" => self.gpus.energy().is_none(),
            _ => false,
        }
    }

    fn name(&self) -> String {
        self.order.traces.first().map(|path| path.display().to_string()).unwrap_or_default()
    }

    pub(super) fn table(&self) -> String {
        let node = self.node;
        let speed = match self.order.speed {
            1.0 => String::new(),
            speed => {
                format!(", at {speed} times its speed (all times and the energy are multiplied by that)")
            }
        };
        let emulated = node.emulated.as_ref().map(|spec| format!(" (emulated: {})", clean(spec)));
        let mut text = format!(
            "{}: {} jobs on {}, {}{}, live{speed}\n",
            clean(&self.name()),
            self.rows.len(),
            clean(&node.host),
            gpu_count(node.gpus.len()),
            emulated.unwrap_or_default()
        );
        if !self.plan.left_out.is_empty() {
            let _ = writeln!(text, "  not played: {}", self.plan.left_out);
        }
        for (why, jobs) in self.refused {
            let _ = writeln!(text, "  not submitted ({}): {jobs}", clean(why));
        }
        let titles = COLUMNS.iter().map(|column| right(column.0));
        let mut table = Table::new(std::iter::once(left("policy")).chain(titles)).indented(2);
        let metrics = self.metrics();
        let cell = |(name, of, digits): &Column| match self.is_unknown(name) {
            true => "-".to_owned(),
            false => format!("{:.*}", *digits, of(&metrics)),
        };
        table.row(std::iter::once(node.policy.clone()).chain(COLUMNS.iter().map(cell)));
        let _ = write!(text, "{table}");
        text
    }

    pub(super) fn json(&self) -> String {
        let metrics = self.metrics();
        let known = |column, value: f64| if self.is_unknown(column) { Value::Null } else { json!(value) };
        let all = json!({
            "schema": 1,
            "trace": self.name(),
            "live": { "host": self.node.host, "gpus": self.node.gpus.len(), "emulated": self.node.emulated },
            "speed": self.order.speed,
            "policy": self.node.policy,
            "jobs": self.rows.len(),
            "not_submitted": self.refused,
            "numbers": self.rows.values().map(|row| row.job).collect::<Vec<_>>(),
            "metrics": {
                "makespan_s": metrics.makespan_s,
                "jct_mean_s": metrics.jct_mean_s,
                "jct_p95_s": metrics.jct_p95_s,
                "wait_mean_s": metrics.wait_mean_s,
                "exec_mean_s": metrics.exec_mean_s,
                "ooms": metrics.ooms,
                "failed": metrics.failed,
                "smact": known("SMACT", metrics.smact),
                "memory_gib": known("mem GiB", metrics.memory_gib),
                "energy_mj": known("MJ", metrics.energy_mj),
            },
        });
        let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::wire::GpuRow;

    #[test]
    fn energy_is_that_of_the_time_between_and_unknown_figures_stay_unknown() {
        let gpu = |uuid: &str, energy_mj, smact| GpuRow {
            uuid: uuid.into(),
            used: Some(3 << 30),
            energy_mj: Some(energy_mj),
            smact,
            ..GpuRow::default()
        };
        let mut seen = Gpus::default();
        let node =
            |a, b| NodeRow { gpus: vec![gpu("A", a, Some(500)), gpu("B", b, None)], ..NodeRow::default() };
        for (a, b) in [(9_000_000, 100_000), (9_500_000, 200_000), (10_000_000, 400_000)] {
            seen.add(&node(a, b));
        }
        assert_eq!((seen.energy(), seen.smact()), (Some(1300.0), Some(0.5)));
        assert_eq!(seen.memory(), Some(3.0 * f64::from(1 << 30)));
        let mut emulated = Gpus::default();
        emulated.add(&NodeRow { emulated: Some("2xA100".into()), ..node(1, 2) });
        assert_eq!((emulated.energy(), emulated.smact()), (None, None));
        assert!(emulated.memory().is_some());
    }
}
