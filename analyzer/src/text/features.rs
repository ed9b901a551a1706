//! What a process takes of each resource.

use super::sections::Report;
use super::style::clean;
use super::table::{self, Head, Side};
use crate::names::cut;

/// Processes of which it is shown: those that launched most.
const PROCESSES: usize = 8;

impl Report<'_> {
    pub(super) fn features(&self, out: &mut String) {
        if !self.options.features {
            return;
        }
        let processes = self.summary.busiest(PROCESSES);
        for process in &processes {
            let heads = [
                Head("feature", Side::Left),
                Head("value", Side::Right),
                Head("", Side::Left),
                Head("how", Side::Left),
            ];
            let mut rows: Vec<Vec<String>> = Vec::new();
            for feature in &process.features {
                // "not known" stands where the value would.
                let origin = if feature.value.is_some() { feature.origin } else { "" };
                rows.push(vec![feature.label(), feature.value_text(), origin.into()]);
            }
            // The last column gets what the others leave.
            let figures = table::lines(&heads[..3], &rows, super::Paint { color: false });
            let used = figures.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            let room = self.width.saturating_sub(used + 2).max(32);
            for (row, feature) in rows.iter_mut().zip(&process.features) {
                row.push(cut(clean(&feature.how), room));
            }
            self.section(out, &format!("features of process {}", process.pid), &heads, &rows);
        }
        let hidden = self.summary.processes.len().saturating_sub(processes.len());
        table::more(out, hidden as u64);
        if !processes.is_empty() {
            out.push_str("  (docs/metrics.md says what each is and how exact; --json has the whole lines)\n");
        }
    }
}
