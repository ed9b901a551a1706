//! Memory holders in a framework's allocator.
//! Tables by category, module and line, a flame graph of modules and one of lines.

use crate::model::Summary;
use crate::model::stacks::{Flame, FrameLabel, site_of};
use crate::model::tensors::{
    GpuTensorsSummary, TensorsBy, TensorsSummary, module_label, parts, tensor_flames,
};
use crate::view::flame::{Builder, Graph, View, number};
use crate::view::phrases::counted;
use crate::view::text;
use radrm_profile::Bytes;
use radrm_profile::model::{Profile, TensorCategory};
use radrm_text::clean;
use radrm_text::number::grouped;
use std::collections::{BTreeMap, HashMap};

/// Processes and GPUs that are shown.
const SHOWN: usize = 4;

/// Processes without tensors that are listed.
const MISSING: usize = 8;

/// Rows of a table.
const ROWS: usize = 60;

/// Tensors of one process on one GPU.
pub(super) struct TensorSection {
    pub(super) gpu: u8,
    pub(super) title: String,
    pub(super) cached: Bytes,
    pub(super) notes: Vec<String>,
    /// Bytes, share, blocks and category.
    pub(super) categories: Vec<(Bytes, String, String, &'static str)>,
    pub(super) parts: Vec<Part>,
}

/// A graph and its table.
pub(super) struct Part {
    /// Number of the graph.
    pub(super) graph: usize,
    pub(super) title: &'static str,
    /// Kind of row: a module or a line.
    pub(super) what: &'static str,
    pub(super) rows: Vec<Row>,
    pub(super) more: u64,
}

/// A module or a line.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) bytes: Bytes,
    pub(super) share: String,
    pub(super) of: String,
    /// The stack that held most of it, outermost first.
    pub(super) stack: String,
}

/// The sections of a page; `graphs` are drawn before theirs.
pub(super) fn sections(
    profile: &Profile,
    summary: &Summary,
    builder: &mut Builder,
    mut graphs: usize,
) -> Vec<TensorSection> {
    let flames = [TensorsBy::Modules, TensorsBy::Lines].map(|by| (by, tensor_flames(profile, by, false)));
    let places: Vec<(&TensorsSummary, &GpuTensorsSummary)> = summary
        .tensors
        .iter()
        .flat_map(|process| process.gpus.iter().map(move |gpu| (process, gpu)))
        .take(SHOWN)
        .collect();
    let is_one = places.len() == 1;
    let mut sections = Vec::new();
    for (process, gpu) in places {
        let mut parts = Vec::new();
        for (by, flames) in &flames {
            let flame = flames.iter().find(|flame| flame.pid == Some(process.pid) && flame.gpu.0 == gpu.gpu);
            let has_modules = gpu.modules.iter().any(|of| of.module.is_some());
            let Some(flame) = flame.filter(|_| has_modules || *by == TensorsBy::Lines) else { continue };
            let part = part(gpu, *by, graphs);
            draw(builder, gpu, flame, *by, &part.rows);
            parts.push(part);
            graphs += 1;
        }
        let of = if is_one { String::new() } else { format!(" of process {}", process.pid) };
        sections.push(TensorSection {
            gpu: gpu.gpu,
            title: format!("What held {}{of} · {}", gpu.title(), clean(&process.framework)),
            cached: gpu.cached_bytes,
            notes: gpu
                .whose_stacks()
                .into_iter()
                .chain(process.remarks.iter().map(|remark| clean(remark).into_owned()))
                .collect(),
            categories: gpu
                .categories
                .iter()
                .map(|of| (of.bytes, gpu.share(of.bytes), grouped(of.blocks), of.category.label()))
                .collect(),
            parts,
        });
    }
    sections
}

/// Reasons that tensors of processes are not known.
pub(super) fn missing(summary: &Summary) -> Vec<String> {
    let all = &summary.tensors;
    let mut lines: Vec<String> =
        all.iter().filter_map(|process| text::tensors::missing(process, all.len() == 1)).collect();
    if let Some(more) = lines.len().checked_sub(MISSING).filter(|more| *more > 0) {
        lines.truncate(MISSING);
        let more = counted(more as u64, "more process is", "more processes are");
        lines.push(format!("tensors: {more} in the JSON report"));
    }
    lines
}

fn part(gpu: &GpuTensorsSummary, by: TensorsBy, graph: usize) -> Part {
    let (title, what, rows, not_listed): (_, _, Vec<Row>, _) = match by {
        TensorsBy::Modules => {
            let rows = gpu.modules.iter().map(|of| {
                row(gpu, &module_label(of, gpu.has_several_models()), of.bytes, &of.categories, &[])
            });
            ("Tensors by module", "module", rows.take(ROWS).collect(), gpu.modules_not_listed)
        }
        TensorsBy::Lines => {
            let rows = gpu.lines.iter().map(|of| row(gpu, &of.site, of.bytes, &of.categories, &of.stack));
            ("Tensors by line", "line", rows.take(ROWS).collect(), gpu.lines_not_listed)
        }
    };
    let listed = if by == TensorsBy::Modules { gpu.modules.len() } else { gpu.lines.len() };
    let more = (listed.saturating_sub(ROWS) as u64).saturating_add(not_listed);
    Part { graph, title, what, rows, more }
}

fn draw(builder: &mut Builder, gpu: &GpuTensorsSummary, flame: &Flame, by: TensorsBy, rows: &[Row]) {
    let stacks: Vec<_> = flame.stacks.iter().map(|stack| (&stack.frames[..], stack.bytes.0)).collect();
    let tree = builder.tree(&stacks);
    let numbers: HashMap<&str, usize> =
        rows.iter().enumerate().map(|(number, row)| (row.name.as_str(), number)).collect();
    let line =
        tree.lines(|stack| numbers.get(clean(&row_of(&flame.stacks[stack].frames, by)).as_ref()).copied());
    let values = tree.values(|stack| number(flame.stacks[stack].bytes));
    let view = View { id: "peak", label: gpu.title(), unit: "bytes", values, ..View::default() };
    let what = if by == TensorsBy::Modules { "modules" } else { "lines" };
    let name = format!("GPU {}, {what}", gpu.gpu);
    builder.add(Graph { name, tree, line, views: vec![view], ..Graph::default() });
}

/// The name of the row that a stack, whose innermost frame is a category, counts for.
fn row_of(frames: &[FrameLabel], by: TensorsBy) -> String {
    let Some((_, frames)) = frames.split_last() else { return String::new() };
    match (by, frames) {
        (TensorsBy::Lines, frames) => site_of(frames),
        (TensorsBy::Modules, [only]) if !only.function.starts_with('[') => {
            format!("{} itself", only.function)
        }
        (TensorsBy::Modules, frames) => frames.last().map_or_else(String::new, ToString::to_string),
    }
}

fn row(
    gpu: &GpuTensorsSummary,
    name: &str,
    bytes: Bytes,
    categories: &BTreeMap<TensorCategory, Bytes>,
    stack: &[String],
) -> Row {
    Row {
        name: clean(name).into_owned(),
        bytes,
        share: gpu.share(bytes),
        of: parts(categories),
        stack: clean(&stack.join(" › ")).chars().take(400).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tensors::profile_with_tensors;
    use radrm_profile::model::{Process, Tensors};

    #[test]
    fn a_process_without_tensors_is_named_with_the_reason() {
        let mut profile = profile_with_tensors();
        let ended = Tensors { missing: Some("it <ended>".into()), ..Tensors::default() };
        let mut other = Process { tensors: Some(ended), ..Process::default() };
        other.identity.pid = 12;
        profile.processes.extend(vec![other; MISSING + 1]);
        let page = crate::html(&profile, &Summary::from_profile(&profile));
        let line = "<p class=\"soft\">tensors: process 12: driver allocations only: it &#60;ended&#62;</p>";
        assert_eq!(page.matches(line).count(), MISSING, "{page}");
        assert!(page.contains("tensors: 1 more process is in"), "{page}");
    }

    #[test]
    fn modules_and_lines_have_graphs_of_their_own_whose_leaves_lead_to_their_rows() {
        let profile = profile_with_tensors();
        let mut builder = Builder::default();
        let sections = sections(&profile, &Summary::from_profile(&profile), &mut builder, 3);
        let [section] = &sections[..] else { panic!("{} sections", sections.len()) };
        assert_eq!(section.parts.iter().map(|part| part.graph).collect::<Vec<_>>(), [3, 4]);
        let names = |part: usize| -> Vec<&str> {
            section.parts[part].rows.iter().map(|row| row.name.as_str()).collect()
        };
        assert_eq!(names(0), ["layers.0", "Net itself", "[outside of modules]"]);
        assert_eq!(names(1), ["<module> (train.py:7)", "<module> (train.py:3)", "[no Python frames]"]);
        for graph in &builder.finish().graphs {
            assert_eq!(graph.views[0].values.iter().sum::<u64>(), 1000, "the peak");
            assert!(graph.line.iter().all(|line| (0..3).contains(line)), "{:?}", graph.line);
        }
    }
}
