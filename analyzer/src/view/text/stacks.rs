//! Who holds the memory, by line.

use super::sections::{Report, more};
use crate::model::{RefusedSite, StacksSummary};
use crate::view::phrases::counted;
use radrm_term::{Table, clean, left, right};

/// Lines that are listed of each process and GPU.
const SHOWN: usize = 8;
/// Processes and GPUs that are listed.
const PLACES: usize = 4;

/// Who asked for what was refused and who held most at the peak of a process on a GPU, by line, if call stacks were
/// recorded.
pub(super) fn by_line(all: &[StacksSummary], pid: u32, gpu: u8) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(of) = all.iter().find(|of| of.pid == pid && of.gpu == gpu) else { return lines };
    // Which of several lines asked first is not recorded.
    lines.extend(of.refused.iter().take(SHOWN).map(refused_at));
    lines.extend(
        of.sites.iter().take(SHOWN).map(|site| {
            format!("held at the peak of {}: {} at {}", of.peak_bytes, site.peak_bytes, site.site)
        }),
    );
    lines
}

/// What was refused at a line.
fn refused_at(refused: &RefusedSite) -> String {
    let requests = counted(refused.requests, "request was", "requests were");
    format!("{requests} refused at {}, up to {}", refused.site, refused.largest_bytes)
}

impl Report<'_> {
    /// The lines that held most at the peak.
    pub(super) fn stacks(&self, out: &mut String) {
        let all = &self.summary.stacks;
        for of in all.iter().take(PLACES) {
            if !of.sites.is_empty() {
                self.holders(out, of, all.len() > 1);
            }
            for refused in of.refused.iter().take(SHOWN) {
                out.push_str(&format!("  {}\n", clean(&refused_at(refused))));
            }
        }
        more(out, all.len().saturating_sub(PLACES) as u64);
    }

    fn holders(&self, out: &mut String, of: &StacksSummary, is_one_of_several: bool) {
        let place =
            if is_one_of_several { format!(", pid {}, GPU {}", of.pid, of.gpu) } else { String::new() };
        let mut table = Table::new(vec![right("at peak"), right("share"), right("at end"), left("line")])
            .within(self.width, 24);
        for site in of.sites.iter().take(SHOWN) {
            let share = site.peak_bytes.0 as f64 / of.peak_bytes.0.max(1) as f64 * 100.0;
            table.row(vec![
                site.peak_bytes.to_string(),
                format!("{share:.1} %"),
                site.held_bytes.to_string(),
                clean(&site.site).to_string(),
            ]);
        }
        self.section(out, &format!("memory holders by line{place}"), table);
        more(out, (of.sites.len().saturating_sub(SHOWN) as u64).saturating_add(of.sites_not_listed));
        if of.stacks_not_kept > 0 {
            let stacks = counted(of.stacks_not_kept, "stack", "stacks");
            out.push_str(&format!("  {stacks} could not be kept: see [other stacks]\n"));
        }
        if of.is_approximate {
            out.push_str("  threads changed figures at the same time: lines may be off by a few requests\n");
        }
    }
}
