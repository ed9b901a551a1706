//! The report as one page that needs nothing else.

mod addresses;
mod lines;
mod phases;
mod stacks;
mod tensors;
mod timeline;

use super::escaped::{escaped, json_in_script};
use super::phrases::{copies_text, counted, end_text, failure_text, launches_text, outcome_text};
use super::text;
use super::text::load::{activity_text, host_lines, traffic_text};
use super::text::{answer, dry_run, step};
use crate::model::stacks::tables;
use crate::model::{
    DryRunSummary, Feature, GpuSummary, KernelSummary, PostmortemSummary, ProcessSummary, Summary,
};
use addresses::{AddressSection, Addresses};
use askama::Template;
use phases::Phases;
use radrm_base::calendar;
use radrm_profile::model::dry_run::{GpuFigures, Phase};
use radrm_profile::model::{GpuIndex, Kind, Profile};
use radrm_profile::steps::{columns, gpu_steps};
use radrm_profile::{Bytes, Nanos};
use radrm_text::clean;
use radrm_text::number::{grouped, mean};
use stacks::{Section, Stacks};
use tensors::TensorSection;
use timeline::Timeline;

/// Kernels in the page; all of them are in the JSON report.
const KERNELS: usize = 500;

/// Processes in the page whose features are shown: those that launched most.
const FEATURES: usize = 16;

/// Processes in the page.
const PROCESSES: usize = 200;

/// Rows of the table that has a GPU's memory over time.
const MOMENTS: usize = 24;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    s: &'a Summary,
    timeline: Timeline,
    /// Data for the script's pictures, as JSON.
    data: String,
    stacks: Stacks,
    /// Call stacks for the script, likewise.
    flames: String,
    /// Block addresses for the script, likewise; empty if they are not recorded.
    spaces: String,
    title: String,
    command: String,
    outcome: String,
    outcome_class: &'static str,
    who: String,
    started: String,
    facts: Vec<(&'static str, String)>,
    gpus: Vec<Gpu<'a>>,
    kernels: Vec<Kernel<'a>>,
    more_kernels: usize,
    timed: bool,
    graphs: bool,
    processes: Vec<Process>,
    more_processes: usize,
    refused: Vec<String>,
    more_refused: u64,
    postmortems: Vec<Vec<String>>,
    host: Vec<(&'static str, String)>,
    features: Vec<Features<'a>>,
    copies: Vec<String>,
    dry_run: Option<DryRun>,
    /// True if single phases are drawn.
    draws_phases: bool,
    /// Phases for the script, as JSON.
    phases: String,
    phase_rows: Vec<phases::Row>,
    more_phases: usize,
    phase_remarks: Vec<String>,
}

/// Result of a dry run.
struct DryRun {
    /// The answer, as the text report begins with it.
    answer: Vec<answer::Row>,
    title: String,
    lines: Vec<String>,
    gpus: Vec<(String, Vec<(&'static str, String)>)>,
    fits: Vec<[String; 6]>,
    uncertain: Vec<(String, Vec<String>)>,
}

struct Gpu<'a> {
    s: &'a GpuSummary,
    /// True if memory is drawn, and true if load is.
    draws: (bool, bool),
    /// True if NVML's line is in the picture, and true if refused requests are.
    marks: (bool, bool),
    /// Lines of load with the numbers of their colours.
    load: Vec<(&'static str, u8)>,
    /// Names of the kinds, then memory at some moments: the picture's figures.
    moments: (Vec<&'static str>, Vec<Moment>),
    kinds: Vec<KindRow>,
    stacks: Vec<Section>,
    spaces: Vec<AddressSection>,
    tensors: Vec<TensorSection>,
    facts: Vec<(&'static str, String)>,
}

/// The highest device total of a part of the time.
struct Moment {
    from: Nanos,
    total: Bytes,
    kinds: Vec<Bytes>,
}

struct KindRow {
    colour: u8,
    label: &'static str,
    in_total: bool,
    note: &'static str,
    at_peak: Bytes,
    peak: String,
    now: Bytes,
    unfreed: Bytes,
    allocations: String,
    frees: String,
}

struct Kernel<'a> {
    s: &'a KernelSummary,
    time: String,
    time_ns: u64,
    share: String,
    launches: String,
    graph_launches: String,
    blocks: String,
    threads: String,
    shared: Bytes,
}

/// Use of each resource by a process.
struct Features<'a> {
    pid: u32,
    command: String,
    rows: Vec<FeatureRow<'a>>,
    /// Features without a value.
    missing: Vec<FeatureRow<'a>>,
}

struct FeatureRow<'a> {
    resource: String,
    label: String,
    value: String,
    s: &'a Feature,
}

struct Process {
    pid: u32,
    command: String,
    gpu: String,
    peak: Bytes,
    launches: String,
    frameworks: String,
    end: String,
}

/// The report as a page: one file, no other resource, light and dark. Without scripts it has every figure, but draws
/// nothing.
pub fn html(profile: &Profile, summary: &Summary) -> String {
    let page = Page::new(profile, summary);
    // Rendering to a string fails only if a value's Display fails; none does.
    page.render().unwrap_or_else(|error| format!("<!doctype html><p>{}</p>", escaped(&error.to_string())))
}

impl<'a> Page<'a> {
    fn new(profile: &Profile, s: &'a Summary) -> Page<'a> {
        let o = &s.outcome;
        let command = s.command_line().to_string();
        let program = s.job.command.first().map_or("job", |word| file_name(word.raw()));
        let who = s.job.user.clone().unwrap_or_else(|| format!("uid {}", s.job.uid));
        let failures: Vec<String> =
            s.failed_requests.iter().map(|f| failure_text(f, s.processes.len() > 1)).collect();
        let tables = tables(profile, false);
        let timeline = Timeline::new(profile, s, &tables);
        let mut stacks = Stacks::new(profile, s, tables);
        let mut addresses = Addresses::new(profile);
        let phases = Phases::new(profile);
        let (phase_rows, more_phases) = phases::rows(s);
        Page {
            // Serialising to a string fails only for maps with keys that are not strings; there are none.
            data: json_in_script(&serde_json::to_string(&timeline).unwrap_or_default()),
            draws_phases: !phases.is_empty() && !timeline.is_empty(),
            phases: json_in_script(&serde_json::to_string(&phases).unwrap_or_default()),
            phase_rows,
            more_phases,
            phase_remarks: phases::remarks(s),
            title: format!("{} · GPU memory · radrm", clean(program)),
            command,
            outcome: outcome_text(o),
            outcome_class: match o.status {
                "exited" if o.success => "good",
                "running" | "unfinished" | "unknown" => "warn",
                _ => "bad",
            },
            who: format!("{who}@{}", s.job.host),
            started: format!("{} UTC", calendar::utc(s.job.start_unix_ns)),
            facts: job_facts(s),
            gpus: s
                .gpus
                .iter()
                .map(|gpu| Gpu::new(profile, &timeline, (&mut stacks, &mut addresses), gpu))
                .collect(),
            timeline,
            flames: json_in_script(&serde_json::to_string(&stacks.flames).unwrap_or_default()),
            stacks,
            spaces: match addresses.spaces.is_empty() {
                true => String::new(),
                false => json_in_script(&serde_json::to_string(&addresses.spaces).unwrap_or_default()),
            },
            timed: s.kernels.iter().any(|kernel| kernel.gpu_time.is_some()),
            more_kernels: s.kernels.len().saturating_sub(KERNELS),
            graphs: s.kernels.iter().any(|kernel| kernel.graph_launches > 0),
            kernels: s.kernels.iter().take(KERNELS).map(Kernel::new).collect(),
            processes: processes(s),
            more_processes: s.processes.len().saturating_sub(PROCESSES),
            more_refused: s.failed_requests_total.saturating_sub(failures.len() as u64),
            postmortems: s.postmortems.iter().filter(|it| it.is_first).map(|it| postmortem(s, it)).collect(),
            refused: failures,
            features: s.busiest(FEATURES).into_iter().map(Features::new).collect(),
            copies: s.copies.iter().map(copies_text).collect(),
            dry_run: s.dry_run.as_ref().map(|dry_run| DryRun::new(dry_run, s)),
            host: s.host.as_ref().map(host_lines).unwrap_or_default(),
            s,
        }
    }
}

impl DryRun {
    fn new(of: &DryRunSummary, summary: &Summary) -> Self {
        let DryRunSummary { figures, fits, expected, ranks, step, .. } = of;
        let step =
            step.as_ref().and_then(|of| Some((step::of_step(of)?, step::remarks(of, of.on(&of.card)?))));
        let withheld = figures.withheld.as_ref().map(|why| format!("No figure: {why}."));
        Self {
            answer: answer::rows(summary),
            title: dry_run::title(figures),
            lines: ranks
                .iter()
                .map(dry_run::of_ranks)
                .chain(figures.remarks.iter().cloned())
                .chain(withheld)
                .chain(dry_run::shortage(figures, summary))
                .chain(expected.iter().flat_map(|expected| dry_run::of_expected(expected, figures)))
                .chain(step.into_iter().flat_map(|(time, remarks)| {
                    [format!("a step, predicted: {time}")].into_iter().chain(remarks)
                }))
                .collect(),
            gpus: dry_run::groups(&figures.gpus, ranks.as_ref())
                .into_iter()
                .map(|(heading, gpu)| (heading, of_gpu(gpu)))
                .collect(),
            fits: fits.iter().map(dry_run::fit_row).collect(),
            uncertain: dry_run::uncertainties(figures, ranks.as_ref()),
        }
    }
}

fn of_gpu(gpu: &GpuFigures) -> Vec<(&'static str, String)> {
    let peak = |phase: Phase| {
        let peak = gpu.phases.get(&phase)?;
        let text = format!("{} allocated, {} reserved", Bytes(peak.allocated), Bytes(peak.reserved));
        Some((phase.label(), text))
    };
    let sums = dry_run::sums(gpu).map(|text| ("processes", text));
    Phase::ALL.into_iter().filter_map(peak).chain(sums).chain(dry_run::held(gpu)).collect()
}

impl<'a> Gpu<'a> {
    fn new(
        profile: &Profile,
        timeline: &Timeline,
        (stacks, addresses): (&mut Stacks, &mut Addresses),
        s: &'a GpuSummary,
    ) -> Gpu<'a> {
        let kinds = Kind::ALL
            .into_iter()
            .filter_map(|kind| Some((kind, s.kinds.get(kind.key())?)))
            .filter(|(_, k)| k.allocations > 0 || !k.peak_bytes.is_zero())
            .map(|(kind, k)| KindRow {
                colour: kind as u8,
                label: kind.label(),
                in_total: kind.in_total(),
                note: match kind {
                    Kind::PoolUsed => "part of pool reserved",
                    kind if kind.in_total() => "",
                    _ => "not in the total",
                },
                at_peak: k.at_peak_bytes,
                peak: format!("{}{}", if k.peak_exact { "" } else { "at most " }, k.peak_bytes),
                now: k.now_bytes,
                unfreed: k.unfreed_bytes,
                allocations: grouped(k.allocations),
                frees: grouped(k.frees),
            })
            .collect();
        Gpu {
            draws: timeline.shows(s.index),
            marks: timeline.marks(s.index),
            load: timeline.load(s.index),
            moments: moments(profile, GpuIndex(s.index)),
            kinds,
            stacks: stacks.take(s.index),
            spaces: addresses.take(s.index),
            tensors: stacks.take_tensors(s.index),
            facts: gpu_facts(s),
            s,
        }
    }

    fn peak(&self) -> String {
        let bound = if self.s.peak_exact { "" } else { "at most " };
        format!("{bound}{}", self.s.peak_bytes)
    }
}

/// A GPU's memory over time as a table: what the picture shows, for those who do not see it.
fn moments(profile: &Profile, gpu: GpuIndex) -> (Vec<&'static str>, Vec<Moment>) {
    let steps = gpu_steps(profile, gpu);
    let used = |kind: &Kind| steps.iter().any(|step| !step.kinds[kind.index()].is_zero());
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(used).collect();
    if kinds.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let moment = |column: radrm_profile::steps::Column| Moment {
        from: column.t,
        total: column.total,
        kinds: kinds.iter().map(|kind| column.kinds[kind.index()]).collect(),
    };
    let rows = columns(&steps, profile.duration(), MOMENTS).into_iter().map(moment).collect();
    (kinds.iter().map(|kind| kind.label()).collect(), rows)
}

fn gpu_facts(s: &GpuSummary) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(share) = s.peak_share {
        facts.push(("of the card", format!("{:.1} % of {}", share * 100.0, s.total_bytes)));
    }
    if !s.peak_bytes.is_zero() {
        facts.push(("reached at", s.peak_at_ns.to_string()));
    }
    if !s.peak_exact {
        facts.push(("at least", s.peak_at_least_bytes.to_string()));
    }
    facts.extend(s.quotas.iter().map(|quota| (quota.label(), quota.text())));
    if let Some(nvml) = &s.nvml {
        if let Some(peak) = nvml.job_peak_bytes {
            let missed = match peak < s.peak_bytes {
                true => {
                    format!(" (its {} missed the peak)", counted(nvml.job_samples, "sample", "samples"))
                }
                false => String::new(),
            };
            facts.push(("NVML, this job", format!("{peak}{missed}")));
        }
        facts.push(("NVML, in use", nvml.used_peak_bytes.to_string()));
        if let Some(remainder) = nvml.remainder_bytes {
            let sign = if remainder < 0 { "−" } else { "" };
            facts.push(("context overhead", format!("{sign}{}", Bytes(remainder.unsigned_abs()))));
        }
        if let Some(utilization) = nvml.mean_utilization {
            facts.push(("busy", format!("{utilization:.0} % of the time")));
        }
        if let Some(power) = nvml.max_power_mw {
            facts.push(("power, up to", format!("{:.0} W", f64::from(power) / 1000.0)));
        }
    }
    if let Some(load) = &s.load {
        let activity = activity_text(load);
        if !activity.is_empty() {
            facts.push(("activity", activity));
        }
        let traffic = traffic_text(load);
        if !traffic.is_empty() {
            facts.push(("power and clocks", traffic));
        }
    }
    if s.failed_requests > 0 {
        facts.push(("refused", counted(s.failed_requests, "request", "requests")));
    }
    facts
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn job_facts(s: &Summary) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    facts.extend(s.job.program.as_ref().map(|program| ("program", program.to_string())));
    facts.extend(s.job.program_sha256.clone().map(|digest| ("SHA-256", digest)));
    facts.push(("directory", s.job.cwd.to_string()));
    for (name, value) in &s.job.environment {
        facts.push(("environment", format!("{name}={value}")));
    }
    for gpu in &s.gpus {
        let driver = gpu.driver_version.as_ref().map_or(String::new(), |v| format!(", driver {v}"));
        facts.push(("GPU", format!("{} {} {}{driver}", gpu.index, gpu.name, gpu.uuid)));
    }
    facts.push(("written by", format!("radrm {}", s.job.radrm_version)));
    facts
}

/// A refusal in a few lines: the cause, whose memory it was, and by line who asked and who held most.
fn postmortem(s: &Summary, it: &PostmortemSummary) -> Vec<String> {
    let lines = text::oom::short(it).into_iter().chain(text::stacks::in_short(&s.stacks, it));
    lines.map(|line| clean(line.trim_start()).into_owned()).collect()
}

fn processes(s: &Summary) -> Vec<Process> {
    let row = |process: &ProcessSummary| {
        let frameworks: Vec<String> = process
            .frameworks
            .iter()
            .map(|f| f.version.as_ref().map_or(f.name.clone(), |version| format!("{} {version}", f.name)))
            .collect();
        let first = process.gpus.iter().max_by_key(|gpu| gpu.peak_bytes);
        Process {
            pid: process.pid,
            command: process.command_or_exe().to_string(),
            gpu: process.gpus.iter().map(|gpu| gpu.gpu.to_string()).collect::<Vec<_>>().join(", "),
            peak: first.map_or(Bytes::ZERO, |gpu| gpu.peak_bytes),
            launches: launches_text(process),
            frameworks: frameworks.join(", "),
            end: end_text(&process.end),
        }
    };
    let mut rows: Vec<Process> = s.processes.iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.peak));
    rows.truncate(PROCESSES);
    rows
}

impl<'a> Features<'a> {
    fn new(process: &'a ProcessSummary) -> Features<'a> {
        let row = |s: &'a Feature| FeatureRow {
            resource: s.resource.replace('_', " "),
            label: s.label(),
            value: s.value_text(),
            s,
        };
        let (known, missing): (Vec<_>, Vec<_>) =
            process.features.iter().partition(|feature| feature.value.is_some());
        Features {
            pid: process.pid,
            command: process.command_or_exe().to_string(),
            rows: known.into_iter().map(row).collect(),
            missing: missing.into_iter().map(row).collect(),
        }
    }
}

impl<'a> Kernel<'a> {
    fn new(s: &'a KernelSummary) -> Kernel<'a> {
        let dash = || "-".to_owned();
        Kernel {
            time: s.gpu_time.map_or_else(dash, |t| format!("{} \u{b1} {}", t.total_ns, t.half_width_ns)),
            time_ns: s.gpu_time.map_or(0, |t| t.total_ns.0),
            share: s.gpu_time.map_or_else(dash, |t| format!("{:.1} %", t.share * 100.0)),
            launches: grouped(s.launches),
            graph_launches: grouped(s.graph_launches),
            blocks: mean(s.mean_blocks),
            threads: mean(s.mean_threads_per_block),
            shared: s.static_shared_bytes + s.mean_dynamic_shared_bytes,
            s,
        }
    }
}
