//! Refused requests and the memory holders at that moment.

use super::TextOptions;
use super::sections::{Report, more};
use super::stacks::{by_line, in_short};
use crate::model::{HeldSummary, LeftOutSummary, PostmortemSummary, QuotaSummary, Summary};
use crate::view::phrases::{counted, outcome_text, program_of};
use radrm_profile::model::Kind;
use radrm_profile::{Bytes, Nanos};
use radrm_text::{Paint, Table, clean, fit, left, right, wrapped};

/// Refusals in the normal report.
const SHORT: usize = 3;
/// Blocks that are listed of the process that was refused.
const BLOCKS: usize = 10;
/// Blocks that are listed of each other process.
const BLOCKS_OF_OTHERS: usize = 3;
/// Labels are this wide.
const LABEL: usize = 16;
/// Processes that are listed.
const PROCESSES: usize = 16;

/// The refused requests alone: `radrm report --oom`.
pub fn oom_text(summary: &Summary, options: &TextOptions) -> String {
    let paint = Paint { color: options.color };
    let width = options.columns();
    let mut out = String::new();
    let command = summary.command_line().fit(width - 7);
    out.push_str(&format!("{} {}\n", paint.bold("radrm:"), paint.bold(&command)));
    out.push_str(&format!("  {}\n", clean(&outcome_text(&summary.outcome))));
    if let Some(machine) = &summary.emulated {
        let line = format!("EMULATED on {}: no figure below was measured on a GPU", clean(machine));
        out.push_str(&format!("  {}\n", paint.warn(&line)));
    }
    if summary.postmortems.is_empty() {
        let sentence = match summary.failed_requests_total {
            0 => "no memory request was refused",
            _ => "memory requests were refused, but the profile has no record of the memory holders",
        };
        out.push_str(&format!("\n{sentence}\n"));
    }
    for it in &summary.postmortems {
        whole(&mut out, it, paint, width);
        let allocator = by_allocator(summary, it);
        // Not all that the driver counts was in use.
        let held = if allocator.is_empty() { "held then" } else { "held then, as the driver counts" };
        for line in allocator {
            for part in wrapped(&clean(&line), width.saturating_sub(2)) {
                out.push_str(&format!("  {part}\n"));
            }
        }
        for line in by_line(&summary.stacks, it, options.profile_path.as_deref()) {
            out.push_str(&format!("  {}\n", clean(&line).replacen("held then", held, 1)));
        }
    }
    out
}

impl Report<'_> {
    /// The first refusals in short.
    pub(super) fn postmortems(&self, out: &mut String) {
        let all = &self.summary.postmortems;
        if all.is_empty() {
            return;
        }
        out.push_str(&format!("\n{}\n", self.paint.bold("memory holders at the out-of-memory event")));
        let first = all.iter().filter(|it| it.is_first);
        for it in first.clone().take(SHORT) {
            for line in short(it).into_iter().chain(in_short(&self.summary.stacks, it)) {
                out.push_str(&format!("  {}\n", clean(&line)));
            }
        }
        more(out, first.count().saturating_sub(SHORT) as u64);
        if let Some(path) = &self.options.profile_path {
            let hint = format!("details: radrm report --oom {}", clean(path));
            out.push_str(&format!("  {}\n", self.paint.dim(&hint)));
        }
    }
}

/// Begin of the remark by which the allocator's side explains the last refused request of a process.
const LAST_REFUSED: &str = "the last refused request";

/// The framework's account of a process's last refusal: what the driver sees as held may be in no use.
fn by_allocator(summary: &Summary, it: &PostmortemSummary) -> Vec<String> {
    let is_last = !summary.postmortems.iter().any(|other| other.pid == it.pid && other.t_ns > it.t_ns);
    let of = summary.tensors.iter().filter(|of| is_last && of.pid == it.pid);
    of.flat_map(|of| &of.remarks).filter(|remark| remark.starts_with(LAST_REFUSED)).cloned().collect()
}

/// A refusal in a few lines, the first one the cause.
pub(crate) fn short(it: &PostmortemSummary) -> Vec<String> {
    let mut lines = vec![format!("at {} · GPU {} · pid {} · refused by {}", it.t_ns, it.gpu, it.pid, it.why)];
    lines.push(format!("  this process held {}{}", it.own.held_bytes, in_brackets(&kinds(&it.own))));
    let others = it.others.as_ref().map_or(0, Vec::len) as u64 + it.others_left_out.count;
    if others > 0 {
        let bytes = it.job_bytes.minus(it.own.held_bytes);
        lines.push(format!(
            "  {} of the job held {bytes}",
            counted(others, "other process", "other processes")
        ));
    }
    let foreign: Vec<String> = it
        .holders
        .iter()
        .filter(|holder| !holder.is_of_job)
        .take(SHORT)
        .map(|h| format!("{} {}", named(h.pid, h.program.as_deref(), h.user.as_deref()), h.bytes))
        .collect();
    if !foreign.is_empty() {
        lines.push(format!("  other jobs under the same limit: {}", foreign.join(", ")));
    }
    if it.quota.is_none() {
        lines.extend(neighbours_line(it));
    }
    if let Some(block) = it.own.largest_blocks.first() {
        lines.push(format!(
            "  its largest block: {} ({}) since {}",
            block.size_bytes,
            label(block.kind),
            block.since_ns
        ));
    }
    lines.extend(later(it).map(|line| format!("  {line}")));
    lines
}

fn neighbours_line(it: &PostmortemSummary) -> Option<String> {
    let nvml = it.nvml.as_ref()?;
    let foreign: Vec<_> = nvml.processes.iter().filter(|process| !process.is_of_job).collect();
    let largest = foreign.first()?;
    let who = named(largest.pid, largest.program.as_deref(), largest.user.as_deref());
    let more = if foreign.len() > 1 { format!(" and {} more", foreign.len() - 1) } else { String::new() };
    Some(format!("  other jobs held {}: {who}{more} (by NVML, {})", nvml.others_bytes, when(nvml.after_ns)))
}

/// One refusal with every detail.
fn whole(out: &mut String, it: &PostmortemSummary, paint: Paint, width: usize) {
    let which = if it.is_first { "first refused request" } else { "latest refused request" };
    let title = format!(
        "{which} of process {} on GPU {} · {} of {} at {}",
        it.pid, it.gpu, it.call, it.size_bytes, it.t_ns
    );
    out.push_str(&format!("\n{}\n", paint.bad(&clean(&title))));
    let mut line = |label: &str, text: &str| {
        for (number, part) in wrapped(&clean(text), width.saturating_sub(LABEL + 2)).iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            out.push_str(format!("  {label:<LABEL$}{part}").trim_end());
            out.push('\n');
        }
    };
    let why = if it.kind == "device" { it.why.clone() } else { format!("{} ({})", it.why, label(it.kind)) };
    line("refused by", &why);
    let name = if it.gpu_name.is_empty() { "(name unknown)" } else { &it.gpu_name };
    let device = match (it.free_bytes, it.device_total_bytes) {
        (Some(free), Some(total)) => format!("{name}: {free} of {total} free"),
        _ => name.to_owned(),
    };
    line("device", &device);
    for quota in &it.quotas {
        let mut text = format!("{} of {} reserved", quota.used_bytes, quota.limit_bytes);
        if let Some(driver) = context_overhead(it, quota) {
            text.push_str(&format!(", including {driver} of context overhead"));
        }
        line(&format!("{} quota", quota.scope), &text);
    }
    if let Some(later) = later(it) {
        line("later", &later);
    }
    if !it.is_complete {
        line("", "the process ended before this record was complete");
    }
    holding(out, it, paint, width);
    under_the_limit(out, it, paint);
    blocks(out, it, paint);
}

fn section(out: &mut String, title: &str, table: Table, paint: Paint) {
    out.push_str(&format!("\n  {title}\n{}", table.indented(4).painted(paint)));
}

/// The memory holders of the GPU.
fn holding(out: &mut String, it: &PostmortemSummary, paint: Paint, width: usize) {
    let program = |held: &HeldSummary| fit(&program_of(&held.command), (width / 3).max(20));
    let mut table = Table::new([right("held"), right("pid"), left("process"), left("kinds")]);
    table.row([it.own.held_bytes.to_string(), it.own.pid.to_string(), program(&it.own), kinds(&it.own)]);
    let others = it.others.as_deref().unwrap_or_default();
    for other in others.iter().take(PROCESSES) {
        table.row([other.held_bytes.to_string(), other.pid.to_string(), program(other), kinds(other)]);
    }
    let hidden = others.iter().skip(PROCESSES);
    let left = LeftOutSummary {
        count: it.others_left_out.count + hidden.clone().count() as u64,
        bytes: it.others_left_out.bytes + hidden.map(|other| other.held_bytes).sum(),
    };
    if left.count > 0 {
        table.row([
            left.bytes.to_string(),
            String::new(),
            format!("{} more of this job", left.count),
            String::new(),
        ]);
    }
    for neighbour in it.nvml.iter().flat_map(|nvml| &nvml.processes).filter(|p| !p.is_of_job).take(PROCESSES)
    {
        let held = neighbour.used_bytes.map_or("?".into(), |bytes| bytes.to_string());
        let user = neighbour.user.as_ref().map_or(String::new(), |user| format!(", user {user}"));
        let program = neighbour.program.clone().unwrap_or_default();
        table.row([held, neighbour.pid.to_string(), program, format!("another job{user}")]);
    }
    if let Some(bytes) = it.unaccounted_bytes.filter(|bytes| !bytes.is_zero()) {
        let what = "contexts, code, and changes in between";
        table.row([bytes.to_string(), String::new(), "not accounted for".into(), what.into()]);
    }
    section(out, &format!("memory holders of GPU {}", it.gpu), table, paint);
    let mut remarks = Vec::new();
    match &it.nvml {
        Some(nvml) => {
            let none = nvml.processes.iter().all(|process| process.is_of_job);
            let jobs = if none { "no other job" } else { "other jobs" };
            remarks.push(format!("{jobs} as NVML listed them {}", when(nvml.after_ns)));
        }
        None => remarks.push("NVML listed no processes, so other jobs are n/a".into()),
    }
    if it.others.is_none() {
        remarks.push("the job's other processes could not be read".into());
    } else if !it.others_complete {
        remarks.push("the list of this job's processes may be incomplete".into());
    }
    out.push_str(&format!("    {}\n", paint.dim(&format!("({})", remarks.join("; ")))));
}

/// The part of a job's limit that no process allocated: context overhead is charged too.
fn context_overhead(it: &PostmortemSummary, quota: &QuotaSummary) -> Option<Bytes> {
    let others = it.others.as_ref().filter(|_| it.others_complete && it.others_left_out.count == 0)?;
    let counted = |kind: &Kind| kind.in_quota();
    let of = |held: &HeldSummary| -> Bytes {
        Kind::ALL.iter().filter(|k| counted(k)).filter_map(|kind| held.kinds.get(kind.key()).copied()).sum()
    };
    let all = of(&it.own) + others.iter().map(of).sum();
    Some(quota.used_bytes.minus(all)).filter(|bytes| quota.scope == "job" && !bytes.is_zero())
}

/// Holders under the limit that refused the request, where other jobs share it.
fn under_the_limit(out: &mut String, it: &PostmortemSummary, paint: Paint) {
    let Some(quota) = it.quota.filter(|_| it.holders.iter().any(|holder| !holder.is_of_job)) else { return };
    let mut table = Table::new([right("reserved"), right("pid"), left("process"), left("of")]);
    for holder in it.holders.iter().take(PROCESSES) {
        let whose = if holder.is_of_job { "this job" } else { "another job" };
        let user = holder.user.as_ref().map_or(String::new(), |user| format!(", user {user}"));
        let program = holder.program.clone().unwrap_or_default();
        table.row([holder.bytes.to_string(), holder.pid.to_string(), program, format!("{whose}{user}")]);
    }
    section(out, &format!("under the {} quota", quota.scope), table, paint);
    let hidden = it.holders.iter().skip(PROCESSES);
    let count = it.holders_left_out.count + hidden.clone().count() as u64;
    if count > 0 {
        let bytes = it.holders_left_out.bytes + hidden.map(|holder| holder.bytes).sum();
        out.push_str(&format!("    ... {count} more with {bytes}\n"));
    }
}

/// The largest blocks: of the process that was refused, and of the others.
fn blocks(out: &mut String, it: &PostmortemSummary, paint: Paint) {
    let columns = [right("size"), right("pid"), left("kind"), right("allocated at"), right("age")];
    let mut table = Table::new(columns);
    let mut list = |held: &HeldSummary, most: usize| {
        for block in held.largest_blocks.iter().take(most) {
            table.row([
                &*block.size_bytes.to_string(),
                &*held.pid.to_string(),
                label(block.kind),
                &*block.since_ns.to_string(),
                &*it.t_ns.minus(block.since_ns).to_string(),
            ]);
        }
    };
    list(&it.own, BLOCKS);
    for other in it.others.iter().flatten().take(PROCESSES) {
        list(other, BLOCKS_OF_OTHERS);
    }
    if table.is_empty() {
        return;
    }
    section(out, "largest blocks", table, paint);
    let hidden = it.own.largest_blocks.iter().skip(BLOCKS);
    let count = it.own.blocks_left_out.count + hidden.clone().count() as u64;
    if count > 0 {
        let bytes = it.own.blocks_left_out.bytes + hidden.map(|block| block.size_bytes).sum();
        let more = counted(count, "more block", "more blocks");
        out.push_str(&format!("    ... {more} of process {} with {bytes}\n", it.own.pid));
    }
    if !it.own.blocks_complete {
        let line = "(the list of this process's blocks is incomplete)";
        out.push_str(&format!("    {}\n", paint.dim(line)));
    }
}

/// Sentence on the later refusals: their number, causes and sizes; `None` if there were none.
fn later(it: &PostmortemSummary) -> Option<String> {
    let later = it.later.as_ref().filter(|later| later.count > 0)?;
    let alike = match later.alike {
        0 => "none for the same reason".to_owned(),
        alike if alike == later.count => "for the same reason".to_owned(),
        alike => format!("{alike} for the same reason"),
    };
    let sizes = if later.smallest_bytes == later.largest_bytes {
        later.smallest_bytes.to_string()
    } else {
        format!("{} to {}", later.smallest_bytes, later.largest_bytes)
    };
    let count = counted(later.count, "more request", "more requests");
    Some(format!("{count} refused, {alike} ({sizes}, last at {})", later.last_ns))
}

/// Memory that a process held, kind by kind.
fn kinds(held: &HeldSummary) -> String {
    let part = |kind: Kind| {
        let bytes = held.kinds.get(kind.key())?;
        let name = kind.label();
        match (kind, held.kinds.get(Kind::PoolUsed.key())) {
            (Kind::PoolUsed, _) => None,
            (Kind::PoolReserved, Some(used)) => Some(format!("{name} {bytes} ({used} in use)")),
            (Kind::PoolReserved, None) => Some(format!("{name} {bytes} (unused)")),
            _ => Some(format!("{name} {bytes}")),
        }
    };
    Kind::ALL.into_iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

fn label(key: &str) -> &'static str {
    Kind::ALL.into_iter().find(|kind| kind.key() == key).map_or("unknown", Kind::label)
}

/// A process of another job.
fn named(pid: u32, program: Option<&str>, user: Option<&str>) -> String {
    let program = program.map_or(String::new(), |program| format!(" {program}"));
    let user = user.map_or(String::new(), |user| format!(" of {user}"));
    format!("pid {pid}{program}{user}")
}

/// A span after a moment, or before it.
fn when(after_ns: i64) -> String {
    let span = Nanos(after_ns.unsigned_abs());
    if after_ns < 0 { format!("{span} before") } else { format!("{span} after") }
}
