//! The parts of the text report.

use super::TextOptions;
use crate::model::{GpuSummary, GpuTime, KernelSummary, ProcessSummary, Summary, UncountedMemorySummary};
use crate::view::phrases::{
    copies_text, counted, end_text, failure_text, launches_text, outcome_text, program_of,
};
use radrm_profile::model::{GpuIndex, Kind, Profile};
use radrm_profile::steps::{columns, gpu_steps};
use radrm_profile::{Bytes, Nanos};
use radrm_text::number::{grouped, mean};
use radrm_text::{Paint, Table, clean, fit, left, right};

/// Labels of a GPU's lines are this wide.
pub(super) const LABEL: usize = 22;

pub(super) struct Report<'a> {
    pub(super) profile: &'a Profile,
    pub(super) summary: &'a Summary,
    pub(super) paint: Paint,
    pub(super) width: usize,
    pub(super) options: &'a TextOptions,
}

impl Report<'_> {
    pub(super) fn headline(&self, out: &mut String) {
        let s = self.summary;
        let command = s.command_line().fit(self.width - 7);
        out.push_str(&format!("{} {}\n", self.paint.bold("radrm:"), self.paint.bold(&command)));
        let who = s.job.user.clone().unwrap_or_else(|| format!("uid {}", s.job.uid));
        out.push_str(&format!(
            "  {} · {}\n",
            self.outcome(),
            self.paint.dim(&format!("{}@{}", clean(&who), s.job.host))
        ));
        if let Some(machine) = &s.emulated {
            let line = format!("EMULATED on {}: no figure below was measured on a GPU", clean(machine));
            out.push_str(&format!("  {}\n", self.paint.warn(&line)));
        }
        let frameworks = self.frameworks();
        if !frameworks.is_empty() {
            out.push_str(&format!("  {}\n", fit(&frameworks, self.width - 2)));
        }
    }

    fn outcome(&self) -> String {
        let o = &self.summary.outcome;
        let text = outcome_text(o);
        let text = clean(&text);
        match o.status {
            "exited" if o.success => self.paint.good(&text),
            "running" | "unfinished" | "unknown" => self.paint.warn(&text),
            _ => self.paint.bad(&text),
        }
    }

    fn frameworks(&self) -> String {
        radrm_profile::model::frameworks(self.profile).join(" · ")
    }

    pub(super) fn no_program(&self, out: &mut String) {
        out.push('\n');
        for sentence in &self.summary.unseen {
            out.push_str(&format!("{}\n", clean(sentence)));
        }
    }

    pub(super) fn gpu(&self, out: &mut String, gpu: &GpuSummary) {
        let total =
            if gpu.total_bytes.is_zero() { String::new() } else { format!(" · {}", gpu.total_bytes) };
        let name = if gpu.name.is_empty() { "(name unknown)" } else { &gpu.name };
        let title = format!("GPU {} · {}{}", gpu.index, clean(name), total);
        out.push_str(&format!("\n{}\n", self.paint.bold(&title)));
        if !gpu.used() {
            line(out, "peak device memory", "none was allocated");
        } else {
            self.gpu_memory(out, gpu);
        }
        for quota in &gpu.quotas {
            line(out, quota.label(), &quota.text());
        }
        if let Some(sentence) = self.nvml_silence(gpu) {
            line(out, "NVML reports", &sentence);
        }
        if let Some(nvml) = &gpu.nvml {
            let mut parts = Vec::new();
            match nvml.job_peak_bytes {
                Some(peak) => parts.push(format!("this job up to {peak}")),
                None if nvml.job_samples > 0 => {
                    parts.push(format!("all processes up to {}", nvml.used_peak_bytes));
                }
                None => {}
            }
            if let Some(remainder) = nvml.remainder_bytes {
                parts.push(remainder_text(remainder));
            }
            if !nvml.others_peak_bytes.is_zero() {
                let is_outside =
                    |on: &UncountedMemorySummary| on.gpu == Some(gpu.index) && !on.peak_bytes.is_zero();
                let has_outside =
                    self.summary.uncounted.iter().flat_map(|process| &process.gpus).any(is_outside);
                let others =
                    if has_outside { "uncounted processes, also of this job," } else { "other jobs" };
                parts.push(format!("{others} up to {}", nvml.others_peak_bytes));
            }
            if nvml.job_peak_bytes.is_some_and(|peak| peak < gpu.peak_bytes) {
                let samples = counted(nvml.job_samples, "sample", "samples");
                parts.push(format!("its {samples} missed the peak"));
            }
            if !parts.is_empty() {
                line(out, "NVML reports", &parts.join("; "));
            }
            let mut load = Vec::new();
            if let Some(utilization) = nvml.mean_utilization {
                load.push(format!("busy {utilization:.0} % of the time"));
            }
            if let Some(power) = nvml.max_power_mw {
                load.push(format!("up to {:.0} W", f64::from(power) / 1000.0));
            }
            if let Some(temperature) = nvml.max_temperature {
                load.push(format!("up to {temperature} °C"));
            }
            if !load.is_empty() {
                line(out, "load", &load.join(", "));
            }
        }
        if let Some(load) = &gpu.load {
            self.gpu_load(out, load);
        }
        if self.options.timeline {
            self.timeline(out, gpu);
            self.load_timeline(out, gpu);
        }
    }

    /// Reason that NVML has no figure for this job on a GPU that it used, unless a note gives the reason.
    fn nvml_silence(&self, gpu: &GpuSummary) -> Option<String> {
        if !gpu.used() || self.summary.notes.iter().any(|note| note.contains("NVML")) {
            return None;
        }
        match &gpu.nvml {
            None if self.summary.outcome.duration_ns < Nanos::from_secs(1) => {
                Some("no sample: the job ended before the first one".into())
            }
            None => Some("no sample of this GPU".into()),
            Some(nvml) if nvml.job_samples == 0 => {
                let samples = counted(nvml.samples, "sample", "samples");
                let list = if nvml.samples == 1 { "does" } else { "do" };
                Some(format!("nothing for this job: {samples} {list} not list it"))
            }
            Some(_) => None,
        }
    }

    fn gpu_memory(&self, out: &mut String, gpu: &GpuSummary) {
        let share =
            gpu.peak_share.map_or(String::new(), |share| format!(" · {} of the card", percent(share)));
        let at = if gpu.peak_bytes.is_zero() { String::new() } else { format!(" · at {}", gpu.peak_at_ns) };
        let peak = self.paint.bold(&format!("{}{}", bound(gpu.peak_exact), gpu.peak_bytes));
        line(out, "peak device memory", &format!("{peak}{share}{at}"));
        if !gpu.peak_exact {
            line(
                out,
                "",
                &format!("(several processes were busy at once; at least {})", gpu.peak_at_least_bytes),
            );
        }
        for kind in Kind::DEVICE {
            let Some(summary) = gpu.kinds.get(kind.key()) else { continue };
            if summary.at_peak_bytes.is_zero() && summary.peak_bytes.is_zero() {
                continue;
            }
            let mut text = format!("{:<12}", summary.at_peak_bytes.to_string());
            if kind == Kind::PoolReserved
                && let Some(used) = gpu.kinds.get(Kind::PoolUsed.key())
            {
                text.push_str(&format!("{} in use; ", used.at_peak_bytes));
            }
            if summary.peak_bytes != summary.at_peak_bytes {
                text.push_str(&format!("own peak {}{}; ", bound(summary.peak_exact), summary.peak_bytes));
            }
            let counts =
                if kind == Kind::PoolReserved { gpu.kinds.get(Kind::PoolUsed.key()) } else { Some(summary) };
            if let Some(counts) = counts.filter(|counts| counts.allocations > 0) {
                text.push_str(&counted(counts.allocations, "allocation", "allocations"));
                text.push_str(", ");
                text.push_str(&counted(counts.frees, "free", "frees"));
            }
            line(out, &format!("  {}", kind.label()), text.trim_end_matches("; "));
        }
        if gpu.kinds_approximate {
            line(out, "", "(the kinds are approximate: other threads were allocating at the peak)");
        }
        let beside: Vec<_> = gpu
            .beside()
            .iter()
            .map(|beside| format!("{} {}{}", beside.label, bound(beside.exact), beside.peak))
            .collect();
        if !beside.is_empty() {
            line(out, "not in the peak", &beside.join(", "));
        }
        let (held, unfreed) = gpu.left_over();
        if !held.bytes.is_zero() {
            line(out, "still held", &format!("{held}, by processes that were still running"));
        }
        if !unfreed.bytes.is_zero() {
            line(
                out,
                "held at exit",
                &format!("{unfreed}, cached or leaked; released when {} ended", self.owners(gpu)),
            );
        }
    }

    /// The processes that ended with memory on a GPU.
    fn owners(&self, gpu: &GpuSummary) -> String {
        let processes = &self.summary.processes;
        let held =
            |p: &&ProcessSummary| p.gpus.iter().any(|on| on.gpu == gpu.index && !on.unfreed_bytes.is_zero());
        match (processes.iter().filter(held).count(), processes.len()) {
            (_, 1) => "the process".to_owned(),
            (1, _) => "its process".to_owned(),
            (many, _) => format!("its {many} processes"),
        }
    }

    fn timeline(&self, out: &mut String, gpu: &GpuSummary) {
        const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let steps = gpu_steps(self.profile, GpuIndex(gpu.index));
        let top = steps.iter().map(|step| step.total.0).max().unwrap_or(0);
        if top == 0 {
            return;
        }
        let end = self.profile.duration();
        let columns = columns(&steps, end, (self.width - LABEL - 4).min(100));
        let bars: String = columns
            .iter()
            .map(|column| {
                // Anything that is held shows.
                let level = (u128::from(column.total.0) * 8).div_ceil(u128::from(top));
                LEVELS[usize::try_from(level).unwrap_or(8).min(8)]
            })
            .collect();
        line(out, "over time", &format!("▕{bars}▏"));
        let right = end.to_string();
        let gap = columns.len().saturating_sub(1 + right.chars().count());
        line(out, &format!("  top = {}", Bytes(top)), &format!(" 0{:gap$}{right}", ""));
    }

    pub(super) fn processes(&self, out: &mut String) {
        let processes = &self.summary.processes;
        if processes.len() < 2 {
            return;
        }
        // Those with the highest peaks: a job may have a thousand.
        const SHOWN: usize = 20;
        let mut order: Vec<&ProcessSummary> = processes.iter().collect();
        order.sort_by_key(|process| std::cmp::Reverse(process.gpus.iter().map(|gpu| gpu.peak_bytes).max()));
        let mut table = Table::new([
            right("pid"),
            left("process"),
            right("GPU"),
            right("peak"),
            right("allocations"),
            right("launches"),
            left("end"),
        ]);
        for process in order.iter().take(SHOWN) {
            let command = fit(&program_of(process.command_or_exe().raw()), (self.width / 3).max(20));
            let mut first = true;
            let none = [(String::from("-"), String::from("-"), String::from("-"))];
            let gpus: Vec<_> = process
                .gpus
                .iter()
                .map(|gpu| {
                    let allocations: u64 = gpu
                        .kinds
                        .iter()
                        .filter(|kind| *kind.0 != "imported")
                        .map(|kind| kind.1.allocations)
                        .fold(0, u64::saturating_add);
                    (gpu.gpu.to_string(), gpu.peak_bytes.to_string(), grouped(allocations))
                })
                .collect();
            for (gpu, peak, allocations) in if gpus.is_empty() { none.to_vec() } else { gpus } {
                let once = |text: String| if first { text } else { String::new() };
                table.row([
                    once(process.pid.to_string()),
                    once(command.clone()),
                    gpu,
                    peak,
                    allocations,
                    once(launches_text(process)),
                    once(end_text(&process.end)),
                ]);
                first = false;
            }
        }
        self.section(out, &format!("{} processes", processes.len()), table);
        more(out, processes.len().saturating_sub(SHOWN) as u64);
    }

    pub(super) fn kernels(&self, out: &mut String) {
        let kernels = &self.summary.kernels;
        let missing = self.summary.kernels_missing();
        if kernels.is_empty() {
            if !self.summary.nothing_seen() {
                let line = missing.unwrap_or_else(|| "no kernel was launched".into());
                out.push_str(&format!("\n{}\n", self.paint.dim(&line)));
                self.copies(out);
            }
            return;
        }
        let shown = self.options.kernels.max(1);
        let graphs =
            self.summary.graph_launches > 0 || kernels.iter().any(|kernel| kernel.graph_launches > 0);
        let timed = kernels.iter().any(|kernel| kernel.gpu_time.is_some());
        let mut columns = Vec::new();
        if timed {
            columns.extend(["GPU time", "+-", "share"].map(right));
        }
        columns.push(right("launches"));
        if graphs {
            columns.push(right("in graphs"));
        }
        columns.extend(["blocks", "threads", "regs", "shared"].map(right));
        columns.push(left("kernel"));
        // The name gets what the figures leave.
        let mut table = Table::new(columns).within(self.width, 24);
        for kernel in kernels.iter().take(shown) {
            let mut row = Vec::new();
            if timed {
                let text = |text: &dyn Fn(&GpuTime) -> String| {
                    kernel.gpu_time.as_ref().map_or_else(|| "-".to_owned(), text)
                };
                row.push(text(&|t| t.total_ns.to_string()));
                row.push(text(&|t| t.half_width_ns.to_string()));
                row.push(text(&|t| format!("{:.1} %", t.share * 100.0)));
            }
            row.push(grouped(kernel.launches));
            if graphs {
                row.push(grouped(kernel.graph_launches));
            }
            row.push(mean(kernel.mean_blocks));
            row.push(mean(kernel.mean_threads_per_block));
            row.push(kernel.registers.to_string());
            row.push((kernel.static_shared_bytes + kernel.mean_dynamic_shared_bytes).to_string());
            row.push(kernel.short_name.clone());
            table.row(row);
        }
        let graph_text = if graphs {
            format!(", {}", counted(self.summary.graph_launches, "graph launch", "graph launches"))
        } else {
            String::new()
        };
        let title = format!(
            "{}, {}{graph_text} (means per launch; threads and shared memory per block)",
            counted(kernels.len() as u64, "kernel", "kernels"),
            counted(self.summary.launches, "launch", "launches")
        );
        self.section(out, &title, table);
        more(out, kernels.len().saturating_sub(shown) as u64);
        if timed {
            let whole = |kernel: &KernelSummary| {
                let launches = kernel.launches.saturating_add(kernel.graph_launches);
                kernel.gpu_time.is_some_and(|time| time.samples >= launches)
            };
            out.push_str(if kernels.iter().all(whole) {
                "  every launch was timed; +- holds in 95 of 100 cases\n"
            } else {
                "  times are estimates from launches drawn at random; +- holds in 95 of 100 cases\n"
            });
        }
        // A lower bound is rounded down; one of zero says nothing.
        if let Some(idle) = self.summary.gpu_idle_share.filter(|idle| *idle >= 0.01) {
            out.push_str(&format!(
                "  no kernel ran in at least {:.0} % of the {}time between the first and the last\n",
                (idle * 100.0).floor(),
                if self.summary.gpu_clock.is_real() { "" } else { "modelled " }
            ));
        }
        self.copies(out);
        if let Some(missing) = missing {
            out.push_str(&format!("  {}\n", self.paint.warn(&missing)));
        }
    }

    fn copies(&self, out: &mut String) {
        let parts: Vec<String> = self.summary.copies.iter().map(copies_text).collect();
        if !parts.is_empty() {
            out.push_str(&format!("  copies: {}\n", parts.join(", ")));
        }
    }

    pub(super) fn failures(&self, out: &mut String) {
        const SHOWN: usize = 8;
        let s = self.summary;
        if s.failed_requests_total == 0 && s.failed_requests.is_empty() {
            return;
        }
        let total = s.failed_requests_total.max(s.failed_requests.len() as u64);
        let title = format!(
            "{} refused",
            if total == 1 {
                "1 memory request was".into()
            } else {
                format!("{} memory requests were", grouped(total))
            }
        );
        out.push_str(&format!("\n{}\n", self.paint.bad(&title)));
        for failure in s.failed_requests.iter().take(SHOWN) {
            out.push_str(&format!("  {}\n", failure_text(failure, s.processes.len() > 1)));
        }
        let listed = s.failed_requests.len().min(SHOWN) as u64;
        more(out, total.saturating_sub(listed));
        self.largest_blocks(out);
    }

    /// Writes the largest blocks at the end. They show what filled the device, as far as it was still held then.
    fn largest_blocks(&self, out: &mut String) {
        let mut blocks: Vec<_> = self
            .summary
            .processes
            .iter()
            .flat_map(|p| {
                p.gpus.iter().flat_map(move |gpu| gpu.largest_blocks.iter().map(move |b| (p.pid, gpu.gpu, b)))
            })
            .collect();
        if blocks.is_empty() {
            return;
        }
        blocks.sort_by_key(|(_, _, block)| std::cmp::Reverse(block.size_bytes));
        out.push_str("  largest blocks at the end:\n");
        for (pid, gpu, block) in blocks.iter().take(5) {
            let kind = self.kind_label(block.kind);
            out.push_str(&format!(
                "    {} · {kind} · GPU {gpu} · pid {pid} · since {}\n",
                block.size_bytes, block.since_ns
            ));
        }
    }

    fn kind_label(&self, key: &str) -> &'static str {
        Kind::ALL.into_iter().find(|kind| kind.key() == key).map_or("unknown", Kind::label)
    }

    pub(super) fn notes(&self, out: &mut String) {
        let notes = self.summary.other_notes();
        if notes.is_empty() {
            return;
        }
        out.push_str(&format!("\n{}\n", self.paint.warn("notes")));
        for note in notes {
            out.push_str(&format!("  - {}\n", clean(note)));
        }
    }

    pub(super) fn section(&self, out: &mut String, title: &str, table: Table) {
        let table = table.indented(2).painted(self.paint);
        out.push_str(&format!("\n{}\n{table}", self.paint.bold(title)));
    }
}

/// Says how much of a list is not shown, if anything is not.
pub(crate) fn more(out: &mut String, hidden: u64) {
    if hidden > 0 {
        out.push_str(&format!("  ... {} more\n", grouped(hidden)));
    }
}

pub(super) fn line(out: &mut String, label: &str, text: &str) {
    out.push_str(format!("  {label:<LABEL$}{text}").trim_end());
    out.push('\n');
}

/// Stands before a figure that may be an upper bound.
fn bound(exact: bool) -> &'static str {
    if exact { "" } else { "at most " }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.05 && percent > 0.0 { "under 0.1 %".into() } else { format!("{percent:.1} %") }
}

fn remainder_text(remainder: i64) -> String {
    let size = Bytes(remainder.unsigned_abs());
    if remainder >= 0 {
        format!("{size} of it context overhead (contexts, code, libraries)")
    } else {
        format!("{size} less than the accounting")
    }
}
