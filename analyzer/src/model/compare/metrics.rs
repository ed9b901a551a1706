//! The figures that are compared.

use crate::model::{GpuSummary, Summary};
use radrm_profile::Bytes;
use radrm_profile::model::dry_run::Phase;
use radrm_profile::model::{HostCount, Kind, PredictedStep};
use serde::Serialize;

/// Phases of a run that are compared: those that took longest.
const RANGES: usize = 32;

/// Characters of a phase's name in a label.
const MAX_PHASE_NAME: usize = 40;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// A number of something.
    Count,
    /// A share of one.
    Share,
    /// Millijoule.
    Millijoule,
    /// Processors.
    Processors,
}

/// Names a figure; the order is that of the report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Job(usize, &'static str, Unit),
    Gpu(u8, usize, &'static str, Unit),
    Kind(u8, Kind),
    Host(usize, &'static str, Unit),
    DryRun(usize, usize, &'static str),
    /// Of a step on a card: its place, and its name.
    Predicted(String, usize, String, Unit),
    Range(String, usize, &'static str, Unit),
}

impl Key {
    pub(super) fn name(&self) -> String {
        match self {
            Key::Job(_, name, _) => (*name).to_owned(),
            Key::Gpu(gpu, _, name, _) => format!("gpu{gpu}.{name}"),
            Key::Kind(gpu, kind) => format!("gpu{gpu}.{}.peak_bytes", kind.key()),
            Key::Host(_, name, _) => format!("host.{name}"),
            Key::DryRun(gpu, _, name) => format!("dry_run.gpu{gpu}.{name}"),
            Key::Predicted(card, _, name, _) => format!("predicted.{card}.{name}"),
            Key::Range(range, _, name, _) => format!("phase.{range}.{name}"),
        }
    }

    pub(super) fn label(&self) -> String {
        let words = |name: &str| {
            name.trim_end_matches("_bytes").trim_end_matches("_ns").replace('_', " ").replace("nvml", "NVML")
        };
        match self {
            Key::Job(_, name, _) => words(name),
            Key::Gpu(gpu, _, name, _) => format!("GPU {gpu} {}", words(name)),
            Key::Kind(gpu, kind) => format!("GPU {gpu} {} peak", kind.label()),
            Key::Host(_, name, _) => format!("host {}", words(name)),
            Key::DryRun(gpu, _, name) => format!("dry run GPU {gpu} {}", words(name)),
            Key::Predicted(card, _, name, _) => format!("predicted on {card}: {}", words(name)),
            Key::Range(range, _, name, _) => {
                format!("phase {} {}", range.chars().take(MAX_PHASE_NAME).collect::<String>(), words(name))
            }
        }
    }

    pub(super) fn unit(&self) -> Unit {
        match self {
            Key::Job(_, _, unit)
            | Key::Gpu(_, _, _, unit)
            | Key::Host(_, _, unit)
            | Key::Predicted(_, _, _, unit)
            | Key::Range(_, _, _, unit) => *unit,
            Key::Kind(..) | Key::DryRun(..) => Unit::Bytes,
        }
    }
}

/// Returns true if the host's times are those of the program: what a dry run takes says how busy this machine was.
fn has_times(run: &Summary) -> bool {
    run.dry_run.is_none()
}

/// All figures that a run has.
pub(super) fn of(run: &Summary) -> Vec<(Key, f64)> {
    let timed = run.kernels.iter().filter_map(|kernel| kernel.gpu_time).map(|time| time.total_ns.0 as f64);
    let timed = timed.reduce(|a, b| a + b);
    let steps = run.ranges.as_ref().and_then(|ranges| ranges.steps.as_ref());
    // A zero that means "not recorded" is no figure.
    let recorded = |value: f64| run.has_all_kernels().then_some(value);
    let timed_here = |value: f64| has_times(run).then_some(value);
    let job = [
        ("duration_ns", Unit::Ns, timed_here(run.outcome.duration_ns.0 as f64)),
        ("processes", Unit::Count, Some(run.processes.len() as f64)),
        ("launches", Unit::Count, recorded(run.launches as f64)),
        ("graph_launches", Unit::Count, recorded(run.graph_launches as f64)),
        ("kernel_time_ns", Unit::Ns, timed.and_then(recorded)),
        ("copied_bytes", Unit::Bytes, recorded(run.copies.iter().map(|copies| copies.bytes.0 as f64).sum())),
        ("refused_requests", Unit::Count, Some(run.failed_requests_total as f64)),
        ("step_time_ns", Unit::Ns, steps.and_then(|steps| timed_here(1e9 / steps.per_second))),
    ];
    let job = job.into_iter().enumerate();
    let mut all: Vec<(Key, f64)> =
        job.filter_map(|(at, (name, unit, value))| Some((Key::Job(at, name, unit), value?))).collect();
    for gpu in &run.gpus {
        of_gpu(gpu, &mut all);
    }
    for gpu in run.dry_run.iter().flat_map(|dry_run| &dry_run.figures.gpus) {
        let whole = gpu.phases.get(&Phase::Whole);
        let figures = [
            ("allocated_bytes", whole.map(|peak| peak.allocated)),
            ("reserved_bytes", whole.map(|peak| peak.reserved)),
            ("held_peak_bytes", Some(gpu.held_peak)),
        ];
        let figures = figures.into_iter().enumerate();
        all.extend(
            figures.filter_map(|(at, (name, bytes))| Some((Key::DryRun(gpu.gpu, at, name), bytes? as f64))),
        );
    }
    if let Some(step) = run.dry_run.as_ref().and_then(|dry_run| dry_run.step.as_ref()) {
        of_step(step, &mut all);
    }
    if let Some(host) = &run.host {
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
        let mut figures = vec![
            ("mean_busy_processors", Unit::Processors, host.mean_busy_processors.and_then(timed_here)),
            ("resident_peak_bytes", Unit::Bytes, bytes(host.resident_peak_bytes)),
        ];
        for count in HostCount::ALL {
            let is_time = count == HostCount::TaskClock;
            if is_time && !has_times(run) {
                continue;
            }
            let unit = if is_time { Unit::Ns } else { Unit::Count };
            figures.push((count.key(), unit, host.counter(count).map(|value| value as f64)));
        }
        let figures = figures.into_iter().enumerate();
        all.extend(figures.filter_map(|(at, (name, unit, value))| Some((Key::Host(at, name, unit), value?))));
    }
    of_ranges(run, &mut all);
    all
}

/// A predicted step on the emulated card, and its operations by kind.
fn of_step(step: &PredictedStep, all: &mut Vec<(Key, f64)>) {
    let Some(time) = step.on(&step.card) else { return };
    let ns = |seconds: f64| seconds * 1e9;
    let figures = [
        ("step_ns", Unit::Ns, time.seconds.map(ns)),
        ("operations_time_ns", Unit::Ns, Some(ns(time.gpu_seconds[0]))),
        ("operations", Unit::Count, Some(step.operations as f64)),
        ("operations_without_a_time", Unit::Count, Some(time.without_time as f64)),
    ];
    let kinds = step.kinds.iter().filter(|kind| kind.without_time < kind.operations);
    let kinds = kinds.map(|kind| (figures.len(), format!("{}_ns", kind.kind), Unit::Ns, ns(kind.seconds)));
    let figures = figures.iter().enumerate();
    let figures =
        figures.filter_map(|(at, (name, unit, value))| Some((at, (*name).to_owned(), *unit, (*value)?)));
    all.extend(
        figures
            .chain(kinds)
            .map(|(at, name, unit, value)| (Key::Predicted(step.card.clone(), at, name, unit), value)),
    );
}

/// The phases that took longest.
fn of_ranges(run: &Summary, all: &mut Vec<(Key, f64)>) {
    let names = run.ranges.iter().flat_map(|ranges| &ranges.names);
    for name in names.filter(|name| name.ranges > 0).take(RANGES) {
        let mut add =
            |at, metric, unit, value: f64| all.push((Key::Range(name.name.clone(), at, metric, unit), value));
        add(0, "count", Unit::Count, name.ranges as f64);
        if has_times(run) {
            add(1, "mean_ns", Unit::Ns, name.mean_ns.0 as f64);
        }
        if let Some(most) = name.gpus.iter().map(|gpu| gpu.peak_bytes).max() {
            add(2, "peak_bytes", Unit::Bytes, most.0 as f64);
        }
    }
}

fn of_gpu(gpu: &GpuSummary, all: &mut Vec<(Key, f64)>) {
    let nvml = gpu.nvml.as_ref();
    let load = gpu.load.as_ref();
    let figures = [
        ("peak_bytes", Unit::Bytes, Some(gpu.peak_bytes.0 as f64)),
        ("nvml_peak_bytes", Unit::Bytes, nvml.and_then(|n| n.job_peak_bytes).map(|bytes| bytes.0 as f64)),
        ("sm_active", Unit::Share, load.and_then(|load| load.sm_active_share)),
        ("sm_occupancy", Unit::Share, load.and_then(|load| load.sm_occupancy_share)),
        ("dram_active", Unit::Share, load.and_then(|load| load.dram_active_share)),
        ("tensor_active", Unit::Share, load.and_then(|load| load.tensor_active_share)),
        ("utilization", Unit::Share, load.and_then(|load| load.utilization_share)),
        ("energy", Unit::Millijoule, load.and_then(|load| load.energy_mj).map(|energy| energy as f64)),
    ];
    let figures = figures.into_iter().enumerate();
    all.extend(
        figures.filter_map(|(at, (name, unit, value))| Some((Key::Gpu(gpu.index, at, name, unit), value?))),
    );
    // Kinds that neither side has used are the same on both, and are left out of the text.
    for kind in Kind::ALL {
        if let Some(summary) = gpu.kinds.get(kind.key()) {
            all.push((Key::Kind(gpu.index, kind), summary.peak_bytes.0 as f64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CounterSummary, HostSummary, RangeSummary, RangesSummary};
    use radrm_profile::model::dry_run::DryRunFigures;
    use radrm_profile::model::step::{KindTime, StepTime};
    use radrm_profile::model::{Job, Profile};

    #[test]
    fn a_predicted_step_is_compared_by_kind_and_named_as_predicted() {
        let time = |seconds| StepTime {
            card: "L4".to_owned(),
            seconds,
            gpu_seconds: [0.3, 0.2, 0.4],
            without_time: 2,
            ..StepTime::default()
        };
        let kind = |name: &str, seconds, without_time| KindTime {
            kind: name.to_owned(),
            operations: 2,
            seconds,
            without_time,
            ..KindTime::default()
        };
        let found = |seconds| {
            let step = PredictedStep {
                card: "L4".to_owned(),
                operations: 9,
                kinds: vec![kind("gemm", 0.25, 0), kind("softmax", 0.0, 2)],
                cards: vec![StepTime { card: "H200".to_owned(), ..time(Some(0.1)) }, time(seconds)],
                ..PredictedStep::default()
            };
            let dry_run = Some(DryRunFigures::default());
            let profile = Profile { dry_run, step: Some(step), ..Profile::new(Job::default()) };
            let all = of(&Summary::from_profile(&profile)).into_iter();
            let ours = all.filter(|(key, _)| matches!(key, Key::Predicted(..)));
            ours.map(|(key, value)| (key.name(), key.label(), value)).collect::<Vec<_>>()
        };
        let figures = found(None);
        let names: Vec<&str> = figures.iter().map(|(name, ..)| name.as_str()).collect();
        let expected = ["operations_time_ns", "operations", "operations_without_a_time", "gemm_ns"];
        assert_eq!(names, expected.map(|name| format!("predicted.L4.{name}")));
        assert_eq!((figures[3].1.as_str(), figures[3].2), ("predicted on L4: gemm", 250e6));
        assert_eq!(found(Some(0.31))[0].0, "predicted.L4.step_ns", "a lower end is no figure");
    }

    #[test]
    fn times_of_dry_runs_are_no_figures() {
        let mut profile = Profile::new(Job::default());
        let names = |profile: &Profile| -> Vec<String> {
            let mut run = Summary::from_profile(profile);
            let phase = RangeSummary { name: "load".to_owned(), ranges: 1, ..RangeSummary::default() };
            run.ranges = Some(RangesSummary { names: vec![phase], ..RangesSummary::default() });
            let clock = HostCount::TaskClock.key();
            let counters = vec![CounterSummary { name: clock, value: 1, ..CounterSummary::default() }];
            run.host =
                Some(HostSummary { mean_busy_processors: Some(1.0), counters, ..HostSummary::default() });
            of(&run).into_iter().map(|(key, _)| key.name()).collect()
        };
        let times = ["duration_ns", "host.mean_busy_processors", "phase.load.mean_ns"].map(str::to_owned);
        let clock = format!("host.{}", HostCount::TaskClock.key());
        let times: Vec<String> = times.into_iter().chain([clock]).collect();
        let all = names(&profile);
        assert!(times.iter().all(|time| all.contains(time)), "{all:?}");
        profile.dry_run = Some(DryRunFigures::default());
        let left = names(&profile);
        assert!(
            left.contains(&"launches".to_owned()) && left.contains(&"phase.load.count".to_owned()),
            "{left:?}"
        );
        assert!(!left.iter().any(|name| times.contains(name) || name == "step_time_ns"), "{left:?}");
    }
}
