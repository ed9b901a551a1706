//! Use of each resource by a process.

use super::sections::{Report, more};
use radrm_text::{Table, left, right};

/// Processes of which it is shown: those that launched most.
const PROCESSES: usize = 8;

impl Report<'_> {
    pub(super) fn features(&self, out: &mut String) {
        if !self.options.features {
            return;
        }
        let processes = self.summary.busiest(PROCESSES);
        for process in &processes {
            // The last column gets what the others leave.
            let columns = [left("feature"), right("value"), left(""), left("how")];
            let mut table = Table::new(columns).within(self.width, 32);
            for feature in &process.features {
                // Its column is empty beside "n/a".
                let origin = if feature.value.is_some() { feature.origin } else { "" };
                table.row([&*feature.label(), &*feature.value_text(), origin, &*feature.how]);
            }
            self.section(out, &format!("features of process {}", process.pid), table);
        }
        let hidden = self.summary.processes.len().saturating_sub(processes.len());
        more(out, hidden as u64);
        if !processes.is_empty() {
            out.push_str("  (what each is and how exact: the page Metrics of the documentation; --json has the whole lines)\n");
        }
    }
}
