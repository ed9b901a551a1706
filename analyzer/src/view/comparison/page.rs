//! A comparison as one page that needs nothing else.

use crate::model::compare::{Comparison, Difference};
use crate::model::stacks::{FlameDifference, FrameLabel, StackDifference};
use crate::view::escaped::{escaped, json_in_script};
use crate::view::flame::{Builder, Graph, View, number};
use crate::view::phrases::counted;
use askama::Template;
use radrm_profile::Bytes;
use radrm_text::clean;

/// Lines of a table.
const LINES: usize = 200;

#[derive(Template)]
#[template(path = "compare.html")]
struct Page<'a> {
    c: &'a Comparison,
    title: String,
    /// Figures that changed: those of a row of the text form.
    figures: Vec<[String; 6]>,
    kernels: Vec<[String; 4]>,
    more_kernels: usize,
    sections: Vec<Section>,
    /// Call stacks for the script, as JSON.
    flames: String,
}

/// Changes of one program on one GPU.
struct Section {
    graph: usize,
    title: String,
    totals: String,
    rows: Vec<Row>,
    more: usize,
}

struct Row {
    line: usize,
    site: String,
    before: Bytes,
    after: Bytes,
    change: String,
    /// For sorting.
    order: i64,
}

/// The comparison as a page: one file, no other resource, light and dark. Without scripts it has every figure.
pub fn comparison_html(comparison: &Comparison) -> String {
    let page = Page::new(comparison);
    // Rendering to a string fails only if a value's Display fails; none does.
    page.render().unwrap_or_else(|error| format!("<!doctype html><p>{}</p>", escaped(&error.to_string())))
}

impl<'a> Page<'a> {
    fn new(c: &'a Comparison) -> Page<'a> {
        let (before, after) = (c.before as u64, c.after as u64);
        let mut builder = Builder::default();
        let several = c.flames.len() > 1;
        let sections = c.flames.iter().enumerate();
        let sections = sections.map(|(graph, flame)| section(&mut builder, graph, flame, several)).collect();
        let changed = c.figures.iter().filter(|figure: &&Difference| figure.verdict != "same");
        Page {
            title: format!(
                "{} before, {} after",
                counted(before, "run", "runs"),
                counted(after, "run", "runs")
            ),
            figures: changed.map(super::row).collect(),
            kernels: c.kernels.iter().take(LINES).map(super::kernel_row).collect(),
            more_kernels: c.kernels.len().saturating_sub(LINES),
            sections,
            // Serialising to a string fails only for maps with keys that are not strings; there are none.
            flames: json_in_script(&serde_json::to_string(&builder.finish()).unwrap_or_default()),
            c,
        }
    }
}

fn section(builder: &mut Builder, graph: usize, flame: &FlameDifference, several: bool) -> Section {
    let stacks: Vec<(&[FrameLabel], u64)> =
        flame.stacks.iter().map(|stack| (&stack.frames[..], stack.before.0.max(stack.after.0))).collect();
    let tree = builder.tree(&stacks);
    let of = |of: fn(&StackDifference) -> Bytes| tree.values(|at| number(of(&flame.stacks[at])));
    let view = View {
        id: "difference",
        label: "held at the peak".into(),
        unit: "bytes",
        values: of(|stack| stack.after),
        before: Some(of(|stack| stack.before)),
        t: None,
    };
    let lines = flame.lines();
    let place = |frames: &[FrameLabel]| {
        let site = crate::model::stacks::site_of(frames);
        lines.iter().take(LINES).position(|line| line.site == site)
    };
    let line = tree.lines(|at| place(&flame.stacks[at].frames));
    let name = format!("{} on GPU {}", clean(&flame.program), flame.gpu.0);
    builder.add(Graph { name: name.clone(), tree, line, views: vec![view], moments: Vec::new() });
    let (before, after) = flame.totals();
    Section {
        graph,
        title: if several { format!("Memory by line: {name}") } else { "Memory by line".to_owned() },
        totals: format!("held at the peak: {before} before, {after} after ({})", change(before, after)),
        more: lines.len().saturating_sub(LINES),
        rows: lines
            .iter()
            .take(LINES)
            .enumerate()
            .map(|(number, line)| Row {
                line: number,
                site: clean(&line.site).into_owned(),
                before: line.before_bytes,
                after: line.after_bytes,
                change: change(line.before_bytes, line.after_bytes),
                order: line.after_bytes.0.cast_signed().saturating_sub(line.before_bytes.0.cast_signed()),
            })
            .collect(),
    }
}

/// Difference of two sizes, with its sign.
pub(super) fn change(before: Bytes, after: Bytes) -> String {
    let sign = if after < before { "-" } else { "+" };
    format!("{sign}{}", Bytes(after.0.abs_diff(before.0)))
}
