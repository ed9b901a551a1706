//! A profile in the words of trackers of experiments.

use std::collections::BTreeMap;

use radrm_analyzer::{GpuSummary, Summary};
use radrm_profile::Nanos;
use radrm_profile::model::{GpuIndex, GpuSpan, NvmlSample, Profile};
use radrm_profile::steps::{gpu_steps, thinned};

/// Points of a curve of memory.
const POINTS: usize = 2000;

/// A run as a tracker keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Tells it from all other runs, and is the same for each copy of its profile.
    pub id: String,
    /// Name in tables.
    pub name: String,
    /// Who ran it.
    pub user: Option<String>,
    /// When it started, ms since 1970.
    pub started_ms: u64,
    /// When it ended, or how far its profile reaches, ms since 1970.
    pub ended_ms: u64,
    /// How it ended.
    pub end: End,
    /// What it was run with.
    pub params: BTreeMap<String, String>,
    /// What else is known of it.
    pub tags: BTreeMap<String, String>,
    /// Figures and curves.
    pub metrics: Vec<Metric>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With exit code 0.
    Finished,
    /// Otherwise.
    Failed,
    /// By a signal, or its end is not known.
    Killed,
}

/// A value at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name, with the unit as its last word.
    pub key: String,
    /// Never infinite, and always a number.
    pub value: f64,
    /// When, ms since 1970.
    pub t_ms: u64,
    /// Number of the value in its curve, from 0.
    pub step: u64,
}

impl Run {
    /// What a profile says.
    ///
    /// Figures of the whole GPU, by any process on it, begin with `system/`, and those that MLflow has too have its names;
    /// figures of the job begin with `radrm/`.
    /// What emulated GPUs did with their time is left out: they take none.
    #[must_use]
    pub fn of(profile: &Profile, summary: &Summary) -> Self {
        let job = &summary.job;
        let started_ms = job.start_unix_ns / 1_000_000;
        let program = job.command.first().map_or("job", |word| word.rsplit('/').next().unwrap_or(word));
        let mut curves = Curves { started_ms, metrics: Vec::new() };
        figures(&mut curves, summary);
        for gpu in &summary.gpus {
            memory(&mut curves, profile, gpu);
            load(&mut curves, profile, gpu.index);
        }
        Self {
            id: format!("{}-{}-{}", job.host, job.pid, job.start_unix_ns),
            name: format!("{program} {}", job.pid),
            user: job.user.clone(),
            started_ms,
            ended_ms: curves.at(summary.outcome.duration_ns),
            end: end(summary),
            params: params(summary),
            tags: tags(summary),
            metrics: curves.metrics,
        }
    }
}

fn end(summary: &Summary) -> End {
    match summary.outcome.status {
        "exited" if summary.outcome.success => End::Finished,
        "exited" | "not_started" => End::Failed,
        _ => End::Killed,
    }
}

fn params(summary: &Summary) -> BTreeMap<String, String> {
    let mut params = BTreeMap::from([("command".to_owned(), summary.command_line())]);
    let mut models: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in &summary.gpus {
        *models.entry(&gpu.name).or_default() += 1;
    }
    let gpus: Vec<_> = models.iter().map(|(name, count)| format!("{count} x {name}")).collect();
    if !gpus.is_empty() {
        params.insert("gpus".to_owned(), gpus.join(", "));
    }
    params.extend(job_environment(summary));
    params
}

/// The variables that change what GPU programs do.
fn job_environment(summary: &Summary) -> impl Iterator<Item = (String, String)> {
    summary.job.environment.iter().map(|(name, value)| (format!("env.{name}"), value.clone()))
}

fn tags(summary: &Summary) -> BTreeMap<String, String> {
    let (job, outcome) = (&summary.job, &summary.outcome);
    let mut tags = BTreeMap::from([
        ("radrm.version".to_owned(), job.radrm_version.clone()),
        ("radrm.host".to_owned(), job.host.clone()),
        ("radrm.outcome".to_owned(), outcome.word()),
    ]);
    if let Some(machine) = &summary.emulated {
        tags.insert("radrm.emulated".to_owned(), machine.clone());
    }
    if summary.dry_run.is_some() {
        tags.insert("radrm.dry_run".to_owned(), "true".to_owned());
    }
    tags
}

/// Values with their times.
struct Curves {
    started_ms: u64,
    metrics: Vec<Metric>,
}

impl Curves {
    fn at(&self, t: Nanos) -> u64 {
        self.started_ms.saturating_add(t.0 / 1_000_000)
    }

    fn add(&mut self, key: String, values: impl IntoIterator<Item = (Nanos, f64)>) {
        let values = values.into_iter().filter(|(_, value)| value.is_finite());
        for (step, (t, value)) in (0..).zip(values) {
            let t_ms = self.at(t);
            self.metrics.push(Metric { key: key.clone(), value, t_ms, step });
        }
    }
}

/// One value each, at the end.
fn figures(curves: &mut Curves, summary: &Summary) {
    let duration = summary.outcome.duration_ns;
    let mut one = |key: String, value: Option<f64>| curves.add(key, value.map(|value| (duration, value)));
    one("radrm/run_time_seconds".to_owned(), Some(duration.as_secs_f64()));
    one("radrm/launches".to_owned(), Some(summary.launches.saturating_add(summary.graph_launches) as f64));
    one("radrm/refused_requests".to_owned(), Some(summary.failed_requests_total as f64));
    let steps = summary.ranges.iter().flat_map(|ranges| &ranges.steps).map(|steps| steps.per_second);
    one("radrm/steps_per_second".to_owned(), steps.reduce(f64::max));
    for gpu in &summary.gpus {
        let own = |name: &str| format!("radrm/gpu_{}_{name}", gpu.index);
        one(own("peak_memory_megabytes"), Some(megabytes(gpu.peak_bytes.0)));
        // Of the job's launches alone.
        let active = gpu.estimate.as_ref().and_then(|found| found.sm_active_share);
        one(own("sm_activity_percentage"), active.map(|share| share * 100.0));
        let of_all = |name: &str| format!("system/gpu_{}_{name}", gpu.index);
        let load = gpu.load.as_ref();
        let active = load.and_then(|load| load.sm_active_share);
        one(of_all("sm_activity_percentage"), active.map(|share| share * 100.0));
        let energy = load.and_then(|load| load.energy_mj);
        one(of_all("energy_joules"), energy.map(|energy| energy as f64 / 1000.0));
    }
}

/// As MLflow counts them.
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn memory(curves: &mut Curves, profile: &Profile, gpu: &GpuSummary) {
    let index = GpuIndex(gpu.index);
    let steps = gpu_steps(profile, index);
    let last = steps.last().map_or(Nanos::ZERO, |step| step.t);
    let held = thinned(&steps, last, POINTS);
    curves.add(
        format!("radrm/gpu_{}_memory_megabytes", gpu.index),
        held.into_iter().map(|step| (step.t, megabytes(step.total.0))),
    );
    let samples: Vec<&NvmlSample> = profile.samples.iter().filter(|sample| sample.gpu == index).collect();
    curves.add(
        format!("system/gpu_{}_memory_usage_megabytes", gpu.index),
        samples.iter().map(|sample| (sample.t, megabytes(sample.used.0))),
    );
    let known = samples.iter().filter(|sample| !sample.total.is_zero());
    curves.add(
        format!("system/gpu_{}_memory_usage_percentage", gpu.index),
        known.map(|sample| (sample.t, sample.used.0 as f64 / sample.total.0 as f64 * 100.0)),
    );
}

fn load(curves: &mut Curves, profile: &Profile, gpu: u8) {
    if !profile.gpu_clock.is_real() {
        return;
    }
    let spans: Vec<&GpuSpan> = profile.activity.iter().filter(|span| span.gpu == GpuIndex(gpu)).collect();
    let mut curve = |name: &str, value: &dyn Fn(&GpuSpan) -> Option<f64>| {
        let values = spans.iter().filter_map(|span| Some((span.t, value(span)?)));
        curves.add(name.replace("GPU", &gpu.to_string()), values);
    };
    curve("system/gpu_GPU_utilization_percentage", &|span| Some(span.utilization?.get() * 100.0));
    curve("system/gpu_GPU_power_usage_watts", &|span| Some(f64::from(span.power_mw?) / 1000.0));
    curve("system/gpu_GPU_sm_active_percentage", &|span| Some(span.sm_active?.get() * 100.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Bytes;
    use radrm_profile::model::{Exit, Gpu, GpuClock, Job, Outcome};

    #[test]
    fn a_profile_becomes_parameters_figures_and_curves() {
        let job = Job {
            command: vec!["/usr/bin/python3".into(), "train.py".into()],
            host: "node".into(),
            pid: 42,
            start_unix_ns: 1_700_000_000_123_456_789,
            environment: vec![("CUDA_VISIBLE_DEVICES".into(), "1".into())],
            ..Job::default()
        };
        let mut profile = Profile::new(job);
        profile.gpus = vec![Gpu { name: "T4".into(), total: Bytes(16_000_000_000), ..Gpu::default() }];
        let sample = |t, used| NvmlSample {
            t: Nanos(t),
            used: Bytes(used),
            total: Bytes(16_000_000_000),
            ..NvmlSample::default()
        };
        profile.samples = vec![sample(0, 4_000_000_000), sample(2_000_000_000, 8_000_000_000)];
        profile.activity =
            vec![GpuSpan { t: Nanos(5_000_000), power_mw: Some(70_500), ..GpuSpan::default() }];
        profile.outcome = Some(Outcome { exit: Exit::Code(3), duration: Nanos(4_000_000_000), reason: None });
        let run = Run::of(&profile, &Summary::from_profile(&profile));
        assert_eq!((run.id.as_str(), run.name.as_str()), ("node-42-1700000000123456789", "python3 42"));
        assert_eq!(
            (run.started_ms, run.ended_ms, run.end),
            (1_700_000_000_123, 1_700_000_004_123, End::Failed)
        );
        assert_eq!(run.params["command"], "/usr/bin/python3 train.py");
        assert_eq!(
            (run.params["gpus"].as_str(), run.params["env.CUDA_VISIBLE_DEVICES"].as_str()),
            ("1 x T4", "1")
        );
        let curve = |run: &Run, key: &str| -> Vec<_> {
            let found = run.metrics.iter().filter(|metric| metric.key == key);
            found.map(|metric| (metric.t_ms - run.started_ms, metric.step, metric.value)).collect()
        };
        let memory = curve(&run, "system/gpu_0_memory_usage_megabytes");
        assert_eq!(memory, [(0, 0, 4000.0), (2000, 1, 8000.0)]);
        assert_eq!(curve(&run, "system/gpu_0_memory_usage_percentage"), [(0, 0, 25.0), (2000, 1, 50.0)]);
        assert_eq!(curve(&run, "system/gpu_0_power_usage_watts"), [(5, 0, 70.5)]);
        assert_eq!(curve(&run, "radrm/run_time_seconds"), [(4000, 0, 4.0)]);
        profile.gpu_clock = GpuClock::Modelled;
        let emulated = Run::of(&profile, &Summary::from_profile(&profile));
        assert_eq!(curve(&emulated, "system/gpu_0_power_usage_watts"), []);
    }
}
