//! A profile in the words of trackers of experiments.

use std::collections::BTreeMap;

use radrm_analyzer::{GpuSummary, OwnSummary, Summary, findings};
use radrm_profile::Nanos;
use radrm_profile::model::{GpuIndex, GpuSpan, NvmlSample, Profile};
use radrm_profile::steps::{gpu_steps, thinned};

use crate::figure::{self, Figure};

/// Points of a curve of memory.
const POINTS: usize = 2000;

/// A run as a tracker keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Tells it from all other runs, and is the same for each copy of its profile.
    pub id: String,
    /// Name in tables.
    pub name: String,
    /// User of the run.
    pub user: Option<String>,
    /// Start, ms since 1970.
    pub started_ms: u64,
    /// End, or last time that its profile covers, ms since 1970.
    pub ended_ms: u64,
    /// End status of the run.
    pub end: End,
    /// Parameters of the run.
    pub params: BTreeMap<String, String>,
    /// Other known properties of the run.
    pub tags: BTreeMap<String, String>,
    /// Figures and curves, each with a value or more.
    pub curves: Vec<Curve>,
    /// Figures that the program logged of itself, by name.
    pub metrics: BTreeMap<String, Metric>,
    /// The GPUs of `curves`.
    pub gpus: Vec<Gpu>,
}

/// A figure that a program logged of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metric {
    /// Its last value, which is finite.
    pub last: f64,
    /// Step of that value.
    pub step: Option<i64>,
}

/// A GPU of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Index in the run.
    pub index: u8,
    /// UUID.
    pub uuid: String,
    /// Product name.
    pub model: String,
    /// Version of the kernel driver.
    pub driver: Option<String>,
}

/// End status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With exit code 0.
    Finished,
    /// Otherwise.
    Failed,
    /// By a signal, or its end is not known.
    Killed,
}

impl End {
    /// In one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Killed => "killed",
        }
    }
}

/// A figure over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The figure.
    pub figure: &'static Figure,
    /// Of this GPU.
    pub gpu: Option<u8>,
    /// Times, ms since 1970, with the values in base units: never infinite, and always a number.
    pub points: Vec<(u64, f64)>,
}

impl Curve {
    /// Its name at MLflow and in tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self.gpu {
            Some(gpu) => self.figure.name.replace("GPU", &gpu.to_string()),
            None => self.figure.name.to_owned(),
        }
    }
}

impl Run {
    /// Run that a profile describes.
    ///
    /// Figures of the whole GPU, by any process on it, begin with `system/`, and those that MLflow has too have its names;
    /// figures of the job begin with `radrm/`.
    /// What emulated GPUs did with their time is left out: they take none.
    #[must_use]
    pub fn of(profile: &Profile, summary: &Summary) -> Self {
        let job = &summary.job;
        let started_ms = job.start_unix_ns / 1_000_000;
        let program =
            job.command.first().map_or("job", |word| word.raw().rsplit('/').next().unwrap_or(word.raw()));
        let mut curves = Curves { started_ms, list: Vec::new() };
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
            curves: curves.list,
            metrics: BTreeMap::new(),
            gpus: summary.gpus.iter().map(gpu).collect(),
        }
    }
}

fn gpu(gpu: &GpuSummary) -> Gpu {
    Gpu {
        index: gpu.index,
        uuid: gpu.uuid.clone(),
        model: gpu.name.clone(),
        driver: gpu.driver_version.clone(),
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
    let mut params = BTreeMap::from([("command".to_owned(), summary.command_line().into_raw())]);
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
        ("radrm.host".to_owned(), job.host.raw().to_owned()),
        ("radrm.outcome".to_owned(), outcome.word()),
    ]);
    if let Some(machine) = &summary.emulated {
        tags.insert("radrm.emulated".to_owned(), machine.clone());
    }
    let own = own(summary);
    let origins =
        [("radrm.sm_activity.origin", own.sm_active_origin), ("radrm.energy.origin", own.energy_origin)];
    tags.extend(origins.into_iter().filter_map(|(name, origin)| Some((name.to_owned(), origin?))));
    if summary.dry_run.is_some() {
        tags.insert("radrm.dry_run".to_owned(), "true".to_owned());
    }
    tags
}

/// Figures that are the run's own: those that its sweep knows, else those of GPUs that no other program used.
fn own(summary: &Summary) -> OwnSummary {
    if let Some(own) = &summary.own {
        return own.clone();
    }
    let is_alone = |gpu: &GpuSummary| gpu.nvml.as_ref().is_some_and(|nvml| nvml.others_peak_bytes.is_zero());
    let is_alone = summary.gpus.iter().filter(|gpu| gpu.used()).all(is_alone);
    // As the dataset has it.
    let [measured, ..] = findings(summary).features.activity();
    let energy_j = summary.gpu_energy_j().filter(|_| is_alone);
    OwnSummary {
        sm_active_share: measured.map(|part| f64::from(part.0) / 1000.0),
        sm_active_origin: measured.map(|_| "measured".to_owned()),
        energy_j,
        energy_origin: energy_j.map(|_| "its GPUs by NVML".to_owned()),
        ..OwnSummary::default()
    }
}

/// Values with their times.
struct Curves {
    started_ms: u64,
    list: Vec<Curve>,
}

impl Curves {
    fn at(&self, t: Nanos) -> u64 {
        self.started_ms.saturating_add(t.0 / 1_000_000)
    }

    fn add(
        &mut self,
        figure: &'static Figure,
        gpu: Option<u8>,
        values: impl IntoIterator<Item = (Nanos, f64)>,
    ) {
        let values = values.into_iter().filter(|(_, value)| value.is_finite());
        let points: Vec<_> = values.map(|(t, value)| (self.at(t), value)).collect();
        if !points.is_empty() {
            self.list.push(Curve { figure, gpu, points });
        }
    }
}

/// One value each, at the end.
fn figures(curves: &mut Curves, summary: &Summary) {
    let duration = summary.outcome.duration_ns;
    let mut one = |figure, gpu, value: Option<f64>| {
        curves.add(figure, gpu, value.map(|value| (duration, value)));
    };
    one(&figure::RUN_TIME, None, Some(duration.as_secs_f64()));
    let launches = summary.launches.saturating_add(summary.graph_launches);
    one(&figure::LAUNCHES, None, Some(launches as f64));
    one(&figure::REFUSED, None, Some(summary.failed_requests_total as f64));
    one(&figure::STEPS, None, summary.steps_per_s());
    one(&figure::RUN_PEAK, None, summary.peak_bytes().map(|bytes| bytes as f64));
    let own = own(summary);
    one(&figure::RUN_SM_ACTIVITY, None, own.sm_active_share);
    one(&figure::RUN_ENERGY, None, own.energy_j);
    for gpu in &summary.gpus {
        let index = Some(gpu.index);
        one(&figure::PEAK, index, Some(gpu.peak_bytes.0 as f64));
        let estimate = gpu.estimate.as_ref();
        // Launches take longer beside others: it would be the activity of all.
        let estimate = estimate.filter(|_| own.overlap_s.is_none());
        one(&figure::SM_ACTIVITY, index, estimate.and_then(|found| found.sm_active_share));
        let load = gpu.load.as_ref();
        one(&figure::GPU_SM_ACTIVITY, index, load.and_then(|load| load.sm_active_share));
        let energy = load.and_then(|load| load.energy_mj);
        one(&figure::GPU_ENERGY, index, energy.map(|energy| energy as f64 / 1000.0));
    }
}

fn memory(curves: &mut Curves, profile: &Profile, gpu: &GpuSummary) {
    let index = GpuIndex(gpu.index);
    let steps = gpu_steps(profile, index);
    let last = steps.last().map_or(Nanos::ZERO, |step| step.t);
    let held = thinned(&steps, last, POINTS);
    let gpu = Some(gpu.index);
    curves.add(&figure::MEMORY, gpu, held.into_iter().map(|step| (step.t, step.total.0 as f64)));
    let samples: Vec<&NvmlSample> = profile.samples.iter().filter(|sample| sample.gpu == index).collect();
    curves.add(&figure::GPU_MEMORY, gpu, samples.iter().map(|sample| (sample.t, sample.used.0 as f64)));
    let known = samples.iter().filter(|sample| !sample.total.is_zero());
    let shares = known.map(|sample| (sample.t, sample.used.0 as f64 / sample.total.0 as f64));
    curves.add(&figure::GPU_MEMORY_SHARE, gpu, shares);
}

fn load(curves: &mut Curves, profile: &Profile, gpu: u8) {
    if !profile.gpu_clock.is_real() {
        return;
    }
    let spans: Vec<&GpuSpan> = profile.activity.iter().filter(|span| span.gpu == GpuIndex(gpu)).collect();
    let mut curve = |figure, value: &dyn Fn(&GpuSpan) -> Option<f64>| {
        let values = spans.iter().filter_map(|span| Some((span.t, value(span)?)));
        curves.add(figure, Some(gpu), values);
    };
    curve(&figure::GPU_UTILIZATION, &|span| Some(span.utilization?.get()));
    curve(&figure::GPU_POWER, &|span| Some(f64::from(span.power_mw?) / 1000.0));
    curve(&figure::GPU_SM_ACTIVE, &|span| Some(span.sm_active?.get()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Bytes;
    use radrm_profile::model::{Exit, GpuClock, Job, Outcome};

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
        profile.gpus = vec![radrm_profile::model::Gpu {
            name: "T4".into(),
            total: Bytes(16_000_000_000),
            ..Default::default()
        }];
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
            let found = run.curves.iter().filter(|curve| curve.name() == key);
            let points = found.flat_map(|curve| curve.points.iter().map(|point| (curve.figure, point)));
            points.map(|(figure, (at, value))| (at - run.started_ms, figure.scale.of(*value))).collect()
        };
        let memory = curve(&run, "system/gpu_0_memory_usage_megabytes");
        assert_eq!(memory, [(0, 4000.0), (2000, 8000.0)]);
        assert_eq!(curve(&run, "system/gpu_0_memory_usage_percentage"), [(0, 25.0), (2000, 50.0)]);
        assert_eq!(curve(&run, "system/gpu_0_power_usage_watts"), [(5, 70.5)]);
        assert_eq!(curve(&run, "radrm/run_time_seconds"), [(4000, 4.0)]);
        let own = OwnSummary {
            sm_active_share: Some(0.25),
            sm_active_origin: Some("part by launches of gpm".into()),
            energy_j: Some(342.5),
            overlap_s: Some(4.0),
            ..OwnSummary::default()
        };
        let shared = Run::of(&profile, &Summary::from_profile(&profile).with_own(Some(own)));
        assert_eq!(curve(&shared, "radrm/sm_activity_percentage"), [(4000, 25.0)]);
        assert_eq!(curve(&shared, "radrm/energy_joules"), [(4000, 342.5)]);
        assert_eq!(shared.tags["radrm.sm_activity.origin"], "part by launches of gpm");
        assert!(curve(&run, "radrm/sm_activity_percentage").is_empty(), "nothing measured it");
        profile.gpu_clock = GpuClock::Modelled;
        let emulated = Run::of(&profile, &Summary::from_profile(&profile));
        assert_eq!(curve(&emulated, "system/gpu_0_power_usage_watts"), []);
    }
}
