//! A comparison for a person at a terminal, and as a page.

mod page;

pub use page::comparison_html;

use super::phrases::counted;
use super::text::{TextOptions, sections::more};
use crate::model::compare::{Comparison, Difference, KernelDifference};
use crate::model::stacks::LineDifference;
use radrm_profile::Nanos;
use radrm_text::number::mean;
use radrm_text::{Paint, Table, clean, fit, left, right};

/// Kernels that are listed.
const KERNELS: usize = 10;

/// Lines that are listed of each program and GPU.
const LINES: usize = 8;

/// The comparison as text.
pub fn comparison_text(comparison: &Comparison, options: &TextOptions) -> String {
    let paint = Paint { color: options.color };
    let width = options.columns();
    let mut out = String::new();
    let (before, after) = (comparison.before as u64, comparison.after as u64);
    let title =
        format!("radrm: {} before, {} after", counted(before, "run", "runs"), counted(after, "run", "runs"));
    out.push_str(&format!("{}\n", paint.bold(&title)));
    for note in &comparison.notes {
        out.push_str(&format!("  {}\n", paint.warn(&clean(note))));
    }
    out.push('\n');
    let changed: Vec<&Difference> =
        comparison.figures.iter().filter(|figure| figure.verdict != "same").collect();
    if changed.is_empty() && comparison.kernels.is_empty() && comparison.lines.is_empty() {
        out.push_str("nothing changed\n");
        return out;
    }
    if !changed.is_empty() {
        let columns = [
            left("figure"),
            right("before"),
            right("after"),
            right("change"),
            right(""),
            left("more than noise"),
        ];
        let mut table = Table::new(columns).indented(2).painted(paint);
        changed.iter().for_each(|figure| table.row(row(figure).to_vec()));
        out.push_str(&table.to_string());
    }
    // A kind of memory that neither group used is left out.
    let same: Vec<_> = comparison
        .figures
        .iter()
        .filter(|figure| figure.verdict == "same" && figure.before != 0.0)
        .map(|figure| clean(&figure.label))
        .collect();
    if !same.is_empty() {
        out.push_str(&format!("\n  the same: {}\n", same.join(", ")));
    }
    lines(&mut out, comparison, paint, width);
    kernels(&mut out, &comparison.kernels, paint, width);
    if before == 1 && after == 1 && !changed.is_empty() {
        out.push_str(
            "\n  One run on each side does not show how much is noise; give several: --before A... --after B...\n",
        );
    }
    out
}

fn row(figure: &Difference) -> [String; 6] {
    let sign = if figure.change < 0.0 { "-" } else { "+" };
    let share = figure.change_share.map_or(String::new(), |share| format!("{:+.1} %", share * 100.0));
    let within = figure.half_width.filter(|half| *half > 0.0);
    let within = within.map_or(String::new(), |half| format!(" (+- {})", figure.unit.text(half)));
    let verdict = match figure.verdict {
        "real" => format!("yes{within}"),
        "noise" => format!("no{within}"),
        _ => "n/a".to_owned(),
    };
    [
        clean(&figure.label).into_owned(),
        figure.unit.text(figure.before),
        figure.unit.text(figure.after),
        format!("{sign}{}", figure.unit.text(figure.change.abs())),
        share,
        verdict,
    ]
}

fn kernels(out: &mut String, kernels: &[KernelDifference], paint: Paint, width: usize) {
    if kernels.is_empty() {
        return;
    }
    let columns = [right("launches"), right("GPU time"), left(""), left("kernel")];
    let mut table = Table::new(columns).indented(2).painted(paint);
    let row = |kernel: &KernelDifference| {
        let [launches, time, what, name] = kernel_row(kernel);
        vec![launches, time, what, fit(&name, (width / 2).max(24))]
    };
    kernels.iter().take(KERNELS).for_each(|kernel| table.row(row(kernel)));
    out.push_str(&format!("\n{}\n{table}", paint.bold("kernels that changed")));
    more(out, kernels.len().saturating_sub(KERNELS) as u64);
}

/// Launches, time, a remark and the name.
fn kernel_row(kernel: &KernelDifference) -> [String; 4] {
    let time = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| Nanos(ns.max(0.0) as u64).to_string());
    let what = match (kernel.launches_before, kernel.launches_after) {
        (0.0, _) => "new",
        (_, 0.0) => "gone",
        _ => match kernel.time_differs {
            Some(true) => "time differs",
            Some(false) => "time may be the same",
            None => "",
        },
    };
    [
        format!("{} -> {}", mean(kernel.launches_before), mean(kernel.launches_after)),
        format!("{} -> {}", time(kernel.gpu_time_before_ns), time(kernel.gpu_time_after_ns)),
        what.to_owned(),
        kernel.name.clone(),
    ]
}

/// Lines that hold more or less at the peak than before.
fn lines(out: &mut String, comparison: &Comparison, paint: Paint, width: usize) {
    let several = comparison.flames.len() > 1;
    for flame in &comparison.flames {
        let changed: Vec<&LineDifference> = comparison
            .lines
            .iter()
            .filter(|line| line.gpu == flame.gpu.0 && line.program == flame.program)
            .collect();
        if changed.is_empty() {
            continue;
        }
        let columns = [right("before"), right("after"), right("change"), left("line")];
        let mut table = Table::new(columns).indented(2).painted(paint).within(width, 24);
        for line in changed.iter().take(LINES) {
            table.row(vec![
                line.before_bytes.to_string(),
                line.after_bytes.to_string(),
                page::change(line.before_bytes, line.after_bytes),
                clean(&line.site).into_owned(),
            ]);
        }
        let place = if several {
            format!(", {} on GPU {}", clean(&flame.program), flame.gpu.0)
        } else {
            String::new()
        };
        out.push_str(&format!(
            "\n{}\n{table}",
            paint.bold(&format!("lines that hold more or less at the peak{place}"))
        ));
        more(out, changed.len().saturating_sub(LINES) as u64);
    }
}
