//! Text of `/metrics`: OpenMetrics, by radrm's own names, and on request by those of DCGM's exporter and of
//! OpenTelemetry where these mean the same.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeMetric, GaugeValueEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use radrm_protocol::wire::{ActivitySource, GpuRow};
use radrm_scheduler_core::JobState;
use serde::Deserialize;

/// Further names for figures of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Names {
    /// Names of NVIDIA's dcgm-exporter: `DCGM_FI_DEV_FB_USED`.
    Dcgm,
    /// Names of OpenTelemetry's conventions for hardware, as Prometheus writes them: `hw_gpu_memory_usage_bytes`.
    OpenTelemetry,
}

/// Sums and time, as a histogram of one bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spans {
    pub(crate) sum_ms: u64,
    pub(crate) count: u64,
}

/// Memory that a job holds on a GPU, bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobMemory {
    pub(crate) gpu: Option<u32>,
    pub(crate) uuid: String,
    pub(crate) job: u64,
    pub(crate) user: String,
    pub(crate) bytes: u64,
}

/// The daemon's figures at one moment: sums only, no commands and no names of jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Jobs by state.
    pub(crate) jobs: Vec<(JobState, u64)>,
    pub(crate) suspended_bytes: u64,
    /// `None`: no audit looks for them.
    pub(crate) unaccounted_processes: Option<u64>,
    pub(crate) health_issues: u64,
    /// Name, help and value of what is counted since the daemon started.
    pub(crate) counters: Vec<(&'static str, &'static str, u64)>,
    pub(crate) waiting: Spans,
    pub(crate) execution: Spans,
    pub(crate) gpus: Vec<GpuRow>,
    /// True if figures of single jobs are for root, system accounts and the daemon's own user only.
    pub(crate) is_private: bool,
    /// `None` where the configuration withholds it.
    pub(crate) job_memory: Option<Vec<JobMemory>>,
    pub(crate) host: String,
    /// Description of the emulated GPUs, if there are any.
    pub(crate) emulated: Option<String>,
    pub(crate) names: Vec<Names>,
}

/// A figure, written without a fraction where it has none.
#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(u64),
    Real(f64),
}

impl EncodeGaugeValue for Value {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => value.encode(encoder),
            Self::Real(value) => value.encode(encoder),
        }
    }
}

/// A figure of each GPU that has it.
struct OfGpu {
    names: Option<Names>,
    name: &'static str,
    help: &'static str,
    /// It only grows, so `_total` is appended to its name.
    counts: bool,
    value: fn(&GpuRow) -> Option<Value>,
}

const fn gauge(
    names: Option<Names>,
    name: &'static str,
    help: &'static str,
    value: fn(&GpuRow) -> Option<Value>,
) -> OfGpu {
    OfGpu { names, name, help, counts: false, value }
}

const DCGM: Option<Names> = Some(Names::Dcgm);
const OTEL: Option<Names> = Some(Names::OpenTelemetry);

fn ratio(permille: Option<u32>) -> Option<Value> {
    permille.map(|part| Value::Real(f64::from(part) / 1000.0))
}

/// A part that counters of the GPU show: what follows from launches of its jobs is an estimate.
fn counted(gpu: &GpuRow, permille: Option<u32>) -> Option<Value> {
    ratio(permille.filter(|_| gpu.activity_source != Some(ActivitySource::Launches)))
}

/// A part that follows from launches.
fn estimated(gpu: &GpuRow, permille: Option<u32>) -> Option<Value> {
    ratio(permille.filter(|_| gpu.activity_source == Some(ActivitySource::Launches)))
}

fn share(percent: Option<u32>) -> Option<Value> {
    percent.map(|percent| Value::Real(f64::from(percent) / 100.0))
}

fn watts(gpu: &GpuRow) -> Option<Value> {
    gpu.power_mw.map(|power| Value::Real(f64::from(power) / 1000.0))
}

fn joules(gpu: &GpuRow) -> Option<Value> {
    gpu.energy_mj.map(|energy| Value::Real(energy as f64 / 1000.0))
}

/// Every figure of a GPU under every name. DCGM counts memory in MiB, percentages to 100 and energy in mJ, and its
/// exporter does not append `_total`.
const OF_GPU: &[OfGpu] = &[
    gauge(None, "radrm_gpu_memory_bytes", "Memory of the GPU.", |gpu| Some(Value::Whole(gpu.total))),
    gauge(None, "radrm_gpu_memory_used_bytes", "Memory in use.", |gpu| gpu.used.map(Value::Whole)),
    gauge(None, "radrm_gpu_memory_reserved_bytes", "Memory reserved for jobs.", |gpu| {
        Some(Value::Whole(gpu.reserved))
    }),
    gauge(None, "radrm_gpu_memory_unaccounted_bytes", "Memory in use that no job accounts for.", |gpu| {
        Some(Value::Whole(gpu.foreign))
    }),
    gauge(None, "radrm_gpu_lost", "1 while the GPU is off the bus or taken away.", |gpu| {
        Some(Value::Whole(gpu.lost.into()))
    }),
    gauge(None, "radrm_gpu_jobs", "Jobs on the GPU.", |gpu| Some(Value::Whole(gpu.job_count.into()))),
    gauge(None, "radrm_gpu_sm_activity_ratio", "SM activity, if the driver reports it.", |gpu| {
        counted(gpu, gpu.smact)
    }),
    gauge(None, "radrm_gpu_sm_occupancy_ratio", "SM occupancy, if the driver reports it.", |gpu| {
        counted(gpu, gpu.smocc)
    }),
    gauge(None, "radrm_gpu_dram_activity_ratio", "DRAM activity, if the driver reports it.", |gpu| {
        counted(gpu, gpu.drama)
    }),
    gauge(
        None,
        "radrm_gpu_sm_activity_by_launches_ratio",
        "SM activity estimated from timed launches of the GPU's jobs, where no counter reports it.",
        |gpu| estimated(gpu, gpu.smact),
    ),
    gauge(
        None,
        "radrm_gpu_graphics_engine_activity_ratio",
        "Part of the time in which the graphics or compute engine was in use, if the driver reports it.",
        |gpu| ratio(gpu.gract),
    ),
    gauge(None, "radrm_gpu_utilization_ratio", "Part of the time in which any kernel ran.", |gpu| {
        share(gpu.utilization)
    }),
    gauge(None, "radrm_gpu_power_watts", "Power draw.", watts),
    gauge(
        None,
        "radrm_gpu_pcie_to_gpu_bytes_per_second",
        "PCIe traffic to the GPU, if GPM reports it.",
        |gpu| gpu.pcie[0].map(Value::Whole),
    ),
    gauge(
        None,
        "radrm_gpu_pcie_from_gpu_bytes_per_second",
        "PCIe traffic from the GPU, if GPM reports it.",
        |gpu| gpu.pcie[1].map(Value::Whole),
    ),
    OfGpu {
        names: None,
        name: "radrm_gpu_energy_joules",
        help: "Energy since the driver was loaded.",
        counts: true,
        value: joules,
    },
    gauge(DCGM, "DCGM_FI_DEV_FB_TOTAL", "Framebuffer memory, MiB.", |gpu| {
        Some(Value::Whole(gpu.total >> 20))
    }),
    gauge(DCGM, "DCGM_FI_DEV_FB_USED", "Framebuffer memory used, MiB.", |gpu| {
        gpu.used.map(|used| Value::Whole(used >> 20))
    }),
    gauge(DCGM, "DCGM_FI_DEV_FB_FREE", "Framebuffer memory free, MiB.", |gpu| {
        gpu.used.map(|used| Value::Whole(gpu.total.saturating_sub(used) >> 20))
    }),
    gauge(DCGM, "DCGM_FI_DEV_GPU_UTIL", "GPU utilization, %.", |gpu| {
        gpu.utilization.map(|percent| Value::Whole(percent.into()))
    }),
    gauge(DCGM, "DCGM_FI_DEV_POWER_USAGE", "Power draw, W.", watts),
    gauge(DCGM, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since boot, mJ.", |gpu| {
        gpu.energy_mj.map(Value::Whole)
    }),
    gauge(DCGM, "DCGM_FI_PROF_SM_ACTIVE", "SM activity, ratio.", |gpu| counted(gpu, gpu.smact)),
    gauge(DCGM, "DCGM_FI_PROF_SM_OCCUPANCY", "SM occupancy, ratio.", |gpu| counted(gpu, gpu.smocc)),
    gauge(DCGM, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Graphics engine activity, ratio.", |gpu| ratio(gpu.gract)),
    gauge(DCGM, "DCGM_FI_PROF_DRAM_ACTIVE", "DRAM activity, ratio.", |gpu| counted(gpu, gpu.drama)),
    gauge(OTEL, "hw_gpu_memory_limit_bytes", "Size of the GPU memory.", |gpu| Some(Value::Whole(gpu.total))),
    gauge(OTEL, "hw_gpu_memory_usage_bytes", "GPU memory used.", |gpu| gpu.used.map(Value::Whole)),
    gauge(OTEL, "hw_gpu_memory_utilization_ratio", "Fraction of GPU memory used.", |gpu| {
        gpu.used.filter(|_| gpu.total > 0).map(|used| Value::Real(used as f64 / gpu.total as f64))
    }),
    gauge(OTEL, "hw_gpu_utilization_ratio", "Fraction of time in which any kernel ran.", |gpu| {
        share(gpu.utilization)
    }),
    gauge(OTEL, "hw_power_watts", "Power draw.", watts),
    OfGpu { names: OTEL, name: "hw_energy_joules", help: "Energy consumed.", counts: true, value: joules },
];

impl OfGpu {
    /// The labels that the names' dashboards expect.
    fn labels(&self, gpu: &GpuRow, figures: &Figures) -> Vec<(&'static str, String)> {
        let GpuRow { index, uuid, model, .. } = gpu;
        let index = index.to_string();
        let mut labels = match self.names {
            None => vec![("gpu", index), ("uuid", uuid.clone()), ("model", model.clone())],
            Some(Names::Dcgm) => vec![
                ("device", format!("nvidia{index}")),
                ("gpu", index),
                ("UUID", uuid.clone()),
                ("modelName", model.clone()),
                ("Hostname", figures.host.clone()),
            ],
            Some(Names::OpenTelemetry) => vec![
                ("hw_id", uuid.clone()),
                ("hw_name", index),
                ("hw_model", model.clone()),
                ("hw_vendor", "NVIDIA".to_owned()),
                ("hw_type", "gpu".to_owned()),
            ],
        };
        labels.extend(figures.emulated_label());
        labels
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, figures: &Figures) -> fmt::Result {
        let kind = if self.counts { MetricType::Counter } else { MetricType::Gauge };
        let mut family = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for gpu in &figures.gpus {
            let Some(value) = (self.value)(gpu) else { continue };
            let labels = self.labels(gpu, figures);
            let series = family.encode_family(&labels)?;
            match value {
                Value::Real(value) if self.counts => ConstCounter::new(value).encode(series)?,
                Value::Whole(value) if self.counts => ConstCounter::new(value).encode(series)?,
                value => ConstGauge::new(value).encode(series)?,
            }
        }
        Ok(())
    }
}

impl Figures {
    /// Marks series of emulated GPUs and of jobs on them; series of real ones do not have it.
    fn emulated_label(&self) -> Option<(&'static str, String)> {
        Some(("emulated", self.emulated.clone()?))
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Jobs that are not over, by state.";
        let mut jobs = encoder.encode_descriptor("radrm_jobs", help, None, MetricType::Gauge)?;
        for (state, count) in &self.jobs {
            ConstGauge::new(*count).encode(jobs.encode_family(&[("state", state.as_str())])?)?;
        }
        for (name, help, value) in [
            (
                "radrm_suspended_bytes",
                "Device memory of suspended jobs, which is in host memory.",
                Some(self.suspended_bytes),
            ),
            (
                "radrm_unaccounted_processes",
                "Processes that take GPU memory past the shim.",
                self.unaccounted_processes,
            ),
            (
                "radrm_health_issues",
                "Things that the daemon cannot do at the moment.",
                Some(self.health_issues),
            ),
        ] {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, value) in &self.counters {
            let counter = ConstCounter::new(*value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        for (name, help, spans) in [
            ("radrm_job_waiting_seconds", "Time in the queue of jobs that ran and are over.", self.waiting),
            (
                "radrm_job_execution_seconds",
                "Running time of jobs that are over, all attempts.",
                self.execution,
            ),
        ] {
            let all = [(f64::MAX, spans.count)];
            encoder
                .encode_descriptor(name, help, None, MetricType::Histogram)?
                .encode_histogram::<NoLabelSet>(spans.sum_ms as f64 / 1000.0, spans.count, &all, None)?;
        }
        let wanted = |of: &&OfGpu| of.names.is_none_or(|names| self.names.contains(&names));
        OF_GPU.iter().filter(wanted).try_for_each(|of| of.encode(&mut encoder, self))?;
        let Some(jobs) = &self.job_memory else { return Ok(()) };
        let help =
            "GPU memory that a job holds: the larger of what its processes counted and what NVML reports.";
        let mut memory =
            encoder.encode_descriptor("radrm_job_gpu_memory_bytes", help, None, MetricType::Gauge)?;
        for JobMemory { gpu, uuid, job, user, bytes } in jobs {
            let labels: Vec<(&str, String)> = [
                ("gpu", gpu.map(|gpu| gpu.to_string()).unwrap_or_default()),
                ("uuid", uuid.clone()),
                ("job", job.to_string()),
                ("user", user.clone()),
            ]
            .into_iter()
            .chain(self.emulated_label())
            .collect();
            ConstGauge::new(*bytes).encode(memory.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The content type of [`text`]'s result.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The figures as OpenMetrics text.
pub(crate) fn text(figures: Figures) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(figures));
    let mut out = String::new();
    // Only the writer could fail, and a string takes everything.
    let _ = text::encode(&mut out, &registry);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(names: &[Names]) -> Figures {
        let gpu = GpuRow {
            index: 1,
            uuid: "GPU-7".to_owned(),
            model: "a \"b\"\n".to_owned(),
            total: 40 << 30,
            used: Some(10 << 30),
            utilization: Some(50),
            energy_mj: Some(2500),
            ..GpuRow::default()
        };
        Figures {
            jobs: vec![(JobState::Waiting, 2)],
            counters: vec![("radrm_jobs_submitted", "Jobs submitted.", 3)],
            waiting: Spans { sum_ms: 1500, count: 2 },
            job_memory: Some(vec![JobMemory {
                job: 9,
                user: "u".to_owned(),
                bytes: 5,
                ..JobMemory::default()
            }]),
            gpus: vec![gpu],
            host: "node7".to_owned(),
            names: names.to_vec(),
            ..Figures::default()
        }
    }

    #[test]
    fn series_keep_their_names_and_escape_labels() {
        let text = text(figures(&[]));
        for line in [
            r#"radrm_jobs{state="waiting"} 2"#,
            "radrm_jobs_submitted_total 3",
            "radrm_job_waiting_seconds_sum 1.5",
            "radrm_job_waiting_seconds_count 2",
            r#"radrm_gpu_memory_used_bytes{gpu="1",uuid="GPU-7",model="a \"b\"\n"} 10737418240"#,
            r#"radrm_gpu_energy_joules_total{gpu="1",uuid="GPU-7",model="a \"b\"\n"} 2.5"#,
            r#"radrm_job_gpu_memory_bytes{gpu="",uuid="",job="9",user="u"} 5"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("radrm_gpu_power_watts{") && !text.contains("DCGM_") && !text.contains("hw_"));
    }

    #[test]
    fn what_no_counter_measured_is_no_series_of_one() {
        let mut of_launches = figures(&[Names::Dcgm, Names::OpenTelemetry]);
        of_launches.gpus[0] = GpuRow {
            used: None,
            smact: Some(250),
            smocc: Some(100),
            activity_source: Some(ActivitySource::Launches),
            ..of_launches.gpus[0].clone()
        };
        let mut counted = figures(&[Names::Dcgm]);
        counted.gpus[0].smact = Some(250);
        counted.gpus[0].activity_source = Some(ActivitySource::Dcgm);
        let [of_launches, counted] = [text(of_launches), text(counted)];
        let has = |text: &str, name: &str| text.lines().any(|line| line.starts_with(&format!("{name}{{")));
        for name in ["DCGM_FI_PROF_SM_ACTIVE", "radrm_gpu_sm_activity_ratio"] {
            assert!(!has(&of_launches, name) && has(&counted, name), "{name}: {of_launches}");
        }
        assert!(has(&of_launches, "radrm_gpu_sm_activity_by_launches_ratio"), "{of_launches}");
        assert!(!has(&counted, "radrm_gpu_sm_activity_by_launches_ratio"), "{counted}");
        // No audit has looked for them.
        assert!(!of_launches.contains("radrm_unaccounted_processes"), "{of_launches}");
        for name in ["radrm_gpu_memory_used_bytes", "DCGM_FI_DEV_FB_FREE", "hw_gpu_memory_utilization_ratio"]
        {
            assert!(!has(&of_launches, name), "{name}: no poll has shown it: {of_launches}");
        }
    }

    #[test]
    fn series_of_emulated_gpus_are_labelled() {
        let figures =
            Figures { emulated: Some("1xT4".to_owned()), ..figures(&[Names::Dcgm, Names::OpenTelemetry]) };
        let text = text(figures);
        let series = |line: &&str| {
            ["radrm_gpu_", "radrm_job_gpu_", "DCGM_", "hw_"].iter().any(|name| line.starts_with(name))
        };
        let all: Vec<&str> = text.lines().filter(series).collect();
        assert!(all.len() > 15 && all.iter().all(|line| line.contains(",emulated=\"1xT4\"}")), "{text}");
    }

    #[test]
    fn further_names_carry_the_units_and_labels_of_their_dashboards() {
        let text = text(figures(&[Names::Dcgm, Names::OpenTelemetry]));
        let labels = r#"{device="nvidia1",gpu="1",UUID="GPU-7",modelName="a \"b\"\n",Hostname="node7"}"#;
        let hw = r#"{hw_id="GPU-7",hw_name="1",hw_model="a \"b\"\n",hw_vendor="NVIDIA",hw_type="gpu"}"#;
        for line in [
            format!("DCGM_FI_DEV_FB_USED{labels} 10240"),
            format!("DCGM_FI_DEV_FB_FREE{labels} 30720"),
            format!("DCGM_FI_DEV_GPU_UTIL{labels} 50"),
            format!("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} 2500"),
            format!("hw_gpu_memory_usage_bytes{hw} 10737418240"),
            format!("hw_gpu_memory_utilization_ratio{hw} 0.25"),
            format!("hw_gpu_utilization_ratio{hw} 0.5"),
            format!("hw_energy_joules_total{hw} 2.5"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(text.contains("radrm_gpu_memory_used_bytes{"), "beside the own names");
    }
}
