//! Memory holders, by line and as a flame graph.
//! Of each process and GPU at the peak, at the end, at the recorded moments in between, and for refused requests.

use super::tensors::{self, TensorSection};
use crate::model::Summary;
use crate::model::stacks::{Lines, StackRow, StackTable, bypassed};
use crate::view::flame::{Builder, Flames, Graph, MomentView, Tree, View, micros, number};
use crate::view::phrases::counted;
use radrm_profile::Bytes;
use radrm_profile::model::{End, Profile};
use radrm_text::clean;
use radrm_text::number::grouped;

/// Processes and GPUs that are shown: those with the highest peaks.
const SHOWN: usize = 12;

/// Lines of a table.
const LINES: usize = 200;

/// Figures of moments in a page, all graphs together.
const FIGURES: usize = 60_000;

/// All of a page.
pub(super) struct Stacks {
    pub(super) flames: Flames,
    sections: Vec<Section>,
    tensors: Vec<TensorSection>,
    /// Processes and GPUs that are not shown.
    pub(super) left_out: usize,
    /// Reasons that tensors of processes are not known.
    pub(super) tensors_missing: Vec<String>,
}

/// Call stacks of one process on one GPU.
pub(super) struct Section {
    gpu: u8,
    /// Number of its graph.
    pub(super) graph: usize,
    pub(super) title: String,
    /// Title of the column of the memory that was held last.
    pub(super) end: &'static str,
    pub(super) rows: Vec<Row>,
    pub(super) more: usize,
    pub(super) notes: Vec<String>,
}

/// A line of the program.
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) site: String,
    pub(super) at_peak: Bytes,
    pub(super) share: String,
    pub(super) at_end: Bytes,
    pub(super) allocations: u64,
    pub(super) allocations_text: String,
    /// The stack that held most of it, outermost first.
    pub(super) stack: String,
}

impl Stacks {
    pub(super) fn new(profile: &Profile, summary: &Summary, mut tables: Vec<StackTable<'_>>) -> Self {
        tables.sort_by_key(|table| std::cmp::Reverse(table.account.peak));
        let left_out = tables.len().saturating_sub(SHOWN);
        tables.truncate(SHOWN);
        let is_one = tables.iter().all(|table| table.pid() == tables[0].pid());
        let figures = FIGURES / tables.len().max(1);
        let mut builder = Builder::default();
        let sections = tables.iter().enumerate().map(|(graph, table)| {
            let lines = Lines::of(table);
            let (pid, gpu) = (table.pid(), table.account.gpu.0);
            let process =
                if is_one { String::new() } else { format!(" of {} {pid}", clean(table.program())) };
            let title = format!("Memory by line{process}");
            let name = format!("GPU {gpu}{}", if is_one { String::new() } else { format!(", pid {pid}") });
            builder_add(&mut builder, table, &lines, name, figures);
            Section {
                gpu,
                graph,
                title,
                end: end_label(table),
                more: lines.sites.len().saturating_sub(LINES),
                rows: rows(table, &lines),
                notes: notes(table),
            }
        });
        let sections: Vec<Section> = sections.collect();
        let tensors = tensors::sections(profile, summary, &mut builder, sections.len());
        let tensors_missing = tensors::missing(summary);
        Self { flames: builder.finish(), sections, tensors, left_out, tensors_missing }
    }

    /// Takes out what is shown on a GPU.
    pub(super) fn take(&mut self, gpu: u8) -> Vec<Section> {
        self.sections.extract_if(.., |section| section.gpu == gpu).collect()
    }

    /// Takes out the tensors of a GPU.
    pub(super) fn take_tensors(&mut self, gpu: u8) -> Vec<TensorSection> {
        self.tensors.extract_if(.., |section| section.gpu == gpu).collect()
    }

    /// Returns true if there is nothing to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.flames.graphs.is_empty()
    }
}

impl Section {
    /// Returns true if any line holds memory.
    pub(super) fn has_lines(&self) -> bool {
        !self.rows.is_empty()
    }
}

fn builder_add(builder: &mut Builder, table: &StackTable<'_>, lines: &Lines, name: String, figures: usize) {
    let weight = |row: &StackRow| row.at_peak.0.max(row.at_end.0);
    let stacks: Vec<_> = table.rows.iter().map(|row| (&row.frames[..], weight(row))).collect();
    let tree = builder.tree(&stacks);
    let of = |of: fn(&StackRow) -> u64| tree.values(|row| of(&table.rows[row]));
    let mut views = vec![View {
        id: "peak",
        label: "held at the peak".into(),
        unit: "bytes",
        values: of(|row| number(row.at_peak)),
        t: Some(micros(table.account.peak_at)),
        ..View::default()
    }];
    let mut add = |id, label: &str, unit, values: Vec<u64>| {
        if values.iter().any(|value| *value > 0) {
            views.push(View { id, label: label.into(), unit, values, ..View::default() });
        }
    };
    add("end", end_label(table), "bytes", of(|row| number(row.at_end)));
    add("refused", "refused requests", "requests", of(|row| row.refused));
    let moments = moments(table, &tree, figures);
    let line = tree.lines(|row| lines.of_row[row].filter(|line| *line < LINES));
    builder.add(Graph { name, line, views, moments, tree });
}

/// The moments that find room: of each part of them the one in which most was held.
fn moments(table: &StackTable<'_>, tree: &Tree, figures: usize) -> Vec<MomentView> {
    let room = figures / tree.leaves().max(1);
    let all = table.moments.len();
    let mut kept: Vec<usize> = (0..all).collect();
    if all > room {
        kept = (0..room)
            .filter_map(|part| {
                (part * all / room..(part + 1) * all / room).max_by_key(|at| table.moments[*at].total)
            })
            .collect();
    }
    let mut before = vec![0i64; tree.leaves()];
    let view = |at: usize| {
        let moment = &table.moments[at];
        let values = tree.values(|row| number(moment.held[row]));
        let values: Vec<i64> = values.into_iter().map(u64::cast_signed).collect();
        let changes = values.iter().zip(&before).map(|(now, before)| now - before).collect();
        before = values;
        MomentView { t: micros(moment.t), is_peak: moment.is_peak, values: changes }
    };
    kept.into_iter().map(view).collect()
}

fn end_label(table: &StackTable<'_>) -> &'static str {
    if table.process.state.end == End::Running { "held when last read" } else { "still held at exit" }
}

fn rows(table: &StackTable<'_>, lines: &Lines) -> Vec<Row> {
    let peak = table.account.peak.0.max(1) as f64;
    let row = |(line, site): (usize, &crate::model::stacks::SiteSummary)| Row {
        line,
        site: clean(&site.site).into_owned(),
        at_peak: site.peak_bytes,
        share: format!("{:.1} %", site.peak_bytes.0 as f64 / peak * 100.0),
        at_end: site.held_bytes,
        allocations: site.allocations,
        allocations_text: grouped(site.allocations),
        stack: clean(&site.stack.join(" › ")).chars().take(400).collect(),
    };
    lines.sites.iter().take(LINES).enumerate().map(row).collect()
}

/// Remarks for the reader of a graph.
fn notes(table: &StackTable<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let ended = table.process.state.end != End::Running;
    for (owner, bytes) in table.cached.iter().filter(|_| ended) {
        notes.push(format!(
            "{bytes} of what was held at exit was still cached by {owner}'s allocator: it is not a leak of the lines that made the \
             cache grow."
        ));
    }
    let Some(stacks) = &table.process.stacks else { return notes };
    let not_kept = stacks.full.saturating_add(stacks.unread);
    if not_kept > 0 {
        let kept = counted(not_kept, "stack", "stacks");
        notes.push(format!("{kept} could not be kept: see [other stacks]."));
        notes.extend(bypassed(table.process).map(|(count, reason)| format!("{count} of them: {reason}.")));
    }
    if stacks.unordered > 0 {
        notes.push("Threads changed figures at the same time: lines may be off by a few requests.".into());
    }
    notes
}
