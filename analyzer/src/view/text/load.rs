//! Load of the GPUs and of the host, and what limits the job.

use super::sections::{LABEL, Report, line};
use crate::model::{GpuSummary, HostSummary, LoadSummary, ProcessSummary};
use crate::view::columns;
use crate::view::phrases::counted;
use radrm_profile::model::{GpuClock, GpuIndex, HostCount, Share};
use radrm_profile::{Bytes, Nanos};
use radrm_text::clean;
use radrm_text::number::grouped;

/// A job this short has no load worth a line.
const SHORT: Nanos = Nanos::from_secs(1);

const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Report<'_> {
    /// SM activity and what belongs to it.
    pub(super) fn gpu_load(&self, out: &mut String, load: &LoadSummary) {
        let activity = activity_text(load);
        if !activity.is_empty() {
            line(out, "activity", &activity);
        }
        let traffic = traffic_text(load);
        if !traffic.is_empty() {
            line(out, "power and clocks", &traffic);
        }
    }

    /// Figures that are the run's own among the runs of its sweep.
    pub(super) fn own(&self, out: &mut String) {
        let Some(own) = &self.summary.own else { return };
        let title = format!("own figures, by the sweep {}", own.sweep);
        out.push_str(&format!("\n{}\n", self.paint.bold(&title)));
        for (label, text) in own.lines() {
            line(out, label, &text);
        }
    }

    /// Load over time, beside that of memory: of SMs, else of the GPU as NVML sees it.
    pub(super) fn load_timeline(&self, out: &mut String, gpu: &GpuSummary) {
        let count = (self.width - LABEL - 4).min(100);
        let of = |value: fn(&radrm_profile::model::GpuSpan) -> Option<Share>| {
            let columns = columns::gpu(self.profile, GpuIndex(gpu.index), count, value);
            columns.iter().any(Option::is_some).then_some(columns)
        };
        let found = of(|span| span.sm_active)
            .map(|columns| ("SM activity", columns))
            .or_else(|| of(|span| span.utilization).map(|columns| ("a kernel ran", columns)));
        if let Some((label, columns)) = found {
            line(out, label, &format!("▕{}▏", bars(&columns, 1.0)));
            line(out, "  top = 100 %", "");
        }
    }

    /// Writes the job's use of the host.
    pub(super) fn host(&self, out: &mut String) {
        let Some(host) = &self.summary.host else { return };
        out.push_str(&format!("\n{}\n", self.paint.bold("host")));
        for (label, text) in host_lines(host) {
            line(out, label, &text);
        }
        if self.options.timeline {
            let columns = columns::host(self.profile, (self.width - LABEL - 4).min(100));
            let top = columns.iter().flatten().fold(0.0, |top: f64, busy| top.max(*busy));
            if top > 0.0 {
                line(out, "processors busy", &format!("▕{}▏", bars(&columns, top)));
                line(out, &format!("  top = {top:.2}"), "");
            }
        }
    }

    /// The bottleneck of the job, and what could not be measured.
    pub(super) fn limits(&self, out: &mut String) {
        let s = self.summary;
        let held = s.throttling.map(|held| held.sentence());
        // A dry run computes nothing, so a figure of load is not missing.
        let is_dry = s.gpu_clock == GpuClock::Absent;
        if ((s.outcome.duration_ns < SHORT || is_dry) && held.is_none()) || s.nothing_seen() {
            return;
        }
        let mut lines: Vec<String> = held.into_iter().collect();
        if s.limits.limit != "unknown" {
            lines.push(clean(&s.limits.sentence).into_owned());
        }
        if !lines.is_empty() {
            out.push_str(&format!("\n{}\n", self.paint.bold("limits")));
            lines.iter().for_each(|text| out.push_str(&format!("  {text}\n")));
        }
        // Nothing more would be known of a run that timed launches, as of one process on several GPUs.
        let times = |process: &ProcessSummary| matches!(process.kernels_mode, Some("sample" | "all"));
        let is_timed = s.processes.iter().any(times);
        let missing = s.unmeasured.iter().map(|clause| {
            let hint = match clause.starts_with("SM activity") && !is_timed {
                true => "; --kernels sample estimates it",
                false => "",
            };
            self.paint.dim(&format!("{}{hint}", clean(clause)))
        });
        let missing: Vec<String> = missing.collect();
        if !missing.is_empty() {
            out.push_str(&format!("\n{}\n", self.paint.bold("not measured")));
            missing.iter().for_each(|text| out.push_str(&format!("  {text}\n")));
        }
    }
}

fn bars(columns: &[Option<f64>], top: f64) -> String {
    let bar = |value: &Option<f64>| match value {
        // Anything above nothing shows.
        Some(value) => {
            LEVELS.get(((value / top).clamp(0.0, 1.0) * 8.0).ceil() as usize).copied().unwrap_or('█')
        }
        None => '·',
    };
    columns.iter().map(bar).collect()
}

/// `SMs active 41 %, occupancy 20 %, tensor cores 5 %, memory bandwidth 33 % (GPM)`.
pub(crate) fn activity_text(load: &LoadSummary) -> String {
    let parts: Vec<String> = [
        ("SMs active", load.sm_active_share),
        ("occupancy", load.sm_occupancy_share),
        ("tensor cores", load.tensor_active_share),
        ("memory bandwidth", load.dram_active_share),
    ]
    .into_iter()
    .filter_map(|(name, share)| Some(format!("{name} {:.0} %", share? * 100.0)))
    .collect();
    match load.meter {
        Some(meter) if !parts.is_empty() => format!("{} (mean, {})", parts.join(", "), meter.to_uppercase()),
        _ => String::new(),
    }
}

pub(crate) fn traffic_text(load: &LoadSummary) -> String {
    let mut parts = Vec::new();
    if let Some(energy) = load.energy_mj.filter(|energy| *energy > 0) {
        let mean = load.mean_power_mw.map_or(String::new(), |mw| format!(" (mean {:.0} W)", mw / 1000.0));
        parts.push(format!("{}{mean}", joules(energy)));
    }
    if let (Some(from), Some(to)) = (load.pcie_from_gpu_bytes_per_s, load.pcie_to_gpu_bytes_per_s) {
        let rate = |rate: f64| Bytes(rate as u64);
        parts.push(format!("PCI Express {}/s from it, {}/s to it", rate(from), rate(to)));
    }
    if let Some(clock) = load.mean_sm_clock_mhz {
        parts.push(format!("SM clock {clock:.0} MHz"));
    }
    parts.join(", ")
}

fn joules(energy_mj: u64) -> String {
    let joules = energy_mj as f64 / 1000.0;
    if joules < 1000.0 {
        format!("{joules:.0} J")
    } else if joules < 1e6 {
        format!("{:.1} kJ", joules / 1e3)
    } else {
        format!("{:.2} MJ", joules / 1e6)
    }
}

/// The host's figures as labels and texts.
pub(crate) fn host_lines(host: &HostSummary) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(clock) = host.counter(HostCount::TaskClock) {
        let mut text = Nanos(clock).to_string();
        if let Some(busy) = host.mean_busy_processors {
            let of = if host.processors > 0 { format!(" of {}", host.processors) } else { String::new() };
            text.push_str(&format!(" · {busy:.2}{of} processors on average"));
        }
        if let Some(most) = host.max_busy_processors {
            text.push_str(&format!(", up to {most:.2}"));
        }
        lines.push(("processor time", text));
    }
    if let Some(resident) = host.resident_peak_bytes {
        let mut text = format!("up to {resident}");
        if host.max_processes > 1 {
            let processes = counted(host.max_processes.into(), "process", "processes");
            text.push_str(&format!(
                ", all processes added (at most {processes} at a time; what they share counts for each)"
            ));
        }
        lines.push(("resident memory", text));
    }
    let mut counts = Vec::new();
    for count in [HostCount::ContextSwitches, HostCount::PageFaults, HostCount::Instructions] {
        if let Some(value) = host.counter(count) {
            counts.push(match count {
                HostCount::ContextSwitches => counted(value, "context switch", "context switches"),
                HostCount::PageFaults => counted(value, "page fault", "page faults"),
                _ => format!("{} {}", grouped(value), count.label()),
            });
        }
    }
    counts.extend(host.instructions_per_cycle.map(|rate| format!("{rate:.2} instructions per cycle")));
    counts.extend(
        host.cache_misses_per_1000.map(|rate| format!("{rate:.1} cache misses per 1000 instructions")),
    );
    if !counts.is_empty() {
        lines.push(("counted", counts.join(", ")));
    }
    lines
}
