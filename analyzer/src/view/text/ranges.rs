//! The program's own phases.

use super::sections::{Report, more};
use crate::model::{RangeSummary, RangesSummary};
use crate::view::phrases::counted;
use radrm_text::number::grouped;
use radrm_text::{Table, clean, left, right};

/// Names that are listed.
const SHOWN: usize = 12;
/// Open ranges that are listed.
const OPEN: usize = 5;

impl Report<'_> {
    pub(super) fn ranges(&self, out: &mut String) {
        let Some(ranges) = &self.summary.ranges else { return };
        if !ranges.names.is_empty() {
            self.range_table(out, ranges);
        }
        if let Some(steps) = &ranges.steps {
            let count = counted(steps.steps, "step", "steps");
            // Those of a dry run take what this machine takes for them.
            let rate = self.summary.dry_run.is_none().then(|| format!(": {}", per_second(steps.per_second)));
            out.push_str(&format!("  {count} ({}){}\n", clean(&steps.name), rate.unwrap_or_default()));
        }
        for range in ranges.open.iter().take(OPEN) {
            let step = range.step.map_or(String::new(), |step| format!(" {}", grouped(step)));
            out.push_str(&format!(
                "  not ended: {}{step} · pid {} · since {}\n",
                clean(&range.name),
                range.pid,
                range.since_ns
            ));
        }
        more(out, (ranges.open.len().saturating_sub(OPEN) as u64).saturating_add(ranges.open_not_listed));
        for line in left_out(ranges) {
            out.push_str(&format!("  {line}\n"));
        }
    }

    fn range_table(&self, out: &mut String, ranges: &RangesSummary) {
        let is_several = self.summary.gpus.len() > 1;
        let is_any_inexact = ranges.names.iter().any(|name| name.gpus.iter().any(|gpu| !gpu.peak_is_exact));
        let mut columns = vec![right("count"), right("total"), right("mean")];
        if is_several {
            columns.push(right("GPU"));
        }
        columns.extend(["peak inside", "at begin", "at end"].map(right));
        columns.push(left("phase"));
        let mut table = Table::new(columns).within(self.width, 20);
        for name in ranges.names.iter().take(SHOWN) {
            for row in rows(name, is_several) {
                table.row(row);
            }
        }
        let all = |count: fn(&RangeSummary) -> u64| ranges.names.iter().map(count).sum();
        let title = format!(
            "phases of the program: {}, {}",
            counted(all(|name| name.ranges), "range", "ranges"),
            counted(all(|name| name.marks), "mark", "marks")
        );
        self.section(out, &title, table);
        more(out, (ranges.names.len().saturating_sub(SHOWN) as u64).saturating_add(ranges.names_not_listed));
        if ranges.names.iter().any(|name| !name.gpus.is_empty()) {
            out.push_str(
                "  memory that the driver granted the process, of the range with the largest peak\n",
            );
        }
        if is_any_inexact {
            out.push_str("  >= : more ranges were open at a time than peaks can be kept of\n");
        }
    }
}

/// The rows of a name: one for each GPU.
fn rows(name: &RangeSummary, is_several: bool) -> Vec<Vec<String>> {
    let figures = match name.ranges {
        0 => [grouped(name.marks), "mark".to_owned(), String::new()],
        _ => [grouped(name.ranges), name.total_ns.to_string(), name.mean_ns.to_string()],
    };
    let text = if name.name_cut { format!("{}…", name.name) } else { name.name.clone() };
    let dashes = || std::iter::repeat_n("-".to_owned(), if is_several { 4 } else { 3 });
    if name.gpus.is_empty() {
        return vec![figures.into_iter().chain(dashes()).chain([text]).collect()];
    }
    let row = |(number, gpu): (usize, &crate::model::RangeGpuSummary)| {
        let bound = if gpu.peak_is_exact { "" } else { ">= " };
        let mut row: Vec<String> =
            if number == 0 { figures.to_vec() } else { vec![String::new(); figures.len()] };
        if is_several {
            row.push(gpu.gpu.to_string());
        }
        row.extend([
            format!("{bound}{}", gpu.peak_bytes),
            gpu.entry_bytes.to_string(),
            gpu.exit_bytes.to_string(),
        ]);
        row.push(if number == 0 { text.clone() } else { String::new() });
        row
    };
    name.gpus.iter().enumerate().map(row).collect()
}

pub(crate) fn per_second(rate: f64) -> String {
    if rate >= 0.1 { format!("{rate:.2} steps/s") } else { format!("{:.1} s/step", 1.0 / rate) }
}

/// Ranges that are missing, a line for each reason.
pub(crate) fn left_out(ranges: &RangesSummary) -> Vec<String> {
    let lines = [
        (ranges.not_kept_singly, "not kept one by one; all figures include them"),
        (ranges.under_other, "counted as (other): the program uses more names than are kept"),
        (ranges.not_counted, "not counted: too many were open, or in too many threads"),
        (ranges.before_gpu, "not counted: over before the process used a GPU"),
        (ranges.unbalanced, "ended without a begin"),
    ];
    let line = |(count, text): (u64, &str)| {
        (count > 0).then(|| format!("{} {text}", counted(count, "range or mark", "ranges and marks")))
    };
    lines.into_iter().filter_map(line).collect()
}
